# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs a module of the collection on a node like any other module, but drops statistics from its result.

Ansible takes statistics of the whole run (ansible_stats, see set_stats) from the result of any module, hands them on to the next job, and
ends the run of all hosts if they are invalid. No module of the collection returns statistics.
"""

from __future__ import annotations

import typing as t

from ansible.plugins.action.normal import ActionModule as NormalAction


class ActionModule(NormalAction):
    def run(self, tmp: t.Any = None, task_vars: t.Optional[dict[str, t.Any]] = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        result.pop("ansible_stats", None)
        return result
