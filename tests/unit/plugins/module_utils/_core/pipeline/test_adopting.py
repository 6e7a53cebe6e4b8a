# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node has where it differs becomes a layer of its profile; what no key can express stays drift."""

from __future__ import annotations

import typing as t

import node
import pytest
import runs
import test_drift
import test_workload_module
from _core.model.profile import compose
from _core.pipeline import adopting

ORIGIN = "corral_adopted/n1.yml"

# A tampering of test_drift, and what is adopted of it.
ADOPTED: dict[str, dict[str, t.Any]] = {
    "pid_max": {"pids": {"pid_max": 40000}},
    "TasksMax": {"pids": {"slices": {"corral.slice": 77}}},
    "hugepages of one node": {"memory": {"hugepages": [{"size": "2Mi", "count": 3, "node": 1}]}},
    "a mount of another size": {
        "memory": {"mounts": [{"path": test_drift.MOUNT, "pagesize": "2Mi", "size": "8Mi", "mode": "0770"}]}
    },
}
NOT_ADOPTED = ("set-property --runtime", "drop-in edited", "sysctl.d deleted")


def task(fake: node.Node, *, check: bool = True, **options: t.Any) -> dict[str, t.Any]:
    params = {
        "layers": [{"origin": "site", "profile": node.edge()}],
        "adopt": ORIGIN,
        "during_pause": "refuse",
        **options,
    }
    module = test_workload_module.Module(check=check, profile=None, **params)
    shell = test_workload_module.WORKLOAD._module
    return t.cast("dict[str, t.Any]", shell.profile_task(module, fake.host()))


def tampered(fake: node.Node, *names: str) -> node.Node:
    runs.converged(fake)
    for name in names:
        with fake.by_hand():
            test_drift.CASES[name].do(fake)
    return fake


@pytest.mark.parametrize("name", ADOPTED)
def test_what_a_key_can_express_is_adopted_and_stays_in_force(name: str, fake: node.Node) -> None:
    tampered(fake, name)
    before = fake.fingerprint("run/corral")
    result = task(fake)
    assert fake.fingerprint("run/corral") == before
    assert result["adopted"] == ADOPTED[name]
    assert [one for one in result["by_key"] if one["kind"] == "drift"] == []
    assert {one["origin"] for one in result["by_key"]} == {ORIGIN}
    done = task(fake, check=False)
    assert (done["adopted"], done["in_sync"]) == (result["adopted"], True)
    layers = [{"origin": "site", "profile": node.edge()}, {"origin": ORIGIN, "profile": result["adopted"]}]
    again = task(fake, check=False, layers=layers)
    assert (again["changed"], again["adopted"]) == (False, None)


@pytest.mark.parametrize("name", NOT_ADOPTED)
def test_what_no_key_can_express_is_named_as_drift(name: str, fake: node.Node) -> None:
    tampered(fake, name)
    result = task(fake)
    assert result["adopted"] is None
    (drift,) = result["by_key"]
    assert drift["kind"] == "drift"
    assert test_drift.CASES[name].subject in drift["changes"][0]


def test_of_two_that_differ_the_one_is_adopted_and_the_other_named(fake: node.Node) -> None:
    tampered(fake, "pid_max", "set-property --runtime")
    result = task(fake)
    assert result["adopted"] == ADOPTED["pid_max"]
    assert [(one["kind"], one["key"]) for one in result["by_key"]] == [("edited", "pids.pid_max"), ("drift", "")]
    assert test_drift.SHARED in result["by_key"][1]["changes"][0]


def test_a_layer_that_was_adopted_before_is_extended_and_is_the_strongest(fake: node.Node) -> None:
    tampered(fake, "pid_max")
    site = node.edge()
    before = {"pids": {"reserved": 4000}}
    layers = [("site", site), (ORIGIN, before), ("corral_profile_layer_99_host", {"pids": {"pid_max": 50000}})]
    result = task(fake, layers=[{"origin": name, "profile": data} for name, data in layers])
    assert result["adopted"] == {"pids": {"reserved": 4000, "pid_max": 40000}}
    assert result["origins"]["pids.pid_max"] == ORIGIN


def test_nothing_is_adopted_on_a_node_in_sync_or_without_a_profile(fake: node.Node) -> None:
    assert task(fake)["adopted"] is None
    runs.converged(fake)
    assert task(fake)["adopted"] is None


def test_only_layers_can_adopt(converged: node.Node) -> None:
    with pytest.raises(test_workload_module.WORKLOAD.CorralError, match=r"adopt: .*give the profile in layers"):
        task(converged, layers=None)


def test_a_profile_that_no_longer_fits_the_node_adopts_nothing(converged: node.Node) -> None:
    converged.set_online(*range(1, 8))
    assert adopting.adopted(converged.host()) == {}


def test_keys_that_the_profile_has_already_are_left_out() -> None:
    data = {"pids": {"pid_max": 5, "slices": {"a.slice": 1, "b.slice": 2}}, "cpu": {"reserved": {"cpus": "0"}}}
    applied = {"pids": {"pid_max": 4, "slices": {"a.slice": 1}}, "cpu": {"reserved": {"cpus": "0"}}}
    assert adopting.without(data, applied) == {"pids": {"pid_max": 5, "slices": {"b.slice": 2}}}
    assert (
        compose.compose([compose.Layer("a", applied), compose.Layer("b", adopting.without(data, applied))]).data == data
    )
