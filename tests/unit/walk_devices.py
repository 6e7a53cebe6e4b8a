# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of a random walk (walk.py): the plugged devices, their resources in profiles, and who may use which.

The devices of a workload are read from the environment of its run and from the kernel's list of its service, which has numbers. A device
that comes back under another number may meet an older list. That is no fault until a whole tick has set the lists again.
"""

from __future__ import annotations

import collections
import json
import random
import re
import shutil
import typing as t

import services
from node import Node
from walk_judge import unit_of

Data = dict[str, t.Any]
Ids = frozenset[str]

CHECKPOINT, PROFILE = "/var/lib/corral/checkpoint.json", "/etc/corral/profile.json"
FOLDER, SPECS, CONTROL = "/run/corral/devices", "/run/cdi", "/run/systemd/system.control"
VENDOR = "/etc/cdi/vendor.json"
BY_PATH = "/dev/serial/by-path/usb-"
KINDS = ("tty", "vfio", "nic", "gpu")
NAMES = {"tty": "example.com/tty", "vfio": "example.com/vfio", "nic": "example.com/nic", "gpu": "vendor.com/gpu"}
NEW = "-new"
MAJOR = {"tty": 188, "vfio": 240, "gpu": 195, "nic": 0}
GPU_VERSIONS = ("0.5.0", "0.6.0", "0.8.0", "1.0.0")  # An engine takes names that begin with a digit from 0.5.0 on.
# How a resource may match the devices of a kind: with names that change, and with stable names.
MATCHES: dict[str, list[Data]] = {
    "tty": [{"path": f"{BY_PATH}*"}, {"path": f"{BY_PATH}?"}, {"path": f"{BY_PATH}0"}],
    "vfio": [{"pci": "8086:1572", "driver": "vfio-pci"}, {"pci": "8086:*", "driver": "vfio-pci"}],
    "nic": [{"class": "0200", "driver": "ice"}, {"interface": "ens*"}],
    "gpu": [{"cdi": "vendor.com/gpu"}, {"cdi": "vendor.com/gpu=0"}],
}
BY_NAME: dict[str, list[Data]] = {"tty": [{"path": "/dev/ttyUSB*"}], "vfio": [{"path": "/dev/vfio/*"}]}


class Thing:
    """A device that can be plugged in: ``name`` is the present number of its file."""

    def __init__(self, kind: str, number: int, node: int) -> None:
        self.kind, self.number, self.node = kind, number, node
        self.name = number
        self.plugged = self.healthy = True
        self.listed: int | None = number  # in a vendor's spec that counts its devices

    @property
    def ident(self) -> str:
        """Its name in messages."""
        return f"{self.kind} {self.number}"

    @property
    def file(self) -> str:
        """Its device file; "" without one."""
        files = {"tty": "/dev/ttyUSB{}", "vfio": "/dev/vfio/{}", "gpu": "/dev/gpu{}", "nic": ""}
        return files[self.kind].format(self.name)

    @property
    def code(self) -> str:
        """The kernel's number for its file."""
        return f"char/{MAJOR[self.kind]}:{self.name}"

    def is_called(self, name: str) -> bool:
        """Whether Corral's id of a device means this device."""
        own = {
            "tty": f"{BY_PATH}{self.number}",
            "vfio": f"0000:3b:0{self.number}.0",
            "nic": f"0000:5e:0{self.number}.0",
        }
        own["gpu"] = f"vendor.com/gpu={self.listed}"
        alias = f"vendor.com/gpu=gpu-{self.number}" if self.kind == "gpu" else self.file
        return name in (own[self.kind], alias, self.file)


class Row(t.NamedTuple):
    """A device of a grant, as the checkpoint has it."""

    resource: str
    ident: str
    keys: t.Sequence[str]


