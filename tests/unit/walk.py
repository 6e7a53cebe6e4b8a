# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A random walk on a fake node: the acts of people, systemd, the kernel and Corral, in any order.

walk_judge.py has the checks, and what they excuse.

Each step has random numbers of its own, so that a step can be left out and the others stay as they are.
"""

from __future__ import annotations

import collections
import contextlib
import json
import random
import re
import shutil
import traceback
import typing as t
from pathlib import Path

import node
import runs
import services
import trees
import walk_devices
import walk_profiles
import walk_properties
from _core.model.profile import profile
from _core.model.values import cpuset
from _core.model.values.errors import CorralError
from _core.pipeline import applying
from fake_cpusets import BOOKWORM, FORKY, TRIXIE, Release
from fake_systemd import CGROUP
from guard import ISOLATED
from walk_judge import GREEDY, PROFILE, UNMANAGED, Cpus, Data, Judge, slice_of, unit_of

RELEASES: tuple[Release, ...] = (BOOKWORM, TRIXIE, FORKY)
MACHINES = {
    "2 nodes, SMT": node.MACHINE,
    "1 node": trees.Machine(cores=6, threads=1),
    "2 nodes of 3 cores, SMT": trees.Machine(sockets=2, cores=3, threads=2),
    "4 nodes": trees.Machine(sockets=2, nodes=2, cores=3, threads=1),
}
UNITS = ("alpha.service", "beta.service", "gamma.service")
PINNED = "pinned.service"  # of the isolated pool
INSTANCES = ("batch@a.service", "batch@b.service", "batch@c.service")
SLICES = ("machine.slice", "more.slice")
# The faults of a step, as often as they happen.
FAULTS = ("",) * 7 + ("killed", "torn", "error")


# How the seeds of some walks begin.
TENANTS = "tenants-"  # nodes with tenants
DARK = "dark-"  # all CPUs of grants go offline at once
FULL = "full-"  # a small machine that is full: a grant that begins or moves gets CPUs of another one
RENAMED = "renamed-"  # workloads get other names
EDITED = "edited-"  # files of Corral's are removed by hand
RELOADED = "reloaded-"  # daemon-reloads in the middle of a run of Corral, or after it was killed
SET = "set-"  # an administrator sets properties of slices by hand, and takes them back
DEVICES = "devices-"  # workloads ask for devices, which go and come
RENUMBERED = "renumbered-"  # and a vendor's CDI spec counts them anew


# Where files of Corral's are that systemd reads.
EDITABLE = ("etc/systemd/system", "run/systemd/system.control")


def is_own_file(path: Path) -> bool:
    """Whether Corral wrote a file for systemd, or had systemd write it for a slice of Corral's."""
    if path.is_symlink() or not path.is_file():
        return False
    return path.name.startswith(("10-corral", "corral-grant@")) or path.parent.name.startswith("corral_")


