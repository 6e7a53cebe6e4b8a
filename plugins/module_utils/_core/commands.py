# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The command line: what a person asks the node, or a recorded tree of one, and gets as a table or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import typing as t

from . import agent, look, neighbours, profile_file, reconcile, report, writer
from .host import pause, snapshot, state, sysfs
from .host.files import Host
from .model import compose, pools, profile, topology, yaml_text
from .model import pause as model_pause
from .model.errors import CorralError, refusal
from .model.plan import Change, change_to_dict
from .model.profile import Profile
from .reconcile import Plan

if t.TYPE_CHECKING:
    from .admit import Admission
    from .model.context import Context, Workloads
    from .model.grants import Grant

Answer = t.TypeVar("Answer")


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="corral", description="Node resource management: pools, hugepages, limits.")
    top.exit_on_error = True
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str, *, tree: bool = False, profiles: bool = False) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--json", action="store_true", help="print JSON instead of a table")
        if tree:
            one.add_argument("--root", metavar="TREE", help="a recorded machine: a folder or a snapshot (tar)")
        if profiles:
            one.add_argument("--profile", metavar="FILE", help="a profile (YAML or JSON) instead of the declared one")
        return one

    command("status", "what the last tick saw: pools, drift, last change")
    for name, text in (
        ("drift", "look now: what differs from the profile"),
        ("plan", "what would be changed, and why"),
    ):
        one = command(name, text, tree=True, profiles=True)
        one.add_argument("--explain", action="store_true", help="also each key's origin, and what it comes to here")
    command("topology", "what the machine is made of", tree=True)
    command("pools", "the pools of CPUs that the profile gives this machine", tree=True, profiles=True)
    shown = command("profile", "the declared profile, or one that describes the node as it is", tree=True)
    shown.add_argument("--from-node", action="store_true", help="write the profile that changes nothing here")
    shown.add_argument("--name", metavar="NAME", help="with --from-node: what to call it (default: the host's name)")
    now = command("reconcile", "make the declared profile true now")
    save = command("snapshot", "record what Corral reads of this machine in a tar", tree=True)
    save.add_argument("-o", "--output", metavar="FILE", help="default: corral-HOST.tar.gz here")
    back = command("rollback", "go back to the profile applied before this one")
    for one in (now, back):
        one.add_argument("--force", action="store_true", help="on a paused node, too")
    why = command("explain", "why a workload has what it has, or was refused, and what would help")
    why.add_argument("name", metavar="WORKLOAD")
    let_in = command(
        "admit", "give a workload what it asks for: one of the profile about to start, or another until its release"
    )
    let_in.add_argument("name", metavar="WORKLOAD")
    let_in.add_argument("--unit", metavar="UNIT", help="a workload beside the profile's: the unit that it is")
    let_in.add_argument("--container", metavar="NAME", help="or its container")
    let_in.add_argument("--requests", metavar="LIST", default="", help="what it is to have: cpu=4,memory=2Gi")
    let_in.add_argument(
        "--limits", metavar="LIST", default="", help="what it may have at most; a missing request equals its limit"
    )
    let_in.add_argument(
        "--hold", choices=("declared", "running"), default="declared", help="until its release, or its stop"
    )
    let_in.add_argument("--dry-run", action="store_true", help="say what would come of it, and change nothing")
    let_go = command("release", "take back what a workload was given at run time")
    let_go.add_argument("name", metavar="WORKLOAD")
    collect = command("gc", "collect images and dead containers now, as the profile declares")
    collect.add_argument("--dry-run", action="store_true", help="say what would go, and what that would free")
    collect.add_argument("--tick", action="store_true", help=argparse.SUPPRESS)  # corral-gc.service: what is due
    hold = command("pause", "maintenance: look and report, change nothing; ends by itself")
    hold.add_argument("--for", dest="duration", metavar="TIME", required=True, help="how long: 90s, 15m, 1h, 2d")
    hold.add_argument("--reason", metavar="TEXT", default="", help="what for, shown wherever the node is seen paused")
    command("resume", "end the pause now")
    return top