class Hardware:
    """The devices of a node, in its kernel's files. With ``stable`` names a device comes back under its earlier number."""

    def __init__(
        self, fake: Node, dice: random.Random, nodes: t.Sequence[int], *, is_counted_anew: bool = False
    ) -> None:
        self.fake = fake
        self.is_counted_anew = is_counted_anew  # the vendor's spec has no other names than numbers, which change
        self.stable = dice.random() < 0.4
        homes = [*nodes, *nodes, -1]
        counts = {"tty": 3, "vfio": 3, "nic": 2, "gpu": 2}
        self.kinds = sorted(dice.sample(KINDS, dice.choice([2, 3])))
        if is_counted_anew:
            counts["gpu"] = 3
            self.kinds = sorted({*self.kinds, "gpu"})
        self.things = [Thing(kind, number, dice.choice(homes)) for kind in self.kinds for number in range(counts[kind])]
        self.version = dice.choice(GPU_VERSIONS)
        self.is_spec_whole = True
        fake.put("/dev/vfio/vfio", "char/10:196\n")
        for thing in self.things:
            thing.name += 7 if thing.kind == "vfio" else 0
            self.plug(thing)
        self.write_spec()

    def link(self, path: str, text: str) -> None:
        link = self.fake.root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(text)

    def function(self, address: str, pci_id: str, pci_class: str, node: int) -> str:
        """A PCI function; its folder."""
        folder = f"/sys/devices/pci{address[:7]}/{address}"
        rows = {"vendor": f"0x{pci_id[:4]}", "device": f"0x{pci_id[5:]}", "class": f"0x{pci_class}", "numa_node": node}
        for name, text in rows.items():
            self.fake.put(f"{folder}/{name}", f"{text}\n")
        self.link(f"/sys/bus/pci/devices/{address}", f"../../..{folder[4:]}")
        return folder

    def bind(self, folder: str, driver: str) -> None:
        self.link(f"{folder}/driver", f"../../../bus/pci/drivers/{driver}")

    def plug(self, thing: Thing) -> None:
        thing.plugged = thing.healthy = True
        if thing.file:
            self.fake.put(thing.file, f"{thing.code}\n")
        if thing.kind == "tty":
            folder = self.function(f"0000:00:14.{thing.number}", "8086:a36d", "0c0330", thing.node)
            self.link(f"{BY_PATH}{thing.number}", f"../..{thing.file[4:]}")
            self.link(f"/sys/dev/{thing.code}", f"../../{folder[5:]}/usb{thing.number}/{thing.file[5:]}")
        elif thing.kind == "vfio":
            for address in (
                f"0000:3b:0{thing.number}.0",
                *([f"0000:3b:0{thing.number}.1"] if thing.number == 0 else []),
            ):
                folder = self.function(address, "8086:1572", "020000", thing.node)
                self.bind(folder, "vfio-pci")
                self.link(f"{folder}/iommu_group", f"../../../kernel/iommu_groups/{thing.name}")
        elif thing.kind == "nic":
            folder = self.function(f"0000:5e:0{thing.number}.0", "8086:1593", "020000", thing.node)
            self.bind(folder, "ice")
            net = f"{folder}/net/ens{thing.number}"
            self.fake.put(f"{net}/carrier", "1\n")
            self.link(f"/sys/class/net/ens{thing.number}", f"../..{net[4:]}")

    def unplug(self, thing: Thing) -> None:
        thing.plugged = False
        if thing.file:
            self.fake.drop(thing.file)
        if thing.kind == "tty":
            self.fake.drop(f"{BY_PATH}{thing.number}")
            self.fake.drop(f"/sys/dev/{thing.code}")
        bus = {"vfio": "0000:3b", "nic": "0000:5e"}.get(thing.kind)
        for link in sorted((self.fake.root / "sys/bus/pci/devices").glob(f"{bus}:0{thing.number}.?")) if bus else ():
            shutil.rmtree(link.resolve())
            link.unlink()
        if thing.kind == "nic":
            self.fake.drop(f"/sys/class/net/ens{thing.number}")

    def sicken(self, thing: Thing) -> bool:
        """Make a device unhealthy, or healthy again; returns whether that is possible."""
        if thing.kind not in ("vfio", "nic"):
            return False
        thing.healthy = not thing.healthy
        if thing.kind == "nic":
            self.fake.put(f"/sys/class/net/ens{thing.number}/carrier", f"{int(thing.healthy)}\n")
        else:
            part = 1 if thing.number == 0 else 0  # of a group of two the other one
            self.bind(f"/sys/bus/pci/devices/0000:3b:0{thing.number}.{part}", "vfio-pci" if thing.healthy else "i40e")
        return True

    def write_spec(self) -> None:
        """The CDI spec of a vendor's tool, with two names for each device, or its number alone."""
        if "gpu" not in self.kinds:
            return
        names = [
            (name, thing)
            for thing in self.of("gpu")
            if thing.listed is not None
            for name in (f"{thing.listed}", *([] if self.is_counted_anew else [f"gpu-{thing.number}"]))
        ]
        rows = [
            {"name": name, "containerEdits": {"deviceNodes": [{"path": thing.file}], "env": [f"GPU={thing.number}"]}}
            for name, thing in names
        ]
        data = {"cdiVersion": self.version, "kind": "vendor.com/gpu", "devices": rows}
        self.fake.put(VENDOR, json.dumps(data) if self.is_spec_whole else '{"cdiVersion": ')

    def of(self, kind: str) -> list[Thing]:
        return [one for one in self.things if one.kind == kind]

    def free_name(self, thing: Thing, dice: random.Random) -> int:
        """The number under which a device comes back: for a tty the kernel takes the lowest one."""
        if self.stable or thing.kind not in ("tty", "vfio"):
            return thing.name
        taken = {other.name for other in self.of(thing.kind) if other.plugged}
        free = [number for number in range(7 if thing.kind == "vfio" else 0, 14) if number not in taken]
        return free[0] if thing.kind == "tty" else dice.choice(free)

    def happens(
        self, dice: random.Random, held: t.Collection[Thing], *, loose: bool = False
    ) -> tuple[str, list[Thing]]:
        """Do something to a device, often to one that a workload has.

        A list that was set while a device was missing has its link, until a tick (``loose``).
        """
        mine = [one for one in self.things if one in held]
        thing = dice.choice(mine if mine and dice.random() < 0.6 else self.things)
        act = dice.choice(["plug", "plug", "plug", "sicken", "sicken", "swap", "spec", "link"])
        if act == "spec" and "gpu" in self.kinds:
            self.is_spec_whole = not self.is_spec_whole or dice.random() < 0.7
            self.version = dice.choice(GPU_VERSIONS)
            self.write_spec()
            return f"the spec is made again, {self.version}, whole: {self.is_spec_whole}", self.of("gpu")
        if act == "link" and thing.kind == "tty" and thing.plugged:
            # udev makes a link again, while systemd looks for it.
            self.fake.drop(f"{BY_PATH}{thing.number}")
            self.fake.systemctl("daemon-reload")
            self.link(f"{BY_PATH}{thing.number}", f"../..{thing.file[4:]}")
            return f"the link of {thing.ident} is away for a moment", [thing] if loose else []
        if act == "sicken" and thing.plugged and self.sicken(thing):
            return f"{thing.ident} is {'healthy' if thing.healthy else 'unhealthy'}", [thing]
        several = [other for other in self.of(thing.kind) if other.plugged] if act == "swap" else [thing]
        said = []
        for other in several:
            if other.plugged:
                self.unplug(other)
                said.append(f"{other.ident} is unplugged")
        for other in dice.sample(several, len(several)) if act == "swap" else several:
            if act == "swap" or not said:
                other.name = self.free_name(other, dice)
                self.plug(other)
                said.append(f"{other.ident} is plugged in as {other.file or 'before'}")
        return "; ".join(said) or "no device is there", several

    def count_anew(self, dice: random.Random) -> str:
        """The vendor's tool makes its spec again and numbers the present devices from 0 on."""
        there = [one for one in self.of("gpu") if one.plugged]
        if dice.random() < 0.4:
            dice.shuffle(there)
        for thing in self.of("gpu"):
            thing.listed = there.index(thing) if thing.plugged else None
        self.is_spec_whole = True
        self.write_spec()
        return f"the spec counts {', '.join(f'{one.ident} as {one.listed}' for one in there) or 'nothing'}"

    def shuffle(self, dice: random.Random) -> None:
        """What a reboot does to names."""
        there = [one for one in self.things if one.plugged]
        for thing in there:
            self.unplug(thing)
        for thing in dice.sample(there, len(there)):
            thing.name = self.free_name(thing, dice)
            self.plug(thing)

    def called(self, ids: t.Iterable[str]) -> set[Thing]:
        """The devices that Corral's ids mean now."""
        return {one for name in ids for one in self.things if one.is_called(name)}

    def meant(self, rows: t.Iterable[Row]) -> set[Thing]:
        """The devices of these rows of grants. A device that a spec renumbered is still the same, by its file."""
        things = set()
        for row in rows:
            own = {one for one in self.of("gpu") if one.file in row.keys} if self.is_counted_anew else set()
            listed = {one for one in own if one.listed is not None}
            things |= listed or self.called([row.ident]) or own
        return things

    def of_resource(self, row: Data) -> list[Thing]:
        """The devices that a resource of a profile matches."""
        match = row["match"]
        kind = next(kind for kind in KINDS if match in (*MATCHES[kind], *BY_NAME.get(kind, ())))
        if match == {"cdi": "vendor.com/gpu=0"}:
            return [one for one in self.of(kind) if one.listed == 0]
        if match == {"path": f"{BY_PATH}0"}:
            return [one for one in self.of(kind) if one.number == 0]
        return [one for one in self.of(kind) if one.listed is not None]

    def given_by(self, row: Data) -> list[Thing]:
        """The devices that a resource of a profile can give."""
        things = [one for one in self.of_resource(row) if one.plugged and (one.kind != "gpu" or self.is_spec_whole)]
        return [one for one in things if one.healthy or (one.kind == "nic" and not row.get("require_link"))]

    def resource(self, kind: str, dice: random.Random, name: str = "") -> Data:
        """A resource with the devices of a kind, perhaps under another name."""
        choices = MATCHES[kind] + (BY_NAME.get(kind, []) if self.stable else [])
        row: Data = {"name": name or NAMES[kind], "match": dice.choice([choices[0], *choices])}
        if kind == "nic" and dice.random() < 0.5:
            row["require_link"] = True
        return row