class Walk(Judge):
    """A node, its profile, and the history of the walk."""

    def __init__(self, seed: str, templates: t.Callable[[trees.Machine], Path]) -> None:
        self.seed = seed
        self.kinds = {f"{kind}-" for kind in seed.split("-")[:-1]}  # set-full-7 is a walk of both kinds
        self.dice = random.Random(seed)
        self.machine = self.dice.choice(sorted(MACHINES))
        self.machine = "1 node" if FULL in self.kinds else self.machine
        release = self.dice.choice(RELEASES)
        machine = MACHINES[self.machine]
        template = templates(machine)
        root = template.with_name("node")
        shutil.rmtree(root, ignore_errors=True)
        fake = node.Node(root, template, reload_applies=release == BOOKWORM, release=release, machine=machine)
        super().__init__(fake)
        self.cpus = sorted(self.fake.systemd.possible)
        self.causes: collections.Counter[str] = collections.Counter()
        self.steps = [f"a machine with {self.machine}, kernel {release[0]}.{release[1]}"]
        self.data = walk_profiles.first_profile(self.dice)
        if TENANTS in self.kinds:
            self.data["tenants"] = []
        if FULL in self.kinds:
            self.data = walk_profiles.full_profile(self.dice, self.data)
        self.half: Data = {}  # the profile of a rollout that died: units may have their files by it before the node has it
        self.devices: walk_devices.Users | None = None
        if DEVICES in self.kinds:
            nodes, is_counted_anew = range(machine.sockets * machine.nodes), RENUMBERED in self.kinds
            hardware = walk_devices.Hardware(fake, self.dice, nodes, is_counted_anew=is_counted_anew)
            self.devices = walk_devices.Users(fake, hardware, self.counts)
            self.data["devices"] = [hardware.resource(kind, self.dice) for kind in hardware.kinds]
            rows = [*self.data["workloads"], walk_profiles.workload(self.dice, "alpha")]
            self.data["workloads"] = [walk_devices.asks(self.dice, row, self.data["devices"]) for row in rows]
            self.data["cpu"]["options"]["full-pcpus-only"] = False
        services.add(self.fake, *UNITS, "batch@.service")
        for unit in INSTANCES:
            self.fake.put(f"/etc/systemd/system/multi-user.target.wants/{unit}", "")
        self.fake.set_online(*self.dice.choice([(), (), (self.cpus[-1],)]))
        self.set_files = walk_properties.SetFiles(self.fake.root)
        if SET in self.kinds:
            self.steps += [self.set_property() for dummy in range(self.dice.choice([0, 1, 2, 3]))]
        assert not runs.install(self.fake.host()).error
        self.steps.append(self.declare(f"the first profile, {self.data['cpu']}", self.data, ("",)))
        if FULL in self.kinds:
            services.add(self.fake, PINNED, lines="Slice=corral_isolated.slice\n")
            self.steps += [self.started(unit, self.fake.host()) for unit in (*UNITS, PINNED)]
        self.after_step(undone=False)
        self.wrong += self.set_files.after_step()

    # One step

    def step(self, number: int) -> None:
        """Do something, and count the results."""
        dice = self.dice = random.Random(f"{self.seed}:{number}")
        weights = dict(WEIGHTED)
        for kind, more in OF_KINDS.items():
            weights.update(more if kind in self.kinds else {})
        act = dice.choices(tuple(weights), tuple(weights.values()))[0]
        held, force = self.held(), self.in_force()
        self.before_step()
        if self.devices:
            self.devices.before_step()
        self.counts["steps"] += 1
        try:
            text = act(self)
        except Exception:  # Any is a fault, and the steps before it tell how to get there.
            text = traceback.format_exc()
            self.wrong.append(text.splitlines()[-1])
        services.after_reload(self.fake)
        self.after_step("error at" in text or "undone" in text or "not all: " in text)
        self.wrong += self.set_files.after_step()
        self.wrong += self.devices.after_step() if self.devices else []
        self.steps.append(f"{number:4} {text}")
        effective, groups = self.fake.systemd.kernel.effective(), self.fake.systemd.cgroups
        self.fallen = {
            path: cpus
            for path, cpus in self.fallen.items()
            if path in groups and not effective[path] & (groups[path].requested or Cpus())
        }
        self.count(held, force)

    def count(self, before: dict[str, Cpus], force: dict[str, Cpus]) -> None:
        """Grants that began, moved and ended, and CPUs that went from one to another while both had processes."""
        after = self.held()
        began = after.keys() - before.keys()
        moved = [name for name in after.keys() & before.keys() if after[name] != before[name]]
        self.counts["grants"] += len(began)
        self.counts["moved"] += len(moved)
        self.counts["ended"] += len(before.keys() - after.keys())
        self.counts["hand-overs"] += bool(began or moved or before.keys() - after.keys())
        had = Cpus().union(*before.values())
        changed = {*began, *moved}
        passed = any(after[one] & before[other] for one in changed for other in before if other != one)
        self.counts["passed on"] += passed
        self.counts["of running"] += any(
            self.in_force().get(place, cpus) != cpus and cpus & had for place, cpus in force.items()
        )

    def refused(self, what: str, error: object) -> str:
        """Count a refusal by its cause."""
        text = str(error) or "killed"
        cause = re.sub(r"[a-z]+:[a-z]+@[a-z]|\b(alpha|beta|gamma|batch)\b", "W", text.splitlines()[0])
        cause = re.sub(r"\d[\d,-]*m?", "N", cause)
        if "no order of steps" in text:
            self.counts["NoSafeOrder"] += 1
            self.causes[f"NoSafeOrder, {what}: {cause}"] += 1
        if "fault of Corral" in text:
            self.counts["validator refused"] += 1
            self.causes[f"validator, {what}: {cause}"] += 1
            self.wrong.append(f"the plan of {what} is refused as a fault of Corral: {text}")
        self.counts["refusals"] += text != "killed"
        self.counts["refused devices"] += re.search(r"missing: (of \d+|no) device", text) is not None
        self.causes[f"{what}: {cause[:110]}"] += 1
        return f"refused: {text}"

    def with_fault(self, what: str, do: t.Callable[[node.NodeHost], t.Any], faults: t.Sequence[str] = FAULTS) -> str:
        """Do an act that writes, with a fault at one of its writes or none; after a death services may start at once."""
        fault, at = self.dice.choice(faults), self.dice.randint(1, 24)
        host = self.fake.host(fault, at if fault else 0)
        reloads = RELOADED in self.kinds
        moment = self.dice.randint(1, 24) if reloads else 0
        if reloads:
            host.then = lambda number: self.reload() and None if number == moment else None
        if self.devices:
            host.then = lambda dummy, users=self.devices: users.look()  # type: ignore[misc]
        try:
            result = do(host)
        except CorralError as error:
            result = self.refused(what.split(maxsplit=1)[0], error)
        except OSError as error:
            result = f"failed: {error}"
        except node.Killed:
            result = "killed"
        happened = bool(fault) and len(host.acts) >= at
        if happened:
            self.set_files.uncertain = True
            self.counts[fault] += 1
            result = f"{fault} at {host.acts[at - 1]}: {result}"
        if reloads and len(host.acts) >= moment:
            self.counts["reloaded meanwhile"] += 1
            result = f"somebody's daemon-reload after {host.acts[moment - 1]}; {result}"
        if reloads and happened and fault != "error" and self.dice.random() < 0.5:
            result = f"{result}; then {self.reload()}"
        if happened and fault != "error":
            for unit in self.dice.sample((*UNITS, *INSTANCES), self.dice.choice([0, 1, 2])):
                self.counts["started after a death"] += 1
                result = f"{result}; then {self.started(unit, self.fake.host())}"
        return f"{what}: {result}"

    # Corral's own

    def declare(self, what: str, data: Data, faults: t.Sequence[str] = FAULTS) -> str:
        def work(host: node.NodeHost) -> str:
            outcome = applying.declare(host, profile.parse(data))
            if outcome.error:
                return f"not all: {outcome.error}"
            return f"{len(outcome.applied)} changes"

        self.counts["roll out"] += 1
        if "isolated" not in data.get("cpu", {}):
            self.given_up.add(ISOLATED)  # Its processes share CPUs; without partitions from the first write on.
        self.half = data
        text = self.with_fault(f"roll out ({what})", work, faults)
        if ": killed" not in text:
            self.half = {}
        return text

    def roll_out(self) -> str:
        if RENAMED in self.kinds and self.data["workloads"] and self.dice.random() < 0.4:
            return self.rename()
        if self.devices and self.dice.random() < 0.5:
            what, data = walk_devices.changed_profile(self.dice, self.devices.hardware, self.data)
            return self.roll_out_as(what, data)
        change = walk_profiles.changed_profile
        if SET in self.kinds and self.dice.random() < 0.3:
            change = walk_profiles.other_slices
        what, data = change(self.dice, self.data)
        if self.devices:
            old = [row for row in data["workloads"] if row in self.data["workloads"]]
            new = [row for row in data["workloads"] if row not in old]
            data["workloads"] = [*old, *(walk_devices.asks(self.dice, row, data["devices"]) for row in new)]
        return self.roll_out_as(what, data)

    def roll_out_as(self, what: str, data: Data) -> str:
        """Roll a profile out; unless it is refused, it is the profile that is changed next."""
        text = self.declare(what, data)
        if "refused:" not in text:
            self.data = data
        return text

    def rename(self) -> str:
        """Give a workload another name, or its first one again. A run with CPUs of its own keeps them until it stops."""
        name, data = walk_profiles.renamed(self.dice, self.data)
        rows: list[Data] = []
        with contextlib.suppress(ValueError):  # Then it is damaged, and no run is known to last.
            rows = self.rows()
        held, online = self.held(), self.fake.systemd.online  # A grant with CPUs that are offline moves.
        in_force = self.is_rolled_out()
        lasting = [row["workload"] for row in rows if row["hold"] == "running"]
        lasting = [one for one in lasting if one in held and held[one] <= online]
        before = {
            place: cpus
            for place, cpus in self.in_force().items()
            for workload in lasting
            if workload.partition(":")[0] == name
            and place.startswith(f"{slice_of(workload)}/{unit_of(workload)}")
            and cpus == held[workload]
        }
        text = self.declare(f"{name} gets another name", data)
        if "refused:" not in text:
            self.data = data
        if text.endswith(" changes") and in_force:  # A rollout that was killed before changes more than the name.
            services.after_reload(self.fake)
            self.counts["renamed in a run"] += len(before)
            self.kept(before)
        return text

    def is_rolled_out(self) -> bool:
        """Whether the profile of the node is the last one that was rolled out, and not the one before, after a death."""
        return json.loads(json.dumps(profile.to_data(profile.parse(self.data)))) == self.rolled_out

    def kept(self, before: dict[str, Cpus]) -> None:
        """What ran on these CPUs has them now, perhaps with one that is online again; CPUs that are now reserved or isolated are lost."""
        after, groups = self.in_force(), self.fake.systemd.cgroups
        pools = [groups[unit].requested or Cpus() for unit in ("system.slice", ISOLATED) if unit in groups]
        taken = Cpus().union(*pools)
        lost = (place for place, cpus in before.items() if not cpus <= after.get(place, Cpus()) and not cpus & taken)
        self.wrong += [f"{place} had {sorted(before[place])}, has {sorted(after.get(place, ()))}" for place in lost]

    def drop(self) -> str:
        """A profile without CPUs: workloads with CPUs of their own lose them."""
        self.give_up()
        if self.devices:
            self.devices.give_up()
        return self.declare("no CPUs", {"name": "walk", "pids": {"pid_max": 4194304}})

    def remove(self) -> str:
        """Corral goes, and its agent comes back. Workloads with CPUs of their own lose them, as requested."""
        self.counts["removals"] += 1
        self.give_up()
        if self.devices:
            self.devices.give_up()
        text = self.with_fault("remove", lambda host: runs.remove(host).leftovers, ("", "", "killed", "torn"))
        certain, ruled = not self.set_files.uncertain, set(self.set_files.ruled)
        # Of two values that an administrator set, the last one is in force; a reload would read the persistent one.
        twice = [unit for unit in self.fake.systemd.units if self.is_set_twice(unit)]
        if self.devices:
            self.devices.give_up()
        again = runs.remove(self.fake.host())
        if again.error or again.leftovers:
            self.set_files.uncertain = True
        else:
            self.wrong += self.set_files.after_removal()
            self.wrong += self.devices.left() if self.devices else []
            if SET in self.kinds and certain:
                self.wrong += walk_properties.not_in_force(self.fake, [unit for unit in twice if unit not in ruled])
        return f"{text}; install: {runs.install(self.fake.host()).error}"

    def tick(self) -> str:
        self.fake.wait(self.dice.choice([1, 10, 700]))
        return self.with_fault("tick", self.ticked)

    def ticked(self, host: node.NodeHost) -> int:
        code = runs.tick(host)
        self.counts["ticks"] += 1
        enforced = self.rolled_out.get("mode", "enforce") == "enforce"
        if code == 0 and enforced:
            self.at_rest()
        if code != 1 and enforced and self.let_in and self.rolled_out.get("cpu"):
            status = json.loads(self.fake.get("/run/corral/status.json"))
            said = [status["error"], *(value for item in status["items"] for value in item.values())]
            self.after_tick(" ".join(map(str, said)))
        if (
            code != 1
            and self.rolled_out
            and enforced
            and self.devices
            and len(host.acts) < (host.fail_at or len(host.acts) + 1)
        ):
            self.half = {}
            self.devices.after_tick(json.loads(self.fake.get("/run/corral/status.json"))["items"])
        if code == 1:
            self.refused("tick", json.loads(self.fake.get("/run/corral/status.json"))["error"])
        return code

    def settle(self) -> str:
        """While nothing else happens, ticks come to an end."""
        acts: list[str] = []
        for dummy in range(4):
            self.fake.wait(10)
            host = self.fake.host()
            code = self.ticked(host)
            services.after_reload(self.fake)
            acts = [
                act
                for act in host.acts
                if not act.startswith("write_file /run/corral/") or act.startswith("write_file /run/corral/devices/")
            ]
            if not acts:
                if self.devices and code != 1:
                    self.devices_at_rest(self.devices)
                return f"settle: {code}"
        self.wrong.append(f"four ticks and still at it: {acts}")
        return f"settle: no end: {acts}"

    def devices_at_rest(self, users: walk_devices.Users) -> None:
        """Check the delivered devices of a node at rest, if its profile is in force."""
        if self.rolled_out.get("mode", "enforce") != "enforce" or not self.rolled_out.get("cpu"):
            return
        items = json.loads(self.fake.get("/run/corral/status.json"))["items"]
        declared = {row["name"]: row["limits"] for row in self.rolled_out.get("workloads", ())}
        asked = {name: declared[name.partition(":")[0]] for name in users.rows() if name.partition(":")[0] in declared}
        resources = {row["name"] for row in self.rolled_out.get("devices", ())}
        users.at_rest(items, {name: unit_of(name) for name in users.rows()}, asked, resources)

    def admit(self) -> str:
        name = self.dice.choice(["alpha", "beta", "gamma"])
        cpu, hold = self.dice.choice([1, 2, 3]), self.dice.choice(["running", "declared"])
        words = [
            "admit",
            f"{name}-here",
            "--unit",
            f"{name}.service",
            "--limits",
            f"cpu={cpu},memory=16Mi{self.more_devices()}",
            "--hold",
            hold,
        ]
        return self.with_fault(f"{' '.join(words)}", lambda host: runs.command(host, *words))

    def more_devices(self) -> str:
        """The devices of a workload that is admitted by hand."""
        if not self.devices or not self.data["devices"]:
            return ""
        return f",{self.dice.choice(self.data['devices'])['name']}={self.dice.choice([1, 1, 1, 2])}"

    def release(self) -> str:
        name = self.dice.choice(["alpha-here", "beta-here", "gamma-here"])
        return self.with_fault(f"release {name}", lambda host: runs.command(host, "release", name))

    def edit(self) -> str:
        """A file of Corral's that systemd reads is removed by hand. A run with CPUs of its own keeps them."""
        files = sorted(one for base in EDITABLE for one in (self.fake.root / base).rglob("*") if is_own_file(one))
        if not files:
            return "no file of Corral's"
        file = self.dice.choice(files)
        online = self.fake.systemd.online  # A grant with CPUs that are offline moves.
        own = {slice_of(name): cpus for name, cpus in self.held().items() if cpus <= online}
        in_force = self.in_force() if self.is_rolled_out() else {}
        before = {place: cpus for place, cpus in in_force.items() if cpus and own.get(place.partition("/")[0]) == cpus}
        unit, named = self.cpus_without(file)
        file.unlink()
        text = f"{file.relative_to(self.fake.root)} is removed"
        if self.dice.random() < 0.7:
            hand: t.ContextManager[None] = contextlib.nullcontext()
            if named is not None and named != self.fake.systemd.cgroups[unit].requested:
                # A start gave the workload other CPUs, which no tick has written to its drop-in yet.
                hand = self.fake.by_hand()
                self.let(unit, Cpus(named))
                before = {place: cpus for place, cpus in before.items() if place.partition("/")[0] != unit}
            with hand:
                text = f"{text}; {self.reload()}"
                services.after_reload(self.fake)
        for faults in self.dice.choice([("",), ("killed", "")]):
            text = f"{text}; {self.with_fault('tick', self.ticked, (faults,))}"
            services.after_reload(self.fake)
        self.counts["edited in a run"] += len(before)
        self.kept(before)
        return text

    def cpus_without(self, file: Path) -> tuple[str, frozenset[int] | None]:
        """The unit of a file, and the CPUs of its drop-ins once this file is gone (None: the file has no CPUs in force)."""
        unit = file.parent.name[: -len(".d")]
        dropin = f"/etc/systemd/system/{unit}.d/10-corral-cpu.conf"
        if file.name != "50-AllowedCPUs.conf" or unit not in self.fake.systemd.cgroups or not self.fake.has(dropin):
            return unit, None
        lines = self.fake.get(dropin).splitlines()
        return unit, frozenset(
            cpuset.parse([line for line in lines if line.startswith("AllowedCPUs=")][-1].partition("=")[2])
        )

    def set_property(self) -> str:
        """An administrator sets a property of a slice (systemctl set-property)."""
        own = [path for path in self.fake.systemd.cgroups if path.startswith("corral_") and "/" not in path]
        unit, assignment = walk_properties.assignment(self.dice, self.cpus, self.owned(), own)
        # Of init.scope a persistent one writes no file (seen on 252 and 257).
        words = ["--runtime"] * (self.dice.random() < 0.4 or unit == "init.scope")
        with self.fake.by_hand(), self.set_files.by_hand(self.is_ruled):
            name, dummy, value = assignment.partition("=")
            if name == "AllowedCPUs":
                self.let(unit, Cpus(cpuset.parse(value)) if value else None)
            self.fake.systemctl("set-property", *words, unit, assignment)
        self.counts["set by hand"] += 1
        self.counts["let in"] += bool(self.let_in.get(unit))
        return f"set-property {' '.join((*words, unit, assignment))}"

    def unset(self) -> str:
        """An administrator removes the values of set-property, or all drop-ins of a unit."""
        files = walk_properties.files(self.fake.root)
        if not files:
            return "nothing is set"
        file = self.dice.choice(files)
        unit = file.parent.name[: -len(".d")]
        with self.fake.by_hand(), self.set_files.by_hand(self.is_ruled):
            self.let(unit, None)
            if self.dice.random() < 0.3:
                self.fake.systemctl("revert", unit)
                text = f"revert {unit}"
            else:
                self.set_files.unset.add(unit)
                file.unlink()
                text = f"{file.relative_to(self.fake.root)} is removed"
                if self.dice.random() < 0.7:
                    text = f"{text}; {self.reload()}"
        self.counts["unset by hand"] += 1
        if self.devices:
            self.devices.taken_by_hand(unit)
        return text

    def is_ruled(self, unit: str) -> bool:
        """Whether Corral wrote a file for a unit: a value that is set then is no original."""
        return unit in self.set_files.ruled

    def reload_at_rest(self) -> str:
        """On a node at rest systemd reads its files: nothing changes, and Corral has nothing to do."""
        text = self.settle()
        if text != "settle: 0":
            return text
        before = walk_properties.in_force(self.fake)
        services.after_reload(self.fake)
        self.reload()
        services.after_reload(self.fake)
        after = walk_properties.in_force(self.fake)
        changed = [
            f"{key}: {before[key]} -> {after[key]}" for key in before.keys() & after.keys() if before[key] != after[key]
        ]
        # Limits of a run are compared with the kernel alone: when their file is removed, they are lost from a reload to the next tick.
        lost = [unit for unit in self.set_files.unset if not unit.endswith("corral.slice")]
        changed = [line for line in changed if line.startswith("cpuset") or not any(unit in line for unit in lost)]
        # Of two values that an administrator set, the persistent one is read.
        set_units = {path.partition(".d/")[0] for path in self.set_files.now()}
        twice = [unit for unit in set_units if self.is_set_twice(unit)]
        changed = [line for line in changed if line.startswith("cpuset") or not any(unit in line for unit in twice)]
        if "cpu" not in self.in_file():
            changed = []  # Without pools Corral does not report changes by hand.
        self.wrong += [f"a daemon-reload at rest changes {line}" for line in changed]
        self.counts["reloads at rest"] += 1
        return f"{text}; daemon-reload"

    def is_set_twice(self, unit: str) -> bool:
        """Whether properties of a unit are set for this boot, and for the next ones as well."""
        return all(self.fake.has(f"/{base}/systemd/system.control/{unit}.d") for base in ("etc", "run"))

    def in_file(self) -> Data:
        """The declared profile; empty without one."""
        return json.loads(self.fake.get(PROFILE)) if self.fake.has(PROFILE) else {}

    # systemd's

    def started(self, unit: str, host: node.NodeHost) -> str:
        if unit in self.fake.runs:
            return f"{unit} runs already"
        said = len(self.fake.said)
        run = services.start(self.fake, unit, host)
        self.counts["starts"] += 1
        if run is not None:
            self.counts["exclusive starts"] += run.place.startswith("corral_")
            if self.devices:
                self.devices.look()
            self.check_devices(unit, run)
            return f"{unit} runs on {cpuset.format(run.cpus)} in {run.place}"
        return (
            f"{unit}: {self.refused('start', (self.fake.said[said:] or ['its slice or process did not come up'])[0])}"
        )

    def check_devices(self, unit: str, run: node.Run) -> None:
        """A run that Corral let start has the number of devices that its workload requests."""
        holders = services.required(self.fake, unit)
        declared = json.loads(self.fake.get(PROFILE)) if self.devices and self.fake.has(PROFILE) else {}
        for row in declared.get("workloads", ()) if holders else ():
            name = row["name"]
            if unit_of(name) != unit and not (name.startswith("batch") and unit in INSTANCES):
                continue
            escaped = name.replace("-", "\\x2d")
            if not any(
                holder.startswith((f"corral-grant@{escaped}:", f"corral-grant@{escaped}.")) for holder in holders
            ):
                continue  # A rollout that died wrote the files of the unit for another name: the profile has no such workload.
            for resource, amount in row["limits"].items():
                value = run.env.get(f"CORRAL_DEVICES_{re.sub('[^A-Z0-9]', '_', resource.upper())}", "")
                half = [one["limits"].get(resource, 0) for one in self.half.get("workloads", ()) if one["name"] == name]
                if "/" in resource and len(list(filter(None, value.split(",")))) not in (int(amount), *map(int, half)):
                    self.wrong.append(f"{unit} started with {value or 'nothing'} for {amount} of {resource}")

    def start(self) -> str:
        unit = self.dice.choice((*UNITS, *INSTANCES))
        return self.with_fault("start", lambda host: self.started(unit, host))

    def running(self) -> str | None:
        units = sorted(self.fake.runs)
        return self.dice.choice(units) if units else None

    def stop(self) -> str:
        unit = self.running()
        if unit is None:
            return "nothing runs"
        return self.with_fault(f"stop {unit}", lambda host: services.stop(self.fake, unit, host))

    def restart(self) -> str:
        unit = self.running()
        if unit is None:
            return "nothing runs"
        run = services.restart(self.fake, unit)
        return f"restart {unit}: {run and cpuset.format(run.cpus)}"

    def crash(self) -> str:
        unit = self.running()
        if unit is None:
            return "nothing runs"
        services.crash(self.fake, unit, always=self.dice.random() < 0.5)
        return f"{unit} crashes, and {'runs again' if unit in self.fake.runs else 'is gone'}"

    def reload(self) -> str:
        self.fake.systemctl("daemon-reload")
        return "daemon-reload"

    def reboot(self) -> str:
        self.fake.set_online()
        if self.devices:
            self.devices.hardware.shuffle(self.dice)
            self.devices.loose = True
        services.reboot(self.fake)
        self.counts["boots"] += 1
        return "reboot"

    def slice_anew(self) -> str:
        """A slice of the shared pool is stopped by hand and starts again, on demand."""
        unit = self.dice.choice(SLICES)
        with self.fake.by_hand():
            self.fake.systemd.stop_slice(unit)
            self.fake.systemd.run_slice(unit)
        self.fake.systemd.occupy(unit, self.dice.choice([0, 1]))
        return f"{unit} starts anew"

    # The machine's and other people's

    def online(self) -> str:
        """CPUs go offline and come back."""
        offline = self.dice.sample(self.cpus[1:], self.dice.choice([0, 0, 1, 2]))
        held = self.held()
        if DARK in self.kinds and held:
            names = self.dice.sample(sorted(held), self.dice.randint(0, len(held)))
            offline = sorted(Cpus(offline).union(*(held[name] for name in names)) - {self.cpus[0]})
            self.counts["all CPUs offline"] += any(held[name] and held[name] <= set(offline) for name in names)
        self.fake.set_online(*offline)
        return f"offline: {sorted(offline)}"

    def hardware(self) -> str:
        """Devices go and come."""
        assert self.devices
        text, things = self.devices.hardware.happens(self.dice, self.devices.held(), loose=self.devices.loose)
        self.devices.happened(things)
        return text

    def count_anew(self) -> str:
        """A vendor's tool renumbers its devices; the devices stay as they are."""
        assert self.devices
        held = {one: one.listed for one in self.devices.held() if one.kind == "gpu" and one.plugged}
        text = self.devices.hardware.count_anew(self.dice)
        self.counts["renumbered while held"] += any(one.listed != before for one, before in held.items())
        return text

    def damage(self) -> str:
        """The checkpoint is lost or damaged, and a tick finds it so."""
        assert self.devices
        text = walk_devices.damage(self.fake, self.dice)
        self.devices.damaged()
        self.counts["checkpoints damaged"] += 1
        return f"{text}; {self.with_fault('tick', self.ticked, ('',))}"

    def change_delivered(self) -> str:
        """A delivered file is changed by hand, and a tick finds it so."""
        return f"{walk_devices.by_hand(self.fake, self.dice)}; {self.with_fault('tick', self.ticked, ('', 'killed'))}"

    def take_all(self) -> str:
        """One workload requests all that no workload has, and gets it."""
        assert self.devices
        text = self.settle()
        if not text.startswith("settle: 0") or not self.rolled_out.get("devices") or self.rolled_out.get("tenants"):
            return text
        row = self.dice.choice(self.rolled_out["devices"])
        free = self.devices.free(row)
        policy = self.rolled_out["topology"]["policy"]
        if not free or self.rolled_out.get("mode", "enforce") != "enforce" or policy == "single-numa-node":
            return f"{text}; nothing to take"
        self.counts["free devices taken"] += free
        services.add(self.fake, "probe.service")
        words = [
            "admit",
            "probe",
            "--unit",
            "probe.service",
            "--requests",
            f"{row['name']}={free}",
            "--hold",
            "declared",
        ]
        try:
            code = runs.command(self.fake.host(), *words)
        except CorralError as error:
            self.wrong.append(f"{free} of {row['name']} are free, and refused: {error}")
            return f"{text}; {error}"
        held = {row.ident for row in self.devices.rows().get("probe", ())}
        if len(held) != free:
            self.wrong.append(f"{free} of {row['name']} are free, and given: {sorted(held)}")
        runs.command(self.fake.host(), "release", "probe")
        return f"{text}; probe {code} with {sorted(held)}; {self.settle()}"

    def intrude(self) -> str:
        path = self.dice.choice(UNMANAGED)
        self.fake.intrude(path)
        return f"{path} is there"

    def ask(self) -> str:
        """A control group at the top asks for CPUs of its own choice."""
        path, cpus = self.dice.choice(GREEDY), cpuset.format(self.dice.sample(self.cpus, 2))
        if path in self.fake.systemd.cgroups:
            return f"{path} is there already"
        if "cpuset" not in self.fake.get(f"/{CGROUP}/cgroup.subtree_control"):
            return "there are no cpusets"
        self.fake.intrude(path, cpus)
        return f"{path} asks for {cpus}"

    def withdraw(self) -> str:
        there = [path for path in (*GREEDY, *GREEDY, *UNMANAGED) if path in self.fake.systemd.cgroups]
        if not there:
            return "no intruder"
        path = self.dice.choice(there).partition("/")[0]
        if path.startswith("corral_") or path.endswith(".slice"):
            self.fake.systemd.stop_slice(path)
        if path in self.fake.systemd.cgroups:
            self.fake.withdraw(path)
        return f"{path} goes"


