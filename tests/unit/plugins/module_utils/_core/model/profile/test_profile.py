# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A profile by itself: what is read, what is refused, and in which words."""

from __future__ import annotations

import json
import typing as t

import pytest
from _core.model.cpu import cpu_options
from _core.model.cpu.cpu_options import Options
from _core.model.profile import profile, profile_memory, schema
from _core.model.profile.profile_gc import GC, ContainerGC, ImageGC
from _core.model.profile.profile_workloads import Workload
from _core.model.values import suggest
from _core.model.values.errors import CorralError
from hypothesis import given
from hypothesis import strategies as st

# The sections, in the order of the schema.
KEYS = "name, version, mode, cpu, memory, pids, topology, gc, workloads, tenants, devices, confirm, kubelet"
FULL = {
    "name": "edge-worker",
    "version": 1,
    "mode": "audit",
    "cpu": {
        "reserved": {"cpus": "1,0,32-33", "slices": ["system.slice", "init.scope", "mon\\x2ditoring.slice"]},
        "shared": {"slices": ["machine.slice", "batch.slice"]},
        "isolated": {"cores": 4, "near": "3B:00.0"},
        "whole_cores": True,
        "policy": "none",
        "options": {"strict-cpu-reservation": False},
    },
    "memory": {
        "reserved": {"1": "0.5Gi", 0: 1073741824},
        "hugepages": [{"size": "2048Ki", "count": 32, "node": "0"}, {"size": "2Mi", "count": 64, "node": 1}, {"size": "1Gi", "count": 0}],
        "mounts": [
            {"path": "/dev/hugepages-2Mi", "pagesize": "2Mi", "size": "64Mi", "min_size": "2Mi", "mode": "1770", "group": "hugetlb"},
            {"path": "/mnt/huge", "pagesize": "1Gi", "user": "qemu", "gid": 36},
        ],
    },
    "pids": {
        "pid_max": 65536, "threads_max": 32768, "reserved": 2048, "default_tasks_max": 4096,
        "slices": {"machine.slice": 16384, "corral.slice": 8192, "system.slice": 4096},
    },
}  # fmt: skip


def lines(data: object) -> list[str]:
    with pytest.raises(CorralError) as refused:
        profile.parse(data)
    assert refused.value.problems
    json.dumps(refused.value.problems)
    return [problem.line() for problem in refused.value.problems]


def test_a_full_profile_is_read_as_declared() -> None:
    assert profile.parse(FULL) == profile.Profile(
        name="edge-worker",
        version=1,
        mode="audit",
        cpu=profile.Cpu(
            reserved=profile.Reserved(frozenset({0, 1, 32, 33}), None, None, ("system.slice", "init.scope", "mon\\x2ditoring.slice")),
            isolated=profile.Isolated(None, 4, None, "0000:3b:00.0"),
            shared_slices=("machine.slice", "batch.slice"),
            whole_cores=True,
            policy="none",
            options=Options(strict_cpu_reservation=False),
        ),
        memory=profile_memory.Memory(
            reserved=(profile_memory.NodeMemory(0, 1 << 30), profile_memory.NodeMemory(1, 1 << 29)),
            hugepages=(profile_memory.Hugepages(2048, 32, 0), profile_memory.Hugepages(2048, 64, 1), profile_memory.Hugepages(1 << 20, 0, None)),
            mounts=(
                profile_memory.Mount("/dev/hugepages-2Mi", 2048, 64 << 20, 2 << 20, 0o1770, None, None, None, "hugetlb"),
                profile_memory.Mount("/mnt/huge", 1 << 20, None, None, 0o755, None, "qemu", 36, None),
            ),
        ),
        pids=profile.Pids(
            65536, 32768, 2048, 4096,
            (
                profile.SliceTasks("corral.slice", 8192),
                profile.SliceTasks("machine.slice", 16384),
                profile.SliceTasks("system.slice", 4096),
            ),
        ),
    )  # fmt: skip