# Profiles


def asks(dice: random.Random, row: Data, resources: t.Sequence[Data]) -> Data:
    """The workload with the devices that it requests."""
    row = json.loads(json.dumps(row))
    row["limits"]["cpu"] = dice.choice([row["limits"]["cpu"], 1, "100m", "100m"])
    for resource in dice.sample(list(resources), min(dice.choice([0, 1, 1, 1, 2]), len(resources))):
        row["limits"][resource["name"]] = 1 if row["name"].startswith("batch") else dice.choice([1, 1, 1, 2])
    return row


def changed_profile(dice: random.Random, hardware: Hardware, before: Data) -> tuple[str, Data]:
    """The change of the devices, as text, and the changed profile."""
    data: Data = json.loads(json.dumps(before))
    rows, resources = data["workloads"], data["devices"]
    what = dice.choice(["asks", "asks", "name", "name only", "match", "match", "leaves"])
    if what == "asks" and rows:
        index = dice.randrange(len(rows))
        row = {**rows[index], "limits": {key: value for key, value in rows[index]["limits"].items() if "/" not in key}}
        rows[index] = asks(dice, row, resources)
        return f"{row['name']} asks for {rows[index]['limits']}", data
    if not resources:
        data["devices"] = [hardware.resource(kind, dice) for kind in hardware.kinds]
        return "all resources are declared", data
    index = dice.randrange(len(resources))
    row = resources[index]
    name = row["name"]
    if what.startswith("name"):
        row["name"] = name.removesuffix(NEW) if name.endswith(NEW) else f"{name}{NEW}"
        for one in rows if what == "name" else ():
            if name in one["limits"]:
                one["limits"][row["name"]] = one["limits"].pop(name)
        data.pop("tenants", None)
        return f"{name} is called {row['name']}{', and asked for as before' if what != 'name' else ''}", data
    if what == "leaves":
        del resources[index]
        for one in rows:
            one["limits"].pop(name, None)
        data.pop("tenants", None)
        return f"{name} is not declared", data
    kind = next(kind for kind in KINDS if NAMES[kind] == name.removesuffix(NEW))
    resources[index] = hardware.resource(kind, dice, name)
    return f"{name} matches {resources[index]}", data


