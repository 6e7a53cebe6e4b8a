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


def test_the_declared_profile_is_shown_as_it_would_be_read(converged: node.Node) -> None:
    declared = profile.to_data(node.parsed())
    before, host = converged.fingerprint(), converged.host()
    assert yaml.safe_load(runs.printed(host, "profile")) == declared
    said = json.loads(runs.printed(host, "profile", "--json"))
    assert {key: said[key] for key in declared} == declared
    assert (host.writes, host.commands, converged.fingerprint()) == ([], [], before)


def test_what_is_shown_changes_nothing_when_it_is_declared_again(converged: node.Node) -> None:
    converged.put("/root/again.yml", runs.printed(converged.host(), "profile", code=None))
    assert runs.command(converged.host(), "drift", "--profile", str(converged.root / "root/again.yml")) == 0


def test_the_node_as_a_profile(fake: node.Node, capsys: pytest.CaptureFixture[str]) -> None:
    fake.kernel_write(node.pool_file(1), "7")
    fake.put("/proc/meminfo", fake.get("/proc/meminfo") + "Hugepagesize:       2048 kB\n")
    host = fake.host()
    text = runs.printed(host, "profile", "--from-node", "--name", "mine")
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
