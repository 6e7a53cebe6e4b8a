# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The configuration that a kubelet uses: its file, its drop-ins in their order, its flags, its defaults.

Kubelet 1.36: drop-ins of --config-dir are JSON merge patches (RFC 7386) over --config. A key that no file sets has a default
(pkg/kubelet/apis/config/v1beta1/defaults.go). Flags win over files and defaults.
"""

from __future__ import annotations

import re
import typing as t

from ..values.printable_text import printable
from ..values.records import NamedTuple
from . import config_values
from .config_values import seconds
from .kubelet_options import CONFIGURATION, NEWEST

API_VERSION, KIND = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
DEFAULT, THRESHOLDS = "default", "evictionHard"

# The defaults of the keys that concern a node's resources. An empty text counts as unset, an empty map or list counts as set.
DEFAULTS: dict[str, t.Any] = {
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": True,
    "containerLogMaxFiles": 5,
    "containerLogMaxSize": "10Mi",
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": "100ms",
    "cpuManagerPolicy": "none",
    "cpuManagerReconcilePeriod": "10s",
    "enforceNodeAllocatable": ["pods"],
    "evictionHard": {
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
    },
    "evictionPressureTransitionPeriod": "5m0s",
    "failCgroupV1": True,
    "failSwapOn": True,
    "imageGCHighThresholdPercent": 85,
    "imageGCLowThresholdPercent": 80,
    "imageMaximumGCAge": "0s",
    "imageMinimumGCAge": "2m0s",
    "localStorageCapacityIsolation": True,
    "maxOpenFiles": 1000000,
    "maxPods": 110,
    "memoryManagerPolicy": "None",
    "mergeDefaultEvictionSettings": False,
    "nodeStatusUpdateFrequency": "10s",
    "oomScoreAdj": -999,
    "podPidsLimit": -1,
    "podsPerCore": 0,
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
}

# The keys of numbers and durations that cannot be nil in Go: 0 counts as unset.
ZERO_IS_UNSET = (
    "cpuManagerReconcilePeriod",
    "evictionPressureTransitionPeriod",
    "imageMinimumGCAge",
    "maxOpenFiles",
    "maxPods",
    "nodeStatusUpdateFrequency",
)
# The lists that have a default; an empty list turns the default off.
LISTS = ("enforceNodeAllocatable",)

# By flag, the key that the flag sets and the kind of the flag's text (see FLAG_KINDS). Source: cmd/kubelet/app/options/options.go.
FLAGS: dict[str, tuple[str, str]] = {
    "allowed-unsafe-sysctls": ("allowedUnsafeSysctls", "list"),
    "cgroup-driver": ("cgroupDriver", "text"),
    "cgroups-per-qos": ("cgroupsPerQOS", "bool"),
    "container-log-max-files": ("containerLogMaxFiles", "int"),
    "container-log-max-size": ("containerLogMaxSize", "text"),
    "container-runtime-endpoint": ("containerRuntimeEndpoint", "text"),
    "cpu-cfs-quota": ("cpuCFSQuota", "bool"),
    "cpu-cfs-quota-period": ("cpuCFSQuotaPeriod", "text"),
    "cpu-manager-policy": ("cpuManagerPolicy", "text"),
    "cpu-manager-policy-options": ("cpuManagerPolicyOptions", "pair"),
    "cpu-manager-reconcile-period": ("cpuManagerReconcilePeriod", "text"),
    "enforce-node-allocatable": ("enforceNodeAllocatable", "list"),
    "eviction-hard": ("evictionHard", "thresholds"),
    "eviction-max-pod-grace-period": ("evictionMaxPodGracePeriod", "int"),
    "eviction-minimum-reclaim": ("evictionMinimumReclaim", "map"),
    "eviction-pressure-transition-period": ("evictionPressureTransitionPeriod", "text"),
    "eviction-soft": ("evictionSoft", "thresholds"),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod", "map"),
    "fail-swap-on": ("failSwapOn", "bool"),
    "feature-gates": ("featureGates", "gates"),
    "image-gc-high-threshold": ("imageGCHighThresholdPercent", "int"),
    "image-gc-low-threshold": ("imageGCLowThresholdPercent", "int"),
    "kube-reserved": ("kubeReserved", "map"),
    "kube-reserved-cgroup": ("kubeReservedCgroup", "text"),
    "kubelet-cgroups": ("kubeletCgroups", "text"),
    "max-open-files": ("maxOpenFiles", "int"),
    "max-pods": ("maxPods", "int"),
    "memory-manager-policy": ("memoryManagerPolicy", "text"),
    "minimum-image-ttl-duration": ("imageMinimumGCAge", "text"),
    "oom-score-adj": ("oomScoreAdj", "int"),
    "pod-max-pids": ("podPidsLimit", "int"),
    "pods-per-core": ("podsPerCore", "int"),
    "qos-reserved": ("qosReserved", "map"),
    "reserved-cpus": ("reservedSystemCPUs", "text"),
    "reserved-memory": ("reservedMemory", "memory"),
    "runtime-cgroups": ("runtimeCgroups", "text"),
    "serialize-image-pulls": ("serializeImagePulls", "bool"),
    "system-cgroups": ("systemCgroups", "text"),
    "system-reserved": ("systemReserved", "map"),
    "system-reserved-cgroup": ("systemReservedCgroup", "text"),
    "topology-manager-policy": ("topologyManagerPolicy", "text"),
    "topology-manager-policy-options": ("topologyManagerPolicyOptions", "map"),
    "topology-manager-scope": ("topologyManagerScope", "text"),
}  # fmt: skip
# The flags that need no value.
BOOLEANS = frozenset(name for name, (dummy, kind) in FLAGS.items() if kind == "bool")
TRUE, FALSE = ("1", "t", "T", "true", "TRUE", "True"), ("0", "f", "F", "false", "FALSE", "False")

_NODE = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)

Path = tuple[str, ...]


class Layer(NamedTuple):
    """A source of configuration: its path or flag, its data, and whether the source is a file of --config-dir."""

    origin: str
    data: t.Mapping[str, t.Any]
    drop_in: bool = False


class Setting(NamedTuple):
    """The value of a key in force, and the origin of the value: a file, a flag, or "default"."""

    value: t.Any
    origin: str


class Config(NamedTuple):
    """The configuration in force: its data, nested as in a file; the origin of each leaf, by the leaf's path; and problems."""

    data: dict[str, t.Any]
    origins: t.Mapping[Path, str]
    problems: tuple[str, ...] = ()

    def get(self, *path: str) -> t.Any:
        """The value at a path; None if the configuration has no value there."""
        found: t.Any = self.data
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def settings(self) -> dict[str, Setting]:
        """Each leaf by its dotted path; a list is one leaf."""
        return {".".join(path): Setting(self.get(*path), origin) for path, origin in sorted(self.origins.items())}


