# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook rollout with the collection's own modules on fake nodes, as its benchmark runs it on 200."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

pytest.importorskip("ansible")
CHECKOUT = Path(__file__).resolve().parents[2]
BENCHMARKS = CHECKOUT / "tests" / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not in the built collection", allow_module_level=True)
sys.path.append(str(BENCHMARKS))

import fake_fleet  # noqa: E402


def rollout(fleet: fake_fleet.FakeFleet, **variables: t.Any) -> tuple[int, str]:
    """The exit code and what was printed, each space as one."""
    folder = fleet.folder
    inventory = {"all": {"hosts": fleet.inventory()}}
    (folder / "hosts.json").write_text(json.dumps(inventory), encoding="utf-8")
    (folder / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
        "ANSIBLE_NOCOLOR": "1",
        "PATH": f"{fleet.programs}:{os.environ['PATH']}",
    }
    extra = {"corral_profile_file": str(CHECKOUT / "examples/edge.yml"), "corral_serial": "1,100%", **variables}
    words = ["-i", str(folder / "hosts.json"), "corral.node.rollout", "-e", json.dumps(extra)]
    command = [sys.executable, "-m", "ansible.cli.playbook", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_missing_hugepages_stop_a_rollout_at_its_canary(tmp_path: Path) -> None:
    collection = tmp_path / "collections/ansible_collections/corral"
    collection.mkdir(parents=True)
    (collection / "node").symlink_to(CHECKOUT)
    with fake_fleet.FakeFleet(tmp_path, 2, pages={"n1": 20}) as fleet:
        code, said = rollout(fleet)
        assert (
            code != 0
            and "See that nothing differs from the profile: ! memory hugepages-2Mi node 1 nr_hugepages: 20 -> 32"
            in said
        ), said
        assert "The host has the profile that it had before" in said
        assert fleet.not_rolled_out() == ["n1", "n2"], "the canary went back, and the next batch is untouched"
        assert not (tmp_path / "n1/usr/libexec/corral/corral").exists(), "nor was there an agent before"
        code, said = rollout(fleet, corral_require_in_sync=False)
        assert code == 0, said
        assert fleet.not_rolled_out() == []
        assert not list(tmp_path.glob("n*/var/lib/corral/unconfirmed.json")), "confirmed"
