# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The results of hosts, read on the controller: a node can be broken, or return anything."""

from __future__ import annotations

import re
import typing as t
import unicodedata

MAX_TEXT = 10_000  # characters of one text
MAX_ROWS = 10_000  # elements of one list or mapping
MAX_DEPTH = 32  # lists and mappings around a value
MAX_NUMBER = 1 << 64
YEAR_10000 = 253402300800  # time.gmtime and strftime need years of four digits
# The beginning of an error of ansible-core 2.19. An error of profile_layers names each step that led to it.
AROUND = re.compile(r"\A(Task failed: )?(.*The lookup plugin 'corral\.node\.profile_layers' failed: )?")
# The places of a host's name in messages of ssh: hosts whose messages differ only in these places have the same problem.
ADDRESS = re.compile(r"(\bto host |\bhostname |\bclosed by |\breset by |\bConnection to |@)(\S+?)(?=:?(?:\s|$))")
NAMED = 12  # the most hosts of a group that are named
NOTED = 20  # the most different notes of a group that are shown
NUMBER = re.compile(r"([0-9]{1,18})")
NONCHARACTERS = "\ufffe\uffff"  # not allowed in XML
UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, directions of text, surrogates, line separators
ITEM_VERDICTS = ("drift", "unchangeable", "unknown")
NOTHING = type(None)
# Names that no fact may have (roles/corral/tasks/facts.yml): variables of Corral and of the inventory, and names of templates.
RESERVED = re.compile(
    "_*corral_|inventory_|(group_names|lookup|omit|q|query|now|undef|dict|range|namespace|cycler|joiner|lipsum)$"
)
TEXTS = ("name", "mode")
MAPPINGS = ("pools", "effective_profile", "paused", "unconfirmed", "adopted")
LINES = ("cpu_map", "cpu_map_now", "gc_report", "notes")
ROWS = ("drift", "changes", "by_key", "problems", "numa_nodes", "workloads", "tenants")
CELLS: dict[str, dict[str, tuple[type, ...]]] = {  # the cells of each row, for the plan and the page
    "by_key": {"kind": (str,), "key": (str,), "origin": (str, NOTHING), "disruption": (str,), "changes": (list,)},
    "numa_nodes": {"node": (int,), "cpus": (str,), "memory_mib": (int, NOTHING), "hugepages": (dict,)},
    "workloads": {
        "name": (str,),
        "state": (str,),
        "reason": (str, NOTHING),
        "cpus": (str,),
        "memory_nodes": (str, NOTHING),
        "devices": (dict,),
        "tenant": (str, NOTHING),
        "since": (int, NOTHING),
    },
}
SENTENCES = ("paused", "unconfirmed")  # mappings with their line as ``text``
MESSAGES = ("msg", "module_stderr")
FIELDS = (*ROWS, *LINES, *TEXTS, *MAPPINGS, *MESSAGES)


def by_name(host: str) -> tuple[t.Any, ...]:
    """The key by which hosts are sorted: their names, with numbers in them as numbers (n2 comes before n10)."""
    parts = NUMBER.split(host)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), host


def message(result: t.Mapping[str, t.Any]) -> str:
    """The message of a failed task (see printable_result), and the node's error output if the module did not even begin."""
    silent = "the task was skipped" if result.get("skipped") else "the task failed without a message"
    lines = [AROUND.sub("", str(result.get("msg") or silent))]
    heard = str(result.get("module_stderr") or "").strip().splitlines()
    if heard:
        lines.append(heard[-1] if heard[0].startswith("Traceback") else heard[0])
    return "\n".join(lines)


def refuse_facts(variables: t.Mapping[str, t.Any]) -> None:
    """Raise ValueError if a host returned a fact with the name of a variable of the collection or of the inventory."""
    names = [str(name) for name in variables.get("ansible_facts") or () if RESERVED.match(str(name))]
    if names:
        raise ValueError(
            "the node returned facts that are named as variables of Corral or of the inventory "
            f"({printable(', '.join(sorted(names)))}): look at the node, and at tasks that set such a name with cacheable"
        )


def named(hosts: t.Sequence[str]) -> str:
    """The hosts of a group, in the form of --limit."""
    more = f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else ""
    return f"{','.join(hosts[:NAMED])}{more}"


def note_lines(notes: t.Mapping[str, t.Sequence[str] | None]) -> list[str]:
    """The notes on a group of hosts, the most frequent first; a note that only some hosts have names these hosts."""
    having: dict[str, list[str]] = {}
    for host, own in notes.items():
        for note in dict.fromkeys(own or ()):
            having.setdefault(note, []).append(host)
    rows = sorted(having.items(), key=lambda row: -len(row[1]))
    lines = [f"note{'' if len(hosts) == len(notes) else f' ({named(hosts)})'}: {text}" for text, hosts in rows[:NOTED]]
    return [*lines, *([f"and {len(rows) - NOTED} more notes"] if len(rows) > NOTED else [])]


def without_address(text: str) -> str:
    """The text of ssh with … in the place of a host's name or address."""
    return ADDRESS.sub(r"\1…", text)


def printable(text: str, keep: str = "") -> str:
    """The text with every control character escaped, except those to keep; a long text is cut, and says so."""
    cut = text[:MAX_TEXT]
    shown = "".join(
        character.encode("unicode_escape").decode("ascii")
        if character in NONCHARACTERS or (unicodedata.category(character) in UNPRINTABLE and character not in keep)
        else character
        for character in cut
    )
    return shown if len(cut) == len(text) else f"{shown}... ({len(text)} characters)"


