# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node in a folder: kernel files, systemd, /etc, and a host that can refuse or die at any write or command."""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import hashlib
import os
import shutil
import stat
import sys
import types
import typing as t
from pathlib import Path

import trees
import yaml
from _core.host.command import Command
from _core.host.files import Host
from _core.host.lock import LOCK
from _core.model.profile import profile
from fake_cpusets import Release, within
from fake_legacy import CPUSETS, LegacySystemd
from fake_pci import FakePci
from fake_podman import Storage
from fake_systemd import CGROUP, TRANSIENT, Cgroup, FakeSystemd, Unit
from guard import exposed, told

if t.TYPE_CHECKING:
    from fake_kubelet import FakeKubelet

EDGE = Path(__file__).resolve().parents[2] / "examples" / "edge.yml"
ISOLATED = "corral_isolated.slice"
# The lab's machine: 8 CPUs, 2 NUMA nodes, SMT; siblings are 0,4 1,5 (node 0) and 2,6 3,7 (node 1).
MACHINE = trees.Machine(sockets=2, cores=2, threads=2)
RESERVED, SHARED, ISOLATED_CPUS = frozenset({0, 4, 2, 6}), frozenset({1, 5}), frozenset({3, 7})
STATE = ("run/corral", "var/lib/corral")
RUNTIME_CONTROL = "run/systemd/system.control"
TREES = ("dev", "etc", "proc/1", "proc/sys", "run", "sys/fs", "sys/devices/system/node", "sys/kernel", "usr", "var")


INVOCATIONS = "run/systemd/units"


class Killed(BaseException):
    """The process ends here, as by kill -9 or a power cut."""


