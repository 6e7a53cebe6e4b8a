# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The agent's installation: its program, its units and their state."""

from __future__ import annotations

import json
import re
import typing as t

from ...constants import VERSION
from ...host import state, systemd
from ...host.agent import program_check
from ...host.files import Host
from ...model.agent import agent_program, agent_units
from ...model.agent.agent_program import Program
from ...model.agent.agent_units import COMMAND, FACT, FOLDER, LAUNCHER, RELEASES, AgentOptions
from ...model.plan import make_step, undo, validate
from ...model.plan.places import Place
from ...model.plan.plan import FILES, START, UNCHANGEABLE, UNKNOWN, Change, Part
from ...model.systemd.unit_file import file_change
from ...model.systemd.unit_property import ETC
from ...model.values.errors import refusal
from ...model.values.records import NamedTuple
from ..manager import Manager

NAME = "agent"
FIRST = -10  # Program files come first, so that units find their program.
# Folders that are refused for metrics: the agent's unit has a private /tmp and sees no homes, and /proc, /sys and /dev are the kernel's.
UNSEEN = ("/tmp", "/var/tmp", "/home", "/root", "/run/user", "/proc", "/sys", "/dev")  # noqa: S108

_UNITS = "|".join(map(re.escape, (*agent_units.WANTED_BY, *agent_units.SERVICES, agent_units.SLICE)))
WRITES = (
    Place("file", rf"{ETC}/({_UNITS})"),
    Place("file", rf"{ETC}/[^/]+\.wants/({_UNITS})"),
    Place("unit", "|".join(map(re.escape, (*agent_units.STARTED, agent_units.SLICE))), "start|stop|restart"),
    Place("file", rf"{RELEASES}/.+", volatile=True),  # a release's record covers all files of the release
    Place("file", rf"{FOLDER}/.+"),
    Place("compile", rf"{FOLDER}(/releases/[^/]+)?"),
    Place("file", COMMAND),
    Place("file", re.escape(FACT)),
    Place("file", re.escape(state.AGENT)),
    Place("file", agent_units.metrics_place(agent_units.METRICS_NAME), None, volatile=True),
    Place("file", agent_units.metrics_place(agent_units.GC_METRICS_NAME), None, volatile=True),
)


# Links through which users reach the agent: target and kind of each.
OWN_LINKS = {COMMAND: (LAUNCHER, "command"), FACT: (LAUNCHER, "local fact for Ansible")}


class ObservedAgent(NamedTuple):
    """The installation as observed: texts by path (None: absent), links by path, active units.

    ``runs``: the release whose program runs (None: no release). ``compiled``: whether the wanted program is compiled. ``programs``: the
    records of all present programs. ``findings``: the files of the wanted program that differ from its record, if this program runs.
    ``version``: the collection's version of the running program ("": not recorded).
    """

    texts: dict[str, t.Optional[str]]
    links: dict[str, t.Optional[str]]
    active: frozenset[str]
    runs: t.Optional[str] = None
    compiled: bool = True
    programs: tuple[undo.Original, ...] = ()
    findings: tuple[program_check.Finding, ...] = ()
    version: str = ""


def installed(host: Host) -> t.Optional[AgentOptions]:
    """The options of the installed agent; None if no agent is installed."""
    data = state.read_json(host, state.AGENT)
    if isinstance(data, dict) and isinstance(data.get("interval"), int) and isinstance(data.get("python"), str):
        return AgentOptions(data["interval"], data["python"], agent_units.metrics_dir(data))
    return None


def installed_or_usual(host: Host, python: str) -> AgentOptions:
    """The options of the installed agent, or the default options without an agent. ``python`` replaces a Python that does not exist."""
    now = installed(host) or AgentOptions(agent_units.INTERVAL, python)
    return now if host.exists(now.python) else now._replace(python=python)


