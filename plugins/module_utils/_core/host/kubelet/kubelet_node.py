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
# A program that holds a kubelet within itself, and has configuration of another form.
EMBEDDED = {"k3s": "k3s", "k3s-server": "k3s", "k3s-agent": "k3s", "rke2": "RKE2", "kubelite": "MicroK8s", "microshift": "MicroShift"}  # fmt: skip
PODS = "kubepods"  # in the name of their control group, whatever it is below
INACTIVE = re.compile(r"^(?:total_)?inactive_file ([0-9]+)$", re.MULTILINE)
# The files that count the memory and the tasks of a top-level control group; the first one has its parts.
COUNTERS_V2 = ("{}/memory.stat", "{}/memory.current", "{}/pids.current")
COUNTERS_V1 = ("memory/{}/memory.stat", "memory/{}/memory.usage_in_bytes", "pids/{}/pids.current")
# What the address of a runtime has, its unit, and its program.
RUNTIMES = (
    ("crio", "crio.service", "crio"),
    ("dockerd", "cri-docker.service", "cri-dockerd"),
    ("containerd", "containerd.service", "containerd"),
)
SLACK = 1.0  # The beginning of a process is known to hundredths of a second, of a machine whose clock may be set.
ENDPOINT = "unix:///run/containerd/containerd.sock"  # the kubelet's default
TICKS = 100  # of a second, in /proc/PID/stat: USER_HZ is the same on every architecture of Linux (proc(5))


class Process(NamedTuple):
    """A running kubelet: its process, when it began (epoch seconds, None: not known), its arguments, and its program."""

    pid: int
    began: t.Optional[float]
    arguments: tuple[str, ...]
    program: str = ""
    by_unit: bool = False  # whether it is in the control group of kubelet.service


class KubeletFiles(NamedTuple):
    """Where a kubelet keeps what: --root-dir, --config ("" for none), --config-dir ("" for none), and its flags by name."""

    root_dir: str
    config: str
    config_dir: str
    flags: t.Mapping[str, str]


def process(host: Host) -> t.Optional[Process]:
    """The node's kubelet, with or without a unit; None where none runs.

    A process of a user or in a container does not count, whatever its name is. Raises CorralError for a kubelet within
    another program.
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
        return of_unit(host) or described(host, pid)  # It may have begun since the unit was looked at.
    return None


def of_unit(host: Host) -> t.Optional[Process]:
    """The kubelet that kubelet.service runs; None where it does not run."""
    pid = next(processes.named(host, cgroup.service_group(host, UNIT), NAME), None)
    return None if pid is None else described(host, pid)._replace(by_unit=True)


def described(host: Host, pid: str) -> Process:
    """A process by its id."""
    words = (host.read(f"/proc/{pid}/cmdline") or "").split("\0")
    return Process(int(pid), began(host, pid), tuple(word for word in words[1:] if word), words[0])


def began(host: Host, pid: str) -> t.Optional[float]:
    """When a process began, in epoch seconds. It is not asked for again: a process has one beginning."""
    text = host.unrecorded(lambda: host.read(f"/proc/{pid}/stat")) or ""
    fields = text.rpartition(")")[2].split()
    try:
        return host.now() - host.uptime() + int(fields[19]) / TICKS
    except (LookupError, ValueError):
        return None


def oom_scores(host: Host, running: t.Optional[Process], endpoint: str) -> dict[str, int]:
    """oom_score_adj of the kubelet that its unit runs and of its runtime, by unit; what does not run or cannot be read is left out."""
    pids = {UNIT: str(running.pid)} if running and running.by_unit else {}
    unit, program = next((row for word, *row in RUNTIMES if word in endpoint), ("", ""))
    runtime = next(processes.named(host, cgroup.service_group(host, unit), program), "") if unit else ""
    if runtime:  # Its shims have scores of their own.
        pids[unit] = runtime
    texts = {name: (host.read(f"/proc/{pid}/oom_score_adj") or "").strip() for name, pid in pids.items()}
    return {name: int(text) for name, text in texts.items() if text.lstrip("-").isdigit()}


def files(host: Host, running: t.Optional[Process]) -> KubeletFiles:
    """Where it keeps what by its flags; without a process by those of its unit, and without a unit where kubeadm puts it."""
    # While a process begins its command line is empty.
    words = running.arguments if running and running.program else kubelet_unit.command(host)[1:]
    flags = flags_of(words)
    root_dir = flags.get("root-dir") or ROOT_DIR
    config = flags.get("config", "") if running or words else f"{root_dir}/config.yaml"
    return KubeletFiles(root_dir, config, flags.get("config-dir", ""), flags)


def newer_files(host: Host, running: t.Optional[Process], places: KubeletFiles, layers: t.Iterable[Layer]) -> list[str]:
    """The files that were changed after the running kubelet began: it still uses what it read at its start.

    A drop-in that was removed or renamed shows in the time of its folder alone, which is named then. So does a file that the kubelet
    does not read: what it was cannot be seen any more.
    """
    if running is None or running.began is None:
        return []
    began = running.began + SLACK
    files = [layer.origin for layer in layers if (host.changed(layer.origin) or 0) > began]
    shown = {path.rpartition("/")[0] for path in files}
    folders = folders_of(host, places.config_dir.rstrip("/")) if places.config_dir else []
    return files + [path for path in folders if path not in shown and (host.changed(path) or 0) > began]


def folders_of(host: Host, folder: str) -> list[str]:
    """A folder of drop-ins, and those below it."""
    return [folder, *(path for name in host.folders(folder) for path in folders_of(host, f"{folder}/{name}"))]


def layers(host: Host, places: KubeletFiles) -> tuple[list[Layer], list[str]]:
    """The file and its drop-ins in the kubelet's order; what is wrong with those that cannot be read."""
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
    """The drop-ins below a folder: in the order of names at each level, those of a subfolder at its place."""
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
    """Add what a file of configuration has, or what is wrong with it."""
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
    """Why there is no file."""
    return os.strerror(errno.EISDIR if host.is_dir(path) else errno.ENOENT)