# What is looked at


class Users:
    """Who may use which device of a node. ``wrong`` must stay empty; ``counts`` has the events."""

    def __init__(self, fake: Node, hardware: Hardware, counts: t.MutableMapping[str, int]) -> None:
        self.fake, self.hardware, self.counts = fake, hardware, counts
        self.wrong: list[str] = []
        self.given: dict[str, tuple[str, Ids]] = {}  # by unit: the run, and the ids in its environment
        self.files: dict[str, Ids] = {}  # by unit: the files in the environment of its run
        self.earlier: dict[str, str] = {}  # who had a device last
        self.loose = False  # devices have other numbers since the last whole tick
        self.bare: set[str] = set()  # units of which somebody removed files since the last whole tick
        self.touched: set[Thing] = set()  # what happened to devices in this step
        self.lost: set[str] = (
            set()
        )  # units that ran when both copies of the checkpoint were lost, until they have ended
        self.stale: set[str] = set()  # such units since devices came or went: no tick can know which ones are meant

    def before_step(self) -> None:
        self.touched = set()
        self.open_before = {unit: (run, self.opens(unit) or set()) for unit, (run, dummy) in self.given.items()}

    def opens(self, unit: str) -> set[Thing] | None:
        """The devices that the kernel lets a service open; None: all."""
        program = self.fake.systemd.programs.get(unit)
        return None if program is None else {one for one in self.hardware.things if one.plugged and one.code in program}

    def things(self, unit: str) -> set[Thing]:
        """The devices that a run was given."""
        return self.told(self.given[unit][1], self.files.get(unit, frozenset()))

    def told(self, ids: Ids, files: Ids) -> set[Thing]:
        """The devices that a run was given, by the ids and files in its environment. A spec may have renumbered devices since."""
        things = self.hardware.called(ids)
        if not self.hardware.is_counted_anew or not ids:
            return things
        return {one for one in things if one.kind != "gpu"} | {
            thing for thing in self.hardware.of("gpu") if thing.file in files
        }

    def look(self) -> None:
        """At any moment each run has its devices, and no other run has them."""
        self.note_runs()
        units = sorted(self.given)
        for index, unit in enumerate(units):
            for other in units[index + 1 :]:
                if not self.stale.isdisjoint((unit, other)):
                    continue
                if self.hardware.is_counted_anew:
                    both = {one for one in self.things(unit) & self.things(other) if one.kind == "gpu"}
                    self.tell(f"{unit} and {other} were both given", (one.ident for one in both))
                else:
                    self.tell(f"{unit} and {other} were both given", self.given[unit][1] & self.given[other][1])
                if self.loose:
                    continue
                both = self.things(unit) & self.things(other)
                self.tell(f"{unit} and {other} were both given", (one.ident for one in both))
                both = (self.opens(unit) or set()) & (self.opens(other) or set())
                self.tell(f"{unit} and {other} may both open", (one.ident for one in both))

    def tell(self, what: str, which: t.Iterable[str]) -> None:
        names = sorted(which)
        if names:
            self.wrong.append(f"{what} {', '.join(names)}")

    def note_runs(self) -> None:
        """Note the runs that began and ended."""
        for unit in [unit for unit in self.given if unit not in self.fake.runs]:
            del self.given[unit]
        for unit, run in self.fake.runs.items():
            if self.given.get(unit, ("",))[0] == run.ident:
                continue
            lists = {key: value for key, value in run.env.items() if key.startswith("CORRAL_DEVICES_")}
            ids = frozenset(name for value in lists.values() for name in value.split(","))
            self.given[unit] = (run.ident, ids)
            values = [value for key, value in run.env.items() if key.startswith("CORRAL_FILES_")]
            self.files[unit] = frozenset(name for value in values for name in value.split(","))
            mine = self.things(unit)
            if ids:
                self.counts["runs with devices"] += 1
            for thing in mine:
                self.counts["passed to another"] += self.earlier.get(thing.ident, unit) != unit
                self.earlier[thing.ident] = unit
            if not (self.loose or unit in self.bare):
                opens = self.opens(unit)
                mine = {one for one in mine if one.plugged and one.healthy and one.file}
                missing = mine - (opens or set())
                if opens is not None:
                    self.tell(f"{unit} begins and may not open", (one.ident for one in missing))
                    if is_whole(self.fake) and unit not in self.lost:
                        granted = [row for one, rows in self.rows().items() if unit_of(one) == unit for row in rows]
                        strange = opens - self.hardware.meant(granted)
                        self.tell(f"{unit} begins and may open without a grant", (one.ident for one in strange))

    def after_step(self) -> list[str]:
        """The faults after a step: of the devices of runs, and of the devices that a run had before."""
        self.look()
        for unit, (run, before) in self.open_before.items():
            now = self.opens(unit)
            if self.given.get(unit, ("",))[0] != run or now is None or unit in self.bare:
                continue
            lost = (before & self.things(unit)) - now - self.touched
            self.tell(f"{unit} runs and may not open any more", (one.ident for one in lost))
        found, self.wrong = self.wrong, []
        return found

    def happened(self, things: t.Iterable[Thing]) -> None:
        """Devices went or came: older lists may mean other devices now."""
        self.touched |= set(things)
        self.loose = True
        self.stale |= self.lost
        held = self.held()
        self.counts["gone while held"] += any(one in held and not one.plugged for one in things)
        self.counts["unhealthy while held"] += any(one in held and one.plugged and not one.healthy for one in things)
        self.counts["back while held"] += any(one in held and one.plugged for one in things)

    def damaged(self) -> None:
        """The checkpoint was damaged: where both copies are, a run keeps its devices until it stops, and may have no grant."""
        if not (is_whole(self.fake) or is_whole(self.fake, ".previous")):
            self.lost |= set(self.given)
            self.stale |= self.lost if self.loose else set()

    def taken_by_hand(self, unit: str) -> None:
        """An administrator removed files of a unit, perhaps the file of its list: after a whole tick the unit has the list again."""
        self.open_before.pop(unit, None)
        self.bare.add(unit)

    def held(self) -> set[Thing]:
        """The devices of all grants."""
        return self.hardware.meant(row for rows in self.rows().values() for row in rows)

    def give_up(self) -> None:
        """Corral goes, or its profile: the runs lose their devices."""
        self.note_runs()
        self.given = {unit: (run, frozenset()) for unit, (run, dummy) in self.given.items()}

    def rows(self) -> dict[str, list[Row]]:
        """The devices of each grant, as the checkpoint has them."""
        try:
            rows = json.loads(self.fake.get(CHECKPOINT))["data"]["grants"] if self.fake.has(CHECKPOINT) else []
        except ValueError:
            return {}
        return {row["workload"]: [Row(*one[1:4]) for one in row.get("devices", ())] for row in rows}

    def after_tick(self, items: t.Sequence[Data]) -> None:
        """A whole tick went over the node."""
        self.loose = False
        self.bare = set()
        self.look()
        known = {unit_of(name) for name, rows in self.rows().items() if rows}
        self.lost = (self.lost & self.given.keys()) - known
        self.stale &= self.lost
        for unit in self.given.keys() - self.stale:
            opens = self.opens(unit)
            if opens is None:
                continue
            mine = {one for one in self.things(unit) if one.plugged and one.healthy and one.file and self.is_known(one)}
            self.tell(f"after a tick {unit} may not open", (one.ident for one in mine - opens))

    def is_known(self, thing: Thing) -> bool:
        """Whether Corral can find a device: the vendor's spec, if any, can be read."""
        return thing.kind != "gpu" or (self.hardware.is_spec_whole and thing.listed is not None)

    def at_rest(
        self,
        items: t.Sequence[Data],
        units: t.Mapping[str, str],
        asked: t.Mapping[str, Data],
        resources: t.Container[str],
    ) -> None:
        """Check a node where ticks have nothing to do. ``units`` are those of the workloads, ``asked`` the limits that these declare.

        A missing device is no fault where its resource is not declared any more (it is in none of ``resources``).
        """
        rows = {name: held for name, held in self.rows().items() if held}
        named = " ".join(f"{one['subject']} {one['reason']}" for one in items)
        ids = [name for held in rows.values() for name in {one.ident for one in held}]
        self.tell("at rest two grants have", {name for name in ids if ids.count(name) > 1})
        for workload, held in rows.items():
            unit = units[workload]
            wanted = {key: int(amount) for key, amount in asked.get(workload, {}).items() if "/" in key}
            have = collections.Counter(one.resource for one in held)
            if unit not in self.fake.runs and workload in asked and workload not in named and have != wanted:
                self.wrong.append(f"at rest {workload} asks for {wanted}, and has {have}")
            known = [row for row in held if row.resource in resources]
            for thing in self.hardware.meant(known):
                if not thing.plugged and not any(row.ident in named for row in held):
                    self.wrong.append(f"at rest {workload} has {thing.ident}, which is gone, and no item says so")
            may = self.listed(unit)
            mine = {one for one in self.hardware.meant(held) if one.plugged and one.file}
            mine = {one for one in mine if one.healthy and self.is_known(one)}
            if may is not None and unit not in named:
                self.tell(f"at rest {unit} is not to open", (one.ident for one in mine - may))
                others = {
                    thing
                    for name, theirs in rows.items()
                    if units[name] != unit  # under another name of its workload
                    for thing in self.hardware.meant(theirs)
                }
                self.tell(f"at rest {unit} is to open others' ", (one.ident for one in (may - mine) & others))
        files = {f"{units[workload]}.env" for workload in rows}
        there = set(self.fake.root.joinpath(FOLDER[1:]).glob("*"))
        self.tell(
            "at rest there are files for environments of",
            (files ^ {one.name for one in there if one.name[0] != "."}) - {f"{unit}.env" for unit in self.lost},
        )
        found = self.spec_rows()
        whole = {
            name.replace("@", "_40")
            for name, held in rows.items()
            if name not in named and all(one.resource in resources for one in held)
        }
        self.tell("at rest the CDI spec lacks", whole - found.keys())
        self.tell("at rest the CDI spec has", found.keys() - {name.replace("@", "_40") for name in rows})
        for name, nodes in found.items():
            workload = name.replace("_40", "@")
            things = self.hardware.meant(rows.get(workload, ()))
            if workload not in named and all(one.plugged and self.is_known(one) for one in things):
                given = {one.file for one in things if one.file}
                self.tell(f"at rest the CDI spec gives {workload}", (nodes - {"/dev/vfio/vfio"}) ^ given)
        lists = {one.parent.name[:-2] for one in (self.fake.root / CONTROL[1:]).glob("*.service.d/50-DeviceAllow.conf")}
        self.tell("at rest there is a list of", lists - {units[workload] for workload in rows} - self.lost)

    def listed(self, unit: str) -> set[Thing] | None:
        """The devices whose numbers the list of a service has, whether it runs or not."""
        try:
            entries = self.fake.systemd.devices_allowed(unit)
        except LookupError:
            return None
        return {
            thing
            for thing in self.hardware.things
            if thing.file and thing.plugged and f"/dev/{thing.code}" in {entry.split()[0] for entry in entries}
        }

    def spec_rows(self) -> dict[str, set[str]]:
        """The device files that Corral's CDI specs give, by the names of their devices."""
        rows: dict[str, set[str]] = {}
        for file in sorted((self.fake.root / SPECS[1:]).glob("corral*.json")):
            for row in json.loads(file.read_text())["devices"]:
                rows[row["name"]] = {one["path"] for one in row["containerEdits"].get("deviceNodes", ())}
        return rows

    def free(self, row: Data) -> int | None:
        """The number of devices of a resource without a holder; None where a missing device may have one, or no grant tells of a run."""
        held = self.held()
        if self.lost or (any(not one.plugged for one in held) and not self.hardware.stable):
            return None
        return len([one for one in self.hardware.given_by(row) if one not in held])

    def left(self) -> list[str]:
        """The files that a removal left."""
        root = self.fake.root
        paths = [
            root / FOLDER[1:],
            *(root / SPECS[1:]).glob("corral*"),
            *root.glob("run/systemd/system.control/*/50-D*"),
        ]
        paths += [*root.glob("etc/systemd/system/*/10-corral*")]
        return [f"after the removal there is {one.relative_to(root)}" for one in paths if one.exists()]


