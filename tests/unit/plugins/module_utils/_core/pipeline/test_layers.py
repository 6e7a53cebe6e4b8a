# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node keeps of a composed profile: where each key comes from, and what they came to on it."""

from __future__ import annotations

import json
import stat
import typing as t
from pathlib import Path

import node
import pytest
import runs
from _core import main
from _core.model.plan.plan import Outcome
from _core.model.profile import compose, profile
from _core.model.profile.compose import Layer
from _core.pipeline import applying, planning
from _core.reports import explain

ORIGINS, EFFECTIVE = "/etc/corral/origins.json", "/var/lib/corral/effective-profile.json"
HOST = {"pids": {"pid_max": 50000}, "cpu": {"isolated": None}}


def roll_out(fake: node.Node, *layers: tuple[str, dict[str, t.Any]]) -> Outcome:
    composed = compose.compose([Layer("base", node.edge()), *(Layer(*layer) for layer in layers)])
    outcome = applying.declare(fake.host(), profile.parse(composed.data), composed.origins)
    assert (outcome.error, outcome.remaining) == ("", ())
    return outcome


def kept(fake: node.Node) -> dict[str, str]:
    return t.cast("dict[str, str]", json.loads(fake.get(ORIGINS))["origins"])


def compiled(fake: node.Node) -> t.Any:
    return json.loads(fake.get(EFFECTIVE))


