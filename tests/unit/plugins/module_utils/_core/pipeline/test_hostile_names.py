# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names made by an attacker write nowhere but in Corral's own places, and planted links lead nowhere."""

from __future__ import annotations

import ast
import re
import typing as t
from pathlib import Path

import node
import pytest
import runs
from _core.host import state
from _core.host.lock import Lock
from _core.model.profile import profile
from _core.model.values.errors import CorralError
from _core.pipeline import applying
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shared_data import REPOSITORY

Make = t.Callable[..., node.Node]
Profile = dict[str, t.Any]

# All that Corral may touch on the fake node, written down here once more rather than taken from the validator.
OWN = re.compile(
    r"(active|running) .*|proc/1/mountinfo|proc/sys/kernel/(pid_max|threads-max)|(run|var/lib|etc)/corral(/.*)?"
    r"|etc/sysctl\.d/90-corral\.conf|etc/systemd/system\.conf\.d(/10-corral\.conf)?"
    r"|etc/systemd/system/[A-Za-z0-9:_.\\-]+\.d(/10-corral-(cpu|pids)\.conf)?|etc/systemd/system/[A-Za-z0-9_.:\\-]+\.mount"
    r"|run/systemd/system\.control(/[A-Za-z0-9:_.\\-]+\.d(/50-(AllowedCPUs|TasksMax)\.conf)?)?|sys/fs/cgroup/.*"
    r"|run/systemd/transient(/init\.scope\.d(/50-AllowedCPUs\.conf)?)?"
    r"|sys/(devices/system/node|kernel/mm)/.*hugepages"
)
HOSTILE = [
    "../../../etc/cron.d/x", "..", ".", "", "/", "//", "a/b", "-", "--now", "-rf", "x\ny", "x\0y", "x;reboot", "$(reboot)", "`id`",
    "x y", "%n", "%i.slice", "ä.slice", "x" * 5000, "corral.slice", "corral.slice", "-.slice", "a-b.slice", "\u202egpj.slice",
    "../system.slice", "x/../y.slice", "[Service]\nExecStart=/bin/sh.slice", "\ud800.slice", "system.slice\n", "*.slice", "~root",
    "/etc/cron.d", "/etc/../etc", "/dev/huge\npages", "/dev/huge pages", "/dev/%n", "/proc/sys", "/sys/fs/cgroup", "/run/systemd/x",
    "/dev/shm", "/usr/bin", "/dev//pages", "/dev/pages/", "/dev/./pages", "/tmp", "/home", "/dev/$(id)", "/dev/a\\x2fb",
]  # fmt: skip


def with_name(place: str, name: str) -> Profile:
    """The example profile with a name in one of the places that take one."""
    data: Profile = dict(node.edge())
    mount = data["memory"]["mounts"][0]
    if place == "reserved slice":
        return {**data, "cpu": {**data["cpu"], "reserved": {"cores_per_numa": 1, "slices": ["system.slice", name]}}}
    if place == "shared slice":
        return {**data, "cpu": {**data["cpu"], "shared": {"slices": [name]}}}
    if place == "pids slice":
        return {**data, "pids": {**data["pids"], "slices": {name: 100}}}
    if place == "device":
        return {**data, "cpu": {**data["cpu"], "isolated": {"cores": 1, "near": name}}}
    if place == "name":
        return {**data, "name": name}
    key = {"mount path": "path", "user": "user", "group": "group", "mode": "mode"}[place]
    return {**data, "memory": {**data["memory"], "mounts": [{**mount, key: name}]}}


PLACES = ["reserved slice", "shared slice", "pids slice", "device", "name", "mount path", "user", "group", "mode"]


def rolled_out(fake: node.Node, data: Profile) -> list[str]:
    """What a rollout touched outside Corral's places; one that is refused touches nothing at all."""
    before = fake.fingerprint()
    try:
        outcome = applying.declare(fake.host(), profile.parse(data))
    except CorralError:
        return node.different(before, fake.fingerprint("run/corral"))
    # The mount point itself is the user's choice; it is a folder of its own.
    mount = data["memory"]["mounts"][0]["path"].strip("/")
    assert not outcome.error, outcome.error
    lines = node.different(before, fake.fingerprint())
    return [line for line in lines if not OWN.fullmatch(line.split(": ")[0]) and line.split(": ")[0] != mount]


