# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The module rollback: it applies a profile that was applied before, as the module profile does."""

from __future__ import annotations

import typing as t

from . import _module
from ._core.host.files import Host
from ._core.pipeline import rolling_back
from ._core.pipeline.confirming import Terms


def rollback_task(module: _module.AnsibleModule, host: Host) -> dict[str, t.Any]:
    """The module rollback. The profile is chosen again while the lock is held: another run may have applied one."""
    to, only_from = module.params["to"], module.params["from"]
    wanted = rolling_back.target(host, to, only_from)
    terms = Terms(module.params["confirm_timeout"], force=True)
    return _module.apply_profile(
        module, host, wanted, {}, terms, lambda: rolling_back.roll_back(host, to, terms.seconds, only_from)
    )