class NodeHost(Host):
    """A host on the node's folder. Its ``fail_at``-th write or command fails as ``fail`` says.

    ``fail``: "error" (ENOSPC, or exit code 1), "full" (as error, and so does every later write of a file), "torn" (killed in the middle of
    it), "killed" (killed right after it). ``acts`` names every write and command. ``then`` is called after each: it stands for other events
    on the machine at that moment.
    """

    def __init__(
        self, node: Node, fail: str = "", fail_at: int = 0, then: t.Callable[[int], None] = lambda dummy: None
    ) -> None:
        super().__init__(str(node.root), run=self._answer, clock=lambda: node.time, uptime=lambda: node.up)
        self.node = node
        self.fail, self.fail_at = fail, fail_at
        self.acts: list[str] = []
        self.then = then

    def _act(self, name: str, path: str, do: t.Callable[[], t.Any], torn: t.Callable[[], None] | None = None) -> t.Any:
        if self.fail in ("torn", "killed") and len(self.acts) >= self.fail_at > 0:
            raise Killed  # A dead process does nothing more, not even what releases its lock.
        self.acts.append(f"{name} {path}")
        now = len(self.acts) == self.fail_at
        if (now and self.fail == "error") or (len(self.acts) >= self.fail_at > 0 and self.fail == "full"):
            if name != "run" and (now or name == "write_file"):
                raise OSError(errno.ENOSPC, "No space left on device", path)
            if now:
                return Command(1, "", "Failed to do anything: made to fail")
        if now and self.fail == "torn":
            if torn:
                torn()
            raise Killed
        number, result = len(self.acts), do()
        self.then(number)
        if now and self.fail == "killed":
            raise Killed
        return result

    def changed(self, path: str) -> float | None:
        given = self.node.changes.get(path)
        return super().changed(path) if given is None else self.tell(given, "changed", path)

    def write_file(self, path: str, text: str, mode: int = 0o644) -> None:
        def torn() -> None:
            folder, dummy, name = self.at(path).rpartition("/")
            os.makedirs(folder, exist_ok=True)
            Path(folder, f".{name}.corral").write_text(text[: len(text) // 2])

        self._act("write_file", path, lambda: super(NodeHost, self).write_file(path, text, mode), torn)

    def write_value(self, path: str, text: str) -> None:
        self.writes.append(path)
        self._act("write_value", path, lambda: self.node.kernel_write(path, text))

    def write_link(self, path: str, text: str) -> None:
        def torn() -> None:
            folder, dummy, name = self.at(path).rpartition("/")
            os.makedirs(folder, exist_ok=True)
            os.symlink(text, f"{folder}/.{name}.corral")

        self._act("write_link", path, lambda: super(NodeHost, self).write_link(path, text), torn)

    def remove(self, path: str) -> None:
        self._act("remove", path, lambda: super(NodeHost, self).remove(path))

    def make_dir(self, path: str, mode: int = 0o755) -> None:
        if not self.is_dir(path):
            self._act("make_dir", path, lambda: self._make_dir(path, mode))

    def _make_dir(self, path: str, mode: int) -> None:
        super().make_dir(path, mode)
        if isinstance(self.node.systemd, LegacySystemd):
            self.node.systemd.made(path)

    def remove_dir(self, path: str) -> None:
        self._act("remove_dir", path, lambda: self._remove_dir(path))

    def _remove_dir(self, path: str) -> None:
        if isinstance(self.node.systemd, LegacySystemd):
            self.node.systemd.removed(path)
        super().remove_dir(path)

    def device(self, path: str) -> str | None:
        """The number and place of a device: a file below /dev is one where its text is a number, such as char/1:3."""
        file = Path(self.at(path))
        if file.is_char_device():
            return super().device(path)
        text = file.read_text().strip() if path.startswith("/dev/") and file.is_file() else ""
        return self.tell(text if text.startswith(("char/", "block/")) else None, "device", path)

    def permissions(self, path: str) -> tuple[int, int] | None:
        """Root's, under any user of the tests, unless the node has another mode and owner for the path."""
        status = super().permissions(path)
        if status is None:
            return None
        kind, own = stat.S_IFMT(status[0]), status[0] & 0o7755
        mode, owner = self.node.others.get(path, (own, 0))
        return self.tell((kind | mode, owner), "permissions", path)

    def is_claimed(self, path: str) -> bool:
        claimed = path in self.node.claimed or path in self.node.open_files()
        return self.tell(claimed, "is_claimed", path)

    def space(self, path: str) -> tuple[int, int, int] | None:
        held = next((one for one in self.node.podmans.values() if f"{path}/".startswith(f"{one.path}/")), None)
        return super().space(path) if held is None else held.disk.space()

    def device_space(self, device: str) -> tuple[int, int, int] | None:
        held = next((one for one in self.node.podmans.values() if f"8:{one.disk.device}" == device), None)
        return None if held is None else held.disk.space()

    def ask(self, address: str, port: int, path: str, *dummy: t.Any, **dummies: t.Any) -> tuple[int, str]:
        kubelet = self.node.kubelet
        return kubelet.answer(address, port, path) if kubelet else (0, "Connection refused")

    def _answer(self, argv: t.Sequence[str], dummy_timeout: float) -> Command:
        if (
            argv[:2] in (("systemctl", "is-active"), ("systemctl", "show"))
            or argv[-1] == "--version"
            or argv[0] == "journalctl"
        ):
            return self.node.run(*argv)  # A question, not an act.
        return t.cast("Command", self._act("run", " ".join(argv), lambda: self.node.run(*argv)))


class Run(t.NamedTuple):
    """One run of a service: its control group, process and INVOCATION_ID, the CPUs of its first instruction, and its devices."""

    place: str
    pid: int
    ident: str
    cpus: frozenset[int]
    mems: frozenset[int]
    env: t.Mapping[str, str] = types.MappingProxyType({})
    devices: frozenset[str] | None = None  # that it may open; None: all


class Node:
    """The folder and what lives in it. ``template`` is the tree of its ``machine``, with all CPUs online.

    ``room``: the number of hugepages of a size that each NUMA node can give.
    """

    def __init__(
        self,
        root: Path,
        template: Path,
        *,
        reload_applies: bool = True,
        legacy: bool = False,
        release: Release | None = None,
        machine: trees.Machine = MACHINE,
    ) -> None:
        self.root = root
        self.machine = machine
        self.time = 1_700_000_000.0
        self.up = 5000.0
        self.room: dict[tuple[int, int], int] = {}
        self.in_use: dict[tuple[int, int], int] = {}
        self.compactions = 0
        self.podmans: dict[str, Storage] = {}  # by user
        self.claimed: set[str] = set()  # device files that are in use so that no other can have them
        self.pci = FakePci(self.root)
        self.pci.open_files = self.open_files
        self.others: dict[str, tuple[int, int]] = {}  # mode and owner of what others than root can change, by path
        self.programs: dict[str, t.Callable[..., Command]] = {}  # by path; what a user's own programs answer
        self.runs: dict[str, Run] = {}  # of services, by unit
        self.holders: dict[str, str] = {}  # units that hold grants, and their INVOCATION_ID
        self.jobs: set[str] = set()  # services whose start waits for another unit
        self.reloads = 0  # of systemd's configuration, whose jobs have run
        self.started = 100  # processes so far
        self.said: list[str] = []  # what refused starts said
        self.kubelet: FakeKubelet | None = None
        self.changes: dict[
            str, float
        ] = {}  # when files and folders changed, which a test cannot set in the file system
        devices = root / "sys/devices/system"
        devices.mkdir(parents=True)
        shutil.copytree(template / "sys/devices/system/node", devices / "node")
        shutil.copytree(template / "sys/kernel", root / "sys/kernel")
        # Corral writes nothing there: one copy serves all nodes.
        (devices / "cpu").symlink_to(template / "sys/devices/system/cpu")
        for node in devices.glob("node/node*"):
            (node / "compact").touch()
        for folder in (
            "dev",
            "etc/systemd/system",
            "etc/sysctl.d",
            "run",
            "usr/lib/systemd/system",
            "var/lib",
            "usr/local/bin",
        ):
            (root / folder).mkdir(parents=True)
        self.put("/proc/meminfo", (template / "proc/meminfo").read_text())
        self.put("/proc/loadavg", "0.00 0.01 0.05 1/180 4242\n")
        self.put("/proc/sys/kernel/pid_max", "4194304\n")
        self.put("/proc/sys/kernel/random/boot_id", "first\n")
        self.put("/proc/sys/kernel/threads-max", "15631\n")
        self.put("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
        self.put("/etc/group", "root:x:0:\nhugetlb:x:996:\n")
        systemd = LegacySystemd if legacy else FakeSystemd
        self.systemd = systemd(root, trees.cpus_of(machine), reload_applies=reload_applies, release=release)
        self.put("/proc/sys/kernel/osrelease", "{}.{}.0-fake\n".format(*self.systemd.release))
        self.overlaps: list[str] = []  # new ones, not made by hand
        self.seen: list[str] = []  # the same, also of clones
        self.standing: frozenset[t.Any] = frozenset()  # what overlaps now
        self.hands = 0
        self.systemd.watch = self.watch
        self.systemd.end_service = self.end_service

    def clone(self, root: Path) -> Node:
        """Another node in the same state."""
        copy_tree(str(self.root), str(root))
        self.systemd.watch = lambda: None
        self.systemd.end_service = len  # type: ignore[assignment]
        twin = copy.deepcopy(self)
        twin.root = twin.systemd.root = root
        twin.pci = self.pci.clone(root)
        twin.pci.open_files = twin.open_files
        for storage in twin.podmans.values():
            storage.folder = root
        twin.systemd.watch, twin.systemd.end_service = twin.watch, twin.end_service
        self.systemd.watch, self.systemd.end_service = self.watch, self.end_service
        return twin

    def open_files(self) -> set[str]:
        """The files of IOMMU groups that services have open; each service opened all that it may."""
        opened = {path for run in self.runs.values() for path in run.devices or ()}
        return {path for path in opened if path.startswith("/dev/vfio/")}

    def end_service(self, unit: str) -> None:
        """The processes of a service are gone, and so is its control group. Its slice stays."""
        run = self.runs.pop(unit, None)
        self.systemd.services.discard(unit)
        if run is None:  # a unit that holds a grant: its process ended long ago
            if self.holders.pop(unit, None):
                (self.root / INVOCATIONS / f"invocation:{unit}").unlink()
            return
        self.systemd.cgroups.pop(run.place, None)
        shutil.rmtree(self.root / f"proc/{run.pid}", ignore_errors=True)
        (self.root / INVOCATIONS / f"invocation:{unit}").unlink()
        self.systemd.sync()

    def host(self, fail: str = "", fail_at: int = 0, then: t.Callable[[int], None] = lambda dummy: None) -> NodeHost:
        self.write_databases()
        return NodeHost(self, fail, fail_at, then)

    def write_databases(self) -> None:
        """Write down what happened in Podman's storages until now."""
        for storage in self.podmans.values():
            storage.write_database()

    # Files

    def put(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.resolve().is_relative_to(self.root.resolve()):
            raise AssertionError(f"{path} is every fake node's: give this one a tree of its own, as set_online does")
        file.write_text(text)

    def get(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text()

    def has(self, path: str) -> bool:
        return os.path.lexists(self.root / path.lstrip("/"))

    def drop(self, path: str) -> None:
        (self.root / path.lstrip("/")).unlink()

    def kernel_write(self, path: str, text: str) -> None:
        """The kernel's reaction to a write."""
        file = self.root / path.lstrip("/")
        if not file.exists():
            raise OSError(errno.ENOENT, "No such file or directory", path)
        if isinstance(self.systemd, LegacySystemd) and path.startswith(f"/{CPUSETS}/"):
            self.systemd.write_cpuset(path, text)
            return
        if path.startswith(f"/{CGROUP}/"):
            self.systemd.write_file(path.lstrip("/"), text)
            return
        if path.startswith("/sys/bus/pci/"):
            self.pci.write(path, text)
            return
        if path.endswith("/compact"):
            self.compactions += 1
        elif path.endswith("/nr_hugepages"):
            self.set_pool(file, int(text))
        elif path == "/dev/kmsg":  # An unfinished line is shown once another one comes (seen on kernel 6.1).
            file.write_text(file.read_text() + text[: text.rfind("\n") + 1])
        else:
            file.write_text(text + "\n")

    def set_pool(self, file: Path, asked: int) -> None:
        if "mm" in file.parts:  # Without a node the kernel spreads them.
            nodes = sorted(self.root.glob(f"sys/devices/system/node/node*/hugepages/{file.parent.name}/nr_hugepages"))
            for index, pool in enumerate(nodes):
                self.set_pool(pool, asked // len(nodes) + (index < asked % len(nodes)))
            return
        size = int(file.parent.name[len("hugepages-") : -len("kB")])
        number = int(file.parts[-4][len("node") :])
        given = max(min(asked, self.room.get((number, size), asked)), self.in_use.get((number, size), 0))
        file.write_text(f"{given}\n")
        (file.parent / "free_hugepages").write_text(f"{given}\n")
        counted = self.root.glob(f"sys/devices/system/node/node*/hugepages/{file.parent.name}/nr_hugepages")
        total = sum(int(one.read_text()) for one in counted)
        whole = self.root / "sys/kernel/mm/hugepages" / file.parent.name
        for name, count in (("nr", total), ("free", total), ("resv", 0)):
            (whole / f"{name}_hugepages").write_text(f"{count}\n")

    def pool(self, node: int, size: int = 2048) -> int:
        return int(self.get(pool_file(node, size)))

    def wait(self, seconds: float) -> None:
        """Time goes by, on every clock."""
        self.time += seconds
        self.up += seconds

    def recorded(self) -> str:
        """This folder for ``--root``, which follows no link out of it: the CPUs' files, which all nodes share, are copied."""
        cpus = self.root / "sys/devices/system/cpu"
        if cpus.is_symlink():
            shared = cpus.resolve()
            cpus.unlink()
            shutil.copytree(shared, cpus, symlinks=True)
        return str(self.root)

    def set_online(self, *offline: int) -> None:
        """These CPUs are offline from now on, all others are back."""
        machine = self.machine._replace(offline=frozenset(offline))
        tree = self.root.with_name(f"machine-without-{'-'.join(map(str, offline))}")
        if not tree.exists():
            trees.build(tree, machine)
        folder = self.root / "sys/devices/system"
        (folder / "cpu").unlink()
        (folder / "cpu").symlink_to(tree / "sys/devices/system/cpu")
        for cpu in (tree / "sys/devices/system/node").glob("node*/cpu*"):
            shutil.copy(cpu, folder / "node" / cpu.parent.name / cpu.name)
        with self.by_hand():
            self.systemd.set_online(self.systemd.possible - set(offline))

    def boot_anew(self, seconds: float = 20.0) -> None:
        """The effects of a reboot on clocks and /run; the machine is off for the shortest time that clocks tell."""
        self.put("/proc/sys/kernel/random/boot_id", f"{self.get('/proc/sys/kernel/random/boot_id').strip()}'\n")
        self.time += seconds
        self.up = seconds
        for tree in ("corral", "cdi"):
            shutil.rmtree(self.root / "run" / tree, ignore_errors=True)

    # Commands

    def run(self, *argv: str) -> Command:
        answer = self.kubelet.command(self, argv) if self.kubelet else None
        if answer is not None:
            return answer
        if argv[0] == "systemctl":
            return self.systemd.systemctl(*argv[1:])
        if argv[1:4] == ("-I", "-m", "compileall"):
            named = [Path(word) for word in argv[6:]]
            for source in [file for one in named for file in (one.rglob("*.py") if one.is_dir() else [one])]:
                if source.read_text().startswith("print '"):
                    return Command(1, f"*** Error compiling {source}", "")
                folder = source.parent / "__pycache__"
                folder.mkdir(exist_ok=True)
                (folder / f"{source.stem}.{sys.implementation.cache_tag}.pyc").write_text("compiled")
            return Command(0, "", "")
        if argv[0] == "getent":
            lines = self.get(f"/etc/{argv[1]}").splitlines()
            found = next((line for line in lines if line.startswith(f"{argv[2]}:")), None)
            return Command(0, f"{found}\n", "") if found else Command(2, "", "")
        if argv[0] in self.programs:
            return self.programs[argv[0]](*argv)
        user = argv[1] if argv[0] == "as" else "root"
        if "podman" in argv and user in self.podmans:
            return self.podmans[user].podman(*argv[argv.index("podman") + 1 :])
        return Command(127, "", f"{argv[0]}: not installed")

    def account(self, name: str, number: int) -> None:
        """Make an account whose user is logged in."""
        self.put("/etc/passwd", f"{self.get('/etc/passwd')}{name}:x:{number}:{number}::/home/{name}:/bin/sh\n")
        (self.root / f"run/user/{number}").mkdir(parents=True)

    def systemctl(self, *words: str) -> None:
        """A command of a person at the node's shell."""
        answer = self.systemd.systemctl(*words)
        assert answer.code == 0, answer

    # What others do to it

    def intrude(self, path: str, cpus: str = "", *, procs: int = 1) -> None:
        """Processes in a control group of nobody's that may be made for them: rogue.service (in -.slice),
        mine.slice/x.service (a slice that starts on demand), lxc (by mkdir). A unit at the top runs. It requests ``cpus``, if any: an overlap that
        comes with that is its own fault, and one that comes without is not.
        """
        parts = path.split("/")
        for depth, part in enumerate(parts, 1):
            if depth == 1 and part.endswith((".service", ".scope")):
                self.systemd.units.setdefault(part, Unit())
            if part.endswith(".slice") or part in self.systemd.units:
                self.systemd.run_slice(part)
            self.systemd.cgroups.setdefault("/".join(parts[:depth]), Cgroup())
        if cpus:
            with self.by_hand():
                self.systemd.sync()  # Now its files are there.
                self.kernel_write(f"/{CGROUP}/{path}/cpuset.cpus", cpus)
        self.systemd.cgroups[path].procs = procs
        with self.by_hand() if cpus else contextlib.nullcontext():
            self.systemd.sync()

    def withdraw(self, path: str) -> None:
        """Remove a foreign control group, with those in it."""
        for inner in [other for other in self.systemd.cgroups if within(other, path)]:
            del self.systemd.cgroups[inner]
            unit = self.systemd.units.get(inner.rpartition("/")[2])
            if unit is not None:
                unit.running = False
        self.systemd.sync()

    def exposed(self) -> list[str]:
        """The processes that would share a CPU with an exclusive slice if they started now, anywhere. Valid at rest."""
        return exposed(self.systemd)

    # What is seen of it

    def cpus(self, unit: str) -> frozenset[int]:
        """The CPUs in force for a slice."""
        return self.systemd.effective_of(unit)

    def __deepcopy__(self, memo: dict[int, t.Any]) -> Node:
        twin = copy.copy(self)
        twin.systemd = copy.deepcopy(self.systemd, memo)
        twin.room, twin.in_use, twin.overlaps = dict(self.room), dict(self.in_use), []
        twin.podmans = copy.deepcopy(self.podmans, memo)
        twin.programs = dict(self.programs)
        twin.claimed = set(self.claimed)
        twin.runs, twin.holders, twin.reloads = dict(self.runs), dict(self.holders), self.reloads
        twin.jobs = set(self.jobs)
        twin.others, twin.changes = dict(self.others), dict(self.changes)
        twin.said = list(self.said)
        twin.kubelet = copy.deepcopy(self.kubelet)
        return twin

    def watch(self) -> None:
        """Called after every change of a control group: note the CPUs that an exclusive slice newly shares."""
        now = self.systemd.overlaps()
        if now - self.standing and not self.hands:
            found = told(now - self.standing)
            self.overlaps += found
            self.seen += found
        self.standing = now

    @contextlib.contextmanager
    def by_hand(self) -> t.Iterator[None]:
        """Overlaps that begin in this context are the fault of a person or the machine. They are not noted."""
        self.hands += 1
        try:
            yield
        finally:
            self.hands -= 1

    def fingerprint(self, *without: str) -> dict[str, str]:
        """Everything that a removal must restore: files, folders, links, kernel values, active units, mounts.

        The file of the lock is left out, since a run leaves it where its folder has other files; its folder is included.
        """
        self.write_databases()
        facts = {f"active {unit}": "yes" for unit in self.systemd.active}
        running = [unit for unit, state in self.systemd.units.items() if state.running]
        facts.update({f"running {unit}": "yes" for unit in running})
        left = [tree for tree in TREES if self.has(tree)]
        without = (*without, LOCK[1:], *((TRANSIENT,) if RUNTIME_CONTROL in without else ()))
        while left:
            short = left.pop()
            if short in without:
                continue
            path = f"{self.root}/{short}"
            facts[short] = shown(path)
            if facts[short].startswith("folder"):
                left += [f"{short}/{name}" for name in os.listdir(path)]
        return facts


# Makes a node to which a function was done (see the fixture ``made_once``).
MadeOnce = t.Callable[..., Node]


def shown(path: str) -> str:
    """One file on one line."""
    state = os.lstat(path)
    if stat.S_ISLNK(state.st_mode):
        return f"link {os.readlink(path)}"
    if stat.S_ISREG(state.st_mode):
        with open(path, "rb", buffering=0) as file:
            return f"{stat.S_IMODE(state.st_mode):o} {hashlib.md5(file.read()).hexdigest()}"
    return f"folder {stat.S_IMODE(state.st_mode):o}"


def copy_tree(source: str, target: str) -> None:
    """What ``cp -a`` does, in half of its time: a program for each of hundreds of nodes costs more than their small files."""
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            path = f"{target}/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), path)
            elif entry.is_dir():
                copy_tree(entry.path, path)
            else:
                copy_file(entry.path, path)
    state = os.stat(source)
    os.chmod(target, stat.S_IMODE(state.st_mode))
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))


def copy_file(source: str, target: str) -> None:
    """Its text, mode and times."""
    old = os.open(source, os.O_RDONLY)
    state = os.fstat(old)
    new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    assert os.write(new, os.read(old, state.st_size + 1)) == state.st_size
    os.fchmod(new, stat.S_IMODE(state.st_mode))
    os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
    os.close(old)
    os.close(new)


def different(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The differences of two fingerprints, for an assertion that a person reads."""
    keys = sorted({*before, *after})
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)]


def pool_file(node: int, size: int = 2048) -> str:
    return f"/sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB/nr_hugepages"


def edge(**sections: t.Any) -> dict[str, t.Any]:
    """The example profile as data; a section given replaces it, None takes it out."""
    data = {**example(), **sections}
    return {key: value for key, value in data.items() if value is not None}


@functools.cache
def example() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", yaml.safe_load(EDGE.read_text()))


def parsed(**sections: t.Any) -> profile.Profile:
    return profile.parse(edge(**sections))
