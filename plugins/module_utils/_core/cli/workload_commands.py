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
from ..host import workload_files, workload_state
from ..host.files import Host
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
    found = context.workloads
    if found is None:
        raise refusal("no workload is declared with resources here", path=args.name)
    known = [row["name"] for row in workload_table.rows(found)]
    # A pattern that matches several units is one workload for each of them.
    names = [name for name in known if name == args.name or name.startswith(f"{args.name}:")]
    names = names or by_unit(host, args.name, known, {need.workload.name.partition(":")[0] for need in found.needs})
    said, rows = [], []
    for name in names:
        shown = context
        declared = name not in known or name in {need.workload.name for need in found.needs}
        if declared and admit_workload.grant_of(context, name) is None:
            shown = admit_workload.what_if(host, admit_workload.next_start(found, name))
        tenant = next((need.tenant for need in found.needs if need.workload.name == name), "")
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
    """The workload that ``text`` means by its unit (UNIT or WORKLOAD:UNIT, with or without .service), also an instance that has not
    started yet. ``decided`` are the declared names of those that are granted or refused, also for a tenant alone. Raises CorralError.
    """
    declared = (*admit_workload.profile_of(host).workloads, *workload_files.admitted(host))
    first, colon, rest = text.partition(":")
    colon = colon if first in {one.name for one in declared} else ""  # An instance may have one in its name.
    unit = (rest if colon else text).removesuffix(".service")
    for one in sorted(declared, key=lambda one: one.is_glob):  # A unit's own drop-in wins over that of its template.
        is_meant = one.name in decided and one.is_unit and (not colon or one.name == first)
        is_pattern = unit.endswith("@") or workload_state.WILD.search(unit) or text == one.name
        if is_meant and is_pattern and (text == one.name or fnmatch.fnmatchcase(f"{unit}.service", one.pattern)):
            message = f"is every unit that matches {one.pattern}, and none is known yet: name one of them"
            raise refusal(message, path="name", value=text)
        if is_meant and fnmatch.fnmatchcase(f"{unit}.service", one.pattern):
            name = f"{one.name}:{unit}" if one.is_glob else one.name
            instance = unit.partition("@")[2]
            if name not in known and one.hold != RUNNING:
                message = "is not known yet: it gets its grant by the first tick after it was enabled (systemctl enable) or started"
                raise refusal(message, path="name", value=text)
            if name not in known and instance:
                started_name(instance)  # It refuses what a start is refused for.
            return [name]
    raise refusal("no such workload is declared with resources: corral status lists them", path=text)


def enforcement_of(host: Host, context: Context, unit: str) -> t.Optional[str]:
    """Whether the kernel keeps all others off a slice's CPUs, in the words of ``corral status``."""
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
            found = started(host, args.name, "")
        except admit_workload.Undeclared as error:
            raise undeclared(host, args.name, error) from None
        return show_grant(args, found.grant, found.outcome.applied)
    run_device_checks.check_unknown(host, admit_workload.profile_of(host), writes=not args.dry_run)
    row = {"name": args.name, "match": match, "hold": args.hold}
    row.update({"priority": args.priority} if args.priority else {})
    row.update({key: amounts(getattr(args, key)) for key in ("requests", "limits") if getattr(args, key)})
    try:
        workload = profile.parse_workloads([row])[0]
    except (
        CorralError
    ) as error:  # Its options are no part of a profile: as with other refusals, the name stands for the workload.
        named = [one._replace(path=one.path.replace("workloads[0]", args.name, 1)) for one in error.problems]
        raise CorralError(*named) from None
    if args.dry_run:
        request = admit_workload.admission(host, workload)[0]
        plan = admit_workload.to_be_applied(host, request, args.name, with_files=True)
        refuse_as_run(host, plan)
        tell_notes(plan, args.name)
        return show_grant(args, admit_workload.granted(plan, args.name), ())

    found = locked_run.locked(host, lambda: admit_workload.admit(host, workload), publish=published)
    tell_notes(found.outcome.plan, args.name)
    return show_grant(args, found.grant, found.outcome.applied)


def tell_notes(plan: Plan, name: str) -> None:
    """Say what a plan notes about a workload."""
    for note in plan.notes:
        if note.startswith(f"workload {name}: "):
            sys.stderr.write(f"corral: {note}\n")


def undeclared(host: Host, name: str, error: CorralError) -> CorralError:
    """Why a workload cannot be admitted by its name alone: it stands for many units, or the profile has none of that name."""
    whole = next((one for one in admit_workload.profile_of(host).workloads if one.name == name and one.is_glob), None)
    if whole is not None:
        message = f"is every unit that matches {whole.pattern}: name one of them, as in {name}:UNIT"
        return refusal(message, path="name", value=name)
    text = f"{error.problems[0].message}, and --unit or --container admits another one"
    return refusal(text, path=name)


def published(host: Host, found: Admission) -> None:
    """Publish what an admission or a release by hand leaves."""
    locked_run.published(host, found.outcome)


def refuse_as_run(host: Host, plan: Plan) -> None:
    """Raise CorralError where the same command without --dry-run would."""
    error = applying.planned(host, plan, locks=True).error
    if error:
        raise refusal(error)


def amounts(text: str) -> dict[str, str]:
    """``cpu=4,memory=2Gi`` as a mapping. Raises CorralError."""
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise refusal("is not RESOURCE=AMOUNT: write it as cpu=4,memory=2Gi", value=part)
        if name.strip() in found:
            raise refusal(f"{name.strip()} is there twice: leave one out", value=text)
        found[name.strip()] = value.strip()
    return found


def show_grant(args: argparse.Namespace, grant: t.Optional[Grant], applied: t.Sequence[Change]) -> int:
    """The grant, and the changes for it."""
    data = {
        "grant": grant_to_data(grant) if grant else None,
        "changed": [change_text.with_text(change) for change in applied],
    }
    lasts = " until it stops: it runs" if grant and args.command == "release" else ""
    command_output.show(args, data, [f"{shown(args.name, grant)}{lasts}"])
    return IN_SYNC


def do_release(host: Host, args: argparse.Namespace) -> int:
    """corral release"""
    found = locked_run.locked(host, lambda: admit_workload.withdraw(host, args.name), publish=published)
    return show_grant(args, admit_workload.granted(found.outcome.plan, args.name), found.outcome.applied)
