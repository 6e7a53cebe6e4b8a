# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The part of each file that a snapshot keeps: enough to replay decisions, and nothing secret, since snapshots are passed on.

A file, key or word is kept only if a rule in this module allows it; otherwise MARK stands in its place. There is no digest of a left-out
text: a short secret can be guessed from its digest.
"""

from __future__ import annotations

import json
import re
import shlex
import typing as t

from ...model.devices.device import FIT_PATH
from ...model.kubelet.kubelet_config import DEFAULTS, FLAGS
from ...model.systemd import environment_file
from ...model.systemd.unit_file import HEADER
from .. import state
from ..systemd import logical_lines

MARK = "left-out-of-this-snapshot"  # one word, so that a command line keeps its number of words

PROGRAMS = frozenset(("conmon", "docker", "kubelet", "podman"))
VERBS = frozenset(
    ("compose", "container", "image", "images", "kube", "play", "pod", "prune", "restart", "run", "start", "system", "volume")
)  # fmt: skip
# Options whose values are kept: of the kubelet, the flags for known keys and for its files; of Podman, the options on where containers run.
VALUES = frozenset(
    (*FLAGS, "cgroup-parent", "cgroups", "cidfile", "config", "config-dir", "hostname-override", "kubeconfig", "name", "root-dir", "sdnotify")
)  # fmt: skip
# Options of conmon: the container's id, its name, and the file with its process id.
MONITORS = frozenset("-" + letter for letter in "cnp")
FLAG = re.compile(r"--([a-z][a-z-]*)(?:(=)(.*))?", re.DOTALL)
LETTERS = re.compile(r"-[a-zA-Z]")
PATH = re.compile(r"(/(usr|opt|bin|sbin|local|libexec|lib|podman))*/?[a-z]+")
VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")
PREFIXES = "@-:+!|"  # characters before a command in a unit file (systemd.service(5))
# Keys of unit files that are kept. In the values of commands and variables only the words allowed above are kept.
COMMANDS = re.compile(r"Exec(Condition|Start|StartPre|StartPost|Stop|StopPost|Reload)")
KEYS = frozenset(
    (
        "After", "Before", "BindPaths", "Conflicts", "DefaultDependencies", "DefaultTasksMax", "Delegate", "DevicePolicy", "DynamicUser",
        "EnvironmentFile", "Group", "IgnoreOnIsolate", "KillMode", "NUMAMask", "NUMAPolicy", "OOMPolicy", "OOMScoreAdjust", "OnBootSec",
        "OnCalendar", "OnUnitActiveSec", "PartOf", "PassEnvironment", "PrivateDevices", "RemainAfterExit", "RequiredBy", "Requires",
        "RequiresMountsFor", "Restart", "Slice", "Type", "Unit", "User", "WantedBy", "Wants", "Where",
    )
)  # fmt: skip
RESOURCES = re.compile(
    r"(Startup)?(Allowed|CPU|Device|Default(?!Environment)|IO|Memory|Managed|Swap|Tasks)[A-Za-z]*|LimitN[A-Z]+"
)
# Keys of unit files that are kept without their values.
NAMES = re.compile(r"(Default|Manager)?Environment|Description|Documentation|(Set|Load|Import)Credential(Encrypted)?")
# A command of Corral: a program, or Python with a program.
AGENT = re.compile(r"[@:+!-]*(/[a-z0-9/.]+ (-[A-Z] )*)?/usr/libexec/corral/[a-z0-9/._-]+( [a-z%-]+)*")
PROSE = re.compile(r"# [A-Z0-9a-z'-][^=]* ")  # a comment, but no setting that is commented out
# A line of YAML without its comment. Quotes count only where a value may begin.
UNCOMMENTED = re.compile(r"""(?:(?<=[:,\[{-])\s*(?:"(?:[^"\\]|\\.)*"|'[^']*')|(?<=\S)#|[^#])*""")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
KUBELET = frozenset(
    (
        *DEFAULTS, *(key for key, dummy in FLAGS.values()), "apiVersion", "cgroupRoot", "healthzBindAddress", "healthzPort",
        "imageMaximumGCAge", "kind", "memorySwap",
    )
)  # fmt: skip
SYSCTL = re.compile(r"-?\s*(kernel[./](pid_max|threads-max|numa_balancing)|vm[./][a-z0-9_]+)")
TUNED = re.compile(
    r"include|summary|transparent_hugepages|(no|not_)?\w*(cores|cpus|affinity|cpulist)\w*|" + SYSCTL.pattern
)
SEES_ALL = ("cgroup", "cgroup2", "hugetlbfs", "proc", "sysfs", "tmpfs")  # file systems whose options name no account

Filter = t.Callable[[str], str]


def kept(path: str, data: bytes) -> bytes:
    """The bytes that a snapshot keeps of a file with the content ``data``."""
    text = data.decode("utf-8", "surrogateescape")
    for pattern, rule in RULES:
        if pattern.fullmatch(path):
            try:
                return rule(text).encode("utf-8", "surrogateescape")
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                break  # The content does not have the form that the name promises.
    else:
        if re.search(r"^kind: [\"']?KubeletConfiguration|\"kind\": ?\"KubeletConfiguration\"", text, re.MULTILINE):
            return kubelet_config(text).encode("utf-8", "surrogateescape")
    return f"{MARK}\n".encode()


def whole(text: str) -> str:
    return text


def words(line: t.Iterable[str], *, programs: bool = True) -> t.Iterator[str]:
    """The words of a command line. MARK replaces every word but known programs, verbs, variables and options, and some options' values."""
    before, program = "", "" if programs else "kubelet"
    for word in line:
        flag = FLAG.fullmatch(word)
        if flag:
            option, equals = flag.group(1, 2)
            yield word if not equals or (program and option in VALUES) else f"--{option}={MARK}"
            before = "" if equals else f"--{option}"
            continue
        path = word.lstrip(PREFIXES)
        name = path.rpartition("/")[2]
        valued = (program and before[2:] in VALUES) or (program == "conmon" and before in MONITORS)
        if valued or word in ("", ";") or VARIABLE.fullmatch(word) or LETTERS.fullmatch(word):
            yield word
        elif programs and not program and name in PROGRAMS and PATH.fullmatch(path):
            program = name
            yield word
        elif program and programs and word in VERBS:
            yield word
        else:
            yield f"{word[:2]}{MARK}" if LETTERS.fullmatch(word[:2]) else MARK
        program = "" if word == ";" else program
        before = word if LETTERS.fullmatch(word) else ""


def command(line: str) -> str:
    return " ".join(word if VARIABLE.fullmatch(word) else shlex.quote(word) for word in words(shlex.split(line)))


def variables(line: str) -> str:
    """NAME=VALUE words without values, except options in the kubelet's variables and the CPUs that irqbalance leaves alone."""
    assigned = []
    for word in shlex.split(line):
        name, equals, value = word.partition("=")
        assigned.append(f'"{name}={value_of(name, value)}"' if equals and VARIABLE_NAME.fullmatch(name) else MARK)
    return " ".join(assigned)


def value_of(name: str, value: str) -> str:
    if name.startswith("IRQBALANCE_BANNED_CPU") and re.fullmatch(r"[0-9a-fx,-]*", value):
        return value
    if not name.startswith("KUBELET_"):
        return MARK if value else ""
    return " ".join(words(environment_file.words(value), programs=False)).replace('"', "")


def unit_file(text: str) -> str:
    """A unit file or drop-in without its comments; a file that Corral wrote keeps its own values and comments."""
    own = text.startswith(HEADER)
    lines = []
    for line in text[len(HEADER) :].splitlines() if own else logical_lines(text):
        key, equals, value = line.partition("=")
        key, value = key.strip(), value.strip()
        if own and PROSE.match(line):
            lines.append(line)
        elif not equals:
            lines.append(line if not line.strip() or re.fullmatch(r"\[[A-Z][a-z]+\]", line.strip()) else MARK)
        elif key in KEYS or RESOURCES.fullmatch(key) or (own and of_corral(key, value)):
            lines.append(line)
        elif COMMANDS.fullmatch(key):
            lines.append(f"{key}={command(value)}")
        elif NAMES.fullmatch(key):
            lines.append(f"{key}={variables(value) if key.endswith('Environment') else MARK if value else ''}")
        else:
            lines.append(f"{MARK}={MARK}")
    return (HEADER if own else "") + "".join(f"{line}\n" for line in lines)


def of_corral(key: str, value: str) -> bool:
    """Whether Corral itself may have set a key to this value: no variable, no credential, no foreign command."""
    if COMMANDS.fullmatch(key):
        return AGENT.fullmatch(value) is not None
    return "Environment" not in key and "Credential" not in key


def assignments(keys: t.Pattern[str]) -> Filter:
    """A rule for files of KEY = VALUE lines and section headers: the rule keeps the headers, and the assignments of ``keys``."""

    def rule(text: str) -> str:
        if text.startswith(HEADER):
            return (
                text if all(map(SYSCTL.match, text[len(HEADER) :].splitlines())) else HEADER + rule(text[len(HEADER) :])
            )
        lines = []
        for line in text.splitlines():
            key, equals, dummy = line.partition("=")
            if equals and line[:1] not in "#;":
                lines.append(line if keys.fullmatch(key.strip()) else f"{MARK}={MARK}")
            elif re.fullmatch(r"\[[A-Za-z0-9_-]+\]", line.strip()):
                lines.append(line)
        return "".join(f"{line}\n" for line in lines)

    return rule


def variables_file(text: str) -> str:
    rows = environment_file.parse(text).items()
    return "".join(f'{name}="{value_of(name, value)}"\n' for name, value in rows)


def command_line(text: str) -> str:
    return "\0".join(words(text.split("\0")))


def mounts(text: str) -> str:
    """The lines of mountinfo, without servers, and without options that may name an account."""
    lines = []
    for line in text.splitlines():
        head, dash, tail = line.partition(" - ")
        kind, source, options = tail.split(" ")[:3]
        if kind not in SEES_ALL:
            access = options.partition(",")[0]
            options = access if access in ("rw", "ro") else MARK
            source = source if source == kind or re.fullmatch(r"/dev/[A-Za-z0-9/_.-]+", source) else MARK
        lines.append(f"{head}{dash}{kind} {source} {options}\n")
    return "".join(lines)


def accounts(text: str) -> str:
    rows = ((*line.split(":"), "") for line in text.split("\n") if line.count(":") > 2)
    numbered = ((row[0], row[2], row[3] if len(row) > 5 else "") for row in rows)
    return "".join(
        f"{name}:x:{number}:{group}:::\n" for name, number, group in numbered if f"{number}{group}".isdecimal()
    )


def cron(text: str) -> str:
    """The crontab lines that name Podman, with the words that command() keeps; comments are left out."""
    return "".join(f"{command(line)}\n" for line in text.splitlines() if "podman" in line and line.lstrip()[:1] != "#")


def containers(text: str) -> str:
    return json.dumps([{"id": row["id"], "names": row.get("names") or []} for row in json.loads(text)])


def cdi_spec(text: str) -> str:
    """A CDI spec in JSON: its devices with their files, without the other edits of containers."""
    data = json.loads(text)
    rows = [
        {"name": row["name"], "containerEdits": device_nodes(row) or {"env": [f"SNAPSHOT={MARK}"]}}
        for row in data["devices"]
    ]
    kept = {"cdiVersion": data["cdiVersion"], "kind": data["kind"], "devices": rows}
    return json.dumps({**kept, "containerEdits": device_nodes(data)})


def device_nodes(row: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    nodes = (row.get("containerEdits") or {}).get("deviceNodes") or []
    ways = [{key: node[key] for key in ("path", "hostPath") if node.get(key)} for node in nodes]
    return {"deviceNodes": [way for way in ways if way and all(map(FIT_PATH.fullmatch, way.values()))]} if ways else {}


def kubelet_config(text: str) -> str:
    """A KubeletConfiguration, in JSON or in YAML as people and kubeadm write it: only the keys that Corral reads, no comments."""
    if text.lstrip()[:1] == "{":
        try:
            return json.dumps({key: value if key in KUBELET else MARK for key, value in json.loads(text).items()})
        except (ValueError, RecursionError):
            return f"{MARK}\n"
    lines = [HEADER.rstrip()] if text.startswith(HEADER) else []
    keeps = True
    for row in text.splitlines():
        line = UNCOMMENTED.match(row)[0].rstrip()  # type: ignore[index]  # the pattern matches any line
        if row.strip() and not line:
            continue
        match = re.match(r"([A-Za-z]+):", line)
        if match:
            key = match.group(1)
            keeps = key in KUBELET
            lines.append(line if keeps else f"{key}: {MARK}")
        elif keeps or line.strip() in ("", "---"):
            lines.append(line if line[:1] in (" ", "-", "") or line.strip() == "---" else f"# {MARK}")
    return "".join(f"{line}\n" for line in lines)


def originals(text: str) -> str:
    """The originals that Corral recorded; the rule for a file also applies to the original of this file."""
    rows = state.checked_data(json.loads(text))
    for row in rows:
        before = row["before"]
        is_property = before["kind"] == "property"
        field, path = ("runtime", CONTROL) if is_property else ("value", before["target"])
        if before.get(field) and before["kind"] in ("file", "link", "property"):
            text_before = kept(path, before[field].encode("utf-8", "surrogateescape"))
            before[field] = text_before.decode("utf-8", "surrogateescape")
    return state.checked_text(rows)


CONTROL = "/run/systemd/system.control/x.slice.d/50-x.conf"

# For a path, the first rule whose pattern matches the path applies.
RULES: tuple[tuple[t.Pattern[str], Filter], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"/sys/.*", whole),
        (r"/proc/(cpuinfo|loadavg|meminfo|stat|swaps|uptime|sys/(kernel|vm)/.*)", whole),
        (r"/proc/[0-9]+/(cgroup|comm|oom_score_adj|stat|status)", whole),
        (r"/proc/[0-9]+/cmdline", command_line),
        (r"/proc/[0-9]+/mountinfo", mounts),
        (r"/var/lib/corral/journal/before\.json(\.previous)?", originals),
        (r"/(etc|run|var/lib)/corral/.*\.json(\.previous)?|/run/corral/(pools\.env|devices/.*|[a-z-]+-due)", whole),
        (r"/usr/libexec/corral/.*|.*/corral(-gc)?\.prom", whole),
        (r"/var/lib/corral/drained", lambda text: text.partition("\n")[0] + "\n"),
        (r"/(etc|run|var/run)/cdi/corral\.node[^/]*", whole),
        (r"/(etc|run|var/run)/cdi/[^/]*", cdi_spec),
        (r"/(etc|run|lib|usr/lib|usr/local/lib)/systemd/.*", unit_file),
        (r"/(etc|run|lib|usr/lib|usr/local/lib)/sysctl\.(d/.*|conf)", assignments(SYSCTL)),
        (r"/etc/tuned/active_profile", whole),
        (r"/(etc|usr/lib)/tuned/.*", assignments(TUNED)),
        (r"/etc/(passwd|group)", accounts),
        (r"/etc/(default|sysconfig)/(irqbalance|kubelet)|.*/(kubeadm-flags|kubelet)\.env", variables_file),
        (r"/etc/(cron.*|anacrontab)|/var/spool/cron/.*", cron),
        (r"/(run|var)/.*/containers\.json|/(run|var)/.*/volatile-containers\.json", containers),
        (r"/(run|var)/.*/(pidfile|conmon\.pid)", lambda text: f"{int(text)}\n"),
        (r".*/(cpu|memory)_manager_state", whole),
    )
)
