# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd and the cgroup v2 kernel as far as Corral relies on them, in a folder.

Tried on real systemd 252 and 257: a set-property on a slice that does not run makes an empty control group; CPUs that do not exist are
accepted and ignored; clearing AllowedCPUs= leaves the kernel's value; cpuset files exist only while some unit of the level has
AllowedCPUs=; a child with CPUs outside its parent silently gets the parent's CPUs. The same holds for memory nodes, and for the files of
the cpu controller. systemd never switches the hugetlb controller on; once switched on it stays until the control group goes.
fake_cpusets.py has the rule of the CPUs in force.

The configuration of a unit is the text of its files when it was loaded: at the last daemon-reload, or when a unit first named it. It stays
loaded while it runs or a loaded unit names it. On 257 a reload puts nothing in force except for init.scope; new values come with the next
change of the unit or of one beside it.
"""

from __future__ import annotations

import copy
import errno
import fnmatch
import functools
import os
import re
import shutil
import typing as t
from pathlib import Path

from _core.host.command import Command
from fake_cpusets import BOOKWORM, TRIXIE, Cpus, Cpuset, Kernel, Release, parent, read_list, shown_list, within
from guard import shared, told, unescaped

__all__ = ["BASES", "CGROUP", "Cgroup", "Cpus", "FakeSystemd", "told", "unescaped"]

Options = dict[str, str]
Thing = t.TypeVar("Thing")

CGROUP = "sys/fs/cgroup"
RUNTIME = "run/systemd/system.control"
PERSISTENT = "etc/systemd/system.control"
TRANSIENT = "run/systemd/transient"
# Their order is systemd's load path: the first file of a name wins.
BASES = (
    PERSISTENT,
    RUNTIME,
    TRANSIENT,
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/lib/systemd/system",
)
DONE = Command(0, "", "")
LISTS = ("AllowedCPUs", "AllowedMemoryNodes")
# The kernel's file of each other property, and what it shows without one.
LIMITS = {
    "CPUWeight": ("cpu.weight", "100"),
    "CPUQuota": ("cpu.max", "max 100000"),
    "MemoryMax": ("memory.max", "max"),
    "MemorySwapMax": ("memory.swap.max", "max"),
}
CPU_PROPERTIES = ("CPUWeight", "CPUQuota")
PAGE = 4096
SECOND = 1_000_000  # in microseconds
HUGETLB = ("hugetlb.2MB.max", "hugetlb.1GB.max")
CPUSET_FILES = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.partition", "cpuset.cpus.exclusive")
# The settings whose units systemd loads with the unit that has them.
NAMED = ("Wants", "Requires", "BindsTo", "Slice", "After", "Before")
# What runs on a fresh node, three processes each: none is directly in a slice.
USUAL = {
    "init.scope": "init.scope",
    "system.slice": "system.slice/dbus.service",
    "user.slice": "user.slice/user-0.slice/session-1.scope",
}


class Cgroup(Cpuset):
    """One control group: its cpuset, cpuset.mems as requested (None: nothing), pids.max, other files by name, and how
    many processes are in it; those of services by their ids. ``delegated`` are controllers that somebody switched on for
    the groups below.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mems: Cpus | None = None
        self.pids = "max"
        self.values: dict[str, str] = {}
        self.delegated: set[str] = set()
        self.lacks_cpusets = (
            False  # the root: some program has switched the controller off, and systemd does not look again
        )
        self.procs = 0
        self.tasks: list[int] = []


class Unit:
    """A slice, a scope or what intrudes at the top, as systemd has it in memory: its properties, and whether it runs.

    ``loaded``: they count when it starts. ``stale``: they are not in force yet.
    """

    def __init__(self) -> None:
        self.loaded = False
        self.stale = False
        self.cpus: Cpus | None = None
        self.mems: Cpus | None = None
        self.tasks = "max"
        self.limits: dict[str, str] = {}
        self.running = False