def run(words: t.Sequence[str]) -> int:
    """Run one command. Wrong usage is an error like any other: exit code 1."""
    try:
        asked = parser().parse_args(list(words))
    except SystemExit as stop:
        return agent.IN_SYNC if stop.code in (None, 0) else agent.ERROR
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # What the locale cannot write is a question mark, no traceback.
    with contextlib.ExitStack() as stack:
        root = getattr(asked, "root", None) or "/"
        if root != "/" and not os.path.isdir(root):
            root = snapshot.unpack(root, stack.enter_context(tempfile.TemporaryDirectory(prefix="corral-")))
        host = Host(root, record=asked.command == "snapshot")
        return t.cast("dict[str, t.Callable[[Host, t.Any], int]]", COMMANDS)[asked.command](host, asked)


def show(asked: argparse.Namespace, data: t.Any, lines: t.Iterable[str]) -> None:
    """Print JSON or lines."""
    if asked.json:
        sys.stdout.write(json.dumps(data, indent=2, sort_keys=True) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)


def the_profile(host: Host, path: t.Optional[str]) -> Profile:
    """The profile of a file, or the node's declared one."""
    if path is None:
        declared = reconcile.read_declared(host)
        if declared is None:
            unreadable = state.DECLARED in host.errors and host.errors[state.DECLARED] != 2
            hint = (
                "cannot be read: run as root" if unreadable else "no profile is declared here: name one with --profile"
            )
            raise refusal(hint, path=state.DECLARED)
        return declared
    return profile.parse(read_file(path))


def read_file(path: str) -> t.Any:
    """The data of a profile's file, not yet checked."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(4 * 1024 * 1024)
    except (OSError, UnicodeDecodeError) as error:
        raise refusal(f"cannot be read: {error}", path=path) from None
    return profile_file.load(text, path)


def do_topology(host: Host, asked: argparse.Namespace) -> int:
    """corral topology"""
    found = sysfs.discover(host)
    show(asked, topology.to_dict(found), report.topology_lines(found))
    return agent.IN_SYNC


def do_pools(host: Host, asked: argparse.Namespace) -> int:
    """corral pools"""
    context = reconcile.compile_profile(host, the_profile(host, asked.profile))
    drawn = report.cpu_map(context.topology, context.pools, colour=sys.stdout.isatty())
    show(asked, pools.to_dict(context.pools), [*report.pool_lines(context.pools), "", *drawn])
    return agent.IN_SYNC


def planned(host: Host, asked: argparse.Namespace) -> Plan:
    """The plan of a profile on this host, of the agent's units as well where it is installed."""
    declared = the_profile(host, asked.profile)
    context = reconcile.compile_profile(host, declared, fresh=not reconcile.applied_already(host, declared))
    plan = look.plan_node(host, context, with_agent=True)
    return plan._replace(notes=(*plan.notes, *gc_lines(host), *neighbours.notes(host, context)))


def gc_lines(host: Host) -> list[str]:
    """The last passes of garbage collection; none where no pass was made. What they left undone is drift."""
    told = state.read_json(host, state.GC_STATUS)
    if told is None:
        return []
    from .gc import status

    try:
        return status.lines(told, host.now())
    except (LookupError, TypeError, ValueError):
        return [f"gc: {state.GC_STATUS} is not as Corral wrote it: the next pass writes it anew"]


def do_plan(host: Host, asked: argparse.Namespace) -> int:
    """corral plan"""
    plan = planned(host, asked)
    paused = pause.in_force(host)
    notes = [*plan.notes, *([pause.sentence(paused)] if paused else [])]
    if asked.explain and plan.context is not None:
        from . import explain

        context = plan.context._replace(origins=origins_of(host, asked.profile, plan.context.profile))
        show(asked, explain.to_data(context, plan.changes), [*explain.lines(context, plan.changes), *notes])
        return agent.DIFFERS if plan.changes else agent.IN_SYNC
    show(asked, [change_to_dict(change) for change in plan.changes], [*report.lines(plan.changes), *notes])
    for note in notes if asked.json else ():
        sys.stderr.write(f"corral: {note}\n")
    return agent.DIFFERS if plan.changes else agent.IN_SYNC