def received(module: str, result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A module's result with printable text; for impossible data a failure that says so."""
    why = impossible_data(module, result)
    return {"msg": why} if why else printable_result(result)


def printable_result(result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A possible result, with each control character escaped. A message keeps its line feeds: it has a problem on each line."""
    return {
        key: printable(str(value), keep="\n") if key in MESSAGES and value else clean(value) if key in FIELDS else value
        for key, value in {
            **result,
            **{field: whole(result[field], field) for field in CELLS if result.get(field)},
        }.items()
    }


def whole(rows: t.Sequence[dict[str, t.Any]], field: str) -> list[dict[str, t.Any]]:
    """The rows of a table with all of its cells. An older version of Corral may leave out cells that may be null."""
    return [{**dict.fromkeys(CELLS[field]), **row} for row in rows]


def clean(value: t.Any) -> t.Any:
    """Data with each text made printable."""
    if isinstance(value, dict):
        return {printable(str(key)): clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [clean(inner) for inner in value]
    return printable(value) if isinstance(value, str) else value


def impossible_data(module: str, result: t.Mapping[str, t.Any]) -> str | None:
    """The message on a result that the module cannot have returned; None for a possible result."""
    why = impossible(result)
    said = f"the module {module} returned impossible data: {why}"
    return why and f"{said}; look at the node, and at its version of Corral"


def impossible(result: t.Mapping[str, t.Any]) -> str | None:
    """The first field of a result that no module of the collection can return like this, and why; None for a possible result."""
    for field in FIELDS:
        why = immense(result.get(field))
        if why:
            return f"{field} has {why}"
    for field in (*ROWS, *LINES):
        why = impossible_list(field, result.get(field))
        if why:
            return why
    for number, item in enumerate(result.get("drift") or ()):
        why = impossible_item(item)
        if why:
            return f"drift[{number}].{why}"
    for field, cells in CELLS.items():
        for number, row in enumerate(result.get(field) or ()):
            why = impossible_row(row, cells)
            if why:
                return f"{field}[{number}].{why}"
    for number, tenant in enumerate(result.get("tenants") or ()):
        if not isinstance(tenant.get("text"), str):
            return f"tenants[{number}].text is {kind(tenant.get('text'))}, expected text"
    for field in TEXTS:
        if not isinstance(result.get(field), (str, type(None))):
            return f"{field} is {kind(result[field])}, expected text"
    for field in MAPPINGS:
        if not isinstance(result.get(field), (dict, type(None))):
            return f"{field} is {kind(result[field])}, expected a mapping"
    for field in SENTENCES:
        said = result.get(field)
        if said is not None and not isinstance(said.get("text"), str):
            return f"{field}.text is {kind(said.get('text'))}, expected text"
    return None


def impossible_list(field: str, rows: t.Any) -> str | None:
    """Why no module returns this as the rows or lines of a field."""
    if rows is None:
        return None
    if not isinstance(rows, list):
        return f"{field} is {kind(rows)}, expected a list"
    element = str if field in LINES else dict
    for number, row in enumerate(rows):
        if not isinstance(row, element):
            return f"{field}[{number}] is {kind(row)}, expected {'text' if element is str else 'a mapping'}"
    return None


def impossible_item(item: t.Mapping[str, t.Any]) -> str | None:
    """Why no module returns this item of drift. A node with an older Corral does not return ``since``."""
    if not isinstance(item.get("text"), str):
        return f"text is {kind(item.get('text'))}, expected text"
    if item.get("verdict") not in ITEM_VERDICTS:
        return f"verdict is {printable(repr(item.get('verdict'))[:80])}, expected one of {', '.join(ITEM_VERDICTS)}"
    return impossible_since(item.get("since"))


def impossible_row(row: t.Mapping[str, t.Any], cells: t.Mapping[str, tuple[type, ...]]) -> str | None:
    """Why no module returns this row of a table."""
    for key, types in cells.items():
        if not isinstance(row.get(key), types) or isinstance(row.get(key), bool):
            return f"{key} is {kind(row.get(key))}, expected {kind(types[0]())}"
    for ids in (row.get("devices") or {}).values():
        if not isinstance(ids, list):
            return f"devices has {kind(ids)}, expected lists"
    for line in row.get("changes") or ():
        if not isinstance(line, str):
            return f"changes has {kind(line)}, expected texts"
    return impossible_since(row.get("since"))


def immense(value: t.Any) -> str | None:
    """Why data are larger than possible: too many elements, too many levels, or a number that some readers of JSON refuse."""
    inner = [value]
    for dummy in range(MAX_DEPTH):
        below: list[t.Any] = []
        for part in inner:
            if isinstance(part, (dict, list)):
                if len(part) > MAX_ROWS:
                    return f"{len(part)} elements, at most {MAX_ROWS} are possible"
                below += part.values() if isinstance(part, dict) else part
            elif isinstance(part, (int, float)) and not -MAX_NUMBER < part < MAX_NUMBER:
                return "a number that is no 64 bits"
        if not below:
            return None
        inner = below
    return f"more than {MAX_DEPTH} lists and mappings in each other"


def impossible_since(since: t.Any) -> str | None:
    """Why no module returns this value of ``since``."""
    if since is None or (isinstance(since, int) and not isinstance(since, bool) and 0 <= since < YEAR_10000):
        return None
    return f"since is {printable(repr(since)[:80])}, expected seconds since 1970"


def kind(value: t.Any) -> str:
    """The type of a value, in the words of JSON."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "a boolean"
    names = {dict: "a mapping", list: "a list", str: "text", int: "a number", float: "a number"}
    return next((name for one, name in names.items() if isinstance(value, one)), "of an unknown type")
