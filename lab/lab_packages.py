# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Debian packages that the lab runs on."""

from __future__ import annotations

import os
import shutil
import subprocess
import typing as t

import lab_base
from lab_base import LabError

# A program that the package brings → the package.
NEEDED = {
    "mmdebstrap": "mmdebstrap",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
    "dpkg-deb": "dpkg",
    "make": "make",
}
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


def there(program: str) -> bool:
    """Whether a program is installed, root's ones too."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SBIN}") is not None


def missing(needed: t.Mapping[str, str]) -> list[str]:
    """The packages whose program is not there."""
    return sorted({package for program, package in needed.items() if not there(program)})


def ensure(needed: t.Optional[t.Mapping[str, str]] = None) -> None:
    """Install what is missing (of NEEDED where nothing is named), as root or by sudo without a password.

    Otherwise it raises LabError with the command to run.
    """
    packages = missing(NEEDED if needed is None else needed)
    if not packages:
        return
    line = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    update = ["apt-get", "update"]
    if not there("apt-get"):
        raise LabError(f"Please install what Debian calls {', '.join(packages)}, then run this again")
    if os.geteuid() != 0:
        if (
            not there("sudo")
            or subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode != 0
        ):
            raise LabError(f"Debian packages are missing: {', '.join(packages)}. Run: sudo {' '.join(line)}")
        line, update = ["sudo", "-n", *line], ["sudo", "-n", *update]
    with lab_base.timed(f"installing Debian packages: {', '.join(packages)}"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (update, line):
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().splitlines()[-5:]
                raise LabError(f"{' '.join(command)} ended with {done.returncode}:\n" + "\n".join(said))
