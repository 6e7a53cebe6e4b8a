# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The commands about workloads: explain, admit, release."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import typing as t

from ..constants import DIFFERS, IN_SYNC
from ..host import workload_files
from ..host.files import Host
from ..host.workload import workload_state
from ..model.plan.plan import Change, Plan
from ..model.profile import profile
from ..model.profile.profile_workloads import RUNNING
from ..model.values.errors import CorralError, refusal
from ..model.workload.grants import grant_to_data
from ..pipeline import admit_workload, allocate_workloads, applying, locked_run, planning, run_device_checks
from ..reports import change_text, status_file, workload_table
from . import command_output
from .grant_service import shown, started, started_name

if t.TYPE_CHECKING:
    from ..model.plan.context import Context, Workloads
    from ..model.workload.grants import Grant
    from ..pipeline.admit_workload import Admission


def do_explain(host: Host, args: argparse.Namespace) -> int:
    """corral explain"""
    context = admit_workload.what_if(host, allocate_workloads.NOTHING)
    workloads = context.workloads
    if workloads is None:
        raise refusal("no workload is declared with resources here", path=args.name)
    known = [row["name"] for row in workload_table.rows(workloads)]
    # A pattern gives a workload for each unit that it matches.
    names = [name for name in known if name == args.name or name.startswith(f"{args.name}:")]
    names = names or by_unit(host, args.name, known, {need.workload.name.partition(":")[0] for need in workloads.needs})
    said, rows = [], []
    for name in names:
        shown = context
        declared = name not in known or name in {need.workload.name for need in workloads.needs}
        if declared and admit_workload.grant_of(context, name) is None:
            shown = admit_workload.what_if(host, admit_workload.next_start(workloads, name))
        tenant = next((need.tenant for need in workloads.needs if need.workload.name == name), "")
        if shown is not context and workload_state.populated(host, name, tenant):
            said.append(
                f"{name} runs now, without a grant: on shared CPUs, with its limits; what follows is about its next start"
            )
        grant = admit_workload.grant_of(context, name)
        enforced = enforcement_of(host, context, grant.slice) if grant is not None and grant.cpus else None
        said += workload_table.explained(shown, name, enforced, if_started=shown is not context)
        rows += [
            {**(workload_table.unstarted(row) if shown is not context else row), "if_started": shown is not context}
            for row in workload_table.rows(t.cast("Workloads", shown.workloads))
            if row["name"] == name
        ]
    command_output.show(args, {"workloads": rows, "explanation": said}, said)
    return DIFFERS if any(row["state"] == "refused" for row in rows) else IN_SYNC


def by_unit(host: Host, text: str, known: t.Container[str], decided: t.Container[str]) -> list[str]:
    """The workload that ``text`` names by its unit (UNIT or WORKLOAD:UNIT, with or without .service). The unit need not run. ``decided``
    are the declared names that the plan grants or refuses. Raises CorralError.
    """
    declared = (*admit_workload.profile_of(host).workloads, *workload_files.admitted(host))
    first, colon, rest = text.partition(":")
    colon = colon if first in {row.name for row in declared} else ""  # An instance's name may contain a colon.
    unit = (rest if colon else text).removesuffix(".service")
    for workload in sorted(declared, key=lambda row: row.is_glob):  # A unit's own drop-in wins over its template's.
        is_meant = workload.name in decided and workload.is_unit and (not colon or workload.name == first)
        is_pattern = unit.endswith("@") or workload_state.WILD.search(unit) or text == workload.name
        fits = fnmatch.fnmatchcase(f"{unit}.service", workload.pattern)
        if is_meant and is_pattern and (text == workload.name or fits):
            message = f"is every unit that matches {workload.pattern}, and none is known yet: name one of them"
            raise refusal(message, path="name", value=text)
        if is_meant and fits:
            name = f"{workload.name}:{unit}" if workload.is_glob else workload.name
            instance = unit.partition("@")[2]
            if name not in known and workload.hold != RUNNING:
                message = "is not known yet: it gets its grant by the first tick after it was enabled (systemctl enable) or started"
                raise refusal(message, path="name", value=text)
            if name not in known and instance:
                started_name(instance)  # raises the refusal that a start would get
            return [name]
    raise refusal("no such workload is declared with resources: corral status lists them", path=text)


def enforcement_of(host: Host, context: Context, unit: str) -> t.Optional[str]:
    """Whether the kernel keeps other processes off a slice's CPUs, in the words of ``corral status``."""
    try:
        changes = planning.plan_profile(host, context).changes
    except CorralError as error:
        return f"unknown: {error}"
    return status_file.enforcement(host, context, [change for change in changes if change.subject == unit])


