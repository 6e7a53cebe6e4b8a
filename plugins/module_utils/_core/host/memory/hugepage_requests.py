# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""When a run asks the kernel again for refused hugepages: not too often, and not after a kubelet has counted the hugepages."""

from __future__ import annotations

import typing as t

from ...model.plan.context import Attempt, Context
from ...model.profile.profile_memory import Hugepages
from ..files import Host
from . import hugepage_files

RETRY_SECONDS = 600.0


def pool_file(pages: Hugepages) -> str:
    """The kernel file that sets a pool."""
    return f"{hugepage_files.folder(pages.size_kib, pages.node)}/nr_hugepages"


def last_answer(context: Context, pages: Hugepages, pool: t.Optional[int]) -> t.Optional[Attempt]:
    """The last attempt, if it requested as many pages as ``pages`` declares and the pool still has what the kernel gave; else None."""
    attempt = context.attempts.get(pool_file(pages))
    same = attempt is not None and pool != pages.pages and (attempt.wanted, attempt.got) == (pages.pages, pool)
    return attempt if same else None


def is_asked_for(context: Context, pages: Hugepages, pool: t.Optional[int], *, counted: bool) -> bool:
    """Whether a run requests a pool's pages: after an answer only every RETRY_SECONDS or if ``context.fresh``, and not if ``counted``."""
    attempt = last_answer(context, pages, pool)
    if attempt is None or counted:
        return attempt is None
    return context.fresh or not 0 < attempt.time + RETRY_SECONDS - context.now <= RETRY_SECONDS


def are_counted(host: Host, context: Context) -> bool:
    """Whether pools that differ from the profile stay as they are: with more pages a running kubelet would not start again."""
    declared = context.profile.memory.hugepages
    if not any(last_answer(context, pool, hugepage_files.pool(host, pool.size_kib, pool.node)) for pool in declared):
        return False
    from ..kubelet import kubelet_state  # Imported here: for most plans the function has returned above.

    return kubelet_state.counts_hugepages(host)