def origins_of(host: Host, path: t.Optional[str], declared: Profile) -> dict[str, str]:
    """Where each key comes from: the file, or as the node keeps it."""
    data = profile.to_data(declared)
    if path is None:
        return reconcile.read_origins(host, data)
    return compose.declared_origins(data, compose.compose([compose.Layer(path, read_file(path))]).origins)


def do_profile(host: Host, asked: argparse.Namespace) -> int:
    """corral profile"""
    if not asked.from_node:
        data = profile.to_data(the_profile(host, None))
        show(asked, data, yaml_text.text(data).splitlines())
        return agent.IN_SYNC
    from . import from_node

    found = from_node.describe(host, asked.name)
    show(asked, found.data, found.text.splitlines())
    for note in found.notes if asked.json else ():
        sys.stderr.write(f"corral: {note}\n")
    return agent.IN_SYNC


def do_reconcile(host: Host, asked: argparse.Namespace) -> int:
    """corral reconcile"""
    return applied(host, asked, lambda: reconcile.declare(host, the_profile(host, None)))


def applied(host: Host, asked: argparse.Namespace, declare: t.Callable[[], reconcile.Outcome]) -> int:
    """Apply a profile now, as the module does, and say what came of it.

    Which one is asked with the lock: whoever held it before may have declared another.
    """

    def work() -> reconcile.Outcome:
        if not asked.force:
            pause.refuse_changes(host, "end the pause with corral resume, or add --force")
        return writer.published(host, declare())

    outcome = locked(host, work)
    show(asked, report.outcome_data(outcome), report.outcome_lines(outcome))
    return agent.ERROR if outcome.error else agent.DIFFERS if outcome.applied or outcome.remaining else agent.IN_SYNC


def locked(host: Host, work: t.Callable[[], Answer]) -> Answer:
    """Do something as the only writer of the node."""
    return writer.locked(host, work, wait=agent.LOCK_SECONDS)


def do_pause(host: Host, asked: argparse.Namespace) -> int:
    """corral pause"""
    seconds, reason = model_pause.duration(asked.duration), model_pause.reason(asked.reason)
    paused = locked(host, lambda: pause.begin(host, pause.asked_for(host, seconds, reason)))
    pause.tick_now(host)
    show(asked, paused, [pause.sentence(paused)])
    return agent.IN_SYNC


def do_resume(host: Host, asked: argparse.Namespace) -> int:
    """corral resume"""

    def work() -> t.Optional[dict[str, t.Any]]:
        paused = pause.in_force(host)
        pause.end(host)
        return paused

    paused = locked(host, work)
    pause.tick_now(host)
    show(asked, paused, ["the node was not paused" if paused is None else f"ended: {pause.sentence(paused)}"])
    return agent.IN_SYNC


def do_rollback(host: Host, asked: argparse.Namespace) -> int:
    """corral rollback"""

    def declare() -> reconcile.Outcome:
        past = state.checked(host, state.HISTORY)
        if not isinstance(past, list) or not past:
            raise refusal("no profile was applied before this one: corral.node.remove restores the node as it was")
        outcome = reconcile.declare(host, profile.parse(past[0]))
        if not outcome.error:
            state.write_checked(host, state.HISTORY, past[1:])
        return outcome

    return applied(host, asked, declare)


