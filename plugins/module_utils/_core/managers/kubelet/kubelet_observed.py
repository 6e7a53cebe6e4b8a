# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A node's kubelet as the kubelet manager observes it: its process, its files, its flags, its version, what it is to fit."""

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
# The program has 80 MB, which a node that has just booted, or is busy, reads from its disk.
VERSION_SECONDS = 60.0


class Kept(NamedTuple):
    """The file of others in which Corral changed keys ("": none), and the lines that each key had (None: it was not there)."""

    file: str = ""
    lines: t.Mapping[str, t.Optional[str]] = {}


class ObservedKubelet(NamedTuple):
    """``missing`` says why there is no kubelet to configure; then the rest is empty but for the file in ``kept``.

    ``layers`` are the files in the kubelet's order with their ``texts``, ``wrong`` what is wrong with them; ``flags`` are those of the
    process, or of the unit. ``links`` are those of the files that are links. ``due``: an earlier run was ended while it changed the
    kubelet. ``drained``: see node_hooks.drained_by().
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
        """The file that Corral writes: a drop-in where the kubelet reads any, else its --config."""
        return self.dropin or self.places.config

    @property
    def dropin(self) -> str:
        """The path of Corral's drop-in; "" where the kubelet reads none."""
        return f"{self.places.config_dir.rstrip('/')}/{DROPIN}" if self.places.config_dir else ""


def observe(host: Host, context: Context, *, pools_stay: bool = False) -> ObservedKubelet:
    """Look at the kubelet. A tick looks in the control group of its unit alone, and starts no process.

    ``pools_stay``: what is planned is not the whole profile, and leaves hugepages as they are.
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
    # What is wrong with Corral's own file is mended.
    wrong = [line for line in wrong if not own or not line.startswith(f"{own}: ")]
    return found._replace(
        layers=tuple(layer for layer in layers if layer.origin != own or is_ours(layer)),
        texts=texts,
        wrong=(*wrong, *unread),
        flags=tuple(flags),
        modes={path: host.mode(path) or 0o644 for path, text in texts.items() if text is not None},
        links=[path for path in texts if host.link(path) is not None],
        kept=earlier,
        due=context.run != "boot" and host.exists(DUE),  # A boot starts it after this.
        drained=node_hooks.drained_by(host),
        machine=machine(host, context, pools_stay=pools_stay),
    )


def without_kubelet(host: Host, missing: str) -> ObservedKubelet:
    """The observation without a kubelet to configure: the file of others that Corral changed for an earlier kubelet."""
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
    """The context of a node of which no profile declares anything."""
    none = cpuset.EMPTY
    pools = Pools(topology.online, none, topology.online, none, {}, (), strict=False)
    return Context(profile.parse({"name": "none"}), topology, pools, host.now())


def kept(host: Host) -> Kept:
    """What Corral keeps of a file of others; nothing where it changed none."""
    data = state.checked(host, KEPT)
    return Kept(data["file"], data["lines"]) if isinstance(data, dict) and {"file", "lines"} <= data.keys() else Kept()


def version_of(host: Host, process: t.Optional[Process]) -> tuple[t.Optional[tuple[int, int]], str]:
    """The version of the installed kubelet, or why it is not known."""
    # The first word of a process is not always its program: that of a script is its interpreter.
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
    """What the configuration is to fit on this node, once the rest of the profile is applied."""
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
    """The machine with those control groups that it lacks of the ones which these configurations name."""
    named = frozenset[str]().union(*map(kubelet_rules.groups_of, configs))
    return machine._replace(absent_groups=frozenset(path for path in named if not has_group(host, path)))


def has_group(host: Host, path: str) -> bool:
    """Whether a control group is there, or is a slice that a unit file makes once something runs in it."""
    name = path.rpartition("/")[2]
    if host.is_dir(f"{cgroup.units(host)}{path}"):
        return True
    in_slice = systemd.unit_settings(host, kubelet_unit.UNIT, "Slice")
    return name.endswith(".slice") and (
        systemd.UnitFiles(host, [name]).fragment(name) is not None or any(one.value == name for one in in_slice[-1:])
    )


def asked_for(host: Host, context: Context) -> list[Hugepages]:
    """The declared pools, without those that stay as the kernel last gave them."""
    counted = hugepage_requests.are_counted(host, context)
    found = []
    for pages in context.profile.memory.hugepages:
        now = hugepage_files.pool(host, pages.size_kib, pages.node)
        if now == pages.pages or hugepage_requests.is_asked_for(context, pages, now, counted=counted):
            found.append(pages)
    return found


def no_longer_declared(host: Host, context: Context) -> list[Hugepages]:
    """The pools that Corral has changed and that go back to what they were, since this profile has no such pool."""
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
    """Bytes of each NUMA node by kind, as the kubelet will count them: with these pools of hugepages.

    A pool of the whole machine is counted as the kernel spreads it.
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
