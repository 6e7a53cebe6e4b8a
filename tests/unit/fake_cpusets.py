# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's rule for the cpusets of cgroup v2, as measured on kernels 6.1, 6.12 and 7.2.

It shares no line with model/plan/kernel_cpusets.py, which is part of what is tested. Where kernels differ, ``release`` decides:

=============================================  ==========================  ==================  =====================
                                               6.1                         6.12                7.2
=============================================  ==========================  ==================  =====================
a sibling requests CPUs of a partition         both run there, the         as 6.1              the partition keeps them
                                               partition is invalid
``root`` is written to an invalid partition    ignored                     tried again         tried again
all CPUs of a partition are offline            valid, without any CPU      invalid             invalid
``root`` with CPUs of isolcpus=                valid                       invalid             invalid
``isolated`` with CPUs of isolcpus=            valid                       invalid             valid
cpuset.cpus.exclusive                          no such file                as below            as 6.12 (not measured)
=============================================  ==========================  ==================  =====================

CPUs in cpuset.cpus.exclusive go to no partition beside the control group: one that asks for others as well is valid without them, one
that asks for no others is invalid. The file cannot get CPUs of a partition. A partition with such CPUs has just these.

That a partition of 7.2 can be made over the CPUs that a member requested before is not measured. Where the processes of a
partition are in control groups without a cpuset, 7.2 leaves it valid when its CPUs go offline, and lets them run on all CPUs,
other partitions' as well (seen): the fake does not, since nothing that Corral does prevents it.
"""

from __future__ import annotations

import errno
import functools
import os
import typing as t

Cpus = frozenset[int]
Release = tuple[int, int]

NONE: Cpus = frozenset()
MEMBER, KINDS = "member", ("root", "isolated")
BOOKWORM, TRIXIE, FORKY = (6, 1), (6, 12), (7, 2)
# kernel/cgroup/cpuset.c, perr_strings.
EMPTY = "cpuset.cpus is empty"
NOT_EXCLUSIVE = "Cpu list in cpuset.cpus not exclusive"
NO_PARENT = "Parent is not a partition root"
INVALID_PARENT = "Parent is an invalid partition root"
NOTHING_LEFT = "Parent unable to distribute cpu downstream"
HOTPLUG = "No cpu available due to hotplug"
HOUSEKEEPING = "partition config conflicts with housekeeping setup"


def read_list(text: str) -> Cpus:
    """A list of CPUs as the kernel reads one: ``0-3,8``. Raises ValueError."""
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        ends = [int(end) for end in part.split("-")]
        if len(ends) > 2 or ends[0] > ends[-1]:
            raise ValueError(f"{part!r} is no range")
        cpus.update(range(ends[0], ends[-1] + 1))
    return frozenset(cpus)


@functools.lru_cache(4096)
def shown_list(cpus: Cpus) -> str:
    """A list of CPUs as the kernel prints one (%*pbl)."""
    firsts = sorted(cpu for cpu in cpus if cpu - 1 not in cpus)
    lasts = sorted(cpu for cpu in cpus if cpu + 1 not in cpus)
    return ",".join(f"{one}-{other}" if other > one else f"{one}" for one, other in zip(firsts, lasts))


class Cpuset:
    """The requests of a control group: cpuset.cpus (None: never), cpuset.cpus.exclusive, cpuset.cpus.partition; why the last is not in
    force.
    """

    def __init__(self) -> None:
        self.requested: Cpus | None = None
        self.exclusive: Cpus = NONE
        self.partition = MEMBER
        self.problem = ""
        self.given_up = False  # it was a partition, and member was written to it since
        # The group rightly shared the CPUs that it requests, and was neither a partition nor alone on them since.
        self.shares = False

    @property
    def valid(self) -> bool:
        """Whether it is a partition now."""
        return self.partition != MEMBER and not self.problem

    def forget(self) -> None:
        """The parent's controller was switched off."""
        self.requested, self.exclusive, self.partition, self.problem, self.shares = None, NONE, MEMBER, "", False