def test_the_canonical_form_writes_defaults_out_and_is_read_back() -> None:
    read = profile.parse({"name": "x", "cpu": {"reserved": {"count": 2}, "isolated": None}, "gc": None})
    data = profile.to_data(read)
    assert data == {
        "name": "x",
        "version": 1,
        "mode": "enforce",
        "cpu": {
            "reserved": {"count": 2, "slices": ["system.slice", "user.slice", "init.scope"]},
            "shared": {"slices": ["machine.slice"], "min_cpus": 1},
            "whole_cores": False,
            "policy": "none",
            "partitions": "auto",
            "unmanaged": "report",
            "options": {**dict.fromkeys(cpu_options.NAMES, False), "strict-cpu-reservation": True},
        },
    }
    assert profile.parse(data) == read
    full = profile.parse(FULL)
    assert profile.parse(json.loads(json.dumps(profile.to_data(full)))) == full


def test_a_profile_may_say_nothing_about_cpus() -> None:
    read = profile.parse({"name": "x"})
    assert read.cpu is None
    assert read.memory == profile_memory.Memory((), (), ())
    assert not any(read.pids)


def cpu(**keys: object) -> dict[str, object]:
    return {"cpu": {"reserved": {"count": 1}, **keys}}


def reserved(**keys: object) -> dict[str, object]:
    return {"cpu": {"reserved": keys}}


def pool(**keys: object) -> dict[str, object]:
    return {"memory": {"hugepages": [keys]}}


def mount(**keys: object) -> dict[str, object]:
    return {"memory": {"mounts": [{"path": "/mnt/huge", "pagesize": "2Mi", **keys}]}}


def pids(**keys: object) -> dict[str, object]:
    return {"pids": keys}


def images(**keys: object) -> dict[str, object]:
    return {"gc": {"images": keys}}


def containers(**keys: object) -> dict[str, object]:
    return {"gc": {"containers": keys}}


def workloads(*matches: object) -> dict[str, object]:
    return {"workloads": [{"name": f"w{number}", "match": match} for number, match in enumerate(matches)]}


