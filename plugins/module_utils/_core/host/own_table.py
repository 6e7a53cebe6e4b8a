# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The files of Corral's own on a node: what each is behind, with what it ends, and what stays in force when it is lost.

Lost is gone where it was, torn, or a folder, a link, a FIFO, a socket or a device in its place. docs/maintenance.md has this table.
"""

from __future__ import annotations

import typing as t

from ..model.values.records import NamedTuple
from . import state

REMOVAL = "removal of the profile"
AGENTS = "removal of the agent"
LOOK = "each look writes it"


class OwnFile(NamedTuple):
    """A file: ``checked`` by a checksum, with a ``spare`` copy (""), ``lasts`` over a boot, ``ends`` with what, and when it is ``lost``.

    ``told``: an item names it when it is torn or of another kind. The others have items of their own, or are written by each look.
    """

    path: str
    checked: bool
    spare: str
    lasts: bool
    ends: str
    lost: str
    told: bool = False


COPY = "beside it, .previous"
FILES = (
    OwnFile(
        state.DECLARED, False, state.APPLIED, True, REMOVAL,
        "the profile applied last stays in force; the rollout or corral reconcile writes it again",
    ),
    OwnFile(state.ORIGINS, False, "", True, REMOVAL, "keys have no origins until the next rollout", True),
    OwnFile(
        state.AGENT, False, "", True, AGENTS,
        "the agent runs on, and its units are not corrected: install it again (corral.node.agent, or the rollout)", True,
    ),
    OwnFile(state.APPLIED, False, state.HISTORY, True, REMOVAL, "the next run writes it again"),
    OwnFile(state.HISTORY, True, COPY, True, "removal of profile and agent", "the next run writes it again"),
    OwnFile(state.BEFORE, True, COPY, True, REMOVAL, "the next run writes it again"),
    OwnFile(state.CHECKPOINT, True, COPY, True, REMOVAL, "grants are as the slices show them; the next run writes it again"),
    OwnFile(state.ADMITTED, True, COPY, True, "the last release, or " + REMOVAL, "the next run writes it again"),
    OwnFile(
        state.UNCONFIRMED, True, "", True, "confirmation, or going back",
        "the node keeps its profile, and does not go back: corral rollback does", True,
    ),
    OwnFile(
        state.REJECTED, True, "", True, "a rollout with force",
        "no profile but the one applied last is taken up by a tick: run the rollout, or remove the file", True,
    ),
    OwnFile(state.PAUSE, True, state.STATUS, True, "its time, corral resume, or its deletion", "the node stays paused as the last status says"),
    OwnFile(
        state.DRAINED, False, "", True, "the hook that resumes the node",
        "which hook drained the node is not known: resume it by hand, then remove what is there", True,
    ),
    OwnFile(state.PROGRAM, True, "", True, AGENTS, "the program cannot be compared: install it again (the rollout)"),
    OwnFile(state.PCI_USED, True, "", True, REMOVAL, "no PCI function is bound until the node has started"),
    OwnFile(state.GC_RECORDS, True, COPY, True, "gc leaving the profile", "ages of images begin again"),
    OwnFile(state.EFFECTIVE_PROFILE, False, "", True, REMOVAL, LOOK),
    OwnFile(state.SINCE, False, state.STATUS, True, "the last item", LOOK),
    OwnFile(state.STATUS, False, "", False, "the boot", LOOK),
    OwnFile(state.PUBLISHED[1], False, "", False, "the boot", LOOK),
    OwnFile(state.PUBLISHED[2], False, "", False, "the boot", LOOK),
    OwnFile(state.ATTEMPTS, False, "", False, "the boot", "what was refused is asked for again"),
    OwnFile(state.RELOAD_DUE, False, "", False, "the reload of systemd", "whatever is there stands for it"),
    OwnFile(state.KUBELET_DUE, False, "", False, "a healthy kubelet", "whatever is there stands for it"),
    OwnFile(state.WAY_BACK, False, "", False, "confirmation, or going back", "a failure is logged once more"),
    OwnFile(state.KUBELET_FINDINGS, False, "", False, "the boot", LOOK),
    OwnFile(state.DEVICE_CHECKS, True, "", False, "the boot", "the devices are checked again"),
    OwnFile(state.DEVICES_CHECKED, False, "", False, "the boot", "the devices are checked again"),
    OwnFile(state.GC_STATUS, False, "", False, "the boot", "the next pass writes it"),
    OwnFile(state.GC_DRIFT, False, "", False, "the boot", "the next pass writes it"),
    OwnFile(state.GC_IDLE, True, "", False, "the boot", "the next pass writes it"),
)  # fmt: skip


def copies() -> t.Iterator[tuple[str, str]]:
    """The files with a second copy beside them that a run mends by it, each with that; of the others the owner does."""
    return ((path, f"{path}.previous") for path in (state.BEFORE, state.HISTORY, state.ADMITTED))
