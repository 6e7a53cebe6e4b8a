# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of a random walk (walk.py): of each change of a control group, and of a node at rest.

After each single change of a control group the guard (guard.py) tells whether an exclusive slice shares a CPU. Sharing that is no fault of
Corral's is excused (see Judge.excused): by a hand in that moment, by a process of a control group that itself requests the CPUs, by an
invalid partition as long as such a control group keeps it invalid, by processes that run on after a removal, and by unmanaged control
groups where the profile has partitions off. An administrator who gives a slice CPUs of a workload makes such an overlap: it is excused
until a tick, which must end it or name the slice.
"""

from __future__ import annotations

import collections
import json
import typing as t
from pathlib import Path

import services
from _core.model.values import cpuset
from fake_cpusets import FORKY, MEMBER, within
from guard import ISOLATED, Row, granted, told
from node import Node
from walk_profiles import NEW

Data = dict[str, t.Any]
Cpus = frozenset[int]

CHECKPOINT, PROFILE = "/var/lib/corral/checkpoint.json", "/etc/corral/profile.json"
START_SECONDS = 120  # for the start of a workload that was admitted by hand
UNMANAGED = ("rogue.service", "mine.slice/x.service", "lxc", "lxc/web.example", "corral_rogue.slice/x.service")
GREEDY = ("greedy.slice", "hungry")


class Judge:
    """Watches a node. ``wrong`` must stay empty; ``rolled_out`` is the profile of the node."""

    def __init__(self, fake: Node) -> None:
        self.fake = fake
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.rolled_out: Data = {}
        self.standing: frozenset[Row] = frozenset()
        self.spoilt: set[str] = set()  # partitions that others' requests made invalid
        self.fallen: dict[str, Cpus] = {}  # slices of which no CPU is online, and the CPUs that they run on with others
        self.given_up: set[str] = (
            set()
        )  # slices that lost their CPUs by a removal or a profile without any, under what runs there
        self.deprived: set[str] = set()  # those of them that are no partitions any more
        self.partitions: frozenset[str] = frozenset()  # the control groups that were partitions before this step
        self.requested: dict[str, Cpus] = {}  # what control groups at the top requested before this step
        self.shared: frozenset[Row] = frozenset()  # who had CPUs of a slice that shared them, before this step
        # The rows that lost such CPUs in this step and got them again, and those that got CPUs back of a grant that began in this
        # step.
        self.given_back: set[Row] = set()
        self.granted: frozenset[str] = frozenset()  # the slices of the grants before this step
        # Control groups at the top, and CPUs of others' slices that an administrator gave them, or no longer keeps them from.
        self.let_in: dict[str, Cpus] = {}
        self.set_tops: set[str] = (
            set()
        )  # control groups at the top whose CPUs an administrator has set: unmanaged ones ask for what they like
        fake.systemd.watch = self.watch

    def watch(self) -> None:
        """Look at the node after each change of a control group."""
        self.counts["looks"] += 1
        systemd = self.fake.systemd
        if not self.fake.has(CHECKPOINT):
            self.note_sharing()
        now = systemd.overlaps()
        asking = [path for path in systemd.cgroups if self.is_asking(path.partition("/")[0])]
        tops = {path: group for path, group in systemd.cgroups.items() if path.startswith("corral_")}
        self.spoilt |= self.asked_for()
        self.spoilt = {path for path in self.spoilt if path in tops and not tops[path].valid}
        if not self.has_partitions():
            self.spoilt &= self.asked_for()
        self.deprived |= {path for path in self.given_up if path in tops and not tops[path].valid}
        again = {path for path in self.deprived if path in tops and tops[path].valid}
        self.given_up, self.deprived = self.given_up - again, self.deprived - again
        if not self.fake.hands:
            found = told(row for row in now - self.standing if not self.excused(row, asking))
            self.wrong += [*found, self.shown()] if found else []
        self.standing = now
        effective = systemd.kernel.effective()
        for path in [path for path, one in tops.items() if one.requested and not effective[path] & one.requested]:
            self.fallen[path] = self.fallen.get(path, Cpus()) | effective[path]

    def excused(self, row: Row, asking: t.Sequence[str]) -> bool:
        """Whether a control group shares a CPU because a person requested it, or because no kernel prevents it."""
        path, place, cpu = row
        if any(cpu in self.let_in.get(one, ()) for one in (path.partition("/")[0], place)):
            return True  # Until the next tick: see after_tick.
        if cpu in self.fallen.get(place, ()):
            # The slice ran there with the others since its own CPUs went offline; in this step the CPU becomes its own, or was.
            return True
        if place in self.fallen and self.has_fallen(path):
            return True  # Neither had a CPU online: when one of them gets a CPU first, the other runs there until its own turn.
        if place not in self.partitions and self.has_fallen(path):
            return True  # Without partitions the kernel excludes no control group whose own CPUs are offline.
        if place in self.spoilt or place == "corral_rogue.slice" or any(within(path, one) for one in asking):
            return True
        if place in self.given_up and place not in {slice_of(name) for name in self.held()}:
            return True
        is_member = self.fake.systemd.cgroups[place].partition == MEMBER
        if is_member and not self.fake.has(CHECKPOINT):
            return True  # The slice went with the last grant, and its processes share CPUs.
        # Without partitions nothing keeps out what is not managed.
        if is_member and not self.has_partitions() and self.is_unmanaged(path):
            return True
        before = self.requested.get(path.partition("/")[0], Cpus())
        if is_member and self.has_none() and cpu in before & self.requested.get(place, Cpus()):
            return True  # Both requested it before this step, and one of them is the first to give it up.
        # The grant of a killed run: its slice begins beside a control group that has requested its CPUs since.
        begins = cpu in before and place not in self.requested and self.is_unmanaged(path)
        if is_member and (row in self.shared or place not in self.granted or begins):
            self.given_back.add(row)  # By an undo: see after_step.
            return True
        return False

    def is_unmanaged(self, path: str) -> bool:
        """Whether a control group lies in none of the profile's slices and in none of Corral's."""
        top = path.partition("/")[0]
        cpu = self.rolled_out.get("cpu", {})
        managed = [one for pool in ("reserved", "shared") for one in cpu.get(pool, {}).get("slices", ())]
        is_slice = top.endswith(".slice") and not top.startswith("corral")
        return (is_slice and top not in managed) or top in {one.partition("/")[0] for one in UNMANAGED}

    def has_partitions(self) -> bool:
        """Whether the node's profile is to have partitions."""
        return t.cast("bool", self.rolled_out.get("cpu", {}).get("partitions") == "auto")

    def has_none(self) -> bool:
        """Whether the node's profile is to have no partitions."""
        return t.cast("bool", self.rolled_out.get("cpu", {}).get("partitions") == "off")

    def asked_for(self) -> set[str]:
        """The slices of Corral's whose CPUs a control group at the top requests by its own choice."""
        groups = self.fake.systemd.cgroups
        asking = (group for path, group in groups.items() if self.is_asking(path.partition("/")[0]))
        asked = Cpus().union(*(group.requested or () for group in asking))
        let_in = ((groups[path].requested or Cpus()) & cpus for path, cpus in self.let_in.items() if path in groups)
        asked = asked.union(*let_in)
        return {
            path for path, group in groups.items() if path.startswith("corral_") and (group.requested or Cpus()) & asked
        }

    def note_sharing(self) -> None:
        """The checkpoint went with the last grant: slices that request CPUs as siblings share them, also once they are granted."""
        tops = {path: one for path, one in self.fake.systemd.cgroups.items() if path and "/" not in path}
        for path, group in tops.items():
            if path.startswith("corral_") and group.partition == MEMBER and group.requested:
                others = (one.requested or Cpus() for other, one in tops.items() if other != path)
                group.shares = group.shares or any(theirs & group.requested for theirs in others)

    def has_fallen(self, path: str) -> bool:
        """Whether a control group is in a slice of which no CPU is online: an exclusive one, or one on the reserved CPUs."""
        top = path.partition("/")[0]
        group = self.fake.systemd.cgroups.get(top)
        if group is None or not group.requested:
            return False
        return not self.fake.systemd.kernel.effective()[top] & (group.requested or Cpus())

    def before_step(self) -> None:
        """Record the partitions, the slices that share their CPUs, and the profile of the node."""
        groups = self.fake.systemd.cgroups
        effective = self.fake.systemd.kernel.effective()
        sharing = [place for place, group in groups.items() if group.shares]
        rows = (
            (path, place, cpu) for place in sharing for path in groups for cpu in effective[path] & effective[place]
        )
        self.shared = frozenset(row for row in rows if not within(row[0], row[1]))
        self.given_back = set()
        self.requested = {path: one.requested or Cpus() for path, one in groups.items() if path and "/" not in path}
        self.granted = frozenset(map(slice_of, self.held()))
        self.partitions = frozenset(path for path, group in groups.items() if group.partition != MEMBER)
        self.rolled_out = json.loads(self.fake.get(PROFILE)) if self.fake.has(PROFILE) else {}

    def after_step(self, undone: bool) -> None:
        """Only an undo restores the sharing from before a slice was a partition; then the slice shares as it did.

        An unmanaged control group may request the CPUs of a grant that begins (kernel 7.0 and later) until the slice is a partition, or is
        gone.
        """
        groups = self.fake.systemd.cgroups
        settled = {place for dummy, place, dummy_cpu in self.given_back if place not in groups or groups[place].valid}
        left = {row for row in self.given_back if not (row[1] in settled and self.is_unmanaged(row[0]))}
        if not undone:
            self.wrong += told(left)
        for dummy, place, dummy_cpu in self.given_back:
            if place in self.fake.systemd.cgroups:
                self.fake.systemd.cgroups[place].shares = undone
        self.standing -= self.given_back

    def shown(self) -> str:
        """The control groups at the top, for a person: their CPUs, their requests, their partitions."""
        kernel = self.fake.systemd.kernel
        effective = kernel.effective()
        return "at that moment " + "; ".join(
            f"{path} {cpuset.format(effective[path])} of {cpuset.format(group.requested or ())}"
            f"{'' if group.partition == MEMBER else ' ' + kernel.shown(path)}"
            for path, group in self.fake.systemd.cgroups.items()
            if path and "/" not in path
        )

    def give_up(self) -> None:
        """The processes on CPUs of their own are to lose them."""
        self.given_up = {path for path in self.fake.systemd.cgroups if path.startswith("corral_") and "/" not in path}
        self.deprived = set()

    def held(self) -> dict[str, Cpus]:
        """The exclusive grants of the checkpoint."""
        if not self.fake.has(CHECKPOINT):
            return {}
        return granted(self.fake.get(CHECKPOINT).encode()) or {}

    def rows(self) -> list[Data]:
        """All grants of the checkpoint; none without one. ValueError: it is damaged."""
        if not self.fake.has(CHECKPOINT):
            return []
        return t.cast("list[Data]", json.loads(self.fake.get(CHECKPOINT))["data"]["grants"])

    def in_force(self) -> dict[str, Cpus]:
        """The CPUs of each exclusive slice with a process in it, by the kernel's rule."""
        systemd = self.fake.systemd
        effective = systemd.kernel.effective()
        places = {run.place for run in self.fake.runs.values() if run.place.startswith("corral_")}
        return {place: effective[place] for place in places if place in systemd.cgroups}

    def owned(self) -> dict[str, Cpus]:
        """The CPUs of each exclusive slice: as granted, and as requested where it is to be a partition or the isolated pool.

        What runs in the isolated pool's slice when the profile no longer has that pool shares CPUs.
        """
        owned = {slice_of(name): cpus for name, cpus in self.held().items()}
        isolated = ISOLATED if (self.rolled_out.get("cpu") or {}).get("isolated") else ""
        for path, group in self.fake.systemd.cgroups.items():
            if path.startswith("corral_") and "/" not in path and (group.partition != MEMBER or path == isolated):
                owned[path] = owned.get(path, Cpus()) | (group.requested or Cpus())
        return owned

    def let(self, unit: str, cpus: Cpus | None) -> None:
        """An administrator gave a unit these CPUs, or (None) removed the setting that kept it off others' CPUs."""
        owned = self.owned()
        others = Cpus().union(*(own for path, own in owned.items() if path != unit))
        if unit.startswith("corral_") and cpus is not None:
            others |= cpus - owned.get(unit, Cpus())  # The unit claims them from any holder.
        self.set_tops.add(unit)
        self.let_in[unit] = self.let_in.get(unit, Cpus()) | (others if cpus is None else others & cpus)

    def after_tick(self, named: str) -> None:
        """After a whole tick no slice has others' CPUs by an administrator's hand, or the status names the slice.

        ``named`` has the slices that the status names in its drift.
        """
        owned, groups = self.owned(), self.fake.systemd.cgroups
        if self.fake.systemd.kernel.release >= FORKY:  # There a partition keeps its CPUs against all requests.
            owned = {path: own for path, own in owned.items() if path not in groups or not groups[path].valid}
        rows = self.fake.systemd.overlaps()
        for unit, cpus in list(self.let_in.items()):
            asked = (groups[unit].requested or Cpus()) if unit in groups else Cpus()
            others = Cpus().union(*(own for path, own in owned.items() if path != unit))
            shared = (cpu for path, place, cpu in rows if unit in (path.partition("/")[0], place))
            self.let_in[unit] = cpus & ((asked & others) | Cpus(shared))
            if self.let_in[unit] and unit not in named:
                self.wrong.append(f"after a tick: {unit} has {sorted(self.let_in[unit])}, and no item names it")

    def at_rest(self) -> None:
        """Check a node after a tick that finds nothing to do."""
        self.counts["in sync"] += 1
        self.spoilt &= self.asked_for()
        cpu = self.rolled_out.get("cpu")
        if cpu is None:
            return
        if cpu["partitions"] == "auto" and not self.asking():
            self.wrong += [f"at rest: {line}" for line in self.fake.exposed()]
        if cpu.get("isolated"):
            self.given_up.discard(ISOLATED)
        held = self.held()
        self.check_requests(cpu, held)
        self.check_dropins()
        effective = self.fake.systemd.kernel.effective()
        if cpu["partitions"] == "auto" and not self.asking():
            for place in [slice_of(name) for name, cpus in held.items() if cpus & self.fake.systemd.online]:
                if place in self.fake.systemd.cgroups and not self.fake.systemd.cgroups[place].valid:
                    self.wrong.append(f"at rest: {place} is no partition")
        for name, cpus in held.items():
            for other in held:
                if other > name and cpus & held[other]:
                    self.wrong.append(f"at rest: {name} and {other} both hold {cpuset.format(cpus & held[other])}")
            unit = unit_of(name)
            run = self.fake.runs.get(unit)
            if run is None or self.earlier(name, unit, run.place, held):
                continue
            if not run.place.startswith("corral_"):
                self.wrong.append(f"at rest: {unit} runs in {run.place}, and holds {sorted(cpus)}")
            elif effective[run.place] != cpus & self.fake.systemd.online:
                self.wrong.append(f"at rest: {unit} runs on {sorted(effective[run.place])}, and holds {sorted(cpus)}")
        for row in self.rows():
            unit = unit_of(row["workload"])
            began, dummy, up = row["instance"].rpartition(":")
            boot = self.fake.get("/proc/sys/kernel/random/boot_id").strip()[:8]
            waits = began == f"by-hand:{boot}" and self.fake.up - int(up) <= START_SECONDS
            holds = any(holder in self.fake.holders for holder in services.required(self.fake, unit))
            if row["hold"] == "running" and unit not in self.fake.runs and not holds and not waits:
                self.wrong.append(f"at rest: {row['workload']} still holds {row['cpus'] or 'memory'}")

    def earlier(self, name: str, unit: str, place: str, held: dict[str, Cpus]) -> bool:
        """Whether a unit still runs under a former name, with the CPUs of that name."""
        others = (other for other in held if other != name and unit_of(other) == unit)
        return any(within(place, slice_of(other)) for other in others)

    def check_requests(self, cpu: Data, held: dict[str, Cpus]) -> None:
        """Note each slice of the profile that requests CPUs of an exclusive slice; unmanaged control groups are left out."""
        groups = self.fake.systemd.cgroups
        own = {slice_of(name): cpus for name, cpus in held.items()}
        if cpu.get("isolated") and ISOLATED in groups:
            own[ISOLATED] = groups[ISOLATED].requested or Cpus()
        unmanaged = {one.partition("/")[0] for one in (*UNMANAGED, *GREEDY)} | set(filter(self.is_asking, groups))
        for path, group in groups.items():
            if "/" in path or path in unmanaged:
                continue
            asked = group.requested or Cpus()
            for place in [place for place, cpus in own.items() if path != place and asked & cpus]:
                self.wrong.append(
                    f"at rest: {path} requests {sorted(asked)}, and {place} is to have {sorted(own[place])}"
                )

    def check_dropins(self) -> None:
        """Note each drop-in of Corral's that would give a unit others' CPUs after a boot, or an exclusive slice wrong ones."""
        own = {
            slice_of(row["workload"]): Cpus(cpuset.parse(row["cpus"]))
            for row in self.rows()
            if row["hold"] == "declared"
        }
        for file in (Path(self.fake.root) / "etc/systemd/system").glob("*.d/10-corral-cpu.conf"):
            unit = file.parent.name[: -len(".d")]
            lines = [line for line in file.read_text().splitlines() if line.startswith("AllowedCPUs=")]
            named = Cpus(cpuset.parse(lines[-1].partition("=")[2])) if lines else Cpus()
            self.counts["drop-ins at rest"] += 1
            if unit in own and named != own[unit]:
                self.wrong.append(
                    f"at rest: the drop-in of {unit} says {sorted(named)}, and it holds {sorted(own[unit])}"
                )
            for place in [place for place, cpus in own.items() if place != unit and named & cpus]:
                self.wrong.append(
                    f"at rest: the drop-in of {unit} says {sorted(named)}, and {place} holds {sorted(own[place])}"
                )

    def asking(self) -> bool:
        """Whether a control group asks for CPUs of its own choice."""
        return any(self.is_asking(path.partition("/")[0]) for path in self.fake.systemd.cgroups)

    def is_asking(self, top: str) -> bool:
        """Whether a control group at the top has CPUs that a person chose for it, and that no profile declares."""
        return top in GREEDY or (top in self.set_tops and self.is_unmanaged(top))


def slice_of(workload: str) -> str:
    """The slice of an exclusive grant (systemd-escape(1))."""
    return f"corral_{workload.replace('-', chr(92) + 'x2d').replace('@', chr(92) + 'x40')}.slice"


def unit_of(workload: str) -> str:
    """The unit of a workload of the walk."""
    name, dummy, instance = workload.partition(":")
    return f"{instance or name.removesuffix('-here').removesuffix(NEW)}.service"
