# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A node's kubelet as observed: its process, files, flags and version, and the machine that the configuration has to fit."""

from __future__ import annotations

import typing as t

from ...host import cgroup, state, systemd
from ...host.agent import node_hooks
from ...host.files import Host
from ...host.kubelet import kubelet_node, kubelet_state, kubelet_unit
from ...host.kubelet.kubelet_node import KubeletFiles, Process
from ...host.memory import hugepage_files, hugepage_requests
from ...host.pids import sysctl
from ...model.cpu.pools import Pools
from ...model.kubelet import kubelet_config, kubelet_options, kubelet_rules
from ...model.kubelet.kubelet_config import API_VERSION, KIND, Layer
from ...model.kubelet.kubelet_wanted import MEMORY, Machine
from ...model.pids.task_budget import PID_MAX, THREADS_MAX, capacity
from ...model.plan.context import Context
from ...model.profile import profile
from ...model.profile.profile_memory import Hugepages
from ...model.topology import numa_names
from ...model.topology.topology import Topology
from ...model.values import cpuset
from ...model.values.errors import CorralError
from ...model.values.records import NamedTuple
from ...model.values.sizes import page_text
from .kubelet_places import DROPIN, DUE, KEPT

PROGRAMS = ("/usr/bin/kubelet", "/usr/local/bin/kubelet", "/opt/bin/kubelet")
# The program has 80 MB, which the kernel may have to read from the disk: after a boot, or on a busy node.
VERSION_SECONDS = 60.0


class Kept(NamedTuple):
    """The file of others in which Corral changed keys ("": no file), and each key's original lines (None: the file had no such key)."""

    file: str = ""
    lines: t.Mapping[str, t.Optional[str]] = {}


class ObservedKubelet(NamedTuple):
    """``missing``: why the node has no kubelet to configure; then the other fields are empty, except for the file in ``kept``.

    ``layers``: the files in the order in which the kubelet reads them. ``texts``, ``modes``: of the files, by path. ``links``: the paths
    that are links. ``wrong``: faults of files and flags. ``flags``: the flags of the process, else of the unit. ``due``: whether an earlier
    run died while it changed the kubelet. ``drained``: see node_hooks.drained_by().
    """

    missing: str = ""
    process: t.Optional[Process] = None
    places: KubeletFiles = KubeletFiles("", "", "", {})
    layers: tuple[Layer, ...] = ()
    texts: t.Mapping[str, t.Optional[str]] = {}
    wrong: tuple[str, ...] = ()
    flags: tuple[Layer, ...] = ()
    modes: t.Mapping[str, int] = {}
    links: t.Container[str] = ()
    version_error: str = ""
    kept: Kept = Kept()
    due: bool = False
    drained: tuple[str, str] = ("", "")
    machine: Machine = Machine(None, cpuset.EMPTY)

    @property
    def own(self) -> str:
        """The file that Corral writes: Corral's drop-in if the kubelet has --config-dir, else the file of --config."""
        return self.dropin or self.places.config

    @property
    def dropin(self) -> str:
        """The path of Corral's drop-in; an empty string if the kubelet has no --config-dir."""
        return f"{self.places.config_dir.rstrip('/')}/{DROPIN}" if self.places.config_dir else ""


def observe(host: Host, context: Context, *, pools_stay: bool = False) -> ObservedKubelet:
    """The kubelet as observed. A tick looks for the process only in the control group of the kubelet's unit, and starts no program.

    ``pools_stay``: the plan leaves pools of hugepages as they are.
    """
    try:
        process = kubelet_node.of_unit(host) if context.in_tick else kubelet_node.process(host)
    except CorralError as error:
        return without_kubelet(host, str(error))
    places = kubelet_node.files(host, process)
    if process is None and not kubelet_unit.command(host) and not host.exists(places.config):
        return without_kubelet(
            host, f"this node has no kubelet: there is no {kubelet_unit.UNIT} and no {places.config}, install it first"
        )
    layers, wrong = kubelet_node.layers(host, places)
    flags, unread = kubelet_config.flag_layers(places.flags)
    found = ObservedKubelet("", process, places)
    own = found.dropin
    earlier = kept(host)
    paths = {*(layer.origin for layer in layers), *(path for path in (own, earlier.file) if path)}
    texts = {path: host.read(path) for path in sorted(paths)}
    # Faults of Corral's own drop-in do not count: the plan replaces the drop-in.
    wrong = [line for line in wrong if not own or not line.startswith(f"{own}: ")]
    return found._replace(
        layers=tuple(layer for layer in layers if layer.origin != own or is_ours(layer)),
        texts=texts,
        wrong=(*wrong, *unread),
        flags=tuple(flags),
        modes={path: host.mode(path) or 0o644 for path, text in texts.items() if text is not None},
        links=[path for path in texts if host.link(path) is not None],
        kept=earlier,
        due=context.run != "boot" and host.exists(DUE),  # At boot the kubelet starts after this run.
        drained=node_hooks.drained_by(host),
        machine=machine(host, context, pools_stay=pools_stay),
    )


def without_kubelet(host: Host, missing: str) -> ObservedKubelet:
    """The observation of a node without a kubelet to configure: only the file of others that Corral changed for an earlier kubelet."""
    earlier = kept(host)
    text = host.read(earlier.file) if earlier.file else None
    modes = {} if text is None else {earlier.file: host.mode(earlier.file) or 0o644}
    return ObservedKubelet(missing, texts={earlier.file: text}, modes=modes, kept=earlier)


