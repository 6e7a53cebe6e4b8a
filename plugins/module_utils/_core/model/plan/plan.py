# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A plan: readable changes, each with the steps that carry out the change.

A drift item is a change that was not applied, and so has the type Change.
"""

from __future__ import annotations

import typing as t

from ..values.errors import Problem
from ..values.printable_text import printable_fields
from ..values.records import NamedTuple

if t.TYPE_CHECKING:
    from ..status.json_shapes import Item
    from ..values.vocabulary import Disruption, StepKind, Verdict, When
    from .context import Context

# Verdicts of a change.
DRIFT: Verdict = "drift"  # the node differs; the steps correct it
# The node differs, and Corral cannot correct it; the reason has the cause and what to do.
UNCHANGEABLE: Verdict = "unchangeable"
UNKNOWN: Verdict = "unknown"  # the actual value could not be read; never counted as in sync

# The phases, in which all steps of a plan run in this order. CPUs move before files so that the live hand-over can be
# ordered: a daemon-reload would apply all drop-ins at once (systemd 252).
CLAIM = 5  # the files that slices read at their start: before anything takes effect
TAKE = 6  # devices, names and files that a workload loses, before the checkpoint records another owner
RECORD = 7  # the checkpoint, before its grants take effect
STOP = 10  # units that are about to lose their files
VALUES = 20  # sysctl, hugepage pools
CPUS = 30  # the ordered hand-over of CPUs
LIVE = 40  # other live properties of units
RELEASE = 50  # live properties that the profile no longer declares
FILES = 60  # drop-ins, units, sysctl.d
RELOAD = 70  # one daemon-reload for all files of the phases before
EMPTY_SLICES = 75  # slices that no unit requires any more: a slice's stop ends all units that require the slice
START = 80  # units that need their files
DECLARE = 90  # the profile itself, last: the profile becomes the declared profile when all other steps have run
# The phases that a grant does not need at once: the rollout and the tick run these phases, since a reload at each start would take seconds.
LATER = (STOP, VALUES, RELOAD, DECLARE)


def key_of(kind: str, target: str, name: str) -> str:
    """The key of a step and of its original: the kind, the target, and the name of a property. A link has the key of a file."""
    kind = "file" if kind == "link" else kind
    return ":".join(filter(None, [kind, target, name if kind == "property" else ""]))


class Step(NamedTuple):
    """One write. make_step.py has a constructor for each ``kind``, which explains ``target``, ``name`` and ``value``.

    ``phase`` and ``order`` give the step's place in the whole plan; ``reload`` asks for a daemon-reload after phase FILES. An ``optional``
    step needs a resource that the kernel may lack (pages): its failure is drift, which the next observation finds. But the run is undone if
    the failed step should have moved a unit off CPUs that a later step gives to another unit.
    """

    kind: StepKind
    target: str
    value: t.Optional[str]
    phase: int
    order: int = 0
    mode: int = 0o644
    name: str = ""
    reload: bool = False
    optional: bool = False

    @property
    def key(self) -> str:
        """The key of the step and of its original."""
        return key_of(self.kind, self.target, self.name)

    @property
    def text(self) -> t.Optional[str]:
        """The written text, as the kernel and systemd read it: "AllowedCPUs=0-3", "+hugetlb"; None for a removal."""
        if self.kind == "property":
            return f"{self.name}={self.value or ''}"
        return f"{self.value}{self.name}" if self.kind == "controller" else self.value


@printable_fields("subject", "property", "actual", "wanted", "reason", "location")
class Change(NamedTuple):
    """One change of a plan, or one drift item.

    ``actual`` and ``wanted`` are texts to compare; ``location`` is where the actual value can be seen (file, unit, cgroup path). The words
    of ``verdict``, ``when`` and ``disruption`` are in vocabulary.py.
    """

    manager: str
    subject: str
    property: str
    actual: t.Optional[str]
    wanted: t.Optional[str]
    reason: str
    location: str
    steps: tuple[Step, ...] = ()
    verdict: Verdict = DRIFT
    when: When = "now"
    disruption: Disruption = "none"

    def item(self) -> tuple[str, str, str]:
        """The identity of the item, independent of its values: ``since`` is recorded per item."""
        return (self.manager, self.subject, self.property)


@printable_fields("notes")
class Part(NamedTuple):
    """A manager's part of a plan: its changes, and the keys of all targets that the manager owns, in sync or not.

    A changed value returns to its original when no part's ``owned`` has its key. ``problems``: reasons not to begin with this profile on
    this node. ``manager``: if set, the kernel values in ``owned`` are recorded under this name even if the values are right already.
    ``notes``: hints for the user. ``baseline``: steps on values that another file keeps right; these steps are not executed, but their
    values are recorded as originals. ``gone``: keys of files that the changes remove for good, with their originals.
    """

    changes: tuple[Change, ...]
    owned: frozenset[str]
    problems: tuple[Problem, ...] = ()
    manager: str = ""
    notes: tuple[str, ...] = ()
    baseline: tuple[Step, ...] = ()
    gone: frozenset[str] = frozenset()


def unit_of_cpus_file(path: str) -> str:
    """The unit to which systemd's own file for AllowedCPUs= belongs, persistent or live; an empty string for any other path."""
    folder, dummy, file = path.rpartition(".d/")
    bases = ("/etc/systemd/system.control/", "/run/systemd/system.control/", "/run/systemd/transient/")
    control = folder.startswith(bases)
    return folder.rpartition("/")[2] if control and file == "50-AllowedCPUs.conf" else ""


