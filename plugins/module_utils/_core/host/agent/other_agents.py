# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Other agents that manage CPUs and limits: which agents run, and what their files set. Only files are read; no command is run."""

from __future__ import annotations

import re
import typing as t

from ...model.status.conflicts import Given, Irqbalance, KubeletCpuManager, Tuned
from .. import cgroup, kernel_text, systemd
from ..files import Host
from ..pids import sysctl

TUNED_ACTIVE = "/etc/tuned/active_profile"
TUNED_FOLDERS = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
TUNED_INCLUDES = 8  # the most levels of include=: two profiles may include each other
IRQBALANCE_FILES = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")
IRQBALANCE_VARIABLE = re.compile(r"IRQBALANCE_BANNED_(CPULIST|CPUS)=[\"']?([0-9a-fA-F,x-]+)")


# tuned


def tuned(host: Host) -> t.Optional[Tuned]:
    """The running tuned with its settings. A profile overrides earlier profiles and the profiles in its include=."""
    if not cgroup.service_runs(host, "tuned.service"):
        return None
    names = (host.read(TUNED_ACTIVE) or "").split()
    sections: dict[str, dict[str, Given]] = {}
    for name in names:
        read_profile(host, name, sections, TUNED_INCLUDES)
    variables = sections.get("variables", {})
    if "include" in variables:
        file = variables["include"].value
        read_ini(host, file, sections, "variables")
    isolated = variables.get("isolated_cores")
    return Tuned(" ".join(names) or "none", sections.get("sysctl", {}), isolated)


def read_profile(host: Host, name: str, sections: dict[str, dict[str, Given]], depth: int) -> None:
    """Read a tuned profile into ``sections``, after the profiles that it includes."""
    files = (f"{folder}/{name}/tuned.conf" for folder in TUNED_FOLDERS)
    file = next((file for file in files if host.exists(file)), None) if "/" not in name else None
    if file is None or not depth:
        return
    own: dict[str, dict[str, Given]] = {}
    read_ini(host, file, own)
    for included in re.split(r"[,;\s]+", own.get("main", {}).get("include", Given(file, "")).value):
        if included:
            read_profile(host, included, sections, depth - 1)
    for section, values in own.items():
        sections.setdefault(section, {}).update(values)


def read_ini(host: Host, file: str, into: dict[str, dict[str, Given]], section: str = "") -> None:
    """Read the assignments of an INI file into ``into``, by section. Assignments before the first header belong to ``section``."""
    for line in (host.read(file) or "").splitlines():
        text = line.strip()
        if text.startswith("[") and text.endswith("]"):
            section = text[1:-1].strip()
        elif text and not text.startswith(("#", ";")):
            key, equals, value = text.partition("=")
            if equals:
                into.setdefault(section, {})[key.strip()] = Given(file, value.strip())


# kubelet


def kubelet(host: Host) -> t.Optional[KubeletCpuManager]:
    """The running kubelet's CPU manager (see configured_kubelet())."""
    return configured_kubelet(host) if cgroup.service_runs(host, "kubelet.service") else None


def configured_kubelet(host: Host) -> KubeletCpuManager:
    """The CPU manager of the kubelet that kubelet.service runs or would run, by its files and flags."""
    from ...model.kubelet import config_values, kubelet_config  # Only nodes with a kubelet need these modules.
    from ..kubelet import kubelet_node

    running = kubelet_node.of_unit(host)
    places = kubelet_node.files(host, running)
    layers, wrong = kubelet_node.layers(host, places)
    flags, unread = kubelet_config.flag_layers(places.flags)
    if wrong or unread:
        return KubeletCpuManager(places.config, "", frozenset(), unread="; ".join((*wrong, *unread)))
    config = kubelet_config.effective(layers, flags)
    reserved = cgroup.cpu_list(str(config.get("reservedSystemCPUs") or "")) or frozenset()
    strict = config_values.is_on(config.get("cpuManagerPolicyOptions", "strict-cpu-reservation"))
    file = config.origins.get(("reservedSystemCPUs",), places.config)
    newer = tuple(kubelet_node.newer_files(host, running, places, layers))
    return KubeletCpuManager(file, str(config.get("cpuManagerPolicy") or ""), reserved, strict, newer=newer)


# irqbalance, numad, sysctl


def irqbalance(host: Host) -> t.Optional[Irqbalance]:
    """The running irqbalance with its banned CPUs, from its settings, or else from the CPUs that the kernel isolates."""
    if not cgroup.service_runs(host, "irqbalance.service"):
        return None
    here = next((file for file in IRQBALANCE_FILES if host.exists(file)), IRQBALANCE_FILES[0])
    settings = systemd.unit_settings(host, "irqbalance.service", "Environment")
    texts = [host.read(here) or "", *(item.value.strip("\"'") for item in settings)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    banned: t.Optional[frozenset[int]] = None
    for line in lines:
        match = IRQBALANCE_VARIABLE.match(line)
        if match:
            kind, value = match.groups()
            cpus_found = cgroup.cpu_list(value) if kind == "CPULIST" else kernel_text.cpu_mask(value.replace("0x", ""))
            banned = cpus_found or frozenset()  # "-" is an empty list
    if banned is None:
        kernel = (cgroup.cpu_list(host.read(f"/sys/devices/system/cpu/{name}")) for name in ("isolated", "nohz_full"))
        banned = frozenset[int]().union(*(cpus or () for cpus in kernel))
    return Irqbalance(banned, here)


def numad(host: Host) -> bool:
    """Whether numad runs."""
    return cgroup.service_runs(host, "numad.service")


def hugepages_at_boot(host: Host) -> t.Optional[Given]:
    """The sysctl.d file that sets vm.nr_hugepages at boot, with the value; None without such a file."""
    key = "vm.nr_hugepages"
    entry = sysctl.entries(host, (key,), sysctl.files_in_order(host)).get(key)
    return Given(entry.file, entry.value) if entry else None