def do_explain(host: Host, asked: argparse.Namespace) -> int:
    """corral explain"""
    from . import admit, settling, workload_report

    context = admit.what_if(host, settling.NOTHING)
    found = context.workloads
    if found is None:
        raise refusal("no workload is declared with resources here", path=asked.name)
    known = [row["name"] for row in workload_report.rows(found)]
    # A pattern that means several units is a workload of each of them.
    names = [name for name in known if name == asked.name or name.startswith(f"{asked.name}:")]
    if not names:
        raise refusal("no such workload is declared with resources: corral status lists them", path=asked.name)
    said, rows = [], []
    for name in names:
        shown = context
        if admit.grant_of(context, name) is None and name in {need.workload.name for need in found.needs}:
            shown = admit.what_if(host, settling.Asked(start={name: "what-if"}))
            if admit.grant_of(shown, name) is not None:
                said.append(f"{name} is granted nothing now; this is what a start would give it:")
        grant = admit.grant_of(context, name)
        enforced = enforcement_of(host, context, grant.slice) if grant is not None and grant.cpus else None
        said += workload_report.explained(shown, name, enforced)
        rows += [row for row in workload_report.rows(t.cast("Workloads", shown.workloads)) if row["name"] == name]
    show(asked, {"workloads": rows, "explanation": said}, said)
    return agent.DIFFERS if any(row["state"] == "refused" for row in rows) else agent.IN_SYNC


def enforcement_of(host: Host, context: Context, unit: str) -> t.Optional[str]:
    """Whether the kernel keeps all others off a slice's CPUs, in the words of ``corral status``."""
    try:
        changes = reconcile.plan_profile(host, context).changes
    except CorralError as error:
        return f"unknown: {error}"
    return report.enforcement(host, context, [change for change in changes if change.subject == unit])


def do_admit(host: Host, asked: argparse.Namespace) -> int:
    """corral admit"""
    from . import admit, settling
    from .grant_unit import started

    match = {kind: value for kind in ("unit", "container") if (value := getattr(asked, kind))}
    if not match:
        if asked.dry_run:
            plan = admit.planned(host, settling.Asked(start={asked.name: "what-if"}), asked.name)
            return show_grant(asked, admit.granted(plan, asked.name), ())
        found = started(host, asked.name, "")
        return show_grant(asked, found.grant, found.outcome.applied)
    row = {"name": asked.name, "match": match, "hold": asked.hold}
    row.update({key: amounts(getattr(asked, key)) for key in ("requests", "limits") if getattr(asked, key)})
    workload = profile.parse_workloads([row])[0]
    if asked.dry_run:
        plan = admit.planned(host, admit.admission(host, workload)[0], asked.name, with_files=True)
        return show_grant(asked, admit.granted(plan, asked.name), ())

    def work() -> Admission:
        found = admit.admit(host, workload)
        writer.published(host, found.outcome)
        return found

    found = locked(host, work)
    return show_grant(asked, found.grant, found.outcome.applied)


def amounts(text: str) -> dict[str, str]:
    """``cpu=4,memory=2Gi`` as a mapping. Raises CorralError."""
    found = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise refusal("is not RESOURCE=AMOUNT: write it as cpu=4,memory=2Gi", value=part)
        found[name.strip()] = value.strip()
    return found


def show_grant(asked: argparse.Namespace, grant: t.Optional[Grant], applied: t.Sequence[Change]) -> int:
    """What was granted, and what had to change for it."""
    from .grant_unit import shown
    from .model.grants import grant_to_data

    data = {"grant": grant_to_data(grant) if grant else None, "changed": [change_to_dict(change) for change in applied]}
    show(asked, data, [shown(asked.name, grant)])
    return agent.IN_SYNC


def do_release(host: Host, asked: argparse.Namespace) -> int:
    """corral release"""
    from . import admit

    def work() -> admit.Admission:
        found = admit.withdraw(host, asked.name)
        writer.published(host, found.outcome)
        return found

    found = locked(host, work)
    return show_grant(asked, None, found.outcome.applied)