def do_admit(host: Host, args: argparse.Namespace) -> int:
    """corral admit"""
    match = {kind: value for kind in ("unit", "container") if (value := getattr(args, kind))}
    if not match:
        given = [name for name in ("requests", "limits", "priority") if getattr(args, name)]
        if given:
            message = "is only for a workload that the profile does not declare (--unit or --container): change a declared one in the profile"
            raise refusal(message, path=f"--{given[0]}")
        try:
            if args.dry_run:
                request = allocate_workloads.Request(start={args.name: "what-if"})
                plan = admit_workload.to_be_applied(host, request, args.name, with_files=False)
                refuse_as_run(host, plan)
                return show_grant(args, admit_workload.granted(plan, args.name), ())
            admission = started(host, args.name, "")
        except admit_workload.Undeclared as error:
            raise undeclared(host, args.name, error) from None
        return show_grant(args, admission.grant, admission.outcome.applied)
    run_device_checks.check_unknown(host, admit_workload.profile_of(host), writes=not args.dry_run)
    row = {"name": args.name, "match": match, "hold": args.hold}
    row.update({"priority": args.priority} if args.priority else {})
    row.update({key: amounts(getattr(args, key)) for key in ("requests", "limits") if getattr(args, key)})
    try:
        workload = profile.parse_workloads([row])[0]
    except CorralError as error:
        # The user gave options and no profile, so the workload's name replaces the path in a profile.
        named = [row._replace(path=row.path.replace("workloads[0]", args.name, 1)) for row in error.problems]
        raise CorralError(*named) from None
    if args.dry_run:
        request = admit_workload.admission(host, workload)[0]
        plan = admit_workload.to_be_applied(host, request, args.name, with_files=True)
        refuse_as_run(host, plan)
        tell_notes(plan, args.name)
        return show_grant(args, admit_workload.granted(plan, args.name), ())

    admission = locked_run.locked(host, lambda: admit_workload.admit(host, workload), publish=published)
    tell_notes(admission.outcome.plan, args.name)
    return show_grant(args, admission.grant, admission.outcome.applied)


def tell_notes(plan: Plan, name: str) -> None:
    """Print the notes of a plan about the workload ``name``."""
    for note in plan.notes:
        if note.startswith(f"workload {name}: "):
            sys.stderr.write(f"corral: {note}\n")


def undeclared(host: Host, name: str, error: CorralError) -> CorralError:
    """The refusal of a name that the profile declares for many units, or does not declare."""
    whole = next((row for row in admit_workload.profile_of(host).workloads if row.name == name and row.is_glob), None)
    if whole is not None:
        message = f"is every unit that matches {whole.pattern}: name one of them, as in {name}:UNIT"
        return refusal(message, path="name", value=name)
    text = f"{error.problems[0].message}, and --unit or --container admits another one"
    return refusal(text, path=name)


def published(host: Host, admission: Admission) -> None:
    """Publish the result of an admission or release by hand."""
    locked_run.published(host, admission.outcome)


def refuse_as_run(host: Host, plan: Plan) -> None:
    """Raise CorralError if the command would raise CorralError without --dry-run."""
    error = applying.planned(host, plan, locks=True).error
    if error:
        raise refusal(error)


def amounts(text: str) -> dict[str, str]:
    """The mapping of a text such as ``cpu=4,memory=2Gi``. Raises CorralError."""
    by_resource = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise refusal("is not RESOURCE=AMOUNT: write it as cpu=4,memory=2Gi", value=part)
        if name.strip() in by_resource:
            raise refusal(f"{name.strip()} is there twice: leave one out", value=text)
        by_resource[name.strip()] = value.strip()
    return by_resource


def show_grant(args: argparse.Namespace, grant: t.Optional[Grant], applied: t.Sequence[Change]) -> int:
    """Print the grant and the changes made for it."""
    data = {
        "grant": grant_to_data(grant) if grant else None,
        "changed": [change_text.with_text(change) for change in applied],
    }
    lasts = " until it stops: it runs" if grant and args.command == "release" else ""
    command_output.show(args, data, [f"{shown(args.name, grant)}{lasts}"])
    return IN_SYNC


def do_release(host: Host, args: argparse.Namespace) -> int:
    """corral release"""
    admission = locked_run.locked(host, lambda: admit_workload.withdraw(host, args.name), publish=published)
    return show_grant(args, admit_workload.granted(admission.outcome.plan, args.name), admission.outcome.applied)