LENGTH = "is not a valid duration: use whole numbers with s, m, h or d, such as 90s, 15m, 1h30m or 2d"
COLLECTS_NOTHING = "gc: collects nothing: write images or containers (an empty mapping takes the defaults)"
SLICE = "name a top-level slice such as system.slice, or init.scope"
PATH = "write an absolute path such as /dev/hugepages-2Mi"
QUANTITY = "is not a quantity as Kubernetes writes it"
REFUSED: list[tuple[dict[t.Any, t.Any], str]] = [
    # Unknown keys, and keys of managers to come.
    ({"cpu": {"reservd": {"count": 1}}}, "cpu.reservd: unknown key: did you mean cpu.reserved?"),
    (pool(size="2Mi", count=1, nod=0), "memory.hugepages[0].nod: unknown key: did you mean memory.hugepages[0].node?"),
    (mount(Min_Size="2Mi"), "memory.mounts[0].Min_Size: unknown key: did you mean memory.mounts[0].min_size?"),
    ({"hugepages": []}, "hugepages: unknown key: did you mean memory.hugepages?"),
    (cpu(reservedSystemCPUs="0"), "cpu.reservedSystemCPUs: unknown key: did you mean cpu.reserved.cpus?"),
    ({"swap": 1}, f"swap: unknown key: write one of {KEYS}"),
    ({"corral_profile": {"name": "x"}},
     "corral_profile: is a variable of Ansible: give its value as the profile, or the whole file with -e @FILE"),
    (reserved(slices=["system.slice"]), "cpu.reserved: declares slices alone: write exactly one of cpus, count, cores_per_numa"),
    ({"a\nb": 1}, f'["a\\nb"]: unknown key: write one of {KEYS}'),
    ({True: 1},
     ("True: unknown key, not text (YAML reads on, yes and true as true): "
      f"write one of {KEYS}")),
    ({"irq": {}}, "irq: not in this version of Corral: leave the key out"),
    ({"irq": []}, "irq: not in this version of Corral: leave the key out"),
    ({"kubelet": {"maxPods": 5}}, "kubelet.maxPods: unknown key: did you mean kubelet.max_pods?"),
    ({"irq": "off"}, "irq: not in this version of Corral: leave the key out"),
    ({"boot": {"isolcpus": "1"}}, "boot: not in this version of Corral: leave the key out"),
    # Words and names.
    ({"mode": "enforced"}, "mode: enforced: is not known: write enforce or audit"),
    ({"mode": True}, "mode: true: YAML reads this word as true or false: write text, such as enforce, in quotes"),
    ({"name": "a/b"}, "name: a/b: is not a DNS label: write 1 to 63 lower-case letters, digits and inner dashes, such as edge-worker"),
    ({"name": 7}, "name: 7: is a number, not text: write it as in edge-worker"),
    ({"name": None}, "name: is missing: write it as in name: edge-worker"),
    # CPUs.
    ({"cpu": {}}, "cpu.reserved: is missing: write one of its keys, cpus, count, cores_per_numa, slices"),
    (reserved(), "cpu.reserved: declares nothing: write exactly one of cpus, count, cores_per_numa"),
    (reserved(cpus="0", count=1), "cpu.reserved: declares cpus and count together: write exactly one of cpus, count, cores_per_numa"),
    (reserved(cpus=[0, 1]), "cpu.reserved.cpus: a list of 2: is a list: write the CPUs as one text, such as 0-3,8"),
    (reserved(cpus="0-99999999"), "cpu.reserved.cpus: 0-99999999: '0-99999999': the list is wider than 1048576 CPUs; name CPUs that exist"),
    (reserved(cpus="999999"), "cpu.reserved.cpus: 999999: names CPU 999999, no Linux has that many: name CPUs of the node, such as 0-3,8"),
    (reserved(cpus=" "), "cpu.reserved.cpus:  : names no CPU: write a CPU list such as 0-3,8, or leave the key out"),
    (reserved(cpus=-1), "cpu.reserved.cpus: -1: is not a CPU number: write a CPU list such as 0-3,8"),
    (reserved(cpus=0.1), "cpu.reserved.cpus: 0.1: is a number with a decimal point, not text: write it as in 0-3,8"),
    (reserved(count=True), "cpu.reserved.count: true: YAML reads this word as true or false: write a whole number from 1 to 65536"),
    (reserved(count="4"), "cpu.reserved.count: 4: is text: write 4 without quotes"),
    (reserved(count="four"), "cpu.reserved.count: four: is text: write a whole number from 1 to 65536"),
    (reserved(count=0), "cpu.reserved.count: 0: is too small: write a whole number from 1 to 65536"),
    (reserved(count=2.0), "cpu.reserved.count: 2.0: has a decimal point: write a whole number from 1 to 65536"),
    (reserved(count=10**5000), "cpu.reserved.count: a number of 16610 bits: is too large: write a whole number from 1 to 65536"),
    (cpu(isolated={}), "cpu.isolated: declares nothing: write exactly one of cpus, cores"),
    (cpu(isolated={"cpus": "3", "numa": 1}), "cpu.isolated.numa: 1: literal cpus have their place already: leave it out, or write cores"),
    (cpu(isolated={"cores": 1, "numa": 1, "near": "eth0"}), "cpu.isolated: declares numa and near together: write one of them"),
    (cpu(isolated={"cores": 1, "near": "a b"}),
     "cpu.isolated.near: a b: is neither a network interface nor a PCI address: write one such as ens1f0 or 0000:3b:00.0"),
    (cpu(isolated={"cores": 1, "near": ".."}),
     "cpu.isolated.near: ..: is neither a network interface nor a PCI address: write one such as ens1f0 or 0000:3b:00.0"),
    ({"cpu": {"reserved": {"cpus": "0-3"}, "isolated": {"cpus": "2-5"}}},
     "cpu.isolated.cpus: 2-5: CPUs 2-3 are in cpu.reserved.cpus as well: name each CPU in one of them"),
    (cpu(whole_cores="yes"), "cpu.whole_cores: yes: is text: write true or false without quotes"),
    # Slices.
    (reserved(count=1, slices="system.slice"),
     "cpu.reserved.slices: system.slice: is text, not a list: write it as in slices: [system.slice, user.slice, init.scope, monitoring.slice]"),
    (reserved(count=1, slices=["a.slice", "a.slice"]), "cpu.reserved.slices[1]: a.slice: is in the list twice: leave one out"),
    (reserved(count=1, slices=["../x.slice"]), f"cpu.reserved.slices[0]: ../x.slice: is not the name of a slice: {SLICE}"),
    (reserved(count=1, slices=["x.slice\n"]), f"cpu.reserved.slices[0]: x.slice\\n: is not the name of a slice: {SLICE}"),
    (reserved(count=1, slices=["a-b.slice"]), f"cpu.reserved.slices[0]: a-b.slice: lies within a.slice, a dash nests slices: {SLICE}"),
    (reserved(count=1, slices=["-.slice"]), f"cpu.reserved.slices[0]: -.slice: is the root of all slices: {SLICE}"),
    (reserved(count=1, slices=["corral.slice"]), f"cpu.reserved.slices[0]: corral.slice: is Corral's own and placed by itself: {SLICE}"),
    (reserved(count=1, slices=["ssh.service"]),
     f"cpu.reserved.slices[0]: ssh.service: is not a slice; units inherit the CPUs of theirs: {SLICE}"),
    (cpu(shared={"slices": ["user.slice"]}),
     "cpu.shared.slices[0]: user.slice: is in cpu.reserved.slices as well: leave it out of one of them"),
    # Memory.
    ({"memory": {"reserved": {"0": "50%"}}}, "memory.reserved.0: 50%: a share in percent depends on the node: write a size such as 512Mi"),
    ({"memory": {"reserved": {"0": "512MB"}}}, f"memory.reserved.0: 512MB: {QUANTITY}: did you mean 512Mi?"),
    ({"memory": {"reserved": {"0": "plenty"}}}, f"memory.reserved.0: plenty: {QUANTITY}: write a size such as 512Mi or 1Gi"),
    ({"memory": {"reserved": {"0": "512m"}}},
     "memory.reserved.0: 512m: is not a whole number of bytes (m means thousandths; did you mean Mi?): write a size such as 512Mi"),
    ({"memory": {"reserved": {"0": "-1"}}}, "memory.reserved.0: -1: is not more than 0: write a size such as 512Mi, or leave the key out"),
    ({"memory": {"reserved": {"0": "1e40"}}}, "memory.reserved.0: 1e40: is more than any machine has: write a size up to 1Ei"),
    ({"memory": {"reserved": {"0": 1.5}}},
     "memory.reserved.0: 1.5: is a number with a decimal point: write a quantity as text, such as 1536Mi"),
    ({"memory": {"reserved": {"node0": "1Gi"}}}, 'memory.reserved.node0: the key is not the number of a NUMA node: write one such as "0"'),
    ({"memory": {"reserved": {"0": "1Gi", 0: "1Gi"}}},
     "memory.reserved.0: 1Gi: is declared twice, in two spellings: leave one out"),
    ({"memory": {"reserved": "1Gi"}},
     'memory.reserved: 1Gi: is text, not a mapping: write it as in reserved: {"0": 1Gi, "1": 512Mi}'),
    ({"memory": {"hugepages": [4]}},
     "memory.hugepages[0]: 4: is a number, not a mapping: write one or more of its keys, size, count, share, node, near, optional"),
    ({"memory": {"hugepages": {"2Mi": 4}}},
     "memory.hugepages: a mapping of 1: is a mapping, not a list: write items with size, count, share, node, near, optional"),
    ({"memory": {"hugepages": [{}] * 1025}}, "memory.hugepages: a list of 1025: has 1025 items: write at most 1024"),
    (pool(size=2097152, count=1), "memory.hugepages[0].size: 2097152: has no unit: write a page size such as 2Mi or 1Gi"),
    (pool(size="2M", count=1), "memory.hugepages[0].size: 2M: is not a hugepage size (a power of two): did you mean 2Mi?"),
    (pool(size="3Mi", count=1), "memory.hugepages[0].size: 3Mi: is not a hugepage size (a power of two): write one such as 2Mi or 1Gi"),
    (pool(size="2Mi", count=-1), "memory.hugepages[0].count: -1: is too small: write a whole number from 0 to 4294967296"),
    (pool(size="2Mi", count=1, node=4096), 'memory.hugepages[0].node: 4096: is not a NUMA node: write a number such as "0", or each, first or last'),
    ({"memory": {"hugepages": [{"size": "2Mi", "count": 1, "node": 0}, {"size": "2048Ki", "count": 2, "node": 0}]}},
     "memory.hugepages[1]: 2Mi: is declared for NUMA node 0 in memory.hugepages[0] already: write one count"),
    ({"memory": {"hugepages": [{"size": "2Mi", "count": 1, "node": 0}, {"size": "2Mi", "count": 2}]}},
     "memory.hugepages[1]: 2Mi: is declared for single NUMA nodes before: write node here too, or nowhere"),
    ({"memory": {"hugepages": [{"size": "2Mi", "count": 1}, {"size": "2Mi", "count": 2, "node": 0}]}},
     "memory.hugepages[1]: 2Mi: is declared for the whole machine in memory.hugepages[0]: write node in both, or in none"),
    (mount(path="huge"), f"memory.mounts[0].path: huge: is not absolute: {PATH}"),
    (mount(path="/dev/../etc"), f"memory.mounts[0].path: /dev/../etc: has an empty part, . or .. in it: {PATH}"),
    (mount(path="/mnt/huge/"), f"memory.mounts[0].path: /mnt/huge/: has an empty part, . or .. in it: {PATH}"),
    (mount(path="/mnt/a\nWhere=/etc"),
     f"memory.mounts[0].path: /mnt/a\\nWhere=/etc: has characters other than letters, digits and _ . : @ + - /: {PATH}"),
    (mount(path="/mnt/a\0b"), f"memory.mounts[0].path: /mnt/a\\x00b: has characters other than letters, digits and _ . : @ + - /: {PATH}"),
    (mount(path="/mnt/%n"), f"memory.mounts[0].path: /mnt/%n: has characters other than letters, digits and _ . : @ + - /: {PATH}"),
    (mount(path="/mnt/" + 70 * "-"),
     f"memory.mounts[0].path: /mnt/{70 * '-'}: is too long for the name of a mount unit: write a shorter path"),
    (mount(path="/"), f"memory.mounts[0].path: /: has an empty part, . or .. in it: {PATH}"),
    (mount(path="/usr"), f"memory.mounts[0].path: /usr: would hide a part of the system: {PATH}"),
    (mount(path="/etc/systemd/system"), f"memory.mounts[0].path: /etc/systemd/system: would hide a part of the system: {PATH}"),
    (mount(path="/sys/fs/cgroup"), f"memory.mounts[0].path: /sys/fs/cgroup: would hide a part of the system: {PATH}"),
    (mount(size="3Mi"), "memory.mounts[0].size: 3Mi: is not a whole number of pages: write a multiple of 2Mi"),
    (mount(size="2Mi", min_size="4Mi"), "memory.mounts[0].min_size: 4Mi: is more than the mount's size: write at most 2Mi"),
    (mount(mode=770), 'memory.mounts[0].mode: 770: YAML makes a number of unquoted digits: write it in quotes, such as "0770"'),
    (mount(mode=0o1770), 'memory.mounts[0].mode: 1016: YAML makes a number of unquoted digits: write it in quotes, such as "1770"'),
    (mount(mode="rwxr-x---"),
     'memory.mounts[0].mode: rwxr-x---: is not a mode of three octal digits (and the sticky bit): write it in quotes, such as "0770"'),
    (mount(uid=0, user="root"), "memory.mounts[0].uid: 0: is declared together with user: root: leave one of them out"),
    (mount(group="a,b"), "memory.mounts[0].group: a,b: is not the name of an account: write letters, digits, _ . @ and -, not a digit first, such as qemu"),
    ({"memory": {"mounts": [{"path": "/mnt/a", "pagesize": "2Mi"}, {"path": "/mnt/a", "pagesize": "1Gi"}]}},
     "memory.mounts[1].path: /mnt/a: is the path of memory.mounts[0] already: give each mount its own"),
    ({"memory": {"mounts": [{"path": "/mnt/a/b", "pagesize": "2Mi"}, {"path": "/mnt/a", "pagesize": "1Gi"}]}},
     "memory.mounts[1].path: /mnt/a: and the path of memory.mounts[0] (/mnt/a/b) lie within each other: mount them side by side"),
    # Processes.
    (pids(pid_max=100), "pids.pid_max: 100: is too small: write a whole number from 301 to 4194304"),
    (pids(pid_max=4194305), "pids.pid_max: 4194305: is too large: write a whole number from 301 to 4194304"),
    (pids(pid_max=1000, reserved=1000),
     "pids.reserved: 1000: leaves nothing of pids.pid_max (1000): keep less for housekeeping, or raise pids.pid_max"),
    (pids(pid_max=2000, threads_max=1000, reserved=500, slices={"machine.slice": 400, "corral.slice": 200}),
     ("pids.slices: 600: with 500 kept for housekeeping that is 100 more than pids.threads_max (1000): "
     "lower the slices' limits to 500 in all, or raise pids.threads_max")),
    (pids(pid_max=1000, reserved=100, slices={"system.slice": 700, "machine.slice": 400}),
     ("pids.slices: 400: with 700 kept for housekeeping that is 100 more than pids.pid_max (1000): "
     "lower the slices' limits to 300 in all, or raise pids.pid_max")),
    (pids(pid_max=1000, default_tasks_max=1000),
     "pids.default_tasks_max: 1000: one unit could take all of pids.pid_max: write less than 1000"),
    (pids(slices={"init.scope": 10}), 'pids.slices["init.scope"]: 10: a limit on PID 1\'s own scope can stop the whole node: leave it out'),
    (pids(slices={"batch.slice": 10}),
     ('pids.slices["batch.slice"]: 10: is not a slice of this profile\'s pools: name one of system.slice, user.slice, init.scope, '
     "machine.slice, corral.slice, or add it to cpu.shared.slices")),
    (pids(slices={"a/../b": 10}), f'pids.slices["a/../b"]: the key is not the name of a slice: {SLICE}'),
    # Garbage collection.
    ({"gc": {}}, COLLECTS_NOTHING),
    ({"gc": {"images": None}}, COLLECTS_NOTHING),
    ({"gc": {"users": ["alice"]}}, COLLECTS_NOTHING),
    ({"gc": []}, "gc: a list of 0: is a list, not a mapping: write one or more of its keys, images, containers, users"),
    (images(high=80, low=80), "gc.images.low: 80: is not below gc.images.high (80): write at most 79, or a larger gc.images.high"),
    (images(high=70), "gc.images.low: 80: is not below gc.images.high (70): write at most 69, or a larger gc.images.high"),
    (images(low=90), "gc.images.low: 90: is not below gc.images.high (85): write at most 84, or a larger gc.images.high"),
    (images(high=0, low=0), "gc.images.low: 0: is not below gc.images.high (0): gc.images.high must be larger"),
    (images(high=101), "gc.images.high: 101: is too large: write a whole number from 0 to 100"),
    (images(low=-1), "gc.images.low: -1: is too small: write a whole number from 0 to 100"),
    (images(high="85%"), "gc.images.high: 85%: is text: write a whole number from 0 to 100"),
    (images(min_age=120), "gc.images.min_age: 120: has no unit: write seconds as 120s, or such as 2m, 1h30m or 7d"),
    (images(min_age=float("inf")), "gc.images.min_age: inf: has no unit: write seconds as 90s, or such as 2m, 1h30m or 7d"),
    (images(min_age="2"), f"gc.images.min_age: 2: {LENGTH}"),
    (images(min_age="1w"), f"gc.images.min_age: 1w: {LENGTH}"),
    (images(min_age="1h1h"), f"gc.images.min_age: 1h1h: {LENGTH}"),
    (images(min_age="-1s"), f"gc.images.min_age: -1s: {LENGTH}"),
    (images(max_age="2m"), "gc.images.max_age: 2m: is not more than gc.images.min_age (2m): write a longer time, or 0s for no limit"),
    (images(max_age="3651d"), "gc.images.max_age: 3651d: is out of bounds: write 0s to 3650d"),
    (images(interval="9s"), "gc.images.interval: 9s: is out of bounds: write 10s to 3650d"),
    (images(keep=["a b"]), "gc.images.keep[0]: a b: is not the name of an image: write it as in quay.example/base:*"),
    (images(keep=["--all"]), "gc.images.keep[0]: --all: is not the name of an image: write it as in quay.example/base:*"),
    (images(hihg=5), "gc.images.hihg: unknown key: did you mean gc.images.high?"),
    ({"imageMaximumGCAge": "1h"}, "imageMaximumGCAge: unknown key: did you mean gc.images.max_age?"),
    (containers(max_per_workload=-2), "gc.containers.max_per_workload: -2: is too small: write a whole number from -1 to 1048576"),
    (containers(max_total=1.5), "gc.containers.max_total: 1.5: has a decimal point: write a whole number from -1 to 1048576"),
    (containers(scope="every"), "gc.containers.scope: every: is not known: write declared or all"),
    (containers(min_age=5), "gc.containers.min_age: 5: has no unit: write seconds as 5s, or such as 2m, 1h30m or 7d"),
    (containers(volumes="yes"), "gc.containers.volumes: yes: is text: write true or false without quotes"),
    (containers(keep=["a/b"]), "gc.containers.keep[0]: a/b: is not the name of a container or pod: write it as in batch-*"),
    (containers(keep_labels=["=x"]), "gc.containers.keep_labels[0]: =x: is not a label, KEY or KEY=VALUE: write it as in app=batch"),
    ({"gc": {"images": {}, "user": ["a"]}}, "gc.user: unknown key: did you mean gc.users?"),
    ({"gc": {"images": {}, "users": ["root"]}}, "gc.users: root: root's storage is always looked after: leave it out"),
    ({"gc": {"images": {}, "users": ["alice", "alice"]}}, "gc.users[1]: alice: is in the list twice: leave one out"),
    ({"gc": {"images": {}, "users": ["al ice"]}},
     "gc.users[0]: al ice: is not the name of an account: write letters, digits, _ . @ and -, not a digit first, such as qemu"),
    # Workloads.
    (workloads({}), "workloads[0].match: declares nothing: write exactly one of unit, container, pod, label"),
    (workloads({"pod": "a", "unit": "b.service"}),
     "workloads[0].match: declares unit and pod together: write exactly one of unit, container, pod, label"),
    (workloads({"unit": "b"}), "workloads[0].match.unit: b: is not the full name of a unit: did you mean b.service?"),
    (workloads({"unit": "web.container"}),
     "workloads[0].match.unit: web.container: is not the full name of a unit: did you mean web.service?"),
    (workloads({"unit": "web.target"}),
     "workloads[0].match.unit: web.target: is not the full name of a unit: write it as in batch@*.service"),
    ({"workloads": [{"name": "a", "match": {"pod": "a"}}, {"name": "b", "unit": "b.service", "match": {"pod": "b"}}]},
     "workloads[1].unit: unknown key: did you mean workloads[1].match.unit?"),
    (workloads({"container": "a/b"}), "workloads[0].match.container: a/b: is not the name of a container or pod: write it as in batch-*"),
    (workloads({"label": "a\nb"}), "workloads[0].match.label: a\\nb: is not a label, KEY or KEY=VALUE: write it as in app=batch"),
    (workloads("pod"), "workloads[0].match: pod: is text, not a mapping: write one or more of its keys, unit, container, pod, label"),
    ({"workloads": [{"name": "a"}]}, "workloads[0].match: is missing: write one of its keys, unit, container, pod, label"),
    ({"workloads": [{"match": {"pod": "a"}}]}, "workloads[0].name: is missing: write it as in name: batch"),
    ({"workloads": [{"name": "a", "match": {"pod": "a"}}, {"name": "a", "match": {"pod": "b"}}]},
     "workloads[1].name: a: is the name of workloads[0] already: give each its own"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "line"), REFUSED, ids=[line for dummy, line in REFUSED])
