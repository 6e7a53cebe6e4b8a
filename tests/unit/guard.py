# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does any control group have CPUs that belong to another? Told from the fake kernel's effective sets alone.

``shared`` is asked after every change: which control groups with processes have CPUs of an exclusive slice. Exclusive are
- a slice ``corral_*`` at the top that was asked to be a partition, valid or not;
- one that was not, once it requests exactly what the checkpoint grants to its workload, also while nobody is in it: a service
  may start in it at any moment. Until it is a partition, a control group that is confined nowhere has its CPUs: nothing
  but the partition can take them away;
- ``corral_isolated.slice`` with CPUs of its own, as soon as it holds a process, in a profile that has isolated CPUs, unless it
  was a partition and that was taken back.

Exempt is what is not exclusive: a slice that requests other CPUs than its grant runs as shared, or is being made, as does an
empty one that was a partition before and was given up. A slice that requested CPUs without a grant, as siblings did, shares
them. It goes on to share them after a grant, until it becomes a partition, is given others, or no sibling requests any of them.
The isolated pool counts once the node's profile has it, or it is a partition: not while a profile without partitions
brings it. A slice
that runs on CPUs which it did not request, since none of its own is online, has no claim to those.

``exposed`` is asked at rest: which exclusive slices would share with something that starts now, anywhere.
"""

from __future__ import annotations

import functools
import json
import os
import typing as t

from fake_cpusets import MEMBER, Cpus, read_list, shown_list, within

if t.TYPE_CHECKING:
    from fake_systemd import FakeSystemd

CHECKPOINT = "var/lib/corral/checkpoint.json"
PROFILE = "etc/corral/profile.json"
ISOLATED = "corral_isolated.slice"

Row = tuple[str, str, int]  # a control group, the exclusive slice, and a CPU that both have


class Claim(t.NamedTuple):
    """An exclusive slice: its control group and CPUs; ``open`` while those that are confined nowhere have its CPUs too."""

    place: str
    cpus: Cpus
    open: bool


class Look:
    """One look at the machine; each thing is found out once."""

    def __init__(self, systemd: FakeSystemd) -> None:
        self.systemd = systemd
        self.effective = systemd.kernel.effective()
        self.busy = [path for path, group in systemd.cgroups.items() if group.procs or group.tasks]

    @functools.cached_property
    def grants(self) -> dict[str, Cpus] | None:
        """Workloads and their CPUs as the checkpoint has them; None when it cannot be read."""
        text = file_text(f"{self.systemd.root}/{CHECKPOINT}")
        return None if text is None else granted(text)

    @functools.cached_property
    def has_isolated_pool(self) -> bool:
        """Whether the profile that the node has declares isolated CPUs."""
        text = file_text(f"{self.systemd.root}/{PROFILE}")
        return text is not None and declares_isolated(text)

    def holds(self, place: str) -> bool:
        """Whether a process is in a control group or below it."""
        return any(within(path, place) for path in self.busy)

    def confined(self, path: str) -> bool:
        """Whether a control group or one around it requests CPUs."""
        while path and not self.systemd.cgroups[path].requested:
            path = path.rpartition("/")[0]
        return bool(path)

    def rows(self, path: str, claims: t.Iterable[Claim]) -> list[Row]:
        """The CPUs that a control group has of others' slices."""
        return [
            (path, claim.place, cpu)
            for claim in claims
            if self.effective[path] & claim.cpus and not within(path, claim.place)
            if not claim.open or self.confined(path)
            for cpu in self.effective[path] & claim.cpus
        ]

    def top_level(self) -> list[Claim]:
        """The exclusive slices directly below the root."""
        self.note_sharing()
        found = []
        for place, group in self.systemd.cgroups.items():
            if "/" in place or not (place.startswith("corral_") and place.endswith(".slice")):
                continue
            # Without any of its CPUs online it runs on others', and those are not its own.
            own = self.effective[place] & (group.requested or Cpus())
            if group.partition != MEMBER:
                found.append(Claim(place, own, open=False))
            elif group.requested and self.in_force(place):
                found.append(Claim(place, own, open=True))
        return found

    def note_sharing(self) -> None:
        """Keep which slices that are no partition request CPUs without a grant of just these, as siblings do: they share them."""
        tops = {path: group.requested or Cpus() for path, group in self.systemd.cgroups.items() if "/" not in path}
        for place, requested in tops.items():
            group = self.systemd.cgroups[place]
            if not place.startswith("corral_") or place == ISOLATED or group.partition != MEMBER or group.shares:
                continue
            if self.grants is None or self.granted_to(place) == requested:
                continue
            group.shares = any(requested & theirs for other, theirs in tops.items() if other != place)

    def in_force(self, place: str) -> bool:
        """Whether a slice that is no partition has the CPUs which it requests for itself."""
        group = self.systemd.cgroups[place]
        if place == ISOLATED:
            return self.has_isolated_pool and self.holds(place) and not group.given_up
        if group.shares:
            return False
        if self.grants is None:
            return self.holds(place) and not group.given_up
        if self.granted_to(place) != group.requested:
            return False
        # An empty one that was given up is granted the CPUs again that it was left with, and gets them for itself in this run.
        return self.holds(place) or not group.given_up

    def granted_to(self, place: str) -> Cpus | None:
        """The CPUs that the workload of a slice has by the checkpoint."""
        return (self.grants or {}).get(unescaped(place[len("corral_") : -len(".slice")]))


def file_text(path: str) -> bytes | None:
    """What is in a file; None where there is none. A FIFO in its place is opened without waiting for a writer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(file, "rb", buffering=0) as opened:
            return opened.read()
    except OSError:
        return None


@functools.lru_cache
def declares_isolated(text: bytes) -> bool:
    """Whether a profile in JSON has isolated CPUs."""
    return "isolated" in json.loads(text).get("cpu", {})


@functools.lru_cache
def granted(text: bytes) -> dict[str, Cpus] | None:
    """Workloads and their CPUs as the text of a checkpoint has them; None when it has none."""
    try:
        data = json.loads(text)["data"]["grants"]
        return {row["workload"]: read_list(row["cpus"]) for row in data if row["cpus"]}
    except (ValueError, LookupError, TypeError):
        return None


def shared(systemd: FakeSystemd) -> frozenset[Row]:
    """The CPUs of exclusive slices that other control groups with processes have."""
    look = Look(systemd)
    claims = look.top_level()
    claimed = Cpus().union(*(claim.cpus for claim in claims))
    found: set[Row] = set()
    for path in look.busy if claimed else ():
        if look.effective[path] & claimed:
            found.update(look.rows(path, claims))
    return frozenset(found)


def exposed(systemd: FakeSystemd) -> list[str]:
    """The control groups, empty ones and the root too, that have CPUs of an exclusive slice at the top."""
    look = Look(systemd)
    claims = [claim._replace(open=False) for claim in look.top_level()]
    return told(row for path in systemd.cgroups for row in look.rows(path, claims))


def told(found: t.Iterable[Row]) -> list[str]:
    """One line for each two that share."""
    pairs: dict[tuple[str, str], set[int]] = {}
    for path, place, cpu in found:
        pairs.setdefault((path, place), set()).add(cpu)
    return [
        f"{path or 'the root'} has {shown_list(frozenset(cpus))} of {place}"
        for (path, place), cpus in sorted(pairs.items())
    ]


def unescaped(name: str) -> str:
    """What stands for a part of a unit's name (systemd-escape(1))."""
    first, *rest = name.replace("-", "/").split("\\x")
    return first + "".join(chr(int(part[:2], 16)) + part[2:] for part in rest)
