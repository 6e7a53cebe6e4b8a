# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `corral kubelet` costs on a made-up node with up to 250 pods, against an empty Python and against reading the same files.

Each pod has a container with two CPUs of its own or one on shared CPUs, and a sandbox, in control groups as systemd's driver makes
them. CPU time is user and system time of the process, as the kernel counted it when it ended.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import bench
import trees
from _core.model.kubelet import state_files
from _core.model.kubelet.go_values import checksum
from _core.model.values import cpuset

SIZES = (10, 50, 250)
CPUS = 256
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0-1"
"""
OPTIONS = ("-I", "-S", "-B")
COMMAND = """\
import sys
sys.path.insert(0, {program!r})
from _core.main import main
sys.exit(main(["kubelet", "--json", "--root", {root!r}]))
"""
READ = """\
import os
for folder, folders, files in os.walk({root!r} + "/sys/fs/cgroup/kubepods.slice"):
    for name in files:
        file = os.open(folder + "/" + name, os.O_RDONLY)
        os.read(file, 4096)
        os.close(file)
"""
HEAD = ("pods", "containers", "empty Python ms", "read ms", "corral kubelet ms: median (min–max)", "× empty", "× read")


def build(root: Path, pods: int) -> None:
    """A node with so many pods; half of them have CPUs of their own, as long as there are any."""
    trees.build(root, trees.Machine(sockets=2, cores=CPUS // 4))
    free = list(range(2, CPUS))
    entries: dict[str, dict[str, str]] = {}
    for number in range(pods):
        uid = f"00000000-0000-4000-8000-{number:012x}"
        own = number % 2 == 0 and len(free) > CPUS // 4
        cpus = cpuset.format({free.pop(), free.pop()}) if own else "shared"
        if own:
            entries[uid] = {"main": cpus}
        group = f"kubepods-{'' if own else 'burstable-'}pod{uid.replace('-', '_')}.slice"
        top = "kubepods.slice" if own else "kubepods.slice/kubepods-burstable.slice"
        for kind, name in (("a", "main"), ("b", "")):
            identity = f"{kind}{number:063x}"
            write(root, f"sys/fs/cgroup/{top}/{group}/cri-containerd-{identity}.scope/cpuset.cpus.effective", cpus)
            if name:
                write(root, f"var/log/containers/pod{number}_default_{name}-{identity}.log", "")
    shared = cpuset.format(set(free) | {0, 1})
    for file in root.rglob("cri-containerd-*.scope/cpuset.cpus.effective"):
        if file.read_text() == "shared":
            file.write_text(shared)
    data: dict[str, t.Any] = {"policyName": "static", "defaultCpuSet": shared, "entries": entries}
    values = {"PolicyName": "static", "DefaultCPUSet": shared, "Entries": entries, "Checksum": 0}
    data["checksum"] = checksum(state_files.hashed(state_files.CPU, state_files.CPU.versions[1], values))
    write(root, "var/lib/kubelet/cpu_manager_state", json.dumps(data))
    write(root, "var/lib/kubelet/config.yaml", CONFIG)
    write(root, "sys/fs/cgroup/cgroup.controllers", "cpuset")
    write(root, "sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs", "1047\n")
    write(root, "sys/fs/cgroup/system.slice/cpuset.cpus.effective", "0-1")
    write(root, "proc/1047/comm", "kubelet\n")
    write(root, "proc/1047/cmdline", "/usr/bin/kubelet\0--config=/var/lib/kubelet/config.yaml\0")
    write(root, "proc/1047/stat", f"1047 (kubelet) S {'0 ' * 18}500 0")


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def compiled(root: Path) -> str:
    """The program as an agent's node has it: compiled."""
    program = root / "program"
    shutil.copytree(
        bench.CHECKOUT / "plugins/module_utils/_core", program / "_core", ignore=shutil.ignore_patterns("__pycache__")
    )
    compileall.compile_dir(program, quiet=1)
    return str(program)


def cpu_seconds(text: str, code: tuple[int, ...] = (0,)) -> float:
    """The CPU time of a Python that runs a text."""
    with subprocess.Popen([sys.executable, *OPTIONS, "-c", text], stdout=subprocess.DEVNULL) as process:
        dummy, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in code:
        raise SystemExit(f"exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=10)
    turns = parser.parse_args().turns
    bench.header("make bench-kubelet")
    rows = []
    for pods in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder), pods)
            program = compiled(Path(folder))
            texts = {
                "empty": "pass",
                "read": READ.format(root=folder),
                "all": COMMAND.format(program=program, root=folder),
            }
            taken: dict[str, bench.Seconds] = {name: [] for name in texts}
            for turn in range(turns + 1):
                for name, text in texts.items():
                    seconds = cpu_seconds(text) * 1000
                    if turn:
                        taken[name].append(seconds)
        floors = (f"{bench.median(taken[name]):.0f}" for name in ("empty", "read"))
        ratios = (bench.ratio(taken["all"], taken[name]) for name in ("empty", "read"))
        rows.append((pods, 2 * pods, *floors, bench.spread(taken["all"], 0), *ratios))
    bench.say(bench.table(HEAD, rows))
    bench.footer()


if __name__ == "__main__":
    main()
