# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd and the cgroup v2 kernel as far as Corral relies on them, in a folder.

What it does was tried on real systemd 252 and 257: a set-property on a slice that does not run makes an empty control
group, CPUs that do not exist are accepted and ignored, clearing AllowedCPUs= leaves the kernel's value, cpuset files are
there only while some unit of the level has AllowedCPUs=, and a child outside its parent silently gets the parent's CPUs.
The same goes for memory nodes, and for the files of the cpu controller. systemd never switches the hugetlb controller on:
who does finds it again until the control group goes. Which CPUs are in force says fake_cpusets.py.

A unit's configuration is what its files said when it was loaded: at the last daemon-reload, or when something first named
it. It stays loaded while it runs or a loaded unit names it. On 257 a reload puts nothing in force but for init.scope; what
is new then comes with the next change of the unit or of one beside it.
"""

from __future__ import annotations

import errno
import re
import shutil
import typing as t
from pathlib import Path

from _core.host.command import Command
from _core.model import cpuset
from _core.model.unitfile import escaped_path
from fake_cpusets import BOOKWORM, TRIXIE, Cpus, Cpuset, Kernel, Release, parent
from guard import shared, told, unescaped

__all__ = ["BASES", "CGROUP", "Cgroup", "Cpus", "FakeSystemd", "told", "unescaped"]

Options = dict[str, str]

CGROUP = "sys/fs/cgroup"
RUNTIME = "run/systemd/system.control"
PERSISTENT = "etc/systemd/system.control"
# Their order is systemd's load path: the first file of a name wins.
BASES = (
    PERSISTENT,
    RUNTIME,
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
CPUSET_FILES = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.partition")
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
        self.procs = 0
        self.tasks: list[int] = []


class Unit:
    """A slice or scope as systemd has it in memory: its properties, and whether it runs.

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
        self.nodes = frozenset({0, 1})
        self.reload_applies = reload_applies
        self.units: dict[str, Unit] = {}
        self.cgroups: dict[str, Cgroup] = {"": Cgroup()}
        self.active: set[str] = set()
        self.ran: list[str] = []
        self.folders: set[str] = set()
        self.mounts: list[tuple[str, str, Options]] = []
        self.busy: set[str] = set()
        self.loaded: dict[str, str] = {}
        self.config: dict[str, list[str]] = {}  # the lines of loaded services and targets
        self.services: set[str] = set()  # that are active
        self.shown: dict[str, str] = {}
        self.empty_too = False  # an empty isolated slice counts as well (cgroup v1)
        self.watch: t.Callable[[], None] = lambda: None
        for folder in ("system", "units"):
            (root / "run/systemd" / folder).mkdir(parents=True)
        self.mount_cgroups()
        self.boot()

    def boot(self) -> None:
        """Read all configuration, and start what is there on a fresh node, and the slices that slices.target wants."""
        for name in self.units:
            self.units[name] = Unit()
        self.services.clear()
        self.load_all()
        wants = [name for line in self.values("slices.target", "Wants") for name in line.split()]
        for unit in (*USUAL, *wants):
            self.run_slice(unit)
            if unit in USUAL:
                self.occupy(unit, 3)
        self.sync()

    def occupy(self, unit: str, count: int = 1) -> None:
        """So many processes are in a slice or scope: below a slice, since systemd puts none directly in it."""
        path = USUAL.get(unit, f"{self.place(unit)}/busy.service")
        parts = path.split("/")
        for depth in range(len(parts)):
            self.cgroups.setdefault("/".join(parts[: depth + 1]), Cgroup())
        self.cgroups[path].procs = count
        if not count and path != USUAL.get(unit):
            del self.cgroups[path]
        self.sync()

    # Files

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text + "\n")

    def show(self, path: str, text: str) -> None:
        """Write a kernel file, if its text is new."""
        if self.shown.get(path) != text:
            self.shown[path] = text
            self.write(path, text)

    def mount_cgroups(self) -> None:
        """What is there from the start."""
        self.write(f"{CGROUP}/cgroup.controllers", "cpuset cpu io memory hugetlb pids")
        self.write(f"{CGROUP}/cgroup.subtree_control", "memory pids")

    @property
    def kernel(self) -> Kernel:
        """The cpusets of the control groups."""
        return Kernel(self.cgroups, self.online, self.release)

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
        with_cpuset, populated = self.cpuset_parents(), self.populated_places()
        for path, group in self.cgroups.items():
            if path and parent(path) not in with_cpuset:
                group.forget()
                group.mems = None
        effective = self.kernel.effective()
        self.show(f"{CGROUP}/cpuset.cpus.effective", cpuset.format(effective[""]))
        self.show(f"{CGROUP}/cgroup.subtree_control", " ".join(self.controllers("", below=True)))
        for path in [path for path in self.folders if path not in self.cgroups]:
            self.folders.discard(path)
            self.shown = {file: text for file, text in self.shown.items() if not file.startswith(f"{CGROUP}/{path}/")}
            shutil.rmtree(self.root / CGROUP / path, ignore_errors=True)
        for path, group in self.cgroups.items():
            if path:
                self.folders.add(path)
                cpus = effective[path] if parent(path) in with_cpuset else None
                self.show_group(path, group, cpus, populated=path in populated)

    def show_mounts(self) -> None:
        lines = ["22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw"]
        for number, (path, fstype, options) in enumerate(self.mounts):
            shown = ",".join(f"{key}={value}" if value else key for key, value in options.items())
            escaped = path.replace("\\", "\\134").replace(" ", "\\040")
            lines.append(
                f"{30 + number} 1 0:{40 + number} / {escaped} rw,relatime shared:9 - {fstype} {fstype} {shown}"
            )
        self.show("proc/1/mountinfo", "\n".join(lines))

    def show_group(self, path: str, group: Cgroup, effective: Cpus | None, *, populated: bool) -> None:
        folder = f"{CGROUP}/{path}"
        self.show(f"{folder}/pids.max", group.pids)
        self.show(f"{folder}/cgroup.procs", "\n".join(map(str, (*range(group.procs), *group.tasks))))
        self.show(f"{folder}/cgroup.events", f"populated {int(populated)}\nfrozen 0")
        files: dict[str, str | None] = dict.fromkeys(CPUSET_FILES)
        if effective is not None:
            requested = cpuset.format(group.requested or ())
            files = dict(zip(CPUSET_FILES, (requested, cpuset.format(effective), self.kernel.shown(path))))
        if path.startswith("corral"):  # Nobody looks at the others.
            files.update(self.limit_files(path, group))
        for name, text in files.items():
            if text is not None:
                self.show(f"{folder}/{name}", text)
            elif self.shown.pop(f"{folder}/{name}", None) is not None:
                (self.root / folder / name).unlink()

    def limit_files(self, path: str, group: Cgroup) -> dict[str, str | None]:
        """The files of a control group's other controllers; None for one that is not there."""
        controllers = self.controllers(path)
        files: dict[str, str | None] = {
            "cgroup.controllers": " ".join(controllers),
            "cgroup.subtree_control": " ".join(self.controllers(path, below=True)),
            **dict.fromkeys(("cpuset.mems", "cpuset.mems.effective")),
        }
        if self.has_cpuset(path):
            files["cpuset.mems"] = cpuset.format(group.mems or ())
            files["cpuset.mems.effective"] = cpuset.format(self.effective_mems(path))
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
        if not unit.endswith(".slice"):
            return unit
        parts = unit[: -len(".slice")].split("-")
        return "/".join("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts)))

    def has_cpuset(self, path: str) -> bool:
        return parent(path) in self.cpuset_parents()

    def cpuset_parents(self) -> set[str]:
        """The control groups around units that want cpusets, whose subtree_control has them on."""
        units = self.units.items()
        wanting = [name for name, unit in units if unit.running and (unit.cpus is not None or unit.mems is not None)]
        return {above for name in wanting for above in ancestors(self.place(name))}

    def populated_places(self) -> set[str]:
        """The control groups that have a process in them or below."""
        busy = [path for path, group in self.cgroups.items() if group.procs or group.tasks]
        return {*busy, *(above for path in busy for above in ancestors(path))}

    def some_unit(self, parent: str, wants: t.Callable[[Unit], bool]) -> bool:
        """Whether a unit below a control group wants a controller."""
        return any(
            unit.running and wants(unit) and (not parent or self.place(name).startswith(f"{parent}/"))
            for name, unit in self.units.items()
        )

    def controllers(self, path: str, *, below: bool = False) -> list[str]:
        """The controllers of a control group, or those that the groups ``below`` it have."""
        parent = path if below else path.rpartition("/")[0]
        found = ["memory", "pids"]
        if self.has_cpuset(f"{parent}/x" if parent else "x"):
            found.append("cpuset")
        if self.some_unit(parent, lambda unit: any(unit.limits.get(name) for name in CPU_PROPERTIES)):
            found.append("cpu")
        return found + sorted(self.cgroups[parent].delegated if parent in self.cgroups else ())

    def write_file(self, path: str, text: str) -> None:
        """Write to a file of a control group, past systemd."""
        name, dummy, file = path[len(CGROUP) + 1 :].strip("/").rpartition("/")
        group = self.cgroups[name]
        if file == "cgroup.subtree_control":
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
            group.mems = cpuset.parse(text)
        elif file == "cpuset.cpus":
            self.kernel.set_cpus(name, cpuset.parse(text))
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
        """Who has a CPU of another's guarded slice now."""
        return shared(self)

    def tamper(self, unit: str, cpus: str) -> None:
        """Write cpuset.cpus directly, behind systemd's back."""
        self.kernel.set_cpus(self.place(unit), cpuset.parse(cpus))
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
        """Put in force what was loaded for the units around a control group and beside those (257)."""
        around = ancestors(path)
        for name in sorted((name for name, unit in self.units.items() if unit.stale), key=self.place):
            if self.units[name].stale and self.place(name) != path and parent(self.place(name)) in around:
                self.units[name].stale = False
                self.realise(name)

    # Units

    def settings(self, unit: str, name: str) -> list[str]:
        """All assignments in the order in which systemd applies them."""
        files: dict[str, Path] = {}
        for base in BASES:
            for file in sorted((self.root / base / f"{unit}.d").glob("*.conf")):
                files.setdefault(file.name, file)
        lines = [line for key in sorted(files) for line in files[key].read_text().splitlines()]
        return [line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == name]

    def load(self, name: str) -> Unit:
        """Read the files of a slice or scope."""
        unit = self.units.setdefault(name, Unit())
        before = (unit.cpus, unit.mems, unit.tasks, unit.limits)
        unit.tasks = "max"
        unit.cpus, unit.mems = (self.added_up(name, key) for key in LISTS)
        for value in self.settings(name, "TasksMax"):
            unit.tasks = (value or "max").replace("infinity", "max")
        unit.limits = {key: values[-1] for key in LIMITS if (values := self.settings(name, key))}
        unit.loaded = True
        unit.stale = unit.running and (unit.stale or before != (unit.cpus, unit.mems, unit.tasks, unit.limits))
        return unit

    def lines(self, name: str) -> list[str]:
        """The lines of a service's or target's files: as loaded, else as they are."""
        return self.config[name] if name in self.config else self.read(name)

    def read(self, name: str) -> list[str]:
        """The lines of a unit's file, then of its drop-ins and its template's; a target may have no file."""
        stem, at, rest = name.partition("@")
        names = [name, *([f"{stem}@.{name.rpartition('.')[2]}"] if at else [])]
        paths = [self.root / base / one for one in names for base in BASES]
        files = [path for path in paths if path.is_file()][:1]
        if not files and not name.endswith(".target"):
            raise LookupError(f"Unit {name} not found.")
        dropins: dict[str, Path] = {}
        for path in paths:
            for file in path.with_name(f"{path.name}.d").glob("*.conf"):
                dropins.setdefault(file.name, file)
        files += [dropins[key] for key in sorted(dropins)]
        specifiers = {"%p": stem.removesuffix(".service"), "%i": rest.removesuffix(".service"), "%n": name}
        specifiers["%N"] = name.removesuffix(".service")
        lines = [line for file in files for line in file.read_text().splitlines()]
        return [re.sub("%[piNn]", lambda match: specifiers[match.group()], line) for line in lines]

    def values(self, name: str, key: str) -> list[str]:
        """All assignments of a key in a service or target."""
        return [line.partition("=")[2] for line in self.lines(name) if line.partition("=")[0] == key]

    def require(self, name: str) -> None:
        """Load a unit, unless it is, and what it names."""
        kind = name.rpartition(".")[2]
        if kind in ("slice", "scope"):
            if not (name in self.units and self.units[name].loaded):
                self.load(name)
        elif kind in ("service", "target") and name not in self.config:
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
            for folder in (self.root / base / f"{name}.wants", self.root / base / f"{name}.requires"):
                named.update(path.name for path in folder.glob("*"))
        return named

    def load_all(self) -> None:
        """Read the files of all units that systemd has: those that run, the targets, and whatever they name."""
        self.loaded.clear()
        self.config.clear()
        for unit in self.units.values():
            unit.loaded = False
        for name in self.kept():
            self.require(name)

    def kept(self) -> set[str]:
        """The units that are loaded for themselves."""
        targets = {f"{path.stem}" for base in BASES for path in (self.root / base).glob("*.target.[wrd]*")}
        running = {name for name, unit in self.units.items() if unit.running}
        return {"slices.target", *targets, *running, *self.services, *self.active}

    def collect(self) -> None:
        """Units that nothing names and that do not run are no longer loaded."""
        found, left = set[str](), list(self.kept())
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.named_by(name) if name in self.config else ()
        self.config = {name: lines for name, lines in self.config.items() if name in found}
        for name, unit in self.units.items():
            unit.loaded = unit.loaded and name in found

    def added_up(self, unit: str, name: str) -> Cpus | None:
        """A list over all its assignments."""
        found: Cpus | None = None
        for value in self.settings(unit, name):
            # Blanks separate as commas do.
            found = (found or frozenset()) | cpuset.parse(value.replace(" ", ",")) if value else None
        return found

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

    def stop_slice(self, name: str) -> bool:
        path = self.place(name)
        if name not in self.units or not self.units[name].running:
            return False
        for inner in [other for other in self.units if self.place(other).startswith(f"{path}/")]:
            self.units[inner].running = False
        self.units[name].running = False
        for inner in [other for other in self.cgroups if f"{other}/".startswith(f"{path}/")]:
            del self.cgroups[inner]
        self.collect()
        self.sync()
        return True

    def set_property(self, name: str, assignment: str, runtime: bool) -> Command:
        key, dummy, value = assignment.partition("=")
        if not name.endswith(".slice") and name not in self.units:
            return Command(1, "", f"Failed to set unit properties on {name}: Unit {name} not found.")
        if key not in (*LISTS, *LIMITS, "TasksMax"):
            return Command(1, "", f"Unknown assignment: {assignment}")
        if key in LISTS:
            try:
                members = cpuset.parse(value)
            except ValueError:
                return Command(1, "", f"Failed to parse {key}")
        self.require(name)
        unit = self.units[name]
        if runtime or name != "init.scope":
            text = f"# This is a drop-in unit file extension, created via systemctl set-property.\n[{name}]\n"
            text += (f"{key}=\n" if value and key in LISTS else "") + f"{key}={value}"
            self.write(f"{RUNTIME if runtime else PERSISTENT}/{name}.d/50-{key}.conf", text)
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
            self.cgroups.setdefault(self.place(name), Cgroup())
            self.collect()
            self.sync()
        return DONE

    def daemon_reload(self) -> Command:
        self.load_all()
        for name, unit in list(self.units.items()):
            if unit.running and (self.reload_applies or name == "init.scope"):
                self.realise(name)
        return DONE

    # Mounts

    def mount(self, path: str, fstype: str, **options: str) -> None:
        """Mount by hand."""
        (self.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self.mounts.append((path, fstype, {"rw": "", **options}))
        self.sync()

    def unmount(self, path: str) -> bool:
        found = [row for row in self.mounts if row[0] == path]
        if not found or path in self.busy:
            return False
        self.mounts.remove(found[-1])
        self.sync()
        return True

    def path_of(self, unit: str) -> str | None:
        """Where a mount unit mounts: by its file, or by what is mounted there."""
        known = [path for path, *dummy in self.mounts if f"{escaped_path(path)}.mount" == unit]
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
        rest = [word for word in rest if word not in ("--runtime", "--now", "--", "--job-mode=fail")]
        if verb == "daemon-reload":
            return self.daemon_reload()
        if verb == "is-active":
            states = ["active" if unit in self.active else "inactive" for unit in rest]
            return Command(0 if "active" in states else 3, "\n".join(states) + "\n", "")
        if verb == "set-property":
            return self.set_property(rest[0], rest[1], runtime)
        if not rest:
            return Command(1, "", "Too few arguments.")
        if verb == "restart":
            self.control("stop", rest[0])
            verb = "start"
        return self.control(verb, rest[0])

    def control(self, verb: str, unit: str) -> Command:
        kind = unit.rpartition(".")[2]
        if kind == "slice":
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
        return DONE


def ancestors(path: str) -> list[str]:
    """The control groups around one, the root included."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(len(parts))]


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