def do_gc(host: Host, asked: argparse.Namespace) -> int:
    """corral gc"""
    import signal

    from .gc import collect, outcome

    stop = collect.new_stop(host)
    signal.signal(signal.SIGTERM, lambda *dummy: stop.end())
    state.preflight(host, ())
    if asked.tick:
        result = collect.tick(host, look.notice, stop)
    else:
        result = collect.now(host, the_profile(host, None), dry=asked.dry_run, stop=stop)
        show(asked, outcome.result_data(result), outcome.lines(result))
    return agent.ERROR if result.errors else agent.DIFFERS if result.removed or result.drift else agent.IN_SYNC


def do_snapshot(host: Host, asked: argparse.Namespace) -> int:
    """corral snapshot"""
    from . import from_node

    sysfs.discover(host)
    try:
        planned(host, argparse.Namespace(profile=None))
    except CorralError:
        pass  # A machine without a profile, or one that does not fit, can be recorded all the same.
    with contextlib.suppress(CorralError):
        from_node.describe(host)
    target = asked.output or f"corral-{os.uname().nodename}.tar.gz"
    try:
        count = snapshot.write(host, target)
    except OSError as error:
        raise refusal(f"cannot be written: {error.strerror}", path=target) from None
    show(asked, {"file": target, "entries": count}, [f"{target}: {count} entries; replay with --root {target}"])
    return agent.IN_SYNC


def do_status(host: Host, asked: argparse.Namespace) -> int:
    """corral status"""
    told = report.last_status(host)
    if not told:
        raise refusal(
            "no tick has told anything as Corral writes it: is corral-reconcile.timer active? corral drift looks now",
            path=state.STATUS,
        )
    show(asked, {**told, "gc": state.read_json(host, state.GC_STATUS)}, status_lines(host, told))
    return agent.ERROR if told.get("error") else agent.IN_SYNC if told.get("in_sync") else agent.DIFFERS


def status_lines(host: Host, told: dict[str, t.Any]) -> list[str]:
    """status.json as a person reads it, with the CPU map."""
    age = max(int(host.now()) - int(told.get("time") or 0), 0)
    verdict = told.get("error") or (
        "in sync" if told.get("in_sync") else f"{len(told.get('items', []))} items of drift"
    )
    rows = [f"profile {told.get('name') or '-'}   mode {told.get('mode') or '-'}   looked {age} s ago   {verdict}"]
    if told.get("paused"):
        rows.append(pause.sentence(told["paused"]))
    rows += [told[key] for key in ("pause_error", "metrics_error") if told.get(key)]
    last = told.get("last_changed")
    if isinstance(last, dict):
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(last["time"]))
        rows.append(f"last change {when}: {len(last['changes'])} changes")
    if told.get("exclusive"):
        rows.append(f"exclusive CPUs: {told['exclusive']}")
    rows += gc_lines(host)
    for item in told.get("items", []):
        since = time.strftime("%H:%M:%S", time.gmtime(item.get("since") or 0))
        mark = " (under maintenance)" if item.get("maintenance") else ""
        rows.append(
            f"{item['verdict']}{mark} since {since}: {item['manager']} {item['subject']} {item['property']}: "
            f"{item['actual']} -> {item['wanted']} ({item['reason']})"
        )
    try:
        declared = reconcile.read_declared(host)
        if declared is not None:
            context = reconcile.compile_profile(host, declared)
            if context.workloads is not None:
                from . import workload_report

                rows += ["", *workload_report.lines(context)]
            rows += ["", *report.cpu_map(context.topology, context.pools, colour=sys.stdout.isatty())]
    except CorralError as error:
        rows.append(f"no CPU map: {error}")
    return rows


COMMANDS = {
    "status": do_status,
    "drift": do_plan,
    "plan": do_plan,
    "topology": do_topology,
    "pools": do_pools,
    "profile": do_profile,
    "reconcile": do_reconcile,
    "snapshot": do_snapshot,
    "rollback": do_rollback,
    "explain": do_explain,
    "admit": do_admit,
    "release": do_release,
    "gc": do_gc,
    "pause": do_pause,
    "resume": do_resume,
}