class FakeSystemd:
    """PID 1 of the tree ``root``. ``watch`` is called after every single change of a control group.

    ``reload_applies``: a daemon-reload changes running units at once (252); 257 leaves all but init.scope alone.
    ``release`` is the kernel's; without one it is that of Debian's release with this systemd.
    """

    def __init__(
        self, root: Path, online: Cpus, *, reload_applies: bool = True, release: Release | None = None
    ) -> None:
        self.root = root
        self.release = release or (BOOKWORM if reload_applies else TRIXIE)
        self.online = self.possible = online
        self.isolated: Cpus = frozenset()  # by isolcpus=
        self.nodes = frozenset({0, 1})
        self.reload_applies = reload_applies
        self.starting = False  # the boot is not over
        self.stopping = False  # a shutdown has begun
        self.units: dict[str, Unit] = {}
        self.cgroups: dict[str, Cgroup] = {"": Cgroup()}
        self.active: set[str] = set()
        self.ran: list[str] = []
        self.reloads = 0
        self.folders: set[str] = set()
        self.drawn: dict[str, t.Any] = {}  # all that the files of a control group were written from, by its path
        self.mounts: list[tuple[str, str, Options]] = []
        self.busy: set[str] = set()
        self.loaded: dict[str, str] = {}
        self.config: dict[str, list[str]] = {}  # the lines of loaded services and targets
        self.services: set[str] = set()  # that are active
        self.failed: set[str] = set()
        self.programs: dict[
            str, frozenset[str] | None
        ] = {}  # the devices that each of them may open, by number; None: all
        self.shown: dict[str, str] = {}
        self.told: dict[str, dict[str, str]] = {}  # properties of units as systemctl show has them
        self.empty_too = False  # an empty isolated slice counts as well (cgroup v1)
        self.asked: list[str] = []  # services that are to reload
        self.watch: t.Callable[[], None] = lambda: None
        self.end_service: t.Callable[[str], None] = self.services.discard
        for folder in ("system", "units"):
            (root / "run/systemd" / folder).mkdir(parents=True)
        self.mount_cgroups()
        self.boot()

    def boot(self) -> None:
        """Read all configuration, and start what is there on a fresh node, and the slices that slices.target wants."""
        for name in self.units:
            self.units[name] = Unit()
        self.services.clear()
        self.cgroups[""].lacks_cpusets = False
        self.load_all()
        wants = [
            name for line in self.values("slices.target", "Wants") for name in line.split() if not self.is_masked(name)
        ]
        for unit in (*USUAL, *wants):
            self.run_slice(unit)
            if unit in USUAL:
                self.occupy(unit, 3)
        for unit in self.active:
            self.start_wanted_slices(unit)
        self.sync()

    def occupy(self, unit: str, count: int = 1) -> None:
        """Put this number of processes into a slice or scope; for a slice into a unit below, as systemd puts none directly in it."""
        path = USUAL.get(unit, f"{self.place(unit)}/busy.service")
        parts = path.split("/")
        for depth in range(len(parts)):
            self.cgroups.setdefault("/".join(parts[: depth + 1]), Cgroup())
        self.cgroups[path].procs = count
        if not count and path != USUAL.get(unit):
            del self.cgroups[path]
        self.sync()

    def __deepcopy__(self, memo: dict[int, t.Any]) -> FakeSystemd:
        """A clone is made for every write of a run: what does not change in place is not copied."""
        twin = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, list, set)):
                setattr(twin, name, copy.copy(value))
        twin.mounts = copy.deepcopy(self.mounts)
        twin.units = {name: duplicate(unit) for name, unit in self.units.items()}
        twin.cgroups = {path: duplicate(group) for path, group in self.cgroups.items()}
        return twin

    # Files

    def write(self, path: str, text: str) -> None:
        full = f"{self.root}/{path}"
        if not os.path.exists(full):
            os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as file:
            file.write(text + "\n")

    def show(self, path: str, text: str) -> None:
        """Write a kernel file, if its text is new."""
        if self.shown.get(path) != text:
            self.shown[path] = text
            self.write(path, text)

    def mount_cgroups(self) -> None:
        """Make the control groups of the start."""
        self.write(f"{CGROUP}/cgroup.controllers", "cpuset cpu io memory hugetlb pids")
        self.write(f"{CGROUP}/cgroup.subtree_control", "memory pids")

    @property
    def kernel(self) -> Kernel:
        """The cpusets of the control groups."""
        return Kernel(self.cgroups, self.online, self.release, self.isolated)

    def set_online(self, online: Cpus) -> None:
        """CPUs go and come."""
        self.online = online
        self.kernel.set_online(online)
        self.sync()

    def sync(self) -> None:
        """Show control groups and mounts as files."""
        self.show_groups()
        self.show_mounts()
        self.watch()

    def show_groups(self) -> None:
        state = Shared(self)
        for path, group in self.cgroups.items():
            if path and parent(path) not in state.with_cpuset:
                group.forget()
                group.mems = None
        kernel = self.kernel
        effective = kernel.effective()
        self.show(f"{CGROUP}/cpuset.cpus.effective", shown_list(effective[""]))
        self.show(f"{CGROUP}/cgroup.subtree_control", " ".join(state.controllers("", below=True)))
        for path in [path for path in self.folders if path not in self.cgroups]:
            self.folders.discard(path)
            self.drawn = {other: facts for other, facts in self.drawn.items() if not within(other, path)}
            self.shown = {file: text for file, text in self.shown.items() if not file.startswith(f"{CGROUP}/{path}/")}
            shutil.rmtree(self.root / CGROUP / path, ignore_errors=True)
        for path, group in self.cgroups.items():
            if not path:
                continue
            self.folders.add(path)
            has_cpuset = parent(path) in state.with_cpuset
            facts: tuple[t.Any, ...] = (
                *(group.pids, group.procs, tuple(group.tasks), path in state.populated),
                *((effective[path], group.requested, group.exclusive, kernel.shown(path)) if has_cpuset else ()),
            )
            if path.startswith("corral"):  # Nobody looks at the others' limits.
                facts += (has_cpuset and (group.mems, self.effective_mems(path)), tuple(group.values.items()))
                facts += (tuple(state.controllers(path)), tuple(state.controllers(path, below=True)))
            if self.drawn.get(path) != facts:
                self.show_group(path, group, effective[path] if has_cpuset else None, state)
                self.drawn[path] = facts

    def show_mounts(self) -> None:
        lines = ["22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw"]
        for number, (path, fstype, options) in enumerate(self.mounts):
            shown = ",".join(f"{key}={value}" if value else key for key, value in options.items())
            escaped = path.replace("\\", "\\134").replace(" ", "\\040")
            lines.append(
                f"{30 + number} 1 0:{40 + number} / {escaped} rw,relatime shared:9 - {fstype} {fstype} {shown}"
            )
        self.show("proc/1/mountinfo", "\n".join(lines))

    def show_group(self, path: str, group: Cgroup, effective: Cpus | None, state: Shared) -> None:
        folder = f"{CGROUP}/{path}"
        self.show(f"{folder}/pids.max", group.pids)
        self.show(f"{folder}/cgroup.procs", "\n".join(map(str, (*range(group.procs), *group.tasks))))
        self.show(f"{folder}/cgroup.events", f"populated {int(path in state.populated)}\nfrozen 0")
        files: dict[str, str | None] = dict.fromkeys(CPUSET_FILES)
        if effective is not None:
            requested = shown_list(group.requested or frozenset())
            exclusive = shown_list(group.exclusive) if self.release >= (6, 7) else None
            files = dict(zip(CPUSET_FILES, (requested, shown_list(effective), self.kernel.shown(path), exclusive)))
        if path.startswith("corral"):
            files.update(self.limit_files(path, group, state))
        for name, text in files.items():
            if text is not None:
                self.show(f"{folder}/{name}", text)
            elif self.shown.pop(f"{folder}/{name}", None) is not None:
                (self.root / folder / name).unlink()

    def limit_files(self, path: str, group: Cgroup, state: Shared) -> dict[str, str | None]:
        """The files of a control group's other controllers; None for one that is not there."""
        controllers = state.controllers(path)
        files: dict[str, str | None] = {
            "cgroup.controllers": " ".join(controllers),
            "cgroup.subtree_control": " ".join(state.controllers(path, below=True)),
            **dict.fromkeys(("cpuset.mems", "cpuset.mems.effective")),
        }
        if parent(path) in state.with_cpuset:
            files["cpuset.mems"] = shown_list(group.mems or frozenset())
            files["cpuset.mems.effective"] = shown_list(self.effective_mems(path))
        for file, usual in (*LIMITS.values(), *((name, "max") for name in HUGETLB)):
            there = file.partition(".")[0] in controllers
            if not there:
                group.values.pop(file, None)
            files[file] = group.values.get(file, usual) if there else None
        return files

    # Control groups

    @staticmethod
    def place(unit: str) -> str:
        """The control group of a unit: dashes nest slices."""
        return nested(unit)

    def write_file(self, path: str, text: str) -> None:
        """Write to a file of a control group, past systemd."""
        name, dummy, file = path[len(CGROUP) + 1 :].strip("/").rpartition("/")
        if name not in self.cgroups:  # a container's, which its test has drawn
            (self.root / path).write_text(f"{text}\n", encoding="ascii")
            return
        group = self.cgroups[name]
        if file == "cgroup.subtree_control":
            if not name and text in ("+cpuset", "-cpuset"):
                group.lacks_cpusets = text == "-cpuset"
                self.sync()
                return
            if text.startswith("-"):
                below = [other for other in self.cgroups if other and other.rpartition("/")[0] == name]
                if any(text[1:] in self.cgroups[other].delegated for other in below):
                    raise OSError(errno.EBUSY, "Device or resource busy", path)
                group.delegated.discard(text[1:])
                self.sync()
                return
            controller = text.lstrip("+")
            offered = (self.root / CGROUP / name / "cgroup.controllers").read_text().split()
            if controller not in offered:
                raise OSError(errno.ENOENT, "No such file or directory", path)
            if name and (group.procs or group.tasks):
                raise OSError(errno.EBUSY, "Device or resource busy", path)
            group.delegated.add(controller)
        elif file == "pids.max":
            group.pids = text
        elif file == "cpuset.mems":
            group.mems = read_list(text)
        elif file == "cpuset.cpus":
            self.kernel.set_cpus(name, read_list(text))
        elif file == "cpuset.cpus.exclusive":
            self.kernel.set_exclusive(name, read_list(text))
        elif file == "cpuset.cpus.partition":
            self.kernel.set_partition(name, text.strip())
        elif file.endswith(".effective"):
            raise OSError(errno.EACCES, "Permission denied", path)
        else:
            group.values[file] = text
        self.sync()

    def effective(self, path: str) -> Cpus:
        """What the kernel has in force."""
        return self.kernel.effective()[path]

    def effective_of(self, unit: str) -> Cpus:
        return self.effective(self.place(unit))

    def effective_mems(self, path: str) -> Cpus:
        """The memory nodes in force."""
        if not path:
            return self.nodes
        above = self.effective_mems(path.rpartition("/")[0])
        return (self.cgroups[path].mems or frozenset()) & above or above

    def overlaps(self) -> frozenset[t.Any]:
        """Who has a CPU of another exclusive slice now."""
        return shared(self)

    def tamper(self, unit: str, cpus: str) -> None:
        """Write cpuset.cpus directly, behind systemd's back."""
        self.kernel.set_cpus(self.place(unit), read_list(cpus))
        self.sync()

    def realise(self, name: str) -> None:
        unit, group = self.units[name], self.cgroups[self.place(name)]
        unit.stale = False
        if unit.cpus is not None and unit.cpus <= self.possible:
            self.kernel.set_cpus(self.place(name), unit.cpus)
        if unit.mems is not None and unit.mems <= self.nodes:
            group.mems = unit.mems
        group.pids = unit.tasks
        for key, (file, usual) in LIMITS.items():
            group.values[file] = kernel_text(key, unit.limits.get(key, "")) or usual
        self.sync()

    def realise_family(self, path: str) -> None:
        """Put the loaded values in force for the units around a control group and beside those (257)."""
        around = ancestors(path)
        for name in sorted((name for name, unit in self.units.items() if unit.stale), key=self.place):
            if self.units[name].stale and self.place(name) != path and parent(self.place(name)) in around:
                self.units[name].stale = False
                self.realise(name)

    # Units

    def settings(self, unit: str) -> list[tuple[str, str]]:
        """All assignments, names and values, in the order in which systemd applies them."""
        files: dict[str, str] = {}
        for base in BASES:
            folder = f"{self.root}/{base}/{unit}.d"
            for name in names(folder):
                if name.endswith(".conf"):
                    files.setdefault(name, f"{folder}/{name}")
        lines = [line for key in sorted(files) for line in Path(files[key]).read_text().splitlines()]
        return [(key.strip(), value.strip()) for key, dummy, value in (line.partition("=") for line in lines)]

    def load(self, name: str) -> Unit:
        """Read the files of a slice or scope."""
        unit = self.units.setdefault(name, Unit())
        before = (unit.cpus, unit.mems, unit.tasks, unit.limits)
        values: dict[str, list[str]] = {}
        for key, value in self.settings(name):
            values.setdefault(key, []).append(value)
        unit.tasks = "max"
        unit.cpus, unit.mems = (added_up(values.get(key, ())) for key in LISTS)
        for value in values.get("TasksMax", ()):
            unit.tasks = (value or "max").replace("infinity", "max")
        unit.limits = {key: values[key][-1] for key in LIMITS if key in values}
        unit.loaded = True
        unit.stale = unit.running and (unit.stale or before != (unit.cpus, unit.mems, unit.tasks, unit.limits))
        return unit

    def lines(self, name: str) -> list[str]:
        """The lines of a service's or target's files: as loaded, else as they are."""
        return self.config[name] if name in self.config else self.read(name)

    def read(self, name: str) -> list[str]:
        """The lines of a unit's file, then of its drop-ins and its template's; a target may have no file."""
        stem, at, rest = name.partition("@")
        stems = [name, *([f"{stem}@.{name.rpartition('.')[2]}"] if at else [])]
        paths = [f"{self.root}/{base}/{one}" for one in stems for base in BASES]
        files = [path for path in paths if os.path.isfile(path)][:1]
        if not files and not name.endswith(".target"):
            raise LookupError(f"Unit {name} not found.")
        dropins: dict[str, str] = {}
        for path in paths:
            for file in names(f"{path}.d"):
                if file.endswith(".conf"):
                    dropins.setdefault(file, f"{path}.d/{file}")
        files += [dropins[key] for key in sorted(dropins)]
        specifiers = {"%p": stem.removesuffix(".service"), "%i": rest.removesuffix(".service"), "%n": name}
        specifiers["%N"] = name.removesuffix(".service")
        lines = [line for file in files for line in Path(file).read_text().splitlines()]
        lines = [re.sub("%[piNn]", lambda match: specifiers[match.group()], line) for line in lines]
        # A name of a unit or of a file that is too long is ignored, with a warning.
        return [
            line
            for line in lines
            if all(len(part) <= 255 for part in re.split("[/=]", line)) or line.startswith("Exec")
        ]

    def values(self, name: str, key: str) -> list[str]:
        """All assignments of a key in a service or target."""
        return [line.partition("=")[2] for line in self.lines(name) if line.partition("=")[0] == key]

    def require(self, name: str) -> None:
        """Load a unit, unless it is, and what it names."""
        kind = name.rpartition(".")[2]
        known = self.units.get(name)
        if (kind in ("slice", "scope") or known is not None) and not (known and known.loaded):
            self.load(name)
        if kind in ("service", "target") and name not in self.config:
            try:
                self.config[name] = self.read(name)
            except LookupError:
                return
            for other in self.named_by(name):
                self.require(other)

    def named_by(self, name: str) -> set[str]:
        """The units that a loaded service or target names."""
        named = {word for key in NAMED for line in self.values(name, key) for word in line.split()}
        for base in BASES if name.endswith(".target") else ():
            for kind in ("wants", "requires"):
                named.update(names(f"{self.root}/{base}/{name}.{kind}"))
        return named

    def load_all(self) -> None:
        """Read the files of all units of systemd: the running ones, the targets, and the units that these name."""
        self.loaded.clear()
        self.config.clear()
        for unit in self.units.values():
            unit.loaded = False
        for name in self.kept():
            self.require(name)

    def kept(self) -> set[str]:
        """The units that are loaded for themselves."""
        inside = [name.rpartition(".") for base in BASES for name in names(f"{self.root}/{base}")]
        targets = {stem for stem, dummy, kind in inside if stem.endswith(".target") and kind[:1] in ("w", "r", "d")}
        running = {name for name, unit in self.units.items() if unit.running}
        return {"slices.target", *targets, *running, *self.services, *self.active}

    def collect(self) -> None:
        """Units that nothing names and that do not run are no longer loaded."""
        named, left = set[str](), list(self.kept())
        while left:
            name = left.pop()
            if name not in named:
                named.add(name)
                left += self.named_by(name) if name in self.config else ()
        self.config = {name: lines for name, lines in self.config.items() if name in named}
        for name, unit in self.units.items():
            unit.loaded = unit.loaded and name in named

    def run_slice(self, name: str) -> None:
        path = self.place(name)
        if "/" in path:
            self.run_slice(path.split("/")[-2])
        self.require(name)
        if not self.units[name].running:
            self.units[name].running = True
            self.cgroups.setdefault(path, Cgroup())
            self.realise_family(path)
            self.realise(name)

    def slice_of(self, unit: str) -> str:
        """The slice that a service is to be in, as loaded; instances have one of their template by default (systemd.resource-control(5))."""
        stem, at, dummy = unit.partition("@")
        usual = f"system-{stem.replace('-', chr(92) + 'x2d')}.slice" if at else "system.slice"
        try:
            return next((value for value in reversed(self.values(unit, "Slice")) if value), usual)
        except LookupError:  # It runs on though its files are gone.
            return usual

    def stop_slice(self, name: str) -> bool:
        """``systemctl stop``: a service requires its slice (systemd.resource-control(5)) as its files have it, wherever it runs."""
        path = self.place(name)
        for unit in [unit for unit in sorted(self.services) if self.slice_of(unit) == name]:
            self.end_service(unit)
        if name not in self.units or not self.units[name].running:
            return False
        for inner in [other for other in self.units if self.place(other).startswith(f"{path}/")]:
            self.units[inner].running = self.units[inner].stale = False
        self.units[name].running = self.units[name].stale = False
        for inner in [other for other in self.cgroups if f"{other}/".startswith(f"{path}/")]:
            del self.cgroups[inner]
        self.collect()
        self.sync()
        return True

    def is_masked(self, name: str) -> bool:
        """Whether the first file of a unit is a link to /dev/null (systemctl mask)."""
        paths = (f"{self.root}/{base}/{name}" for base in BASES)
        path = next((path for path in paths if os.path.lexists(path)), "")
        return os.path.islink(path) and os.readlink(path) == "/dev/null"

    def set_property(self, name: str, assignment: str, runtime: bool) -> Command:
        key, dummy, value = assignment.partition("=")
        if self.is_masked(name):
            return Command(1, "", f"Failed to set unit properties on {name}: Unit {name} is masked.")
        if not name.endswith(".slice") and name not in self.units:
            return Command(1, "", f"Failed to set unit properties on {name}: Unit {name} not found.")
        if key not in (*LISTS, *LIMITS, "TasksMax"):
            return Command(1, "", f"Unknown assignment: {assignment}")
        if key in LISTS:
            try:
                members = read_list(value)
            except ValueError:
                return Command(1, "", f"Failed to parse {key}")
        self.require(name)
        unit = self.units[name]
        text = f"# This is a drop-in unit file extension, created via systemctl set-property.\n[{name}]\n"
        text += (f"{key}=\n" if value and key in LISTS else "") + f"{key}={value}"
        # init.scope is a transient unit (unit_drop_in_dir).
        base = TRANSIENT if name == "init.scope" else RUNTIME if runtime else PERSISTENT
        self.write(f"{base}/{name}.d/50-{key}.conf", text)
        if key == "AllowedCPUs":
            unit.cpus = members if value else None
        elif key == "AllowedMemoryNodes":
            unit.mems = members if value else None
        elif key in LIMITS:
            unit.limits[key] = value
        else:
            unit.tasks = (value or "max").replace("infinity", "max")
        if unit.running:
            self.realise_family(self.place(name))
            self.realise(name)
        else:
            for path in (*ancestors(self.place(name))[1:], self.place(name)):
                self.cgroups.setdefault(path, Cgroup())
            self.collect()
            self.sync()
        return DONE

    def set_devices(self, name: str, assignments: t.Sequence[str]) -> Command:
        """DeviceAllow= of a service: entries add up to those in memory, which its file then has as well; an empty one resets them."""
        self.require(name)
        if name not in self.config:
            return Command(1, "", f"Failed to set unit properties on {name}: Unit {name} not found.")
        entries = self.devices_allowed(name)
        for assignment in assignments:
            value = assignment.partition("=")[2]
            value = f"{value} rwm" if value and " " not in value else value
            entries = [*(one for one in entries if one != value), value] if value else []
        lines = ["DeviceAllow=", *(f"DeviceAllow={entry}" for entry in reversed(entries))]
        self.write(f"{RUNTIME}/{name}.d/50-DeviceAllow.conf", "\n".join(["[Service]", *lines]))
        self.config[name] = [line for line in self.config[name] if not line.startswith("DeviceAllow=")] + lines
        self.attach_program(name)
        self.collect()
        return DONE

    def devices_allowed(self, name: str) -> list[str]:
        """The entries of DeviceAllow= that count for a service."""
        entries: list[str] = []
        for value in self.values(name, "DeviceAllow"):
            entries = [*entries, value] if value else []
        return entries

    def attach_program(self, name: str) -> None:
        """Set the devices that the processes of a service may open: the kernel knows numbers; systemd follows links when it sets the list.

        /dev/char/MAJOR:MINOR is accepted (device_path_parse_major_minor), whether such a file exists or not.
        """
        if name not in self.services:
            return
        try:
            entries, policy = (
                self.devices_allowed(name),
                [value for value in self.values(name, "DevicePolicy") if value],
            )
        except LookupError:  # It runs on though its files are gone.
            return
        paths = [entry.split()[0] for entry in entries]
        numbers = frozenset(path[len("/dev/") :] for path in paths if path.startswith(("/dev/char/", "/dev/block/")))
        files = (self.root / path.lstrip("/") for path in paths)
        numbers |= frozenset(file.read_text().strip() for file in files if file.is_file())
        self.programs[name] = None if (policy or ["auto"])[-1] == "auto" and not entries else numbers

    def revert(self, name: str) -> Command:
        """All drop-ins of a unit outside /usr go, whoever wrote them (unit_file_revert), and systemd reads its files."""
        for base in BASES:
            if not base.startswith("usr/"):
                shutil.rmtree(self.root / base / f"{name}.d", ignore_errors=True)
        return self.daemon_reload()

    def daemon_reload(self) -> Command:
        self.reloads += 1
        self.load_all()
        for name, unit in list(self.units.items()):
            if unit.running and (self.reload_applies or name == "init.scope"):
                self.realise(name)
        for service in sorted(self.services):
            # Seen on 252: a slice gets its control group with a unit that is to be in it, and does not run for that.
            parts = self.place(self.slice_of(service)).split("/")
            for depth in range(len(parts)):
                self.cgroups.setdefault("/".join(parts[: depth + 1]), Cgroup())
            if self.reload_applies:
                self.attach_program(service)
        self.sync()
        return DONE

    # Mounts

    def mount(self, path: str, fstype: str, **options: str) -> None:
        """Mount by hand."""
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self.mounts.append((path, fstype, {"rw": "", **options}))
        self.sync()

    def unmount(self, path: str) -> bool:
        mounts = [row for row in self.mounts if row[0] == path]
        if not mounts or path in self.busy:
            return False
        self.mounts.remove(mounts[-1])
        self.sync()
        return True

    def path_of(self, unit: str) -> str | None:
        """The mount point of a mount unit: by its file, or by what is mounted there."""
        known = [path for path, *dummy in self.mounts if f"{escaped(path)}.mount" == unit]
        text = self.text_of(unit)
        lines = [line for line in (text or "").splitlines() if line.startswith("Where=")]
        return lines[0].partition("=")[2].replace("%%", "%") if lines else known[0] if known else None

    def text_of(self, unit: str) -> str | None:
        """A unit's file as systemd read it last."""
        if unit not in self.loaded:
            for base in BASES:
                if (self.root / base / unit).is_file():
                    self.loaded[unit] = (self.root / base / unit).read_text()
                    break
        return self.loaded.get(unit)

    def start_mount(self, unit: str) -> Command:
        path, text = self.path_of(unit), self.text_of(unit)
        if path is None or text is None:
            return Command(5, "", f"Failed to start {unit}: Unit {unit} not found.")
        if any(row[0] == path for row in self.mounts):
            return DONE
        line = next(line for line in text.splitlines() if line.startswith("Options="))
        asked = dict(option.partition("=")[::2] for option in line.partition("=")[2].split(","))
        shown = kernel_options(asked)
        page = int(shown["pagesize"][:-1]) << (10 if shown["pagesize"].endswith("K") else 20)
        free = self.root / f"sys/kernel/mm/hugepages/hugepages-{page >> 10}kB/free_hugepages"
        if int(shown.get("min_size", 0)) > int(free.read_text()) * page:
            return Command(1, "", f"Job for {unit} failed.")  # ENOMEM
        self.mount(path, "hugetlbfs", **shown)
        return DONE

    # systemctl

    def systemctl(self, *words: str) -> Command:
        verb, *rest = words
        runtime = "--runtime" in rest
        rest = [word for word in rest if word not in ("--runtime", "--now", "--", "--job-mode=fail", "--no-block")]
        if verb == "daemon-reload":
            return self.daemon_reload()
        if verb == "is-active":
            running = self.active.union(name for name, unit in self.units.items() if unit.running)
            states = ["active" if unit in running else "inactive" for unit in rest]
            return Command(0 if "active" in states else 3, "\n".join(states) + "\n", "")
        if verb == "show":
            return Command(0, "\n\n".join(self.show_unit(unit) for unit in rest if not unit.startswith("--")), "")
        if verb == "is-system-running":
            word = "stopping" if self.stopping else "starting" if self.starting else "running"
            return Command(0 if word == "running" else 1, f"{word}\n", "")
        if verb == "set-property" and rest[0].endswith(".service") and rest[1].startswith("DeviceAllow="):
            return self.set_devices(rest[0], rest[1:])
        if verb == "set-property":
            return self.set_property(rest[0], rest[1], runtime)
        if verb == "revert":
            return self.revert(rest[0])
        if verb == "reset-failed":
            self.failed -= {unit for pattern in rest for unit in fnmatch.filter(self.failed, pattern)}
            return DONE
        if verb == "stop" and "*" in rest[0]:
            for unit in {unit for pattern in rest for unit in fnmatch.filter(self.services, pattern)}:
                self.end_service(unit)
            return DONE
        if verb == "reload":
            self.asked += rest
            return DONE
        if not rest:
            return Command(1, "", "Too few arguments.")
        if verb == "restart":
            self.control("stop", rest[0])
            verb = "start"
        return self.control(verb, rest[0])

    def show_unit(self, unit: str) -> str:
        """The properties of a unit in systemctl show; ``told`` are those that a test has set."""
        file = self.root / "etc/systemd/system" / unit
        load = "masked" if self.is_masked(unit) else "loaded" if self.text_of(unit) is not None else "not-found"
        known = {
            "Id": unit,
            "LoadState": load,
            "ActiveState": "active" if unit in self.active else "inactive",
            "UnitFileState": "enabled" if any(file.parent.glob(f"*.wants/{unit}")) else "disabled",
            "Result": "success",
            "ConditionResult": "no",
            "ConditionTimestampMonotonic": "0",
            "InactiveExitTimestampMonotonic": "0",
            "TimeoutStartUSec": "3min",
            "MainPID": "0",
        }
        return "\n".join(f"{key}={value}" for key, value in {**known, **self.told.get(unit, {})}.items())

    def control(self, verb: str, unit: str) -> Command:
        kind = unit.rpartition(".")[2]
        if kind == "slice":
            if verb == "start" and self.is_masked(unit):
                return Command(1, "", f"Failed to start {unit}: Unit {unit} is masked.")
            if verb == "start":
                self.run_slice(unit)
                return DONE
            return DONE if self.stop_slice(unit) else Command(5, "", f"Unit {unit} not loaded.")
        if kind == "mount" and verb == "start":
            return self.start_mount(unit)
        if kind == "mount":
            path = self.path_of(unit)
            if path is None:
                return Command(5, "", f"Failed to stop {unit}: Unit {unit} not loaded.")
            there = any(row[0] == path for row in self.mounts)
            return DONE if not there or self.unmount(path) else Command(1, "", f"Job for {unit} failed.")
        if self.text_of(unit) is None and (verb == "start" or unit not in self.active):
            return Command(5, "", f"Failed to {verb} {unit}: Unit {unit} not found.")
        if unit.endswith(".service"):  # Corral's are oneshots: they run and are inactive again.
            self.ran.append(unit)
            return DONE
        (self.active.add if verb == "start" else self.active.discard)(unit)
        if verb == "start":
            self.start_wanted_slices(unit)
        return DONE

    def start_wanted_slices(self, unit: str) -> None:
        """A unit that starts starts the slices that it wants."""
        for line in (self.text_of(unit) or "").splitlines():
            for word in line.partition("Wants=")[2].split():
                if word.endswith(".slice") and not self.is_masked(word):
                    self.run_slice(word)