def load(text: str, path: str) -> t.Any:
    """YAML or JSON, as JSON has it. Raises CorralError."""
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
        from ...model.values import yaml_error  # Only a mistake needs it.

        raise refusal(yaml_error.line(error), path=path) from None


def imported_yaml() -> t.Any:
    """PyYAML. The agent's Python looks for no packages (-S), which are looked for here then. Raises ImportError."""
    try:
        import yaml
    except ImportError:
        import site

        sys.path += [folder for folder in site.getsitepackages() if folder not in sys.path]
        import yaml
    return yaml


def logged(host: Host) -> list[Container]:
    """The containers that have a log: those that run, and those that have ended and are still kept."""
    return [one for one in (named_by_log(name) for name in host.names(LOGS)) if one is not None]


def containers(host: Host) -> list[Container]:
    """The containers of pods that have a control group now, with their CPUs, and their names where logs tell them."""
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
    """What each top-level control group without pods uses; those that count nothing are left out.

    Memory is the kubelet's working set: all but the cache of files that were not used lately.
    """
    found = []
    base, files_of = cgroup.units(host), COUNTERS_V2 if cgroup.unified(host) else COUNTERS_V1
    for top in host.folders(base):
        if any(PODS in name for name in (top, *host.folders(f"{base}/{top}"))):
            continue
        stat, *texts = (host.read(f"{cgroup.ROOT}/{file.format(top)}") or "" for file in files_of)
        memory, tasks = (int(text) if text.strip().isdigit() else 0 for text in texts)
        cache = INACTIVE.findall(stat)  # With v1 the total, with the groups below, is the last one.
        if memory or tasks:
            found.append(Use(top, max(memory - int(cache[-1] if cache else 0), 0), tasks))
    return found


def pod_folders(host: Host, root_dir: str) -> frozenset[str]:
    """The UIDs of the pods that the kubelet keeps files of."""
    return frozenset(host.folders(f"{root_dir}/pods"))


def others_on(host: Host, cpus: frozenset[int]) -> list[tuple[str, frozenset[int], tuple[str, ...]]]:
    """Top-level control groups that are not of pods, run processes and may use these CPUs: name, CPUs, some processes (v2)."""
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
