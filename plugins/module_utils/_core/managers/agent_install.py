# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The agent's own installation: its program, its units, and that they run."""

from __future__ import annotations

import json
import typing as t
import zlib

from ..host import state, systemd
from ..host.files import Host
from ..model.plan.plan import FILES, RELOAD, START, Change, Part, Step
from ..model.systemd import agent_units
from ..model.systemd.agent_units import FOLDER, Options
from ..model.systemd.unit_file import file_change
from ..model.systemd.unit_property import ETC
from ..model.values.errors import refusal
from ..model.values.records import NamedTuple

NAME = "agent"
# The hardened unit has temporary folders of its own and no homes; the kernel's trees hold no files of ours.
UNSEEN = ("/tmp", "/var/tmp", "/home", "/root", "/run/user", "/proc", "/sys", "/dev")  # noqa: S108


class Observation(NamedTuple):
    """What is seen of the installation: texts by path (None: absent), links by path, active units, stale files."""

    texts: dict[str, t.Optional[str]]
    links: dict[str, t.Optional[str]]
    active: frozenset[str]
    stale: tuple[str, ...]
    compiled: bool


def installed(host: Host) -> t.Optional[Options]:
    """The options with which the agent was installed; None when it is not."""
    data = state.read_json(host, state.AGENT)
    if isinstance(data, dict) and isinstance(data.get("interval"), int) and isinstance(data.get("python"), str):
        return Options(data["interval"], data["python"], agent_units.metrics_dir(data))
    return None


def installed_or_usual(host: Host, python: str) -> Options:
    """As the agent is installed, but with ``python`` where its own is gone; as is usual where it is not."""
    now = installed(host) or Options(agent_units.INTERVAL, python)
    return now if host.exists(now.python) else now._replace(python=python)


def check_metrics_dir(host: Host, folder: str) -> None:
    """Refuse a folder into which the agent could not write. Raises CorralError."""
    import re

    path = "metrics_dir"
    if not re.fullmatch(r"(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+", folder):
        raise refusal("an absolute path of letters, digits and . _ + -, no slash at its end", path=path, value=folder)
    if f"{folder}/".startswith(tuple(f"{place}/" for place in UNSEEN)):
        raise refusal("the agent's unit cannot write there: name a folder below /var/lib", path=path, value=folder)
    if not host.is_dir(folder):
        raise refusal("this node has no such folder: make it first", path=path, value=folder)


def stale_metrics(host: Host, wanted: t.Optional[Options], reason: str) -> tuple[Change, ...]:
    """The removal of metrics that nothing will update."""
    folder = agent_units.metrics_dir(state.read_json(host, state.AGENT))
    if wanted is not None and wanted.metrics_dir == folder:
        return ()
    files = filter(None, (agent_units.metrics_file(folder), agent_units.gc_metrics_file(folder)))
    return tuple(
        Change(NAME, path, "content", "metrics", None, reason, path, (Step("file", path, None, FILES),))
        for path in files
        if host.exists(path)
    )


def plan(
    host: Host,
    options: Options,
    program: t.Optional[t.Mapping[str, str]] = None,
    *,
    tag: t.Optional[str] = None,
    trigger: str = "",
) -> Part:
    """The changes that install the agent. ``program`` maps the core's files (below FOLDER) to their texts.

    Without ``program`` (on the node itself) the program is taken as it is and only the units are looked at. ``tag`` is
    the Python's cache tag ("cpython-311"), by which its compiled files are named. ``trigger`` is the unit that started
    this run ($TRIGGER_UNIT, systemd.exec(5)): when it is the timer, the timer runs, and systemd is not asked.
    """
    wanted = wanted_files(options, program)
    return decide(options, program, wanted, observe(host, wanted, program, tag, trigger))


def wanted_files(options: Options, program: t.Optional[t.Mapping[str, str]]) -> dict[str, tuple[str, int]]:
    """Text and mode of each file, by path: units first, then the program."""
    files = {f"{ETC}/{unit}": (text, 0o644) for unit, text in agent_units.units(options).items()}
    if program is not None:
        files.update({f"{FOLDER}/{name}": (text, 0o644) for name, text in program.items()})
        files[agent_units.LAUNCHER] = (agent_units.launcher(options), 0o755)
        files[state.AGENT] = (json.dumps(options._asdict(), sort_keys=True) + "\n", 0o644)
    return files


def wanted_links() -> dict[str, str]:
    """The links that enable the units, and the command in the path."""
    return {f"{ETC}/{target}.wants/{unit}": f"../{unit}" for unit, target in agent_units.WANTED_BY.items()}


def observe(
    host: Host,
    wanted: t.Mapping[str, tuple[str, int]],
    program: t.Optional[t.Mapping[str, str]],
    tag: t.Optional[str],
    trigger: str,
) -> Observation:
    """Read the installation; no command in a tick that the timer started."""
    present = unwanted_files(host, wanted) if program is not None else []
    sources = [path for path in wanted if path.startswith(f"{FOLDER}/_core/")]
    return Observation(
        {path: host.read(path) for path in wanted},
        {path: host.link(path) for path in (*wanted_links(), agent_units.COMMAND)},
        running_units(host, trigger),
        tuple(present),
        tag is None or all(host.exists(compiled_path(path, tag)) for path in sources),
    )


def running_units(host: Host, trigger: str) -> frozenset[str]:
    """Which of the agent's units run by themselves now; of a tree it is taken for granted."""
    if trigger == agent_units.TIMER or not host.answers:
        return frozenset(agent_units.STARTED)
    return systemd.active(host, agent_units.STARTED) if systemd.runs(host) else frozenset()