class Shared:
    """The values from which the files of several control groups are made, computed once."""

    def __init__(self, systemd: FakeSystemd) -> None:
        self.cgroups = systemd.cgroups
        running = [(nested(name), unit) for name, unit in systemd.units.items() if unit.running]
        # The control groups around units that want cpusets, whose subtree_control has them on.
        wanting = [path for path, unit in running if unit.cpus is not None or unit.mems is not None]
        self.with_cpuset = set[str]() if systemd.cgroups[""].lacks_cpusets else around(wanting)
        # The same of the controller cpu.
        self.with_cpu = around(path for path, unit in running if any(unit.limits.get(key) for key in CPU_PROPERTIES))
        # The control groups that have a process in them or below.
        busy = [path for path, group in systemd.cgroups.items() if group.procs or group.tasks]
        self.populated = around(busy).union(busy)

    def controllers(self, path: str, *, below: bool = False) -> list[str]:
        """The controllers of a control group, or those that the groups ``below`` it have."""
        above = path if below else parent(path)
        enabled = ["memory", "pids"]
        if above in self.with_cpuset:
            enabled.append("cpuset")
        if above in self.with_cpu:
            enabled.append("cpu")
        return enabled + sorted(self.cgroups[above].delegated if above in self.cgroups else ())


@functools.cache
def ancestors(path: str) -> tuple[str, ...]:
    """The control groups around one, the root included."""
    parts = path.split("/")
    return tuple("/".join(parts[:depth]) for depth in range(len(parts)))