WEIGHTED: dict[t.Callable[[Walk], str], int] = {
    Walk.roll_out: 14, Walk.drop: 1, Walk.remove: 1, Walk.tick: 14, Walk.settle: 5, Walk.admit: 4, Walk.release: 2,
    Walk.start: 22, Walk.stop: 9, Walk.restart: 3, Walk.crash: 3, Walk.reload: 2, Walk.reboot: 1, Walk.slice_anew: 2,
    Walk.online: 6, Walk.intrude: 4, Walk.ask: 3, Walk.withdraw: 5, Walk.edit: 0, Walk.set_property: 0, Walk.unset: 0, Walk.reload_at_rest: 0,
    Walk.hardware: 0, Walk.damage: 0, Walk.change_delivered: 0, Walk.take_all: 0, Walk.count_anew: 0,
}  # fmt: skip
# The weights that are others in walks of these kinds.
OF_KINDS: dict[str, dict[t.Callable[[Walk], str], float]] = {
    DARK: {Walk.online: 20, Walk.admit: 10},
    FULL: {Walk.roll_out: 40, Walk.online: 12, Walk.drop: 0, Walk.remove: 0},
    EDITED: {Walk.edit: 20},
    SET: {
        Walk.set_property: 18, Walk.unset: 8, Walk.reload_at_rest: 6, Walk.reload: 6, Walk.reboot: 3,
        Walk.slice_anew: 5, Walk.remove: 3, Walk.drop: 2, Walk.online: 3, Walk.intrude: 1, Walk.ask: 0, Walk.withdraw: 1,
    },
    DEVICES: {
        Walk.hardware: 24, Walk.damage: 3, Walk.change_delivered: 4, Walk.take_all: 6, Walk.roll_out: 18, Walk.admit: 6,
        Walk.start: 30, Walk.stop: 10, Walk.reboot: 2, Walk.remove: 1, Walk.slice_anew: 0, Walk.online: 1, Walk.intrude: 0,
        Walk.ask: 0, Walk.withdraw: 0,
    },
    RENUMBERED: {Walk.count_anew: 14},
}  # fmt: skip
