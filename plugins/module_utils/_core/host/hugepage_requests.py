# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""When the kernel is asked again for hugepages that it did not give: not too often, and not while a kubelet has counted them."""

from __future__ import annotations

import typing as t

from ..model.plan.context import Attempt, Context
from ..model.profile.profile_memory import Hugepages
from . import hugepage_files
from .files import Host

RETRY_SECONDS = 600.0


def pool_file(pages: Hugepages) -> str:
    """The kernel file that sets a pool."""
    return f"{hugepage_files.folder(pages.size_kib, pages.node)}/nr_hugepages"


def last_answer(context: Context, pages: Hugepages, pool: t.Optional[int]) -> t.Optional[Attempt]:
    """The last request for this number of pages, where the kernel gave another one and the pool is still as it was left then."""
    attempt = context.attempts.get(pool_file(pages))
    same = attempt is not None and pool != pages.pages and (attempt.wanted, attempt.got) == (pages.pages, pool)
    return attempt if same else None


def is_asked_for(context: Context, pages: Hugepages, pool: t.Optional[int], *, counted: bool) -> bool:
    """Whether a run asks the kernel for a pool that differs."""
    attempt = last_answer(context, pages, pool)
    if attempt is None or counted:
        return attempt is None
    return context.fresh or not 0 < attempt.time + RETRY_SECONDS - context.now <= RETRY_SECONDS


def are_counted(host: Host, context: Context) -> bool:
    """Whether pools that differ stay as the kernel left them: a kubelet runs that would not start again once it gives more of them."""
    declared = context.profile.memory.hugepages
    if not any(last_answer(context, one, hugepage_files.pool(host, one.size_kib, one.node)) for one in declared):
        return False
    from . import kubelet_state  # Most plans need no more than the lines before.

    return kubelet_state.counts_hugepages(host)