def test_it_is_refused_with_path_value_and_way_out(data: dict[t.Any, t.Any], line: str) -> None:
    assert lines({"name": "x", **data}) == [line]


WRITE = f"not a mapping: write one or more of its keys, {KEYS}"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (None, f"the profile is empty, {WRITE}"),
        ([], f"a list of 0: the profile is a list, {WRITE}"),
        ("name: x", f"name: x: the profile is text, {WRITE}"),
        ({"version": 2, "whatever": 1}, "version: 2: a profile of a newer version: this Corral knows 1; update it on the node"),
    ],
)  # fmt: skip
def test_what_is_no_profile_at_all(data: object, line: str) -> None:
    assert lines(data) == [line]


def test_workloads_that_match_nothing_do_not_claim_the_same() -> None:
    data = {
        "cpu": {"reserved": {"count": 1}},
        "workloads": [{"name": name, "match": {}, "limits": {"cpu": 1}} for name in ("a", "b")],
    }
    declares = "declares nothing: write exactly one of unit, container, pod, label"
    assert lines({"name": "x", **data}) == [f"workloads[{index}].match: {declares}" for index in range(2)]


def test_all_problems_come_at_once() -> None:
    data = {"name": "A", "cpu": {"reserved": {"count": 0}, "isolated": {}}, "pids": {"pid_max": 1}, "irq": []}
    assert [line.split(":")[0] for line in lines(data)] == [
        "name",
        "cpu.reserved.count",
        "pids.pid_max",
        "irq",
        "cpu.isolated",
    ]