def around(paths: t.Iterable[str]) -> set[str]:
    """The control groups around any of these."""
    return {above for path in paths for above in ancestors(path)}


@functools.cache
def nested(unit: str) -> str:
    """The control group of a unit: dashes nest slices."""
    if not unit.endswith(".slice"):
        return unit
    parts = unit[: -len(".slice")].split("-")
    return "/".join("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts)))


def duplicate(thing: Thing) -> Thing:
    """A unit or control group of its own, with what it holds."""
    twin = copy.copy(thing)
    for name, value in vars(thing).items():
        if isinstance(value, (dict, list, set)):
            setattr(twin, name, copy.copy(value))
    return twin


def names(folder: str) -> list[str]:
    """The names in a folder, none when it is not there."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def escaped(path: str) -> str:
    """A path as a unit's name (systemd-escape --path)."""
    plain = "/".join(filter(None, path.split("/"))) or "/"
    code = re.sub(rb"[^A-Za-z0-9:_./]|^[.]", lambda found: b"\\x%02x" % ord(found[0]), os.fsencode(plain))
    return code.decode().replace("/", "-")


def added_up(values: t.Iterable[str]) -> Cpus | None:
    """A list over all its assignments."""
    cpus: Cpus | None = None
    for value in values:
        # Blanks separate as commas do.
        cpus = (cpus or frozenset()) | read_list(value.replace(" ", ",")) if value else None
    return cpus


def kernel_text(name: str, value: str) -> str:
    """What the kernel's file shows for a property; "" for none."""
    if name == "CPUQuota" and value:
        per_second = round(float(value.rstrip("%")) * 10000)
        # At least a millisecond: the period grows where it must (systemd, cgroup_cpu_adjust_period).
        period = min(max(-(-1000 * SECOND // per_second), SECOND // 10), SECOND)
        return f"{max(per_second * period // SECOND, 1000)} {period}"
    if name.startswith("Memory") and value.isdecimal():
        return str(int(value) // PAGE * PAGE)
    return "max" if value == "infinity" else value


def kernel_options(asked: Options) -> Options:
    """Mount options as hugetlbfs shows them: sizes in whole pages, defaults left out."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

    def number(text: str) -> int:
        return int(text) if text.isdecimal() else int(text[:-1]) * units[text[-1]]

    page = number(asked["pagesize"])
    shown = {key: asked[key] for key in ("uid", "gid") if asked.get(key, "0") != "0"}
    if asked.get("mode", "755") != "755":
        shown["mode"] = asked["mode"].lstrip("0")
    shown["pagesize"] = f"{page >> 10}K" if page < 1 << 20 else f"{page >> 20}M"
    for key in ("size", "min_size"):
        if key in asked:
            shown[key] = str(number(asked[key]) // page * page)
    return shown
