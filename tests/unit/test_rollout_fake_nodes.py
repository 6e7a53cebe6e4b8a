# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook rollout with the collection's own modules on fake nodes, as its benchmark runs it on 200."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import playing
from shared_data import REPOSITORY


def rollout(controller: playing.Controller, **variables: t.Any) -> playing.Played:
    inventory = {"all": {"hosts": {host: {"ansible_user": "root"} for host in controller.fleet.hosts}}}
    (controller.folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    extra = {"corral_profile_file": str(REPOSITORY / "examples/edge.yml"), "corral_serial": "1,100%", **variables}
    return controller.play("-i", "hosts.json", "corral.node.rollout", "-e", json.dumps(extra))


def test_missing_hugepages_stop_a_rollout_at_its_canary(tmp_path: Path) -> None:
    with playing.Controller(tmp_path, ["n1", "n2"], pages={"n1": 20}) as controller:
        done = rollout(controller)
        assert (
            done.code != 0
            and "See that nothing differs from the profile: ! memory hugepages-2Mi node 1 nr_hugepages: 20 -> 32"
            in done.in_one_line
        ), done.said
        assert "The host has what it had before" in done.in_one_line
        assert controller.fleet.not_rolled_out() == ["n1", "n2"], (
            "the canary went back, and the next batch is untouched"
        )
        assert not (tmp_path / "n1/usr/libexec/corral/corral").exists(), "nor was there an agent before"
        done = rollout(controller, corral_require_in_sync=False)
        assert done.code == 0, done.said
        assert controller.fleet.not_rolled_out() == []
        assert not list(tmp_path.glob("n*/var/lib/corral/unconfirmed.json")), "confirmed"
