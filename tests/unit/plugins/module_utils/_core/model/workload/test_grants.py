# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkpoint's data: what is written is read; of anything else the grants that can be read, or it is refused."""

from __future__ import annotations

import json
import typing as t

import pytest
from _core.model.devices.device import GrantedDevice
from _core.model.numa.numa_memory import Block
from _core.model.systemd.unit_group import group_of
from _core.model.tenants.tenant import Member
from _core.model.workload import grants
from _core.model.workload.grants import Checkpoint, Grant
from hypothesis import given
from hypothesis import strategies as st
from test_profile_anything import anything

names = st.text("ab-é/:", min_size=1, max_size=4)
sizes = st.integers(0, 1 << 50)
amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "pids", "hugepages-2Mi"]), sizes).map(
    lambda found: tuple(sorted(found.items()))
)
nodes = st.frozensets(st.integers(0, 9), min_size=1)
defaults = st.lists(st.tuples(names, st.sampled_from(["requests", "limits"]), names, sizes), max_size=2).map(tuple)
members = st.builds(
    Member, st.just("acme"), st.sampled_from(["BestEffort", "Burstable"]), names, st.booleans(), defaults
)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Grants whose CPUs are disjoint."""
    owners = draw(st.lists(st.integers(0, 3), max_size=16))
    found = []
    for number, name in enumerate(draw(st.lists(names, max_size=4, unique=True))):
        cpus = frozenset(cpu for cpu, owner in enumerate(owners) if owner == number)
        inner = tuple(draw(st.dictionaries(names, st.frozensets(st.sampled_from(sorted(cpus or {0}))))).items())
        blocks = draw(
            st.lists(st.builds(Block, nodes, st.sampled_from(["memory", "hugepages-1Gi"]), sizes), max_size=2)
        )
        found.append(
            Grant(
                name, draw(st.sampled_from(["declared", "running"])), draw(st.text("0f", max_size=3)), cpus, inner,
                draw(st.none() | nodes), tuple(blocks), draw(amounts), draw(amounts), draw(sizes), draw(st.none() | members),
            )
        )  # fmt: skip
    totals = draw(st.dictionaries(st.integers(0, 63), st.dictionaries(names, sizes, max_size=2), max_size=3))
    return Checkpoint(tuple(found), totals)


def on_disk(data: object) -> t.Any:
    return json.loads(json.dumps(data))


@given(checkpoints())
def test_what_is_written_is_read(kept: Checkpoint) -> None:
    assert grants.from_data(on_disk(grants.to_data(kept))) == (kept, ())


def test_two_grants_of_one_cpu_are_refused() -> None:
    both = Checkpoint((Grant("a", cpus=frozenset({1, 2})), Grant("b", cpus=frozenset({2, 3}))))
    with pytest.raises(ValueError, match="CPU 2 is granted to a and b"):
        grants.from_data(on_disk(grants.to_data(both)))


def test_two_grants_of_one_workload_are_refused() -> None:
    with pytest.raises(ValueError, match="two grants of a"):
        grants.from_data(on_disk(grants.to_data(Checkpoint((Grant("a"), Grant("a", instance="1"))))))


ROW = on_disk(grants.grant_to_data(Grant("a", cpus=frozenset({1}), blocks=(Block(frozenset({0}), "memory", 5),))))
WRONG: dict[str, object] = {
    "workload": 5, "hold": "ever", "instance": None, "cpus": "1-", "containers": [], "mems": "x",
    "blocks": [["0", "memory"]], "requests": {"cpu": -1}, "limits": {"cpu": 1.5}, "since": True,
}  # fmt: skip


@pytest.mark.parametrize("key", WRONG)
def test_a_grant_with_anything_wrong_is_left_out_and_named(key: str) -> None:
    good = {**ROW, "workload": "b", "cpus": "2"}
    for row in ({**ROW, key: WRONG[key]}, {name: value for name, value in ROW.items() if name != key}):
        found, wrong = grants.from_data({"grants": [good, row], "nodes": {"0": {"memory": 7}}})
        assert found == Checkpoint((grants.from_data({"grants": [good], "nodes": {}})[0].grants), {0: {"memory": 7}})
        of = "" if key == "workload" else " of a"
        assert len(wrong) == 1
        assert wrong[0].startswith(f"grant 1{of} is not as Corral writes it (")


def test_of_further_grants_those_are_taken_that_hold_nothing_of_the_first() -> None:
    nic = GrantedDevice("", "lab.example/nic", "0000:3b:00.0", ("pci:0000:3b:00.0",))
    own = Checkpoint((Grant("a", cpus=frozenset({1}), devices=(nic,)),), {0: {"memory": 7}})
    others = (
        Grant("a", cpus=frozenset({2})), Grant("b", cpus=frozenset({1, 3})),
        Grant("c", cpus=frozenset({4}), devices=(nic, nic._replace(id="0000:3b:00.1"))),
    )  # fmt: skip
    found = grants.completed(own, others)
    assert found == own._replace(grants=(*own.grants, others[2]._replace(devices=others[2].devices[1:])))
    assert grants.from_data(on_disk(grants.to_data(found))) == (found, ())


def is_read_or_refused(data: object) -> None:
    try:
        found, dummy = grants.from_data(on_disk(data))
    except ValueError:
        return
    assert grants.from_data(on_disk(grants.to_data(found))) == (found, ())
    taken = [cpu for grant in found.grants for cpu in grant.cpus]
    assert len(taken) == len(set(taken))


def json_keys(data: object) -> bool:
    """Whether a file can have it."""
    try:
        json.dumps(data)
    except (TypeError, ValueError):
        return False
    return True


texts = anything.filter(json_keys)


@given(texts | st.fixed_dictionaries({"grants": texts | st.lists(texts), "nodes": texts}))
def test_any_data_is_read_or_refused(data: object) -> None:
    is_read_or_refused(data)


@given(checkpoints(), st.sampled_from(sorted(ROW)), texts)
def test_a_good_checkpoint_with_anything_in_it_is_read_or_refused(kept: Checkpoint, key: str, value: object) -> None:
    data = on_disk(grants.to_data(kept))
    for row in data["grants"][:1]:
        row[key] = value
    is_read_or_refused(data)


# What systemd lets an instance be called, in its escaped form; a slash is a dash there, never \\x2f.
NAMES = st.text(st.characters(codec="ascii", exclude_characters="\n@"), min_size=1, max_size=20)
INSTANCES = st.from_regex(r"([A-Za-z0-9:_.-]|\\x[3-6][0-9a-f])*", fullmatch=True)


@pytest.mark.parametrize("exclusive", [True, False])
@given(name=NAMES | st.just("isolated"), instance=INSTANCES)
def test_a_slice_tells_its_workload(exclusive: bool, name: str, instance: str) -> None:
    for workload in (name, f"{name}@{instance}"):
        unit = grants.slice_of(workload, exclusive=exclusive)
        assert grants.workload_of(unit) == workload
        assert unit.count("-") == (0 if exclusive else 1), "a dash would nest slices"
        assert grants.is_exclusive(unit) == exclusive
        assert unit != grants.ISOLATED_SLICE


@given(tenant=NAMES | st.just("isolated"), name=NAMES, instance=INSTANCES)
def test_a_slice_in_a_tenants_tells_its_workload(tenant: str, name: str, instance: str) -> None:
    outer = grants.slice_of_tenant(tenant)
    for workload in (name, f"{name}@{instance}"):
        unit = grants.slice_of(workload, exclusive=False, tenant=tenant)
        assert group_of(unit) == f"corral.slice/{outer}/{unit}"
        assert grants.workload_of(unit) == workload
        assert not grants.is_exclusive(unit)
        assert grants.slice_of(workload, exclusive=True, tenant=tenant) == grants.slice_of(workload, exclusive=True)


MEMBER = Member("acme")._asdict()


@pytest.mark.parametrize(
    "row",
    [
        {**MEMBER, "tenant": ""},
        {**MEMBER, "tenant": 1},
        {**MEMBER, "terminating": 1},
        {**MEMBER, "priority": None},
        {**MEMBER, "defaults": [["", "limits", "cpu", -1]]},
        {**MEMBER, "defaults": [["", "limits"]]},
        {"tenant": "acme"},
        "acme",
    ],
)
def test_a_grant_of_a_member_that_no_tenant_has_is_left_out(row: object) -> None:
    data = on_disk(grants.to_data(Checkpoint((Grant("a", member=Member("acme")),))))
    data["grants"][0]["member"] = row
    found, (wrong,) = grants.from_data(data)
    assert found.grants == ()
    assert wrong.startswith("grant 0 of a is not as Corral writes it (")


def test_a_grant_of_an_earlier_version_has_no_tenant() -> None:
    data = on_disk(grants.to_data(Checkpoint((Grant("a"),))))
    del data["grants"][0]["member"]
    assert grants.from_data(data)[0].grants == (Grant("a"),)


def test_a_changed_declaration_is_told_by_what_changed() -> None:
    had = Grant("a", requests=(("cpu", 500), ("memory", 1 << 20)), member=Member("acme"))
    assert grants.why_redeclared(had, had._replace(since=7)) == "its declaration changed"
    has = Grant(
        "a", "running", requests=(("cpu", 2000),), limits=(("pids", 9),), member=Member("globex", priority="high")
    )
    assert grants.why_redeclared(had, has) == (
        "its declaration changed: hold declared -> running, tenant acme -> globex, priority none -> high, "
        "requests.cpu 500m -> 2, requests.memory 1Mi -> none, limits.pids none -> 9"
    )


@given(name=NAMES, instance=INSTANCES.filter(lambda text: "-" not in text))
def test_systemd_makes_the_same_slice_of_a_template(name: str, instance: str) -> None:
    template = grants.slice_of(f"{name}@", exclusive=True).removesuffix(".slice") + "%i.slice"
    assert template.replace("%i", instance) == grants.slice_of(f"{name}@{instance}", exclusive=True)


@pytest.mark.parametrize(
    "unit",
    [
        "system.slice",
        "corral.slice",
        "corral_isolated.slice",
        "corral_a.scope",
        "corral-\\xzz.slice",
        "corral_a-b.slice",
        "corral-a-b-c.slice",
    ],
)
def test_other_units_are_no_workloads(unit: str) -> None:
    assert grants.workload_of(unit) is None


def test_what_lasts_over_a_reboot_and_what_is_taken() -> None:
    held = (Grant("a", cpus=frozenset({1})), Grant("b", hold="running", cpus=frozenset({2})), Grant("c"))
    assert grants.persistent(held) == (held[0], held[2])
    assert grants.exclusive(held) == {1, 2}
