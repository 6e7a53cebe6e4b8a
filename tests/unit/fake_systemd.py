# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd and the cgroup v2 kernel as far as Corral relies on them, in a folder.

What it does was tried on real systemd 252 and 257: a set-property on a slice that does not run makes an empty control
group, CPUs that do not exist are accepted and ignored, clearing AllowedCPUs= leaves the kernel's value, cpuset files are
there only while some unit of the level has AllowedCPUs=, and a child outside its parent silently gets the parent's CPUs.
The same goes for memory nodes, and for the files of the cpu controller. systemd never switches the hugetlb controller on:
who does finds it again until the control group goes.
"""

from __future__ import annotations

import errno
import json
import shutil
import typing as t
from pathlib import Path

from _core.host.command import Command
from _core.model import cpuset
from _core.model.unitfile import escaped_path

Cpus = frozenset[int]
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
FRAMES = ("corral.slice", "corral-exclusive.slice")
ISOLATED = "corral-isolated.slice"
EXCLUSIVE = "corral-exclusive-"
CHECKPOINT = "var/lib/corral/checkpoint.json"
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


class Cgroup:
    """One control group: cpuset.cpus and .mems as requested (None: nothing), pids.max, other files by name, and how many
    processes are in it; those of services by their ids. ``delegated`` are controllers that somebody switched on for the
    groups below.
    """

    def __init__(self) -> None:
        self.requested: Cpus | None = None
        self.mems: Cpus | None = None
        self.pids = "max"
        self.values: dict[str, str] = {}
        self.delegated: set[str] = set()
        self.procs = 0
        self.tasks: list[int] = []


class Unit:
    """A slice or scope as systemd has it in memory: its properties, and whether it runs."""

    def __init__(self) -> None:
        self.cpus: Cpus | None = None
        self.mems: Cpus | None = None
        self.tasks = "max"
        self.limits: dict[str, str] = {}
        self.running = False


class FakeSystemd:
    """PID 1 of the tree ``root``. ``watch`` is called after every single change of a control group.

    ``reload_applies``: a daemon-reload changes running units at once (252); 257 leaves all but init.scope alone.
    """

    def __init__(self, root: Path, online: Cpus, *, reload_applies: bool = True) -> None:
        self.root = root
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
        self.shown: dict[str, str] = {}
        self.watch: t.Callable[[], None] = lambda: None
        for folder in ("system", "units"):
            (root / "run/systemd" / folder).mkdir(parents=True)
        self.mount_cgroups()
        for unit in ("init.scope", "system.slice", "user.slice"):
            self.run_slice(unit)
            self.cgroups[unit].procs = 3
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

    def sync(self) -> None:
        """Show control groups and mounts as files."""
        self.show_groups()
        self.show_mounts()
        self.watch()

    def show_groups(self) -> None:
        self.show(f"{CGROUP}/cpuset.cpus.effective", cpuset.format(self.online))
        self.show(f"{CGROUP}/cgroup.subtree_control", " ".join(self.controllers("", below=True)))
        for path in [path for path in self.folders if path not in self.cgroups]:
            self.folders.discard(path)
            self.shown = {file: text for file, text in self.shown.items() if not file.startswith(f"{CGROUP}/{path}/")}
            shutil.rmtree(self.root / CGROUP / path, ignore_errors=True)
        for path, group in self.cgroups.items():
            if path:
                self.folders.add(path)
                self.show_group(path, group)

    def show_mounts(self) -> None:
        lines = ["22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw"]
        for number, (path, fstype, options) in enumerate(self.mounts):
            shown = ",".join(f"{key}={value}" if value else key for key, value in options.items())
            escaped = path.replace("\\", "\\134").replace(" ", "\\040")
            lines.append(
                f"{30 + number} 1 0:{40 + number} / {escaped} rw,relatime shared:9 - {fstype} {fstype} {shown}"
            )
        self.show("proc/1/mountinfo", "\n".join(lines))

    def show_group(self, path: str, group: Cgroup) -> None:
        folder = f"{CGROUP}/{path}"
        inside = [other for name, other in self.cgroups.items() if f"{name}/".startswith(f"{path}/")]
        self.show(f"{folder}/pids.max", group.pids)
        self.show(f"{folder}/cgroup.procs", "\n".join(map(str, (*range(group.procs), *group.tasks))))
        populated = any(one.procs or one.tasks for one in inside)
        self.show(f"{folder}/cgroup.events", f"populated {int(populated)}\nfrozen 0")
        files: dict[str, str | None] = dict.fromkeys(("cpuset.cpus", "cpuset.cpus.effective"))
        if self.has_cpuset(path):
            files["cpuset.cpus"] = cpuset.format(group.requested or ())
            files["cpuset.cpus.effective"] = cpuset.format(self.effective(path))
        else:
            group.requested = group.mems = None
        if f"{path}/".startswith(f"{FRAMES[0]}/"):  # Nobody looks at the others.
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
        return self.some_unit(path.rpartition("/")[0], lambda unit: unit.cpus is not None or unit.mems is not None)

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
            group.requested = cpuset.parse(text)
        else:
            group.values[file] = text
        self.sync()

    def effective(self, path: str) -> Cpus:
        """What the kernel has in force."""
        if not path:
            return self.online
        above = self.effective(path.rpartition("/")[0])
        return (self.cgroups[path].requested or frozenset()) & above or above

    def effective_of(self, unit: str) -> Cpus:
        return self.effective(self.place(unit))

    def effective_mems(self, path: str) -> Cpus:
        """The memory nodes in force."""
        if not path:
            return self.nodes
        above = self.effective_mems(path.rpartition("/")[0])
        return (self.cgroups[path].mems or frozenset()) & above or above

    def overlaps(self) -> list[str]:
        """Who shares an isolated CPU now, or one of a workload that runs and was granted it."""
        homes = [unit for unit, state in self.units.items() if state.running and unit not in FRAMES]
        homes = [unit for unit in homes if not unit.startswith(EXCLUSIVE) or self.populated(unit)]
        granted = self.granted()
        found = []
        for guarded in homes:
            if guarded == ISOLATED or (guarded.startswith(EXCLUSIVE) and granted(guarded)):
                own = self.effective_of(guarded)
                sharing = [unit for unit in homes if unit != guarded and own & self.effective_of(unit)]
                found += [f"{unit} {sorted(self.effective_of(unit))} and {guarded} {sorted(own)}" for unit in sharing]
        return found

    def granted(self) -> t.Callable[[str], bool]:
        """Whose slices are to be guarded: those that the checkpoint grants CPUs, or all when it cannot be read."""
        try:
            rows = json.loads((self.root / CHECKPOINT).read_text())["data"]["grants"]
            names = {row["workload"] for row in rows if row["cpus"]}
        except (OSError, ValueError, LookupError, TypeError):
            return lambda unit: True
        return lambda unit: unescaped(unit[len(EXCLUSIVE) : -len(".slice")]) in names

    def populated(self, unit: str) -> bool:
        """Whether a unit's control group or one below it has a process."""
        place = self.place(unit)
        return any(
            (group.procs or group.tasks) and f"{path}/".startswith(f"{place}/") for path, group in self.cgroups.items()
        )

    def tamper(self, unit: str, cpus: str) -> None:
        """Write cpuset.cpus directly, behind systemd's back."""
        self.cgroups[self.place(unit)].requested = cpuset.parse(cpus)
        self.sync()

    def realise(self, name: str) -> None:
        unit, group = self.units[name], self.cgroups[self.place(name)]
        if unit.cpus is not None and unit.cpus <= self.possible:
            group.requested = unit.cpus
        if unit.mems is not None and unit.mems <= self.nodes:
            group.mems = unit.mems
        group.pids = unit.tasks
        for key, (file, usual) in LIMITS.items():
            group.values[file] = kernel_text(key, unit.limits.get(key, "")) or usual
        self.sync()

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
        unit = self.units.setdefault(name, Unit())
        unit.tasks = "max"
        unit.cpus, unit.mems = (self.added_up(name, key) for key in LISTS)
        for value in self.settings(name, "TasksMax"):
            unit.tasks = (value or "max").replace("infinity", "max")
        unit.limits = {key: values[-1] for key in LIMITS if (values := self.settings(name, key))}
        return unit

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
        if name not in self.units or not self.units[name].running:
            self.load(name).running = True
            self.cgroups.setdefault(path, Cgroup())
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
        unit = self.units[name] if name in self.units and self.units[name].running else self.load(name)
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
            self.realise(name)
        else:
            self.cgroups.setdefault(self.place(name), Cgroup())
            self.sync()
        return DONE

    def daemon_reload(self) -> Command:
        self.loaded.clear()
        for name, unit in self.units.items():
            self.load(name)
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


def unescaped(name: str) -> str:
    """What stands for a part of a unit's name (systemd-escape(1))."""
    first, *rest = name.replace("-", "/").split("\\x")
    return first + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)


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
