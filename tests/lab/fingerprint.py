# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node, to show that nothing was changed: JSON, path → state.

Runs on the node with any Python. Files with their content's hash, mode, owner and (with --times) mtime; kernel values;
mounts; which units are active. What changes by itself (journal, random seed, Ansible's own files) is left
out. With --without-status the files that a converged tick writes are left out as well, and what it knows the next one by.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys

TREES = ("/etc", "/run/systemd", "/run/corral", "/var/lib", "/usr/local", "/usr/libexec", "/dev/hugepages-2Mi")
RESTLESS = (
    "/run/systemd/journal",
    "/run/systemd/sessions",
    "/run/systemd/users",
    "/run/systemd/transient",
    "/run/systemd/inaccessible",
    "/run/systemd/inhibit",
    "/run/systemd/seats",
    "/run/systemd/netif",
    "/run/systemd/units",
    "/run/systemd/propagate",
    "/run/systemd/unit-root",
    "/run/systemd/unit-private-tmp",
    "/run/systemd/dynamic-uid",
    "/run/systemd/incoming",
    "/run/systemd/show-status",
    "/run/systemd/ask-password-block",
    "/run/systemd/empty",
    "/var/lib/systemd/random-seed",
    "/var/lib/systemd/timers",
    "/var/lib/systemd/linger",
    "/var/lib/systemd/coredump",
    "/etc/resolv.conf",
)
STATUS = ("/run/corral/status.json", "/run/corral/inputs", "/var/lib/prometheus/node-exporter/corral.prom")
CGROUP = "/sys/fs/cgroup"
HIERARCHIES = ("", "/cpuset", "/pids")  # of v2, and of v1's controllers
# Whatever of these a control group has: limits and what the kernel makes of them, not what it counts.
LIMIT = re.compile(
    r"cgroup\.subtree_control|pids\.max|cpu\.(max|weight|idle)|memory\.(min|low|high|max|swap\.max|oom\.group)"
    r"|cpuset\.(cpus|mems|effective_cpus|effective_mems)(\.effective|\.exclusive|\.partition)?|hugetlb\.\w+\.(rsvd\.)?max"
)


def files(times: bool, status: bool) -> dict[str, str]:
    """Each file, folder and link of the trees."""
    found = {}
    left_out = RESTLESS + (() if status else STATUS + tuple(map(being_written, STATUS)))
    for tree in TREES:
        for folder, folders, names in os.walk(tree):
            folders[:] = [name for name in folders if not f"{folder}/{name}".startswith(left_out)]
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                if not path.startswith(left_out):
                    found[path] = shown(path, times)
    return found


def being_written(path: str) -> str:
    """The name of a file until it is whole."""
    folder, name = os.path.split(path)
    return f"{folder}/.{name}.corral"


def shown(path: str, times: bool) -> str:
    """One file on one line."""
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            return f"link {os.readlink(path)}"
        owner = f"{stat.S_IMODE(state.st_mode):o} {state.st_uid}:{state.st_gid}"
        if stat.S_ISREG(state.st_mode):
            with open(path, "rb") as file:
                owner += " " + hashlib.sha256(file.read()).hexdigest()[:16]
            return f"{owner} {state.st_mtime_ns}" if times else owner
        return owner
    except OSError as error:
        return f"error {error.errno}"


def control_groups() -> list[str]:
    """The root, the slices and scopes directly below it, and the slices in Corral's own."""
    roots = [f"{CGROUP}{tree}" for tree in HIERARCHIES if os.path.isdir(f"{CGROUP}{tree}")]
    found = [f"{root}/{name}" for root in roots for name in os.listdir(root) if name.endswith((".slice", ".scope"))]
    ours = [path for path in found if path.endswith("/corral.slice")]
    return [
        *roots,
        *found,
        *(f"{path}/{name}" for path in ours for name in os.listdir(path) if name.endswith(".slice")),
    ]


def values() -> dict[str, str]:
    """Kernel values that Corral could change."""
    paths = [f"{group}/{name}" for group in control_groups() for name in os.listdir(group) if LIMIT.fullmatch(name)]
    paths += ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"]
    for node in sorted(os.listdir("/sys/devices/system/node")):
        pools = f"/sys/devices/system/node/{node}/hugepages"
        if os.path.isdir(pools):
            paths += [f"{pools}/{size}/nr_hugepages" for size in sorted(os.listdir(pools))]
    found = {}
    for path in paths:
        try:
            with open(path, encoding="ascii") as file:
                found[path] = file.read().strip()
        except OSError:
            continue
        if path.endswith("/cgroup.subtree_control"):
            # podman run enables every controller from the root on (5.4); systemd disables those that it knows again.
            found[path] = " ".join(name for name in found[path].split() if name != "misc")
    return found


def units() -> dict[str, str]:
    """Active units, without those that come and go by themselves, and the limit of tasks of those that declare none.

    Which are enabled, their links in /etc and /run say.
    """
    command = ["systemctl", "list-units", "--type=slice,mount,timer,path", "--state=active"]
    command += ["--no-legend", "--plain", "--no-pager"]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    names = [line.split()[0] for line in out.splitlines() if line.strip()]
    # The lab's own disk is there again only after a boot that the lab started.
    others = ("session-", "user-", "run-", "var-cache-lab")
    found = {f"active {name}": "yes" for name in names if not name.startswith(others)}
    show = ["systemctl", "show", "--property=DefaultTasksMax"]
    limit = subprocess.run(show, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    return {**found, "systemd": limit}


def masks() -> str:
    """The CPU lists on which processes may run, each once. Kernel threads have no command line, and masks of their own."""
    found = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if not file.read(1):
                    continue
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                found.update(line.split()[1] for line in file if line.startswith("Cpus_allowed_list"))
        except OSError:  # it ended meanwhile
            continue
    return " ".join(sorted(found))


def main(words: list[str]) -> int:
    """Print the fingerprint."""
    mounts = open("/proc/1/mounts", encoding="utf-8").read().splitlines()  # noqa: SIM115 - a script of one pass
    state = {
        **files("--times" in words, "--without-status" not in words),
        **values(),
        **units(),
        "CPUs of processes": masks(),
        **{f"mount {line.split()[1]}": line for line in mounts if not re.search("/run/user/|/var/cache/lab-", line)},
    }
    json.dump(state, sys.stdout, indent=1, sort_keys=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