def steps_in_order(changes: t.Iterable[Change]) -> list[Step]:
    """All steps of a plan in the order in which the steps run, with one daemon-reload if any step asks for a reload.

    The result has each step once, except removals of folders.
    """
    # Several changes may have the same step. A folder may be empty only at the second of two attempts.
    steps: list[Step] = []
    known: set[Step] = set()
    for step in (step for change in changes for step in change.steps):
        if step.kind == "folder" or step not in known:
            steps.append(step)
            known.add(step)
    if any(step.reload for step in steps):
        steps.append(Step("unit", "", "daemon-reload", RELOAD))
    return sorted(steps, key=lambda step: (step.phase, step.order))


def change_to_dict(change: Change) -> Item:
    """The JSON form of a change or drift item: all fields but the steps."""
    return {
        "manager": change.manager,
        "subject": change.subject,
        "property": change.property,
        "actual": change.actual,
        "wanted": change.wanted,
        "reason": change.reason,
        "location": change.location,
        "verdict": change.verdict,
        "when": change.when,
        "disruption": change.disruption,
    }


def change_from_dict(data: t.Mapping[str, t.Any]) -> Change:
    """A change or drift item from its JSON form, without steps. Raises TypeError for a missing field."""
    return Change(**{name: data[name] for name in Change._fields if name in data and name != "steps"})


@printable_fields("notes")
class Plan(NamedTuple):
    """The wanted changes. ``context`` is None for a plan without a profile (the agent, a removal).

    ``lost``: a removal that changes nothing and names what is left, because the originals are lost. ``keep_going``, for a removal: the run
    continues if a target cannot be restored, and names the target in ``leftovers``. The run ends if the node cannot be drained.
    """

    context: t.Optional[Context]
    changes: tuple[Change, ...]
    parts: tuple[Part, ...]
    obsolete: frozenset[str]
    notes: tuple[str, ...] = ()
    lost: bool = False
    keep_going: bool = False


@printable_fields("error", "undone", "leftovers")
class Outcome(NamedTuple):
    """The result of a run. ``remaining`` is the drift that is left: in check mode all drift.

    ``error`` names the refused step, ``undone`` the changes that were undone after the refusal; both fields are empty after success.
    """

    plan: Plan
    applied: tuple[Change, ...]
    remaining: tuple[Change, ...]
    error: str = ""
    undone: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