def test_an_endless_list_of_problems_is_cut() -> None:
    found = lines({f"key{number}": 1 for number in range(5000)})
    assert len(found) == 101
    assert found[-1].startswith("there are more problems")


def test_depth_and_size_of_what_is_refused_do_not_matter() -> None:
    deep: t.Any = {}
    for dummy in range(100_000):
        deep = {"a": deep}
    assert lines({"name": "x", "cpu": deep, "memory": {"hugepages": deep}, "deep": deep})
    long = "a" * 10_000_000
    assert all(
        len(line) < 2000 for line in lines({"name": long, long: long, "cpu": {"reserved": {"cpus": long}, long: 1}})
    )


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("reservd", "reserved"), ("Reserved", "reserved"), ("reserevd", "reserved"), ("isolate", "isolated"), ("cpu", None),
        ("", None), ("x" * 1000, None),
    ],
)  # fmt: skip
def test_the_nearest_name(word: str, meant: str | None) -> None:
    assert suggest.nearest(word, ["reserved", "isolated", "whole_cores"]) == meant


def test_every_key_is_documented() -> None:
    assert len({key.path for key in schema.KEYS}) == len(schema.KEYS)
    for key in schema.KEYS:
        assert key.doc.endswith(".")
        assert key.later or key.type is None or key.example, key.path
        assert key.later or key.since