@pytest.mark.parametrize("place", PLACES)
def test_hostile_names_stay_in_corrals_places(place: str, make: Make) -> None:
    fake = make()
    for name in HOSTILE:
        assert rolled_out(fake, with_name(place, name)) == [], name
        runs.remove(fake.host())


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), name=st.text(max_size=30), end=st.sampled_from(["", ".slice", ".scope", ".conf"]))
def test_any_name_stays_in_corrals_places(place: str, name: str, end: str, make: Make) -> None:
    fake = make()
    assert rolled_out(fake, with_name(place, name + end)) == []


# Links

PRECIOUS = "/home/precious"
LINKED = (state.STATE, f"{state.STATE}/journal", state.RUN)


@pytest.mark.parametrize("path", LINKED)
def test_a_planted_link_in_place_of_a_folder_is_refused_by_name(path: str, make: Make) -> None:
    fake = make()
    (fake.root / PRECIOUS[1:]).mkdir(parents=True)
    link = fake.root / path[1:]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(fake.root / PRECIOUS[1:])
    host = fake.host()
    with pytest.raises(CorralError, match=path):
        lock = Lock(host)
        lock.take()
        runs.declare(host)
    assert list((fake.root / PRECIOUS[1:]).iterdir()) == []


@pytest.mark.parametrize("path", [state.BEFORE, state.APPLIED, state.STATUS, state.ATTEMPTS, f"{state.RUN}/pools.json"])
def test_a_planted_link_in_place_of_a_file_is_replaced_and_not_read(path: str, make: Make) -> None:
    fake = make()
    fake.put(PRECIOUS, "[]")
    host = fake.host()
    lock = Lock(host)
    assert lock.take()
    lock.release()
    state.state_folder(host, f"{state.STATE}/journal")
    (fake.root / path[1:]).symlink_to(fake.root / PRECIOUS[1:])
    assert state.read_json(host, path) is None
    outcome = runs.declare(fake.host())
    assert not outcome.error
    lost = [state.BEFORE] if path in (state.BEFORE, state.APPLIED) else []
    assert [item.location for item in outcome.remaining] == lost, "a node with a state file has lost its originals"
    runs.tick(host)
    assert fake.get(PRECIOUS) == "[]"


def test_folders_that_were_opened_to_others_are_closed_again(make: Make) -> None:
    fake = runs.converged(make())
    (fake.root / "var/lib/corral").chmod(0o777)
    runs.declare(fake.host(), pids={"pid_max": 50000})
    assert fake.host().mode("/var/lib/corral") == 0o700


@pytest.mark.parametrize("depth", [2, 3])
def test_a_mount_path_that_leads_over_a_link_is_refused(depth: int, make: Make) -> None:
    fake = make()
    path = "/srv/pages/huge"
    link = fake.root / "/".join(path.split("/")[1 : depth + 1])
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(fake.root / "etc")
    memory = {"hugepages": node.edge()["memory"]["hugepages"], "mounts": [{"path": path, "pagesize": "2Mi"}]}
    with pytest.raises(CorralError, match="is a link"):
        runs.declare(fake.host(), memory=memory)


# Shells

PLUGINS = REPOSITORY / "plugins"


@pytest.mark.parametrize("source", sorted(PLUGINS.rglob("*.py")), ids=lambda path: path.stem)
def test_nothing_is_passed_to_a_shell(source: Path) -> None:
    for call in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
            assert name not in (
                "os.system",
                "os.popen",
                "subprocess.getoutput",
                "subprocess.getstatusoutput",
                "eval",
                "exec",
            )
            assert not any(word.arg in ("shell", "use_unsafe_shell") for word in call.keywords), ast.unparse(call)
        if isinstance(call, ast.Constant) and isinstance(call.value, str):
            assert not re.fullmatch(r"(/usr)?(/bin/)?(ba|da|)sh", call.value), "a shell is no command of Corral's"