def drift(fake: node.Node, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main.main(["drift", "--explain", "--root", fake.recorded(), *words])
    return capsys.readouterr().out


def words_of(table: str) -> list[str]:
    """The lines of a table, however wide its columns are."""
    return [" ".join(line.split()) for line in table.splitlines()]


def test_the_node_keeps_each_keys_origin_and_the_compiled_profile(fake: node.Node) -> None:
    roll_out(fake, ("host", HOST))
    declared = json.loads(fake.get("/etc/corral/profile.json"))
    assert set(kept(fake)) == set(compose.leaves_of(declared))
    assert {path for path, origin in kept(fake).items() if origin == "host"} == {"pids.pid_max"}
    assert kept(fake)["pids.reserved"] == "base"
    assert kept(fake)["cpu.policy"] == "default"
    assert compiled(fake)["cpu"]["shared"] == "1,3,5,7"
    assert compiled(fake)["cpu"]["numa"]["0"] == {"reserved": "0,4", "shared": "1,5"}
    assert compiled(fake)["memory"]["hugepages"] == {"2Mi": {"node 0": 32, "node 1": 32}}
    assert compiled(fake)["pids"]["pid_max"] == 50000
    modes = [stat.S_IMODE((fake.root / path.lstrip("/")).stat().st_mode) for path in (ORIGINS, EFFECTIVE)]
    assert modes == [0o600, 0o600]


def test_it_has_every_section_that_the_profile_has(fake: node.Node) -> None:
    assert compiled_of(fake, gc={"images": {}}).keys() == {"name", "mode", "cpu", "memory", "pids", "gc"}
    assert compiled_of(fake, gc={"images": {}})["gc"]["images"]["high"] == 85
    assert "gc" not in compiled_of(fake)


def compiled_of(fake: node.Node, **sections: t.Any) -> dict[str, t.Any]:
    runs.declare(fake.host(), **sections)
    return t.cast("dict[str, t.Any]", compiled(fake))


def test_the_compiled_slices_are_what_runs(fake: node.Node) -> None:
    roll_out(fake)
    fake.systemctl("start", "machine.slice")
    for unit, cpus in compiled(fake)["cpu"]["slices"].items():
        assert fake.cpus(unit) == frozenset(map(int, cpus.split(","))), unit


def test_the_same_layers_again_write_nothing(fake: node.Node) -> None:
    roll_out(fake, ("host", HOST))
    before = fake.fingerprint()
    assert roll_out(fake, ("host", HOST)).applied == ()
    assert node.different(before, fake.fingerprint()) == []


def test_a_key_that_only_moved_to_another_layer_changes_its_origin_alone(fake: node.Node) -> None:
    roll_out(fake, ("host", HOST))
    before = fake.fingerprint(*node.STATE, "etc/corral/origins.json")
    applied = roll_out(fake, ("group", HOST)).applied
    assert [(change.manager, change.subject) for change in applied] == [("profile", ORIGINS)]
    assert kept(fake)["pids.pid_max"] == "group"
    assert node.different(before, fake.fingerprint(*node.STATE, "etc/corral/origins.json")) == []


def test_origins_stay_with_their_profile_and_go_with_it(fake: node.Node) -> None:
    clean = fake.fingerprint()
    roll_out(fake)
    before = fake.get(ORIGINS)
    assert runs.declare(fake.host()).applied == ()  # as corral reconcile does: who declared what is not asked again
    assert fake.get(ORIGINS) == before
    assert not runs.declare(fake.host(), pids=None).error  # as corral rollback does
    assert not fake.has(ORIGINS)
    roll_out(fake)
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(clean, fake.fingerprint()) == []


def test_origins_of_another_profile_are_not_shown(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    roll_out(fake)
    assert "pids.reserved 4096 base" in words_of(drift(fake, capsys))
    data = json.loads(fake.get("/etc/corral/profile.json"))
    data["pids"]["reserved"] = 5000
    fake.put("/etc/corral/profile.json", json.dumps(data))
    assert "pids.reserved 5000 -" in words_of(drift(fake, capsys))
    fake.put(ORIGINS, "[]")
    assert " base" not in drift(fake, capsys)


def test_a_tick_keeps_the_compiled_profile_when_it_changed_and_else_lets_it_be(fake: node.Node) -> None:
    roll_out(fake)
    before = fake.get(EFFECTIVE)
    assert runs.tick(fake.host()) == 0
    fake.put(EFFECTIVE, "not looked at")
    assert runs.tick(fake.host()) == 0
    assert fake.get(EFFECTIVE) == "not looked at"
    data = json.loads(fake.get("/etc/corral/profile.json"))
    fake.put("/etc/corral/profile.json", json.dumps({**data, "cpu": {"reserved": {"cores_per_numa": 1}}}))
    assert runs.tick(fake.host()) == 2
    assert compiled(fake)["cpu"]["isolated"] == ""
    fake.put("/etc/corral/profile.json", "{")
    fake.put(EFFECTIVE, before)
    runs.tick(fake.host(), at_boot=True)
    assert compiled(fake)["cpu"]["isolated"] == "", "what was applied last is in force"


def test_explain_tells_key_value_origin_and_who_asks_for_a_change(
    fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    roll_out(fake, ("host", HOST))
    fake.kernel_write("/proc/sys/kernel/pid_max", "40000")
    lines = words_of(drift(fake, capsys))
    assert lines[0] == "profile edge, each key with its origin:"
    for line in (
        "pids.pid_max 50000 host",
        "cpu.whole_cores true base",
        'cpu.reserved.slices ["system.slice", "user.slice", "init.scope"] default',
        "cpu.isolated none",
        'cpu.slices["system.slice"] 0,2,4,6',
        "asked for by pids.pid_max (host)",
    ):
        assert line in lines
    data = json.loads(drift(fake, capsys, "--json"))
    assert data["keys"]["pids.pid_max"] == {"value": 50000, "origin": "host"}
    assert data["effective_profile"] == compiled(fake)
    assert [change["asked_by"] for change in data["changes"]] == [{"key": "pids.pid_max", "origin": "host"}]


def test_explain_names_the_file(fake: node.Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my.yml"
    file.write_text("name: mine\npids: {reserved: 3}\n")
    data = json.loads(drift(fake, capsys, "--json", "--profile", str(file)))
    assert {path: key["origin"] for path, key in data["keys"].items()} == {
        "name": str(file), "version": "default", "mode": "default", "pids.reserved": str(file),
    }  # fmt: skip


def test_every_change_of_a_rollout_has_a_key_that_asks_for_it(fake: node.Node) -> None:
    host = fake.host()
    context = planning.compile_profile(host, node.parsed(), fresh=True)
    changes = planning.plan_profile(host, context, declare=True).changes
    asked = {(change.manager, (explain.asked_by(change, context) or {}).get("key")) for change in changes}
    assert asked == {
        ("profile", None),
        ("cpu", "cpu"),
        ("cpu", "cpu.reserved"),
        ("cpu", "cpu.isolated"),
        ("memory", "memory.hugepages"),
        ("memory", "memory.mounts"),
        ("memory", "memory.mounts[0]"),
        ("pids", "pids"),
        ("pids", "pids.pid_max"),
        ("pids", "pids.threads_max"),
        ("pids", 'pids.slices["corral.slice"]'),
        ("pids", 'pids.slices["machine.slice"]'),
    }
    collecting = planning.compile_profile(host, node.parsed(gc={"images": {}}), fresh=True)
    made = [one for one in planning.plan_profile(host, collecting).changes if one.manager == "gc"]
    assert {(explain.asked_by(change, collecting) or {}).get("key") for change in made} == {"gc"}
    left = made[0]._replace(subject="/var/lib/containers", property="disk use")
    assert (explain.asked_by(left, collecting) or {}).get("key") == "gc.images"
    gone = planning.compile_profile(host, node.parsed(pids=None, memory=None), fresh=True)
    assert not any(explain.asked_by(change, gone) for change in changes if change.manager in ("pids", "memory"))