def check_metrics_dir(host: Host, folder: str) -> None:
    """Raise CorralError for a folder into which the agent cannot write."""
    path = "metrics_dir"
    if not re.fullmatch(r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+", folder):
        raise refusal("an absolute path of letters, digits and . _ + -, no slash at its end", path=path, value=folder)
    if f"{folder}/".startswith(tuple(f"{place}/" for place in UNSEEN)):
        raise refusal("the agent's unit cannot write there: name a folder below /var/lib", path=path, value=folder)
    if not host.is_dir(folder):
        raise refusal("this node has no such folder: make it first", path=path, value=folder)


def stale_metrics(host: Host, wanted: t.Optional[AgentOptions], reason: str) -> tuple[Change, ...]:
    """The changes that remove metrics files which the agent will no longer update."""
    folder = agent_units.metrics_dir(state.read_json(host, state.AGENT))
    if wanted is not None and wanted.metrics_dir == folder:
        return ()
    files = filter(None, (agent_units.metrics_file(folder), agent_units.gc_metrics_file(folder)))
    return tuple(
        Change(NAME, path, "content", "metrics", None, reason, path, (make_step.file(path, None, FILES),))
        for path in files
        if host.exists(path)
    )


def plan(
    host: Host,
    options: AgentOptions,
    core: t.Optional[t.Mapping[str, str]] = None,
    *,
    tag: t.Optional[str] = None,
    trigger: str = "",
) -> Part:
    """The changes that install the agent. ``core`` maps the core's files to their texts. Raises CorralError.

    Without ``core`` (on the node itself) the program stays as it is and only the units are compared. ``tag`` is Python's cache tag
    ("cpython-311") in the names of compiled files. ``trigger`` is the unit that started this run ($TRIGGER_UNIT, systemd.exec(5)): if the
    timer started the run, the timer counts as active without a question to systemd.
    """
    units = {f"{ETC}/{unit}": text for unit, text in agent_units.units(options).items()}
    links = wanted_links()
    if core is None:
        part = decide(units, links, None, options, observe(host, units, links, trigger))
        release = program_check.running_release(host)
        findings = program_check.findings(host, release) if release else []
        return part._replace(changes=(*part.changes, *map(finding_change, findings)))
    refuse_others(host)
    program = agent_program.program(core, options.python)
    units[state.AGENT] = json.dumps(options._asdict(), sort_keys=True) + "\n"
    links.update((path, target) for path, (target, dummy) in OWN_LINKS.items())
    seen = observe(host, [*units, *paths_of(program)], [*links, LAUNCHER], trigger)
    return decide(units, links, program, options, with_program(host, seen, program, tag))


def refuse_others(host: Host) -> None:
    """Raise CorralError if a file, folder or link that Corral did not make has the path of the program or of a link to the program."""
    away = "Corral did not make this {}, and its own {} there: move it away"
    for path in (FOLDER, RELEASES):
        if host.mode(path) is not None and not host.is_dir(path):
            raise refusal(away.format("file", "folder goes"), path=path)
    if host.is_dir(LAUNCHER) and host.link(LAUNCHER) is None:
        raise refusal(away.format("folder", "launcher goes"), path=LAUNCHER)
    # A link with a record is Corral's own: if the link was changed by hand, the change is drift and no reason to refuse.
    recorded = {record.before.key for record in state.records(host)[0]}
    for path, (target, what) in OWN_LINKS.items():
        link = host.link(path)
        if link is None and host.mode(path) is not None:
            raise refusal(away.format("file", f"{what} goes"), path=path)
        if link not in (None, target) and f"file:{path}" not in recorded:
            raise refusal(away.format("link", f"{what} goes"), path=path, value=link)


def wanted_links() -> dict[str, str]:
    """The links that enable the units."""
    return {f"{ETC}/{target}.wants/{unit}": f"../{unit}" for unit, target in agent_units.WANTED_BY.items()}


def paths_of(program: Program) -> dict[str, str]:
    """The paths and texts of a program's files on the node."""
    return {f"{program.folder}/{name}": text for name, text in program.files.items()}


def observe(host: Host, files: t.Iterable[str], links: t.Iterable[str], trigger: str) -> ObservedAgent:
    """The installation as observed. A tick that the timer started runs no command, as long as the timer is enabled."""
    links_now = {path: host.link(path) for path in links}
    # A disabled timer may be stopped too, and then this tick would be the last.
    disabled = any(path.endswith(f"/{agent_units.TIMER}") and link is None for path, link in links_now.items())
    active = running_units(host, "" if disabled else trigger)
    return ObservedAgent({path: host.read(path) for path in files}, links_now, active)


def with_program(host: Host, seen: ObservedAgent, program: Program, tag: t.Optional[str]) -> ObservedAgent:
    """The observation with the running program and the records of all present programs."""
    link = seen.links[LAUNCHER]
    runs: t.Optional[str] = agent_program.release_of(link) or None
    if link is None and host.exists(LAUNCHER):
        runs = agent_program.NO_RELEASE
    sources = [path for path in paths_of(program) if path.endswith(".py")]
    # A link, or a file with other permissions, is not the program's file; the mode of lstat(2) shows the difference.
    odd = [path for path in paths_of(program) if host.mode(path) != program.mode(path)]
    compiled = tag is None or all(host.exists(compiled_path(path, tag)) for path in sources)
    mine = [record.before for record in state.records(host)[0] if record.manager == NAME]
    inside = [row for row in mine if f"{row.target}/".startswith(f"{FOLDER}/") and row.target != LAUNCHER]
    # A record of another version may name a file that this version must not remove: such a record is left out, and the plan reports it.
    programs = [
        original
        for original in inside
        if not any(validate.place_problems(NAME, step, WRITES) for step in undo.restore_recorded(original, ""))
    ]
    texts = {**seen.texts, **dict.fromkeys(odd)}
    known = program_check.records(host)
    findings = program_check.findings(host, program.name) if runs == program.name else []
    return seen._replace(
        texts=texts, runs=runs, compiled=compiled, programs=tuple(programs), findings=tuple(findings),
        version=known.get(runs or "", {}).get("version", ""),
    )  # fmt: skip


def finding_change(seen: program_check.Finding) -> Change:
    """The item for a file that differs from the record of the installed program.

    The item has no steps: a program with a changed file does not repair itself.
    """
    reason = f"{seen.reason}: roll the agent out again"
    verdict = UNCHANGEABLE if seen.known else UNKNOWN
    return Change(NAME, seen.path, seen.property, seen.actual or None, seen.wanted, reason, seen.path, (), verdict)


def running_units(host: Host, trigger: str) -> frozenset[str]:
    """The agent's active units. All units count as active if the timer started this run, or if the host is a tree without commands."""
    if trigger == agent_units.TIMER or not host.answers:
        return frozenset((*agent_units.STARTED, agent_units.SLICE))
    return systemd.active(host, (*agent_units.STARTED, agent_units.SLICE)) if systemd.runs(host) else frozenset()


def compiled_path(path: str, tag: str) -> str:
    """The path of a file's compiled form (PEP 3147)."""
    folder, dummy, name = path.rpartition("/")
    return f"{folder}/__pycache__/{name[: -len('.py')]}.{tag}.pyc"


def decide(
    files: t.Mapping[str, str],
    links: t.Mapping[str, str],
    program: t.Optional[Program],
    options: AgentOptions,
    seen: ObservedAgent,
) -> Part:
    """The changes that bring the installation to the wanted state."""
    changes: list[t.Optional[Change]] = []
    outdated = [] if program is None else outdated_programs(program, seen)
    if program is not None:
        changes += [program_change(program, outdated, options, seen), *(link_change(seen, path) for path in OWN_LINKS)]
    for path, text in files.items():
        reason = "how the agent is installed" if path == state.AGENT else "the agent's unit"
        change = file_change(NAME, path, seen.texts[path], text, reason=reason, reload=path != state.AGENT)
        if change is not None and path.endswith(f"/{agent_units.TIMER}") and agent_units.TIMER in seen.active:
            # A reload does not rearm a running timer.
            change = change._replace(steps=(*change.steps, make_step.unit(agent_units.TIMER, "restart", START, 10)))
        changes.append(change)
    changes += [slice_change(seen), *(state_change(unit, seen) for unit in agent_units.WANTED_BY)]
    owned = {f"file:{path}" for path in (*files, *links, LAUNCHER)}
    owned |= {f"unit:{unit}" for unit in (*agent_units.STARTED, agent_units.SLICE)} | {row.key for row in seen.programs}
    if program is not None:
        owned.add(f"compile:{program.folder}")
    gone = frozenset(row.key for row in outdated)
    return Part(whole(tuple(filter(None, changes)), seen), frozenset(owned), gone=gone)


def whole(changes: tuple[Change, ...], seen: ObservedAgent) -> tuple[Change, ...]:
    """The changes; if the node has no file of the agent, all steps are in one item for the whole installation."""
    if not changes or any(text is not None for text in seen.texts.values()):
        return changes
    steps = tuple(step for change in changes for step in change.steps)
    return (changes[0]._replace(reason="not installed", steps=steps),)


def runs_already(program: Program, seen: ObservedAgent) -> bool:
    """Whether this program runs already: LAUNCHER is a link to this program's launcher."""
    return seen.links[LAUNCHER] == program.link


def outdated_programs(program: Program, seen: ObservedAgent) -> list[undo.Original]:
    """The records of programs to remove, the latest record first.

    The files of the running program stay until the next upgrade: a tick of this program may load more of these files.
    """
    if seen.runs is None or runs_already(program, seen):
        return []
    kept = (seen.runs, program.name)
    return [original for original in reversed(seen.programs) if agent_program.release_at(original.target) not in kept]


def program_change(
    program: Program, outdated: t.Sequence[undo.Original], options: AgentOptions, seen: ObservedAgent
) -> t.Optional[Change]:
    """The change of the whole program. Only the last step (the link) puts the program into use, so a run may die after any step."""
    texts = paths_of(program)
    differing = [path for path, text in texts.items() if seen.texts[path] != text]
    runs = runs_already(program, seen)
    if runs and not differing and seen.compiled and not seen.findings:
        return None
    actual, reason = program_state(seen, len(texts), len(differing), runs=runs)
    steps = [step for original in outdated for step in undo.in_order(undo.restore_recorded(original, ""))]
    steps += [make_step.file(path, texts[path], FILES, mode=program.mode(path)) for path in differing]
    extra = [finding.path for finding in seen.findings if finding.wanted == program_check.ABSENT]
    steps += [make_step.file(path, None, FILES) for path in extra]
    steps.append(make_step.program(program.folder, "\n".join(program.files), options.python, FILES))
    if not runs:
        steps.append(make_step.link(LAUNCHER, program.link, FILES))
    in_order = tuple(step._replace(phase=FILES, order=FIRST) for step in steps)
    return Change(NAME, FOLDER, "program", actual, program.name, reason, FOLDER, in_order)


def program_state(seen: ObservedAgent, files: int, differing: int, *, runs: bool) -> tuple[t.Optional[str], str]:
    """The present program and the reason for its change. ``runs``: the wanted program runs; ``differing`` of ``files`` files differ."""
    if seen.runs == agent_program.NO_RELEASE:
        return "without a release's name", f"{files} files"
    if runs and differing:
        return f"{seen.runs}, {differing} of {files} files differ", "changed by hand, or damaged"
    if runs and not seen.compiled:
        return f"{seen.runs}, not compiled", "another Python"
    if runs:
        first = seen.findings[0]
        more = f", and {len(seen.findings) - 1} more" if len(seen.findings) > 1 else ""
        return f"{seen.runs}, not as installed", f"{first.path}: {first.reason}{more}"
    if seen.version and as_numbers(seen.version) > as_numbers(VERSION):
        return seen.runs, f"{files} files; a downgrade of the collection, from {seen.version} to {VERSION}"
    came = f"; from version {seen.version} to {VERSION}" if seen.version not in ("", VERSION) else ""
    return seen.runs, f"{files} files{came}"


def as_numbers(version: str) -> list[int]:
    """A version as numbers that compare: 0.10.0 is later than 0.9.1."""
    return [int(part) for part in re.findall("[0-9]+", version.partition("-")[0])]


def link_change(seen: ObservedAgent, path: str) -> t.Optional[Change]:
    """The change of the link of the command or of the local fact."""
    target, what = OWN_LINKS[path]
    if seen.links[path] == target:
        return None
    step = make_step.link(path, target, FILES)
    return Change(NAME, path, "link", seen.links[path], target, f"the agent's {what}", path, (step,))


def slice_change(seen: ObservedAgent) -> t.Optional[Change]:
    """The change that starts the agent's slice. The original is the inactive slice, so a removal stops the slice."""
    unit = agent_units.SLICE
    if unit in seen.active:
        return None
    reason, path = "the agent's slice does not run yet", f"{ETC}/{unit}"
    return Change(NAME, unit, "state", "inactive", "active", reason, path, (make_step.unit(unit, "start", START, 5),))


def state_change(unit: str, seen: ObservedAgent) -> t.Optional[Change]:
    """The change of a unit's state. Every unit has to be enabled; the units in STARTED have to be active too."""
    path = next(path for path in wanted_links() if path.endswith(f"/{unit}"))
    enabled = seen.links[path] is not None
    runs = unit in agent_units.STARTED
    active = unit in seen.active
    if enabled and (active or not runs):
        return None
    steps = [] if enabled else [make_step.link(path, wanted_links()[path], FILES, reload=True)]
    if runs and not active:
        steps.append(make_step.unit(unit, "start", START, 10))
    wanted = "enabled, active" if runs else "enabled"
    actual = ", ".join(["enabled" if enabled else "disabled", *(["active" if active else "inactive"] if runs else [])])
    reason = "the agent does not keep the node without it"
    return Change(NAME, unit, "state", actual, wanted, reason, path, tuple(steps))


def on_removal(host: Host, dummy_removed: t.Container[str], dummy_back: bool) -> tuple[Change, ...]:
    """The changes that remove the metrics files."""
    return stale_metrics(host, None, "nothing updates the metrics any more")


MANAGER = Manager(NAME, writes=WRITES, on_removal=on_removal)
