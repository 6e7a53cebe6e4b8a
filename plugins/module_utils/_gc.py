# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The module gc: a part like any other and, on request, a pass at once."""

from __future__ import annotations

import typing as t

from . import _module, _parts
from ._core.gc import gc_outcome, gc_pass
from ._core.gc.gc_outcome import Result
from ._core.host.files import Host
from ._core.host.plan import preflight
from ._core.model.profile.profile import Profile
from ._core.model.profile.section_patch import GC, SectionPatch
from ._core.model.values.errors import refusal
from ._core.pipeline import section_tasks


def run(spec: dict[str, t.Any]) -> None:
    """Run the module gc; ``spec`` has its own options, without ``collect``."""

    def task(module: _module.AnsibleModule, host: Host) -> dict[str, t.Any]:
        options = {option: module.params[option] for option in spec}
        return gc_task(module, host, SectionPatch(GC, options, module.params["state"] == "present"))

    _module.run({**spec, "collect": {"type": "bool", "default": False}, **_parts.COMMON}, task)


def gc_task(module: _module.AnsibleModule, host: Host, patch: SectionPatch) -> dict[str, t.Any]:
    """A part like any other and, on request, a pass by the profile that is declared then."""
    if not module.params["collect"]:
        if patch.present and all(value is None for value in patch.options.values()):
            message = "declares nothing: write images or containers, or collect: true for a pass by what is declared"
            raise refusal(message)
        return _parts.part_task(module, host, patch)
    if not patch.present:
        message = "cannot be combined with state: absent, after which nothing is collected"
        raise refusal(message, path="collect", value=True)
    # Without root, Podman would show that user's own storage.
    preflight.refuse_node(host)
    declared = section_tasks.ask(host, patch).wanted
    if declared is None or declared.gc is None:
        raise refusal("this node declares no gc: write images or containers ({} takes the defaults)", path="collect")
    came = _parts.part_outcome(module, host, patch)
    if came.error:
        return _module.result_of(module, host, came)
    done = collected(module, host, declared)
    if not module.check_mode:
        # The drift that earlier passes left is reported by this pass again.
        came = came._replace(remaining=section_tasks.plan(host, section_tasks.ask(host, patch)).changes)
    return with_pass(_module.result_of(module, host, came), done)


def collected(module: _module.AnsibleModule, host: Host, declared: Profile) -> Result:
    """A pass, in check mode a dry run. Raises CorralError where a pause of the node kept it from removing something."""
    despite_pause = module.check_mode or module.params["during_pause"] == "apply"
    wait = module.params["lock_timeout"]
    done = gc_pass.now(host, declared, dry=module.check_mode, despite_pause=despite_pause, wait=wait)
    if done.dry == gc_pass.PAUSED and done.removed:
        _module.refuse_while_paused(module, host)
    return done


def with_pass(result: dict[str, t.Any], done: Result) -> dict[str, t.Any]:
    """A part's result with the result of a pass. An unreadable storage is a failure, because the task requested the pass."""
    result["collected"] = gc_outcome.result_data(done)
    result["report"] = [*result["report"], *gc_outcome.lines(done)]
    if done.removed and done.dry in ("", gc_pass.DRY_RUN):
        result["changed"] = True
        if "diff" in result:
            result["diff"] = [result["diff"], gc_outcome.diff(done)]
    if done.errors and not result.get("failed"):
        result.update(failed=True, msg=f"not collected: {'; '.join(done.errors)}")
    return result