def is_ours(layer: Layer) -> bool:
    """Whether the kubelet takes Corral's drop-in as a configuration."""
    return (layer.data.get("apiVersion"), layer.data.get("kind")) == (API_VERSION, KIND)


def with_version(host: Host, seen: ObservedKubelet) -> ObservedKubelet:
    """The observation with the version of the installed kubelet."""
    version, error = version_of(host, seen.process)
    return seen._replace(version_error=error, machine=seen.machine._replace(version=version))


def without_profile(host: Host, topology: Topology) -> Context:
    """The context for a profile that declares nothing."""
    none = cpuset.EMPTY
    pools = Pools(topology.online, none, topology.online, none, {}, (), strict=False)
    return Context(profile.parse({"name": "none"}), topology, pools, host.now())


def kept(host: Host) -> Kept:
    """The original lines that Corral keeps of a file of others; empty if Corral changed no such file."""
    data = state.checked(host, KEPT)
    return Kept(data["file"], data["lines"]) if isinstance(data, dict) and {"file", "lines"} <= data.keys() else Kept()


def version_of(host: Host, process: t.Optional[Process]) -> tuple[t.Optional[tuple[int, int]], str]:
    """The version of the installed kubelet, and why the version is not known."""
    # The first word of a process is not always its program: a script's first word is the interpreter.
    named = [
        *kubelet_unit.command(host)[:1],
        process.program if process else "",
        *(path for path in PROGRAMS if host.exists(path)),
    ]
    program = next((path for path in named if path.startswith("/")), "kubelet")
    answer = host.run(program, "--version", timeout=VERSION_SECONDS)
    found = kubelet_options.version(answer.out) if not answer.code else None
    said = " ".join((answer.err or answer.out).split())[:200]
    return found, "" if found else f"{program} --version: {said or 'no version'}"


def machine(host: Host, context: Context, *, pools_stay: bool = False) -> Machine:
    """The machine that the configuration has to fit, in the state after the rest of the profile is applied."""
    topology, pids = context.topology, context.profile.pids
    pools = context.declared_pools or context.pools
    limits = capacity(pids, {key: sysctl.live(host, key) for key in (PID_MAX, THREADS_MAX)})
    return Machine(
        None,
        topology.online,
        pools.reserved if context.profile.cpu is not None else None,
        pools.isolated,
        topology.isolated or cpuset.EMPTY,
        max(len(topology.sockets), 1),
        numa(topology, [*(() if pools_stay else no_longer_declared(host, context)), *asked_for(host, context)]),
        (topology.machine_memory_kib or 0) << 10,
        limits,
        len((host.read("/proc/swaps") or "").splitlines()) > 1,
        context.pools.exclusive,
        frozenset(numa_names.nodes_with_cpus(topology)),
    )


def with_groups(host: Host, machine: Machine, *configs: kubelet_config.Config) -> Machine:
    """The machine with ``absent_groups``: the control groups that ``configs`` name and that do not exist on the node."""
    named = frozenset[str]().union(*map(kubelet_rules.groups_of, configs))
    return machine._replace(absent_groups=frozenset(path for path in named if not has_group(host, path)))


def has_group(host: Host, path: str) -> bool:
    """Whether a control group exists, or systemd makes it when needed: a slice with a unit file, or Slice= of the kubelet's unit."""
    name = path.rpartition("/")[2]
    if host.is_dir(f"{cgroup.units(host)}{path}"):
        return True
    in_slice = systemd.unit_settings(host, kubelet_unit.UNIT, "Slice")
    return name.endswith(".slice") and (
        systemd.UnitFiles(host, [name]).fragment(name) is not None or any(one.value == name for one in in_slice[-1:])
    )


def asked_for(host: Host, context: Context) -> list[Hugepages]:
    """The declared pools that have the right size, or that this run requests from the kernel. The other pools stay as they are."""
    counted = hugepage_requests.are_counted(host, context)
    found = []
    for pages in context.profile.memory.hugepages:
        now = hugepage_files.pool(host, pages.size_kib, pages.node)
        if now == pages.pages or hugepage_requests.is_asked_for(context, pages, now, counted=counted):
            found.append(pages)
    return found


def no_longer_declared(host: Host, context: Context) -> list[Hugepages]:
    """The pools that Corral changed and this profile does not declare, each with the original number of pages that this plan restores."""
    declared = context.profile.memory.hugepages
    kept = {(pool.size_kib, pool.node) for pool in declared}
    befores = (record.before for record in state.records(host)[0] if record.before.kind == "pool")
    found = []
    for before in befores:
        size, node = hugepage_files.pool_of(before.target) or (0, None)
        if size and not kept & {(size, node), (size, None)} and (before.value or "").isdecimal():
            found.append(Hugepages(size, int(before.value or 0), node))
    return found


def numa(topology: Topology, hugepages: t.Sequence[Hugepages]) -> dict[int, dict[str, int]]:
    """Bytes of each NUMA node by kind, as the kubelet will count the bytes with these pools of hugepages.

    The pages of a pool of the whole machine are divided among the NUMA nodes as the kernel does.
    """
    found = kubelet_state.totals(topology)
    nodes = [node for node in sorted(found) if found[node].get(MEMORY)]
    for pool in hugepages:
        kind = f"hugepages-{page_text(pool.size_kib)}"
        size = pool.size_kib << 10
        if pool.node is not None:
            found.setdefault(pool.node, {})[kind] = pool.pages * size
            continue
        for index, node in enumerate(nodes):
            found[node][kind] = (pool.pages // len(nodes) + (index < pool.pages % len(nodes))) * size
    return found
