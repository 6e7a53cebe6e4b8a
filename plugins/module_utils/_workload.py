# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The module workload: a workload beside those of the node's profile, admitted at run time."""

from __future__ import annotations

import typing as t

from . import _module
from ._core.host import workload_files
from ._core.host.files import Host
from ._core.model.plan.plan import Outcome, Plan
from ._core.model.profile import profile
from ._core.model.profile.profile_workloads import Workload
from ._core.model.values.errors import CorralError, Problem, refusal
from ._core.pipeline import admit_workload, applying, declared_profile, run_device_checks
from ._core.reports import workload_table

OPTIONS = ("name", "match", "hold", "priority", "requests", "limits", "containers")


def run(spec: dict[str, t.Any], **rules: t.Any) -> None:
    """Run the module workload."""
    _module.run(spec, workload_task, **rules)


def workload_task(module: _module.AnsibleModule, host: Host) -> dict[str, t.Any]:
    """Admit the workload, or release it. Raises CorralError by the module's options."""
    name, present = module.params["name"], module.params["state"] == "present"
    try:
        outcome = admitted(module, host) if present else withdrawn(module, host, name)
    except CorralError as error:
        raise by_options(error, name) from None
    result = _module.result_of(module, host, outcome._replace(plan=without_others_notes(outcome.plan, name)))
    context = outcome.plan.context if present else None
    rows = workload_table.rows(context.workloads) if context and context.workloads else []
    result["grant"] = next((row for row in rows if row["name"] == name), None)
    result["explanation"] = workload_table.explained(context, name) if context else []
    return result


def without_others_notes(plan: Plan, name: str) -> Plan:
    """The plan without notes on other workloads, since its notes become warnings of this task."""
    notes = (note for note in plan.notes if not note.startswith("workload ") or note.startswith(f"workload {name}: "))
    return plan._replace(notes=tuple(notes))


def admitted(module: _module.AnsibleModule, host: Host) -> Outcome:
    """The result of admitting the workload."""
    workload = asked_for(module)
    run_device_checks.check_unknown(host, admit_workload.profile_of(host), writes=not module.check_mode)

    def plan() -> Plan:
        return admit_workload.planned(host, *admit_workload.admission(host, workload), with_files=True)

    return carried_out(module, host, plan(), lambda: admit_workload.admit(host, workload))


def withdrawn(module: _module.AnsibleModule, host: Host, name: str) -> Outcome:
    """The result of releasing the workload. A workload that the profile declares is refused."""
    if name not in {one.name for one in workload_files.admitted(host)}:
        declared = declared_profile.in_force(host)
        if declared is not None and name in {one.name for one in declared.workloads}:
            raise refusal("is declared in the node's profile: take it out there", path="name", value=name)
        return _module.nothing_to_do(module, host, planned(host, Plan(None, (), (), frozenset())))
    plan = admit_workload.planned(host, admit_workload.withdrawal(host, name), "", with_files=True)
    return carried_out(module, host, plan, lambda: admit_workload.withdraw(host, name))


def carried_out(
    module: _module.AnsibleModule, host: Host, plan: Plan, work: t.Callable[[], admit_workload.Admission]
) -> Outcome:
    """Do the work as the only writer; do nothing in check mode, and where nothing is to do.

    A pause of the node does not prevent it: the task starts a workload and does not correct drift.
    """
    if module.check_mode or not (plan.obsolete or any(change.steps for change in plan.changes)):
        return _module.nothing_to_do(module, host, planned(host, plan))
    return _module.locked(module, host, lambda: work().outcome)


def planned(host: Host, plan: Plan) -> Outcome:
    """The outcome of check mode, and of a run that has nothing to do."""
    return applying.planned(host, plan, locks=_module.publishes(host))


def asked_for(module: _module.AnsibleModule) -> Workload:
    """The workload of the options, read like a workload of a profile. Raises CorralError."""
    row = {name: module.params[name] for name in OPTIONS if module.params[name] is not None}
    try:
        return profile.parse_workloads([row])[0]
    except CorralError as error:
        raise by_options(error, "workloads[0]") from None


def by_options(error: CorralError, place: str) -> CorralError:
    """A refusal by the module's options: ``place`` is their path in the core."""
    return CorralError(*(by_option(problem, place) for problem in error.problems))


def by_option(problem: Problem, place: str) -> Problem:
    path = problem.path
    if path == place or path.startswith(f"{place}."):
        path = path[len(place) + 1 :]
    return problem._replace(path=path, message=problem.message.removeprefix(f"{place}: "))
