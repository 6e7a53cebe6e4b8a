# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The properties of slices that an administrator of a random walk (walk.py) sets by systemctl set-property, and their fate.

A persistent set-property is a file below /etc/systemd/system.control. A value that was set before Corral had a unit is an original: Corral
may remove the file, and then the file comes back with the same text, at the latest when Corral goes. A later value is drift: once Corral
removed it, it is gone. Corral never writes such a file of its own.
"""

from __future__ import annotations

import contextlib
import random
import typing as t
from pathlib import Path

from fake_systemd import PERSISTENT, RUNTIME, TRANSIENT, added_up
from node import Node

Cpus = frozenset[int]

SHARED = ("machine.slice", "machine.slice", "system.slice", "user.slice", "more.slice", "corral.slice", "init.scope")
OWN = ("corral_alpha.slice", "corral-beta.slice", "corral_gamma.slice", "corral-alpha.slice", "corral_isolated.slice")
LIMITS = ("MemoryMax=33554432", "TasksMax=77", "CPUWeight=300", "CPUWeight=50")


def assignment(
    dice: random.Random, cpus: t.Sequence[int], owned: t.Mapping[str, Cpus], own: t.Sequence[str]
) -> tuple[str, str]:
    """A unit, and the assignment for it; ``owned`` are the CPUs of exclusive slices, ``own`` the existing ones."""
    unit = dice.choice((*SHARED, *SHARED, *OWN, *own))
    if dice.random() < (0.5 if unit in (*OWN, *own) else 0.15):
        return unit, dice.choice(LIMITS)
    choices: list[t.Iterable[int]] = [dice.sample(list(cpus), dice.choice([1, 2, 3])), cpus, cpus[1:], ()]
    choices += [owned[place] for place in sorted(owned)[:1]]
    return unit, f"AllowedCPUs={','.join(map(str, sorted(dice.choice(choices))))}"


def files(root: Path) -> list[Path]:
    """The files of set-property, persistent and live, Corral's own included."""
    return sorted(one for base in (PERSISTENT, RUNTIME, TRANSIENT) for one in (root / base).rglob("*.conf"))


def in_force(fake: Node) -> dict[str, t.Any]:
    """The requested CPUs and the limits of the slices at the top and of Corral's."""
    values: dict[str, t.Any] = {}
    for path, group in fake.systemd.cgroups.items():
        if path.endswith((".slice", ".scope")) and ("/" not in path or path.startswith("corral")):
            values[f"cpuset.cpus of {path}"] = sorted(group.requested or ())
            values[f"cpuset.cpus.partition of {path}"] = group.partition
            if path.startswith("corral"):
                values[f"pids.max of {path}"] = group.pids
                values.update({f"{name} of {path}": value for name, value in group.values.items()})
    return values


def not_in_force(fake: Node, left_out: t.Container[str]) -> list[str]:
    """The slices without the CPUs of their files, except for some units; valid after a removal."""
    systemd, found = fake.systemd, []
    for name, unit in systemd.units.items():
        group = systemd.cgroups.get(name)
        if not unit.running or group is None or name.startswith("corral") or name in left_out:
            continue
        said = added_up(value for key, value in systemd.settings(name) if key == "AllowedCPUs")
        if said and said & systemd.online and systemd.effective(name) != said & systemd.online:
            found.append(
                f"after the removal: {name} has {sorted(systemd.effective(name))}, and its files say {sorted(said)}"
            )
    return found


class SetFiles:
    """The files of a persistent set-property below the tree ``root``: as the administrator left them, and which come back."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ruled: set[str] = set()  # the units for which Corral wrote a drop-in
        self.bare: set[str] = set()  # those of them whose drop-in a hand removed
        self.restored: set[str] = (
            set()
        )  # those that Corral brought back; a removal that did not end may do so once more
        self.uncertain = False  # a run of Corral's did not end: its recorded originals may come back
        self.unset: set[str] = set()  # the units whose live values a hand removed
        self.ever: dict[str, set[str]] = {}  # all that a hand wrote
        self.left: dict[str, str] = {}  # as they are, by what a hand or Corral did last
        self.original: set[str] = set()  # those of them that come back when Corral removes them
        self.either: set[str] = set()  # those of them that may
        self.gone: dict[str, str] = {}  # what is to come back

    def now(self) -> dict[str, str]:
        """The files that exist."""
        paths = (self.root / PERSISTENT).rglob("*.conf")
        return {str(one.relative_to(self.root / PERSISTENT)): one.read_text() for one in paths}

    @contextlib.contextmanager
    def by_hand(self, is_ruled: t.Callable[[str], bool]) -> t.Iterator[None]:
        """The acts of an administrator on the files."""
        before = self.now()
        yield
        now = self.now()
        for path in now:
            if now[path] == before.get(path):
                continue
            self.ever.setdefault(path, set()).add(now[path])
            unit, dummy, name = path.partition(".d/50-")
            own = unit.startswith("corral")
            self.original.discard(path)
            if path not in self.gone:
                self.either.discard(path)
            if own or name != "AllowedCPUs.conf":
                self.either.add(path)
            if self.uncertain:
                self.either.add(path)
            if path in self.either or not is_ruled(unit):
                self.original.add(path)
                self.gone.pop(path, None)
        for path in before.keys() - now.keys():
            if path in self.gone or path in self.restored or self.uncertain:
                self.either.add(path)  # The original, or nothing: neither was observed.
                self.gone.setdefault(path, before[path])
        self.bare |= self.ruled - self.with_dropins()
        self.left = now

    def after_step(self) -> list[str]:
        """The faults of Corral with the files in a step."""
        now, wrong = self.now(), []
        for path, text in now.items():
            if self.left.get(path) == text:
                continue
            if self.uncertain or path in self.either:
                is_wrong = text not in self.ever.get(path, ())
            else:
                is_wrong = path in self.left or self.gone.get(path) != text
            if is_wrong:
                wrong.append(f"{path} was {self.left.get(path)!r}, and Corral made it {text!r}")
            self.gone.pop(path, None)
            self.original.add(path)
            self.restored.add(path)
        for path in self.left.keys() - now.keys():
            if path in self.original and path not in self.gone:
                self.gone[path] = self.left[path]
                self.either |= {path} if self.uncertain else set()
        self.left = now
        here = self.with_dropins()
        self.bare -= here
        self.ruled = here | self.bare
        self.original.update(path for path in now if path.partition(".d/")[0] not in self.ruled)
        return wrong

    def with_dropins(self) -> set[str]:
        """The units that have a drop-in of Corral's."""
        dropins = (self.root / "etc/systemd/system").glob("*.d/10-corral-*.conf")
        return {one.parent.name[: -len(".d")] for one in dropins}

    def after_removal(self) -> list[str]:
        """The faults with the files once Corral is gone."""
        wrong, now = self.after_step(), self.now()
        for path, text in self.gone.items():
            if path not in now and path not in self.either:
                wrong.append(f"after the removal: {path} does not come back: {text!r}")
        for kept in (self.gone, self.ruled, self.bare, self.restored, self.either):
            kept.clear()
        self.uncertain = False
        self.original.update(now)
        self.either.update(path for path in now if path.startswith("corral"))
        return wrong
