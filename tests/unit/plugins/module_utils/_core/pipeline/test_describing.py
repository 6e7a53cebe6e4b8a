# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""corral profile --from-node: what it says of a node, that this is no drift, and that it touches nothing."""

from __future__ import annotations

import re
import typing as t

import node
import pytest
import runs
import yaml
from _core.model.profile import profile
from _core.pipeline import applying, describing, planning
from _core.reports import change_text

Make = t.Callable[..., node.Node]
SYSTEM = "/etc/systemd/system"
HUGE = f"{SYSTEM}/dev-huge.mount"


def plain(fake: node.Node) -> None:
    """A node as it was installed: the distribution's own pid_max, and the kernel's threads-max."""
    fake.put("/usr/lib/sysctl.d/50-pid-max.conf", "kernel.pid_max = 4194304\n")
    fake.put("/proc/sys/kernel/threads-max", "65000\n")
    fake.put("/proc/sys/kernel/hostname", "Node-1.example.org\n")
    fake.put("/proc/meminfo", fake.get("/proc/meminfo") + "Hugepagesize:       2048 kB\n")


def brownfield(fake: node.Node) -> None:
    """A node on which somebody has set what can be set."""
    plain(fake)
    for number in (0, 1):
        fake.kernel_write(node.pool_file(number), str(10 + number))
    fake.put(HUGE, "[Mount]\nWhat=hugetlbfs\nWhere=/dev/huge\nType=hugetlbfs\nOptions=mode=1770,size=8M\n")
    fake.systemd.mount("/dev/huge", "hugetlbfs", pagesize="2M", mode="1770", size="8388608")
    fake.systemd.mount("/dev/by-hand", "hugetlbfs", pagesize="2M", gid="996")
    fake.put("/etc/sysctl.d/99-mine.conf", "kernel.threads-max = 20000\n")
    fake.kernel_write("/proc/sys/kernel/threads-max", "20000")
    fake.kernel_write("/proc/sys/kernel/pid_max", "100000")
    fake.put(f"{SYSTEM}/user.slice.d/20-mine.conf", "[Slice]\nTasksMax=900\n")
    fake.put(f"{SYSTEM}/system.slice.d/20-mine.conf", "[Slice]\nAllowedCPUs=0-3\n")
    fake.put(f"{SYSTEM}/batch.slice", "[Slice]\nAllowedCPUs=4-5\nTasksMax=50\n")
    fake.systemctl("daemon-reload")


def found(fake: node.Node, name: str | None = None) -> describing.Described:
    """What is said of the node; nothing was written for it, and PyYAML reads the same from the text."""
    before, host = fake.fingerprint(), fake.host()
    described = describing.describe(host, name)
    assert (host.writes, host.commands, fake.fingerprint()) == ([], [], before)
    assert yaml.safe_load(described.text) == described.data
    return described


def drift(fake: node.Node, data: dict[str, t.Any]) -> list[str]:
    context = planning.compile_profile(fake.host(), profile.parse(data))
    return [change_text.in_words(change) for change in planning.plan_profile(fake.host(), context).changes]


def uncommented(text: str) -> dict[str, t.Any]:
    """The profile with every part adopted, as a person would do it: prose has a blank after its mark."""
    return t.cast("dict[str, t.Any]", yaml.safe_load(re.sub(r"^( *)#(?! [^ ])", r"\1", text, flags=re.MULTILINE)))


def test_a_plain_node_has_nothing_to_declare(fake: node.Node) -> None:
    plain(fake)
    described = found(fake)
    assert described.data == {"name": "node-1", "mode": "audit"}
    assert described.notes == ()
    assert drift(fake, described.data) == []


def test_a_brownfield_node_is_described_without_drift(fake: node.Node) -> None:
    brownfield(fake)
    described = found(fake, "mine")
    assert described.data == {
        "name": "mine",
        "mode": "audit",
        "memory": {
            "hugepages": [{"size": "2Mi", "count": 10, "node": 0}, {"size": "2Mi", "count": 11, "node": 1}],
            "mounts": [{"path": "/dev/huge", "pagesize": "2Mi", "size": "8Mi", "mode": "1770"}],
        },
        "pids": {"threads_max": 20000, "slices": {"user.slice": 900}},
    }
    assert drift(fake, described.data) == []