def damage(fake: Node, dice: random.Random) -> str:
    """The checkpoint is lost or damaged."""
    copies = dice.choice([[""], [""], [".previous"], ["", ".previous"]])
    for copy in copies:
        path = f"{CHECKPOINT}{copy}"
        if not fake.has(path):
            continue
        text = fake.get(path)
        how = dice.choice(["gone", "cut", "empty", "other"])
        if how == "gone":
            fake.drop(path)
        else:
            fake.put(path, {"cut": text[: len(text) // 2], "empty": "", "other": "lost"}[how])
    return f"the checkpoint{' and '.join(copies)} is damaged"


def is_whole(fake: Node, copy: str = "") -> bool:
    """Whether the checkpoint, or its second copy, is there and can be read."""
    try:
        return bool(json.loads(fake.get(f"{CHECKPOINT}{copy}")))
    except (OSError, ValueError):
        return False


def by_hand(fake: Node, dice: random.Random) -> str:
    """Somebody changes or removes what Corral delivered."""
    root = fake.root
    files = [*(root / SPECS[1:]).glob("corral*")]
    if is_whole(fake):  # Else what was delivered is all that is known of grants.
        files += (root / FOLDER[1:]).glob("*")
    if not files:
        return "nothing is delivered"
    file = dice.choice(sorted(files))
    if not file.is_file():
        return f"{file.name} is no file"
    if dice.random() < 0.5:
        file.unlink()
        return f"{file.name} is removed"
    file.write_text(dice.choice(["", "{}", re.sub("[0-9]", "1", file.read_text())]))
    return f"{file.name} is changed"


def asked_by_run(fake: Node, unit: str) -> bool:
    """Whether a service starts only with what Corral grants for its run."""
    return bool(services.required(fake, unit))
