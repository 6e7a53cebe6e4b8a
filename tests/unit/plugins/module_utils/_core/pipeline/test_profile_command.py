# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`corral profile`: the declared profile, or one that describes the node, as YAML and as JSON."""

from __future__ import annotations

import json

import node
import pytest
import runs
import yaml
from _core.model.profile import profile
from _core.model.values.errors import CorralError


def test_the_declared_profile_is_shown_as_it_would_be_read(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    runs.converged(fake)
    declared = profile.to_data(node.parsed())
    before, host = fake.fingerprint(), fake.host()
    assert runs.command(host, "profile") == 0
    assert yaml.safe_load(capsys.readouterr().out) == declared
    assert runs.command(host, "profile", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert {key: said[key] for key in declared} == declared
    assert (host.writes, host.commands, fake.fingerprint()) == ([], [], before)


def test_what_is_shown_changes_nothing_when_it_is_declared_again(
    fake: node.Node, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.converged(fake)
    runs.command(fake.host(), "profile")
    fake.put("/root/again.yml", capsys.readouterr().out)
    assert runs.command(fake.host(), "drift", "--profile", str(fake.root / "root/again.yml")) == 0


def test_the_node_as_a_profile(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    fake.kernel_write(node.pool_file(1), "7")
    fake.put("/proc/meminfo", fake.get("/proc/meminfo") + "Hugepagesize:       2048 kB\n")
    host = fake.host()
    assert runs.command(host, "profile", "--from-node", "--name", "mine") == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["name"] == "mine"
    assert runs.command(host, "profile", "--from-node", "--name", "mine", "--json") == 0
    answer = capsys.readouterr()
    said = json.loads(answer.out)
    shown = yaml.safe_load(text)
    assert {key: said[key] for key in shown} == shown
    assert (host.writes, host.commands) == ([], [])
    assert {"size": "2Mi", "count": 7, "node": 1} in shown["memory"]["hugepages"]


def test_a_node_without_a_profile_says_so(fake: node.Node) -> None:
    with pytest.raises(CorralError, match="profile"):
        runs.command(fake.host(), "profile")