class Kernel:
    """The control groups of a machine by their paths below the root, which is "". It changes them in place."""

    def __init__(
        self, groups: t.Mapping[str, Cpuset], online: Cpus, release: Release = BOOKWORM, isolated: Cpus = NONE
    ) -> None:
        self.groups = groups
        self.isolated = isolated  # by isolcpus=
        self.online = online
        self.release = release

    # What can be read

    def effective(self) -> dict[str, Cpus]:
        """cpuset.cpus.effective of every control group, the root's included."""
        taken = self._taken()
        whole, left = {"": self.online}, {"": self.online - taken.get("", NONE)}
        for path in sorted(filter(None, self.groups), key=_depth):
            group, above = self.groups[path], parent(path)
            asked = group.requested or NONE
            if group.valid:
                whole[path] = self._own(path) & whole[above]
                left[path] = whole[path] - taken.get(path, NONE)
            else:
                whole[path] = left[path] = (asked & left[above]) or left[above]
        return left

    def shown(self, path: str) -> str:
        """cpuset.cpus.partition."""
        group = self.groups[path]
        if group.partition == MEMBER or group.valid:
            return group.partition
        # 6.12 was seen to tell no reason here.
        silent = group.problem == NOT_EXCLUSIVE and TRIXIE <= self.release < FORKY
        return f"{group.partition} invalid" if silent else f"{group.partition} invalid ({group.problem})"

    # What can be written

    def set_cpus(self, path: str, cpus: Cpus) -> None:
        """Write cpuset.cpus. The CPUs of others are no reason to refuse it."""
        group = self.groups[path]
        if (group.requested or NONE) == cpus:
            group.requested = cpus
            return  # The kernel returns here, even where a partition could be valid again.
        group.requested = cpus
        group.shares = False
        if self.release < FORKY:
            for other in self._siblings(path):
                if other.valid and (other.requested or NONE) & cpus:
                    other.problem = NOT_EXCLUSIVE
        if group.partition != MEMBER:
            group.problem = self._problem(path)
        self._settle()

    def set_exclusive(self, path: str, cpus: Cpus) -> None:
        """Write cpuset.cpus.exclusive."""
        others = [group for group in self._siblings(path) if group.valid or group.exclusive]
        if any((group.exclusive or group.requested or NONE) & cpus for group in others):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), f"{path}/cpuset.cpus.exclusive")
        self.groups[path].exclusive = cpus
        if self.groups[path].partition != MEMBER:
            self.groups[path].problem = self._problem(path)
        self._settle()

    def set_partition(self, path: str, kind: str) -> None:
        """Write cpuset.cpus.partition. Only an unknown word is refused; the state must be read back."""
        group = self.groups[path]
        if kind not in (MEMBER, *KINDS):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), f"{path}/cpuset.cpus.partition")
        group.given_up = kind == MEMBER and (group.given_up or group.partition != MEMBER)
        if kind == MEMBER:
            group.partition, group.problem = MEMBER, ""
        elif group.partition == MEMBER or (group.problem and self.release >= TRIXIE):
            group.problem = self._problem(path, kind)
            group.partition = kind
        elif group.partition != kind and not group.problem:
            group.partition, group.problem = kind, self._problem(path, kind)
        else:
            group.partition = kind  # It stays what it was, valid or not.
        group.shares = group.shares and kind == MEMBER
        self._settle()

    def set_online(self, online: Cpus) -> None:
        """CPUs go and come. This is when the kernel looks at invalid partitions again."""
        self.online = online
        for path in sorted(filter(None, self.groups), key=_depth):
            if self.groups[path].problem:
                self.groups[path].problem = self._problem(path)
        self._settle()

    # How

    def _taken(self) -> dict[str, Cpus]:
        """The CPUs that partitions take out of the control group around them."""
        taken: dict[str, Cpus] = {}
        for path, group in self.groups.items():
            if path and group.valid:
                taken[parent(path)] = taken.get(parent(path), NONE) | self._own(path)
        return taken

    def _siblings(self, path: str) -> list[Cpuset]:
        above = parent(path)
        return [group for other, group in self.groups.items() if other not in ("", path) and parent(other) == above]

    def _own(self, path: str) -> Cpus:
        """The CPUs that a partition requests and that no sibling has for itself."""
        group, above = self.groups[path], parent(path)
        rivals = [
            other for other, one in self.groups.items() if one.exclusive and other not in ("", path)
        ]  # hardly any
        theirs = (self.groups[other].exclusive for other in rivals if parent(other) == above)
        return (group.exclusive or group.requested or NONE).difference(*theirs)

    def _whole(self, path: str) -> Cpus:
        """The CPUs of a partition, with those that partitions in it took."""
        return self._own(path) & self._whole(parent(path)) if path else self.online

    def _problem(self, path: str, kind: str = "") -> str:
        """Why a control group cannot be a partition (of a kind, else of its own), "" when it can."""
        group, above = self.groups[path], parent(path)
        asked = group.exclusive or group.requested or NONE
        if not asked:
            return EMPTY
        asked = self._own(path)
        if not asked:
            return NOT_EXCLUSIVE
        if above and not self.groups[above].valid:
            return NO_PARENT if self.groups[above].partition == MEMBER else INVALID_PARENT
        rivals = [other for other in self._siblings(path) if (other.requested or NONE) & asked]
        if any(self.release < FORKY or other.valid for other in rivals):
            return NOT_EXCLUSIVE
        if not asked & self._whole(above):
            return HOTPLUG
        free = self.release < TRIXIE or (self.release >= FORKY and (kind or group.partition) == "isolated")
        if asked & self.isolated and not free:
            return HOUSEKEEPING
        others = [other.requested or NONE for other in self._siblings(path) if other.valid]
        if not above and not self.online - asked.union(*others):
            return NOTHING_LEFT  # The root has threads of the kernel, which must run somewhere.
        return ""

    def _settle(self) -> None:
        """Update partitions that lost their parent or all their CPUs, and groups that are alone on the CPUs that they shared."""
        for path in [path for path, group in self.groups.items() if group.shares]:
            group = self.groups[path]
            group.shares = any((other.requested or NONE) & (group.requested or NONE) for other in self._siblings(path))
        for path in sorted(filter(None, self.groups), key=_depth):
            group, above = self.groups[path], parent(path)
            if not group.valid:
                continue
            if above and not self.groups[above].valid:
                group.problem = INVALID_PARENT
            elif not self._own(path) & self._whole(above) and self.release >= TRIXIE:
                group.problem = HOTPLUG


def parent(path: str) -> str:
    """The parent of a control group."""
    return path.rpartition("/")[0]


def within(path: str, group: str) -> bool:
    """Whether a control group is another or lies in it."""
    return not group or f"{path}/".startswith(f"{group}/")


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path