def merged_into(data: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The data of --config into which the kubelet merges drop-ins.

    Before the merge the kubelet writes the data as JSON, and leaves out empty lists (omitempty).
    """
    return {key: value for key, value in data.items() if key not in LISTS or value != []}


def merge_patch(target: t.Any, patch: t.Any) -> t.Any:
    """A JSON merge patch applied to a value (RFC 7386, section 2): maps merge, null deletes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def effective(
    files: t.Sequence[Layer], flags: t.Sequence[Layer] = (), defaults: t.Optional[t.Mapping[str, t.Any]] = None
) -> Config:
    """The configuration in force: --config, then drop-ins in their order, defaults (DEFAULTS) for unset keys, flags over all files.

    A flag replaces the whole value of its key, but of featureGates only the gates that the flag names. Only --config gets default
    thresholds, and drop-ins are merged over these thresholds; without --config no threshold has a default (cmd/kubelet/app/server.go,
    loadConfigFile and mergeKubeletConfigurations).
    """
    data: dict[str, t.Any] = {}
    origins: dict[Path, str] = {}
    known = DEFAULTS if defaults is None else defaults
    for layer in files:
        record(origins, (), layer.data, layer.origin)
        data = merge_patch(data, layer.data)
        if not layer.drop_in:
            add_thresholds(data, origins, known)
    for key, value in known.items():
        if key == THRESHOLDS:
            continue
        if data.get(key) in (None, "") or (key in ZERO_IS_UNSET and seconds(data[key]) == 0):
            record(origins, (), {key: value}, DEFAULT)
            data[key] = value
    for layer in flags:
        for key, value in layer.data.items():
            if key != "featureGates":
                forget(origins, (key,))
                data.pop(key, None)
            record(origins, (), {key: value}, layer.origin)
            data = merge_patch(data, {key: value})
    for key in ("apiVersion", "kind"):
        data.pop(key, None)
        forget(origins, (key,))
    return Config(data, origins)


def add_thresholds(data: dict[str, t.Any], origins: dict[Path, str], defaults: t.Mapping[str, t.Any]) -> None:
    """Add all default thresholds if no threshold is set; with mergeDefaultEvictionSettings add the thresholds that are not set."""
    known, found = defaults.get(THRESHOLDS) or {}, data.get(THRESHOLDS)
    if found in (None, ""):
        found = {}
    elif not isinstance(found, dict) or data.get("mergeDefaultEvictionSettings") is not True:
        return
    missing = {name: one for name, one in known.items() if name not in found}
    if missing:
        record(origins, (THRESHOLDS,), missing, DEFAULT)
        data[THRESHOLDS] = {**found, **missing}


def record(origins: dict[Path, str], at: Path, patch: t.Any, origin: str) -> None:
    """Record ``origin`` for each leaf that the patch sets, and forget the leaves that the patch replaces or deletes."""
    if isinstance(patch, dict) and (patch or not at or has_leaves(origins, at)):
        origins.pop(at, None)
        for key, value in patch.items():
            record(origins, (*at, key), value, origin)
        return
    forget(origins, at)
    if patch is not None:
        origins[at] = origin


def has_leaves(origins: t.Mapping[Path, str], at: Path) -> bool:
    """Whether ``origins`` has values below a path."""
    return any(len(path) > len(at) and path[: len(at)] == at for path in origins)


def forget(origins: dict[Path, str], at: Path) -> None:
    """Forget the origins of a path and of everything below the path."""
    for path in [path for path in origins if path[: len(at)] == at]:
        del origins[path]


def unknown_keys(files: t.Iterable[Layer]) -> list[str]:
    """A message for each top-level key that no kubelet up to 1.NEWEST has. A kubelet ignores such a key, and logs it."""
    return [
        f"{layer.origin}: {key}: no key of a KubeletConfiguration up to 1.{NEWEST}: misspelt, or newer; the kubelet ignores one that it "
        "does not know"
        for layer in files
        for key in sorted(map(str, layer.data))
        if key not in (*CONFIGURATION, "apiVersion", "kind")
    ]


# Flags

AGAIN = "\0"  # between the texts of a flag that is given several times; no word of a command line has this character


def flags_of(arguments: t.Sequence[str]) -> dict[str, str]:
    """The flags of a command line, by their names without dashes. Of a flag that sets no key, the last text counts."""
    found: dict[str, str] = {}
    todo = list(arguments)
    while todo:
        word = todo.pop(0)
        if word == "--":
            break
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("_", "-")
        if not equals and name in BOOLEANS:
            value = "true"
        elif not equals:
            value = todo.pop(0) if todo and (name in FLAGS or not todo[0].startswith("--")) else ""
        found[name] = f"{found[name]}{AGAIN}{value}" if name in FLAGS and name in found else value
    return found


def flag_layers(flags: t.Mapping[str, str]) -> tuple[list[Layer], list[str]]:
    """The keys that flags set, as a layer for each flag, and the problems of the flags that cannot be read.

    The first use of a flag replaces the whole value of the files. A further use adds to a map or a list, and replaces any other value.
    """
    layers: list[Layer] = []
    problems: list[str] = []
    for name, text in flags.items():
        if name not in FLAGS:
            continue
        key, kind = FLAGS[name]
        try:
            value = of_flag(kind, text.split(AGAIN))
        except ValueError:
            said = text.replace(AGAIN, f" --{name}=")
            problems.append(printable(f"--{name}={said}: the kubelet does not start with it: write {FORMS[kind]}"))
            continue
        if value is not None:
            layers.append(Layer(f"--{name}", {key: value}))
    return layers, problems


def of_flag(kind: str, texts: t.Sequence[str]) -> t.Any:
    """The value that a flag of a kind sets with its ``texts``, in their order; None if the texts set no value. Raises ValueError."""
    if kind == "memory" and "" in texts:  # After an empty text the kubelet takes no other text.
        if "" in texts[:-1]:
            raise ValueError(texts)
        texts = texts[:-1]
    values = [FLAG_KINDS[kind](text) for text in texts]
    if not values:
        return None
    if isinstance(values[0], dict):
        return {name: one for value in values for name, one in value.items()}
    return [one for value in values for one in value] if isinstance(values[0], list) else values[-1]


def as_bool(text: str) -> bool:
    """The value of a Go bool. Raises ValueError for any other text."""
    if text not in (*TRUE, *FALSE):
        raise ValueError(text)
    return text in TRUE


def as_map(text: str, between: str = "=") -> dict[str, str]:
    """A text such as ``a=1,b=2`` as a map. Raises ValueError."""
    return {name: value for part in text.split(",") if part for name, value in as_pair(part, between).items()}


def as_pair(text: str, between: str = "=") -> dict[str, str]:
    """A text such as ``a=1`` as a map; a comma is part of the value. Raises ValueError."""
    name, separator, value = text.partition(between)
    if not separator:
        raise ValueError(text)
    return {name.strip(): value.strip()}


def as_option(text: str) -> dict[str, str]:
    """An option of the CPU manager. Raises ValueError for several options, which the kubelet would take for one value."""
    if "," in text:
        raise ValueError(text)
    return as_pair(text)


def as_list(text: str) -> list[str]:
    """A line of CSV, such as ``a,b``, as a list. Raises ValueError."""
    if '"' not in text:
        return text.split(",") if text else []
    import csv  # A kubelet's command line hardly ever has quotes.

    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(text) from error


def as_memory(text: str) -> list[dict[str, t.Any]]:
    """A text such as ``0:memory=1Gi,hugepages-1Gi=2Gi;1:memory=2Gi`` as the rows of reservedMemory. Raises ValueError."""
    found = []
    for part in text.split(";"):
        node, *rest = part.split(":")
        if len(rest) != 1 or not _NODE.fullmatch(node):
            raise ValueError(text)
        limits = dict(row.split("=") for row in rest[0].split(","))  # A row without exactly one "=" raises ValueError.
        if not all(kind == "memory" or kind.startswith("hugepages-") for kind in limits):
            raise ValueError(text)
        if any(config_values.amount(size) is None for size in limits.values()):
            raise ValueError(text)
        found.append({"numaNode": int(node), "limits": limits})
    return found


FLAG_KINDS: dict[str, t.Callable[[str], t.Any]] = {
    "text": str,
    "int": int,
    "bool": as_bool,
    "list": as_list,
    "map": as_map,
    "pair": as_option,
    "thresholds": lambda text: as_map(text, "<"),
    "gates": lambda text: {name: as_bool(value) for name, value in as_map(text).items()},
    "memory": as_memory,
}
# By kind, the form of a flag's text, for messages.
FORMS = {
    "int": "a whole number",
    "bool": "true or false",
    "list": "words with commas between them",
    "map": "NAME=VALUE,NAME=VALUE",
    "pair": "the flag once for each option, with NAME=VALUE",
    "thresholds": "SIGNAL<VALUE,SIGNAL<VALUE",
    "gates": "NAME=true,NAME=false",
    "memory": "the flag once for each NUMA node, with NODE:memory=SIZE,hugepages-2Mi=SIZE",
}
