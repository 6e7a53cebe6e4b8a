# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A node's kubelet as its processes and files show it: its flags, its configuration, its state files, its pods' cgroups."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import typing as t

from ...model.kubelet import config_shape
from ...model.kubelet.kubelet_config import API_VERSION, KIND, Layer, flags_of, merged_into
from ...model.kubelet.kubelet_sizing import Use
from ...model.kubelet.pod_cgroups import Container, container_of, named_by_log
from ...model.values.errors import CorralError, refusal
from ...model.values.records import NamedTuple
from .. import cgroup
from .. import process as processes
from ..files import Host
from . import kubelet_unit

ROOT_DIR = "/var/lib/kubelet"
UNIT, NAME = kubelet_unit.UNIT, "kubelet"
LOGS = "/var/log/containers"
# Programs that contain a kubelet. The configuration of such a program has another form.
EMBEDDED = {"k3s": "k3s", "k3s-server": "k3s", "k3s-agent": "k3s", "rke2": "RKE2", "kubelite": "MicroK8s", "microshift": "MicroShift"}  # fmt: skip
PODS = "kubepods"  # The name of the control group of pods contains this word. The group is at the top level, or inside another group.
INACTIVE = re.compile(r"^(?:total_)?inactive_file ([0-9]+)$", re.MULTILINE)
# The files of a top-level control group: its memory by kind, its whole memory, its number of tasks.
COUNTERS_V2 = ("{}/memory.stat", "{}/memory.current", "{}/pids.current")
COUNTERS_V1 = ("memory/{}/memory.stat", "memory/{}/memory.usage_in_bytes", "pids/{}/pids.current")
# A word in the address of a runtime, the runtime's unit, and the runtime's program.
RUNTIMES = (
    ("crio", "crio.service", "crio"),
    ("dockerd", "cri-docker.service", "cri-dockerd"),
    ("containerd", "containerd.service", "containerd"),
)
SLACK = 1.0  # Seconds: the start of a process is known to hundredths of a second, and the machine's clock may be set.
ENDPOINT = "unix:///run/containerd/containerd.sock"  # the kubelet's default
TICKS = 100  # per second, in /proc/PID/stat: USER_HZ is the same on every architecture of Linux (proc(5))


class Process(NamedTuple):
    """A running kubelet: its PID, the time of its start (epoch seconds, None: not known), its arguments, and its program."""

    pid: int
    began: t.Optional[float]
    arguments: tuple[str, ...]
    program: str = ""
    by_unit: bool = False  # whether the process is in the control group of kubelet.service


class KubeletFiles(NamedTuple):
    """The paths of a kubelet (--root-dir, --config, --config-dir; an empty string for an unset path), and its flags by name."""

    root_dir: str
    config: str
    config_dir: str
    flags: t.Mapping[str, str]


def process(host: Host) -> t.Optional[Process]:
    """The node's kubelet, with or without a unit; None if no kubelet runs.

    A process of a user or in a container does not count, whatever its name is. Raises CorralError for a program that
    contains a kubelet.
    """
    own = of_unit(host)
    if own is not None:
        return own
    for pid in (name for name in host.names("/proc") if name.isdigit()):
        name = processes.name(host, pid)
        if (name != NAME and name not in EMBEDDED) or not processes.of_system(host, pid):
            continue
        if name in EMBEDDED:
            raise refusal(
                f"{EMBEDDED[name]} runs here (process {pid}): its kubelet is part of it and is configured by its own files, "
                "which Corral neither reads nor writes",
                path=f"/proc/{pid}",
            )
        return of_unit(host) or described(host, pid)  # The unit may have started this process meanwhile.
    return None


def of_unit(host: Host) -> t.Optional[Process]:
    """The kubelet that kubelet.service runs; None if the service does not run."""
    pid = next(processes.named(host, cgroup.service_group(host, UNIT), NAME), None)
    return None if pid is None else described(host, pid)._replace(by_unit=True)


def described(host: Host, pid: str) -> Process:
    """The kubelet process with this PID."""
    words = (host.read(f"/proc/{pid}/cmdline") or "").split("\0")
    return Process(int(pid), began(host, pid), tuple(word for word in words[1:] if word), words[0])


def began(host: Host, pid: str) -> t.Optional[float]:
    """When a process began, in epoch seconds; None if unknown. The read is not recorded: a process has one start."""
    text = host.unrecorded(lambda: host.read(f"/proc/{pid}/stat")) or ""
    fields = text.rpartition(")")[2].split()
    try:
        return host.now() - host.uptime() + int(fields[19]) / TICKS
    except (LookupError, ValueError):
        return None


