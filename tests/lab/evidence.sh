#!/bin/sh
# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Prints what is needed to understand a scenario that failed on this node: status, plan, cgroups, processes, journal.
part() {
    printf '\n===== %s\n' "$*"
    timeout 60 "$@" 2>&1
}
part uname -a
part uptime
for file in /run/corral/*.json /run/corral/pools.env; do
    [ -e "$file" ] && part cat "$file"
done
part journalctl --boot --no-pager --output=short-monotonic --lines=4000
part corral status
part corral plan
part ls -la /run/corral /var/lib/corral /var/lib/corral/journal /etc/corral
for file in /etc/corral/profile.json /var/lib/corral/checkpoint.json /var/lib/corral/admitted.json; do
    [ -e "$file" ] && part cat "$file"
done
part systemctl list-units --failed --no-legend --plain
part systemctl list-jobs --no-legend
part systemctl list-timers --all --no-pager
# shellcheck disable=SC2016 # the inner shell is to expand these
part sh -c 'cd /sys/fs/cgroup && find . -name "cpuset.cpus*" -o -name cgroup.procs -o -name "pids.max" -o -name memory.max |
    sort | while read -r file; do printf "%s: %s\n" "$file" "$(tr "\n" " " <"$file")"; done'
part ps -eLo pid,tid,psr,stat,etimes,cgroup:80,args
part cat /proc/mounts /proc/cmdline /proc/loadavg
for words in 'ps --all' images; do
    # shellcheck disable=SC2086 # two words
    command -v podman >/dev/null && part podman $words
done