def test_what_is_left_out_is_there_as_a_comment_that_says_why(fake: node.Node) -> None:
    brownfield(fake)
    described = found(fake)
    text = described.text
    for line in (
        "    #- path: /dev/by-hand\n",
        "  #pid_max: 100000\n",
        '#  reserved:\n#    cpus: "0-3"\n',
        '#  isolated: {cpus: "6-7"}\n',
        "#  shared:\n#    slices: [machine.slice, batch.slice]\n",
    ):
        assert line in text
    assert "# - new file /etc/sysctl.d/90-corral.conf: kernel.pid_max = 100000\n" in text
    assert [note.partition(".")[0] for note in described.notes] == [
        "Left out: the CPU pools",
        "Left out: the mount /dev/by-hand",
        "Left out: pids",
        "Left out: TasksMax of batch",
    ]
    assert "add it to cpu.shared.slices" in described.notes[-1]


def test_the_comments_are_a_profile_that_can_be_applied(fake: node.Node) -> None:
    brownfield(fake)
    adopted = uncommented(found(fake).text)
    assert adopted["cpu"]["reserved"]["cpus"] == "0-3"
    assert adopted["pids"]["pid_max"] == 100000
    paths = [mount["path"] for mount in adopted["memory"]["mounts"]]
    assert paths == ["/dev/by-hand", "/dev/huge"], "not by when they were mounted, which each boot decides anew"
    outcome = applying.declare(fake.host(), profile.parse(adopted))
    assert (outcome.error, outcome.remaining) == ("", ())


def managed(fake: node.Node, **sections: t.Any) -> node.Node:
    plain(fake)
    return runs.converged(fake) if not sections else adopt(fake, **sections)


def adopt(fake: node.Node, **sections: t.Any) -> node.Node:
    outcome = runs.declare(fake.host(), **sections)
    assert (outcome.error, outcome.remaining) == ("", ())
    return fake


PROFILES: dict[str, dict[str, t.Any]] = {
    "the example": {},
    "without strict reservation": {
        "cpu": {"reserved": {"cpus": "0,4"}, "options": {"strict-cpu-reservation": False}},
    },
    "slices of its own": {
        "cpu": {
            "reserved": {"cpus": "0,4", "slices": ["system.slice", "init.scope", "monitoring.slice"]},
            "isolated": {"cpus": "3"},
            "shared": {"slices": ["user.slice", "batch.slice"]},
        },
        "pids": {"pid_max": 65536, "slices": {"batch.slice": 300, "monitoring.slice": 20}, "default_tasks_max": 700},
    },
    "no pool is shared with a top-level slice": {"cpu": {"reserved": {"count": 2}, "shared": {"slices": []}}},
    "limits alone": {"cpu": None, "memory": None, "pids": {"threads_max": 30000}},
    "pools alone": {"cpu": None, "pids": None, "memory": {"hugepages": [{"size": "2Mi", "count": 9}]}},
}


@pytest.mark.parametrize("name", PROFILES)
def test_on_a_managed_node_everything_is_in(name: str, fake: node.Node) -> None:
    managed(fake, **PROFILES[name])
    declared = node.edge(**PROFILES[name])
    described = found(fake)
    assert drift(fake, described.data) == []
    assert described.notes == ()
    assert {"cpu", "memory", "pids"} & set(described.data) == {"cpu", "memory", "pids"} & set(declared)
    assert described.data["mode"] == "enforce"
    outcome = applying.declare(fake.host(), profile.parse(described.data))
    assert [change.subject for change in outcome.applied] == ["/etc/corral/profile.json"]


def test_an_emptied_pool_stays_declared(fake: node.Node) -> None:
    plain(fake)
    fake.kernel_write(node.pool_file(0), "7")
    adopt(fake, memory={"hugepages": [{"size": "2Mi", "count": 0, "node": 0}]})
    described = found(fake)
    assert described.data["memory"]["hugepages"] == [{"size": "2Mi", "count": 0, "node": 0}]
    assert drift(fake, described.data) == []


def test_what_no_profile_can_bring_in_sync_is_said(fake: node.Node) -> None:
    managed(fake)
    fake.systemd.unmount("/dev/hugepages-2Mi")
    described = found(fake)
    assert "mounts" not in described.data["memory"]
    assert drift(fake, described.data) != []
    assert described.notes[-1].startswith("not in sync even so: ")
    assert described.text.splitlines()[1].startswith("# not in sync even so: ")


def test_units_with_cpus_of_their_own_are_named(fake: node.Node) -> None:
    plain(fake)
    fake.put("/sys/fs/cgroup/system.slice/pinned.service/cpuset.cpus", "2-3\n")
    assert "pinned.service 2-3" in found(fake).notes[-1]