def oom_scores(host: Host, running: t.Optional[Process], endpoint: str) -> dict[str, int]:
    """The oom_score_adj of the kubelet (if kubelet.service runs it) and of its runtime, by unit. A stopped process is left out."""
    pids = {UNIT: str(running.pid)} if running and running.by_unit else {}
    unit, program = next((row for word, *row in RUNTIMES if word in endpoint), ("", ""))
    runtime = next(processes.named(host, cgroup.service_group(host, unit), program), "") if unit else ""
    if runtime:  # The runtime's shims have scores of their own.
        pids[unit] = runtime
    texts = {name: (host.read(f"/proc/{pid}/oom_score_adj") or "").strip() for name, pid in pids.items()}
    return {name: int(text) for name, text in texts.items() if text.lstrip("-").isdigit()}


def files(host: Host, running: t.Optional[Process]) -> KubeletFiles:
    """The kubelet's paths, from the flags of its process, else from the flags of its unit; without a unit, kubeadm's paths."""
    # The command line of a process that is just starting is empty.
    words = running.arguments if running and running.program else kubelet_unit.command(host)[1:]
    flags = flags_of(words)
    root_dir = flags.get("root-dir") or ROOT_DIR
    config = flags.get("config", "") if running or words else f"{root_dir}/config.yaml"
    return KubeletFiles(root_dir, config, flags.get("config-dir", ""), flags)


def newer_files(host: Host, running: t.Optional[Process], places: KubeletFiles, layers: t.Iterable[Layer]) -> list[str]:
    """The files that were changed after the running kubelet began: the kubelet still uses the content from its start.

    If a drop-in was removed or renamed, only the time of its folder shows the change: the result then has the folder. A folder from which
    another file was removed looks the same, and is in the result too.
    """
    if running is None or running.began is None:
        return []
    began = running.began + SLACK
    files = [layer.origin for layer in layers if (host.changed(layer.origin) or 0) > began]
    shown = {path.rpartition("/")[0] for path in files}
    folders = folders_of(host, places.config_dir.rstrip("/")) if places.config_dir else []
    return files + [path for path in folders if path not in shown and (host.changed(path) or 0) > began]


def folders_of(host: Host, folder: str) -> list[str]:
    """A folder of drop-ins, and the folders below it."""
    return [folder, *(path for name in host.folders(folder) for path in folders_of(host, f"{folder}/{name}"))]


def layers(host: Host, places: KubeletFiles) -> tuple[list[Layer], list[str]]:
    """The configuration file and its drop-ins in the kubelet's order, and the problems of files that cannot be used."""
    found: list[Layer] = []
    problems: list[str] = []
    if places.config:
        add(host, places.config, found, problems)
    if places.config_dir:
        found = [one._replace(data=merged_into(one.data)) for one in found]
    for path in drop_ins(host, places.config_dir) if places.config_dir else ():
        add(host, path, found, problems, drop_in=True)
    return found, problems


def drop_ins(host: Host, folder: str) -> list[str]:
    """The drop-ins below a folder, sorted by name at each level; the drop-ins of a subfolder take the place of the subfolder."""
    folders = set(host.folders(folder))
    found = []
    for name in host.names(folder):
        path = f"{folder.rstrip('/')}/{name}"
        if name in folders:
            found += drop_ins(host, path)
        elif name.endswith(".conf"):
            found.append(path)
    return found


def add(host: Host, path: str, found: list[Layer], problems: list[str], *, drop_in: bool = False) -> None:
    """Add the data of a configuration file to ``found``, or its faults to ``problems``."""
    text = host.read(path)
    if text is None:
        problems.append(f"{path}: cannot be read: {why_none(host, path)}")
        return
    try:
        data = load(text, path)
    except CorralError as error:
        problems.append(str(error))
        return
    if not isinstance(data, dict):
        problems.append(f"{path}: {'is empty' if data is None else 'has no keys'}: the kubelet refuses it")
        return
    unfit = config_shape.unfit(data)
    if unfit:
        problems += [f"{path}: {line}: the kubelet refuses it" for line in unfit]
        return
    if (data.get("apiVersion"), data.get("kind")) != (API_VERSION, KIND):
        problems.append(f"{path}: has no apiVersion: {API_VERSION} and kind: {KIND}: the kubelet refuses it")
    found.append(Layer(path, data, drop_in))


