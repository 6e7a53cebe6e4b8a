#!/bin/sh
# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Puts QEMU into $WORK, from the packages of a release of Debian, with the libraries that it was built for.
# Nothing is installed, and no script of a package runs.
set -eu
release=$1
cd "$WORK"

# A mirror may be a snapshot, whose Release files are past their date; their signature counts nonetheless.
mmdebstrap --quiet --variant=extract --include=qemu-system-x86,qemu-utils --aptopt='Acquire::Check-Valid-Until "false"' \
    "$release" root.tar ${MIRROR:+"$MIRROR"}
tar xf root.tar ./usr/bin/qemu-system-x86_64 ./usr/bin/qemu-img ./usr/lib/x86_64-linux-gnu ./usr/share/qemu ./usr/share/seabios
rm root.tar