def compiled_path(path: str, tag: str) -> str:
    """Where Python keeps the compiled form of a file (PEP 3147)."""
    folder, dummy, name = path.rpartition("/")
    return f"{folder}/__pycache__/{name[: -len('.py')]}.{tag}.pyc"


def unwanted_files(host: Host, wanted: t.Collection[str]) -> list[str]:
    """The files that an older program left: those that Corral made, and those that hide a folder of this one.

    A file that was there before Corral stays; where an older program had replaced it, it comes back by its record.
    """
    kept, dummy = state.records(host)
    originals = {record.before.target: record.before for record in kept if record.before.kind == "file"}
    folders = {path.rpartition("/")[0] for path in wanted}

    def is_ours(path: str) -> bool:
        original = originals.get(path)
        if original is None:
            return path[: -len(".py")] in folders
        return original.value is None and original.link is None

    return [path for path in program_files(host) if path not in wanted and is_ours(path)]


def program_files(host: Host, folder: str = FOLDER) -> list[str]:
    """The Python files of an installed program."""
    found = []
    for name in host.names(folder):
        path = f"{folder}/{name}"
        if host.is_dir(path):
            found += program_files(host, path) if name != "__pycache__" else []
        elif name.endswith(".py"):
            found.append(path)
    return found


def digest(files: t.Iterable[tuple[str, t.Optional[str]]]) -> t.Optional[str]:
    """A short name for a set of files; None when one of them is absent."""
    total = 0
    for path, text in sorted(files, key=lambda item: item[0]):
        if text is None:
            return None
        total = zlib.crc32(f"{path}\0{text}\0".encode("utf-8", "surrogateescape"), total)
    return f"{total:08x}"


def decide(
    options: Options,
    program: t.Optional[t.Mapping[str, str]],
    wanted: t.Mapping[str, tuple[str, int]],
    seen: Observation,
) -> Part:
    """The changes that bring the installation to what is wanted."""
    units = [f"{ETC}/{unit}" for unit in agent_units.units(options)]
    changes = [program_change(options, wanted, seen)] if program is not None else []
    for path in units:
        change = file_change(NAME, path, seen.texts[path], wanted[path][0], reason="the agent's unit")
        if change is not None and path.endswith(f"/{agent_units.TIMER}") and agent_units.TIMER in seen.active:
            # A running timer is not armed again by a reload.
            change = change._replace(steps=(*change.steps, Step("unit", agent_units.TIMER, "restart", START, 10)))
        changes.append(change)
    changes += [state_change(unit, seen) for unit in agent_units.WANTED_BY]
    held = {f"file:{path}" for path in wanted} | {f"link:{path}" for path in (*wanted_links(), agent_units.COMMAND)}
    held |= {f"unit:{unit}" for unit in agent_units.STARTED} | {f"compile:{FOLDER}"}
    gone = frozenset(f"file:{path}" for path in seen.stale)
    return Part(whole(tuple(filter(None, changes)), seen), frozenset(held) | gone, gone=gone)


def whole(changes: tuple[Change, ...], seen: Observation) -> tuple[Change, ...]:
    """Where nothing of the agent is there, its installation is one item rather than one for each file and unit."""
    if not changes or any(text is not None for text in seen.texts.values()):
        return changes
    steps = tuple(step for change in changes for step in change.steps)
    return (changes[0]._replace(reason="not installed", steps=steps),)


def program_change(options: Options, wanted: t.Mapping[str, tuple[str, int]], seen: Observation) -> t.Optional[Change]:
    """The change of the program as a whole: one item, however many files differ."""
    program = {path: item for path, item in wanted.items() if not path.startswith(f"{ETC}/")}
    differing = [path for path, item in program.items() if seen.texts[path] != item[0]]
    command = seen.links[agent_units.COMMAND] != agent_units.LAUNCHER
    if not differing and not seen.stale and not command and seen.compiled:
        return None
    steps = [Step("file", path, program[path][0], FILES, mode=program[path][1]) for path in differing]
    steps += [Step("file", path, None, FILES) for path in seen.stale]
    if command:
        steps.append(Step("link", agent_units.COMMAND, agent_units.LAUNCHER, FILES))
    steps.append(Step("compile", FOLDER, options.python, RELOAD, 1))
    actual = digest((path, seen.texts[path]) for path in program)
    target = digest((path, item[0]) for path, item in program.items())
    what = f"{len(differing)} files differ" if actual or not differing else "not installed as a whole"
    reason = what if differing or seen.stale or command else "not compiled for this Python"
    return Change(NAME, FOLDER, "program", actual, target, reason, FOLDER, tuple(steps))


def state_change(unit: str, seen: Observation) -> t.Optional[Change]:
    """The change of a unit's state: enabled, and active where it is to run by itself."""
    path = next(path for path in wanted_links() if path.endswith(f"/{unit}"))
    enabled = seen.links[path] is not None
    runs = unit in agent_units.STARTED
    active = unit in seen.active
    if enabled and (active or not runs):
        return None
    steps = [] if enabled else [Step("link", path, wanted_links()[path], FILES, reload=True)]
    if runs and not active:
        steps.append(Step("unit", unit, "start", START, 10))
    wanted = "enabled, active" if runs else "enabled"
    actual = ", ".join(["enabled" if enabled else "disabled", *(["active" if active else "inactive"] if runs else [])])
    return Change(
        NAME, unit, "state", actual, wanted, "the agent does not keep the node without it", path, tuple(steps)
    )