def why_none(host: Host, path: str) -> str:
    """Why there is no file at a path: nothing is there, or a folder is."""
    return os.strerror(errno.EISDIR if host.is_dir(path) else errno.ENOENT)


def load(text: str, path: str) -> t.Any:
    """The data of a text in JSON or YAML, with the types of JSON. Raises CorralError."""
    try:
        return config_shape.plain(json.loads(text))
    except (ValueError, RecursionError):
        pass
    try:
        yaml = imported_yaml()
    except ImportError:
        raise refusal("is not JSON, and PyYAML is not installed here: install python3-yaml", path=path) from None
    try:
        return config_shape.plain(yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, ValueError, AttributeError, LookupError) as error:
        from ...model.values import yaml_error  # Only an error needs this module.

        raise refusal(yaml_error.line(error), path=path) from None


def imported_yaml() -> t.Any:
    """The module of PyYAML. The agent's Python runs without folders of packages (-S), so they are added here. Raises ImportError."""
    try:
        import yaml
    except ImportError:
        import site

        sys.path += [folder for folder in site.getsitepackages() if folder not in sys.path]
        import yaml
    return yaml


def logged(host: Host) -> list[Container]:
    """The containers that have a log: running containers, and ended containers that are still kept."""
    return [one for one in (named_by_log(name) for name in host.names(LOGS)) if one is not None]


def containers(host: Host) -> list[Container]:
    """The containers of pods that have a control group now, with their CPUs, and with the pod's and container's names if a log exists."""
    base = cgroup.ROOT if cgroup.unified(host) else cgroup.CPUSETS
    named = {one.id: one for one in logged(host)}
    found = []
    for top in host.folders(base):
        if not top.startswith(("kubepods", "kubelet")):
            continue
        for path in (f"{base}/{top}", *cgroup.inner(host, f"{base}/{top}")):
            one = container_of(path[len(base) + 1 :])
            if one is not None:
                cpus = cgroup.cpu_list(host.read(f"{path}/cpuset.cpus.effective" if base == cgroup.ROOT else f"{path}/cpuset.cpus"))  # fmt: skip
                log = named.get(one.id)
                names = {"pod_name": log.pod_name, "name": log.name} if log else {}
                found.append(one._replace(cpus=effective(host, path) if cpus is None else cpus, path=path, **names))
    return found


def effective(host: Host, path: str) -> frozenset[int]:
    """The CPUs of a control group without a cpuset of its own."""
    return cgroup.cpus_at(host, path).effective or frozenset()


def used_beside_pods(host: Host) -> list[Use]:
    """The memory and tasks that each top-level control group without pods uses; a group that uses neither is left out.

    Memory is the kubelet's working set: all memory without the cache of files that were not used lately.
    """
    found = []
    base, files_of = cgroup.units(host), COUNTERS_V2 if cgroup.unified(host) else COUNTERS_V1
    for top in host.folders(base):
        if any(PODS in name for name in (top, *host.folders(f"{base}/{top}"))):
            continue
        stat, *texts = (host.read(f"{cgroup.ROOT}/{file.format(top)}") or "" for file in files_of)
        memory, tasks = (int(text) if text.strip().isdigit() else 0 for text in texts)
        cache = INACTIVE.findall(stat)  # In v1 the last number is the total, with the groups below.
        if memory or tasks:
            found.append(Use(top, max(memory - int(cache[-1] if cache else 0), 0), tasks))
    return found


def pod_folders(host: Host, root_dir: str) -> frozenset[str]:
    """The UIDs of the pods for which the kubelet has a folder."""
    return frozenset(host.folders(f"{root_dir}/pods"))


def others_on(host: Host, cpus: frozenset[int]) -> list[tuple[str, frozenset[int], tuple[str, ...]]]:
    """The top-level control groups, except those of pods, with processes that may use some of ``cpus``: name, CPUs, some processes (v2)."""
    if not cgroup.unified(host):
        return []
    found = []
    for top in host.folders(cgroup.ROOT):
        if top.startswith(("kubepods", "kubelet")):
            continue
        own = cgroup.cpus_at(host, f"{cgroup.ROOT}/{top}").effective or frozenset()
        shown = cgroup.processes_shown(host, f"{cgroup.ROOT}/{top}") if own & cpus else ()
        if shown:
            found.append((top, own & cpus, shown))
    return found