ages = st.integers(0, 10**6)
kept_names = st.lists(st.from_regex(r"[a-z*][a-z0-9./:*?]{0,8}", fullmatch=True), unique=True, max_size=3).map(tuple)
patterns = st.lists(st.from_regex(r"[a-z*][a-z0-9.*?-]{0,8}", fullmatch=True), unique=True, max_size=3).map(tuple)
labels = st.lists(st.from_regex(r"[a-z./]{1,5}(=[ -)+-~]{0,5})?", fullmatch=True), unique=True, max_size=3).map(tuple)
thresholds = st.tuples(st.integers(0, 100), st.integers(0, 100)).filter(lambda pair: pair[0] > pair[1])
image_sections = st.builds(
    lambda pair, ages, *rest: ImageGC(*pair, ages[0], ages[1] and ages[0] + ages[1], *rest),
    thresholds, st.tuples(ages, ages), st.integers(10, 10**6), kept_names,
)  # fmt: skip
container_sections = st.builds(
    ContainerGC, ages, st.integers(-1, 9), st.integers(-1, 9), st.sampled_from(["declared", "all"]), st.integers(10, 10**6),
    st.booleans(), patterns, labels,
)  # fmt: skip
users = st.lists(
    st.from_regex(r"[a-z]{1,8}", fullmatch=True).filter(lambda name: name != "root"), unique=True, max_size=3
)
sections = st.builds(GC, st.none() | image_sections, st.none() | container_sections, users.map(tuple)).filter(
    lambda gc: gc.images is not None or gc.containers is not None
)


@given(
    sections,
    st.lists(
        st.tuples(st.sampled_from(["container", "pod"]), st.from_regex(r"[a-z*][a-z-]{0,5}", fullmatch=True)),
        max_size=3,
    ),
)
def test_gc_and_workloads_are_read_as_they_are_written(gc: GC, matches: list[tuple[str, str]]) -> None:
    declared = tuple(Workload(f"w{number}", *match) for number, match in enumerate(matches))
    data = profile.to_data(profile.Profile("edge", 1, "enforce", gc=gc, workloads=declared))
    found = profile.parse(json.loads(json.dumps(data)))
    assert (found.gc, found.workloads) == (gc, declared)
    assert profile.to_data(profile.parse(profile.to_data(found))) == profile.to_data(found)
