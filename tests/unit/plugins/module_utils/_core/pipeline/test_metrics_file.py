# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of metrics: when it is written, where, that it holds nobody up, and that it goes with Corral."""

from __future__ import annotations

import json
import sys
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.managers import registry
from _core.managers.agent import agent_install
from _core.model.agent.agent_units import METRICS_DIR, SERVICE, AgentOptions
from _core.model.plan.plan import Plan
from _core.model.values.errors import CorralError
from _core.pipeline import planning
from shared_data import REPOSITORY

sys.path.append(str(REPOSITORY / "tests" / "lab"))

from read_metrics import parse

FILE = f"{METRICS_DIR}/corral.prom"
STATUS = "/run/corral/status.json"
PID_MAX = "/proc/sys/kernel/pid_max"
ELSEWHERE = "/srv/metrics"


def folder(fake: node.Node, path: str = METRICS_DIR) -> node.Node:
    (fake.root / path.lstrip("/")).mkdir(parents=True)
    return fake


def make_rolled(fake: node.Node) -> None:
    """In sync, with metrics, at the beginning of a minute of the clock."""
    fake.time = 1_700_000_040.0
    runs.converged(folder(fake), with_agent=True)
    runs.tick(fake.host())


@pytest.fixture
def rolled(made_once: node.MadeOnce) -> node.Node:
    return made_once(make_rolled)


def samples(fake: node.Node, path: str = FILE) -> dict[str, float]:
    found, wrong = parse(fake.get(path))
    assert wrong == []
    return found


def metrics_written(fake: node.Node) -> int:
    """A tick; how often it wrote the metrics, and that it wrote nothing but them, the status, and since when drift is seen."""
    host = fake.host()
    runs.tick(host)
    kept = [path for path in host.writes if path not in ("/run/corral/inputs", state.SINCE)]
    assert kept == [*[FILE] * kept.count(FILE), STATUS]
    assert host.commands == []
    return kept.count(FILE)


def test_a_converged_tick_writes_them_once_a_minute(rolled: node.Node) -> None:
    written = []
    for dummy in range(18):
        rolled.wait(10)
        written.append(metrics_written(rolled))
    assert written == [0, 0, 0, 0, 0, 1] * 3


def test_a_clock_that_is_set_does_not_stop_them(rolled: node.Node) -> None:
    rolled.time -= 86400
    assert metrics_written(rolled) == 1
    assert metrics_written(rolled) == 0


def test_what_a_tick_saw_is_in_them(rolled: node.Node) -> None:
    found = samples(rolled)
    assert {name: value for name, value in found.items() if "drift_items" in name} == {
        f'corral_drift_items{{manager="{manager}",verdict="{verdict}"}}': 0
        for manager in registry.names()
        for verdict in ("drift", "unchangeable", "unknown")
    }
    assert found["corral_in_sync"] == 1
    assert found["corral_last_tick_timestamp_seconds"] == int(rolled.time)
    assert found["corral_last_tick_duration_seconds"] == 0
    assert found['corral_pool_cpus{pool="reserved",numa_node="1"}'] == 2
    assert found['corral_hugepages_actual{size="2Mi",numa_node="1"}'] == 32
    assert found['corral_profile_info{name="edge"}'] == 1
    assert rolled.host().mode(FILE) == 0o644


def test_drift_is_told_at_once_and_so_is_its_end(rolled: node.Node) -> None:
    fake = rolled
    runs.declare(fake.host(), mode="audit")
    runs.tick(fake.host())
    fake.kernel_write(PID_MAX, "40000")
    assert metrics_written(fake) == 1
    assert metrics_written(fake) == 0
    found = samples(fake)
    assert found['corral_drift_items{manager="pids",verdict="drift"}'] == 1
    assert (found["corral_in_sync"], found['corral_mode{mode="audit"}']) == (0, 1)
    assert found["corral_last_in_sync_timestamp_seconds"] == int(fake.time)
    fake.kernel_write(PID_MAX, "65536")
    assert metrics_written(fake) == 1
    assert samples(fake)["corral_in_sync"] == 1


def test_what_was_mended_and_what_failed_is_counted(rolled: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = rolled
    assert not runs.declare(fake.host(), memory={"hugepages": [{"size": "2Mi", "count": 32, "node": 1}]}).error
    runs.tick(fake.host())
    before = samples(fake)["corral_changes_total"]
    fake.kernel_write(PID_MAX, "40000")
    runs.tick(fake.host())
    found = samples(fake)
    assert found["corral_changes_total"] == before + 1
    assert found["corral_last_change_timestamp_seconds"] == int(fake.time)
    converged = int(fake.time)
    fake.put("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       1024 kB\n")
    for dummy in range(6):
        fake.wait(10)
        assert runs.tick(fake.host()) == 1
    found = samples(fake)
    assert (found["corral_tick_errors_total"], found["corral_in_sync"]) == (6, 0)
    assert found["corral_last_in_sync_timestamp_seconds"] == converged
    assert not [name for name in found if "drift_items" in name], "nobody could look"


def test_the_duration_is_measured_by_a_clock_that_nobody_sets(
    rolled: node.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = planning.plan_profile

    def slow(*words: t.Any, **more: t.Any) -> Plan:
        rolled.up += 0.25
        rolled.time -= 5000
        return real(*words, **more)

    monkeypatch.setattr(planning, "plan_profile", slow)
    rolled.set_pool(rolled.root / node.pool_file(1).lstrip("/"), 20)
    runs.tick(rolled.host())
    assert samples(rolled)["corral_last_tick_duration_seconds"] == 0.5, "it looked, mended, and looked again"


def test_a_short_pool_and_a_pause_are_in_them(rolled: node.Node) -> None:
    fake = rolled
    runs.command(fake.host(), "pause", "--for", "1h")
    fake.set_pool(fake.root / node.pool_file(1).lstrip("/"), 20)
    assert metrics_written(fake) == 1
    found = samples(fake)
    assert (found["corral_paused"], found["corral_paused_until_timestamp_seconds"]) == (1, int(fake.time) + 3600)
    assert found['corral_hugepages_wanted{size="2Mi",numa_node="1"}'] == 32
    assert found['corral_hugepages_actual{size="2Mi",numa_node="1"}'] == 20
    runs.command(fake.host(), "resume")
    runs.tick(fake.host())
    found = samples(fake)
    assert (found["corral_paused"], found["corral_paused_until_timestamp_seconds"]) == (0, 0)
    assert found['corral_hugepages_actual{size="2Mi",numa_node="1"}'] == 32, "as it is after the tick"


def test_without_the_folder_nothing_is_written(with_agent: node.Node) -> None:
    runs.tick(with_agent.host())
    with_agent.wait(60)
    assert metrics_written(with_agent) == 0
    assert not with_agent.has("/var/lib/prometheus")
    folder(with_agent)
    with_agent.wait(60)
    assert metrics_written(with_agent) == 1, "it came later"


def test_that_they_cannot_be_written_is_said_once_and_fails_no_tick(
    rolled: node.Node, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = node.NodeHost.write_file

    def refuse(host: node.NodeHost, path: str, *more: t.Any) -> None:
        if path == FILE:
            raise OSError(30, "Read-only file system", path)
        real(host, path, *more)

    with monkeypatch.context() as patch:
        patch.setattr(node.NodeHost, "write_file", refuse)
        capsys.readouterr()
        for dummy in range(15):
            rolled.wait(10)
            assert runs.tick(rolled.host()) == 0
        (line,) = capsys.readouterr().err.splitlines()
    assert (
        line
        == f"<4>{FILE}: cannot be written (Read-only file system): no metrics are written, and the profile is still enforced"
    )
    told = json.loads(rolled.get(STATUS))
    assert (told["in_sync"], told["metrics_error"]) == (True, line[3:])
    rolled.wait(60)
    assert metrics_written(rolled) == 1
    assert json.loads(rolled.get(STATUS))["metrics_error"] is None


# Where they go


def writable(fake: node.Node) -> list[str]:
    """The folders that the agent's unit may write in; "-": it need not be there."""
    lines = fake.get(f"/etc/systemd/system/{SERVICE}").splitlines()
    return next(line for line in lines if line.startswith("ReadWritePaths=")).partition("=")[2].split()


def test_another_folder(rolled: node.Node) -> None:
    fake = folder(rolled, ELSEWHERE)
    outcome = runs.install(fake.host(), options=AgentOptions(10, "/usr/bin/python3", ELSEWHERE))
    assert (outcome.error, outcome.remaining) == ("", ())
    assert not fake.has(FILE), "the old one went"
    fake.wait(60)
    runs.tick(fake.host())
    assert samples(fake, f"{ELSEWHERE}/corral.prom")["corral_in_sync"] == 1
    assert writable(fake)[-2:] == ["-/usr/libexec/corral", f"-{ELSEWHERE}"]
    assert runs.install(fake.host(), options=AgentOptions(10, "/usr/bin/python3", ELSEWHERE)).applied == ()


def test_switched_off(rolled: node.Node) -> None:
    assert not runs.install(rolled.host(), options=AgentOptions(10, "/usr/bin/python3", "")).error
    assert not rolled.has(FILE)
    rolled.wait(60)
    assert metrics_written(rolled) == 0
    assert writable(rolled)[-1] == "-/usr/libexec/corral"


@pytest.mark.parametrize("managers", [registry.names(), registry.of_profile(), (agent_install.NAME,)])
def test_they_go_with_corral(fake: node.Node, managers: tuple[str, ...]) -> None:
    before = folder(fake).fingerprint()
    runs.converged(fake, with_agent=True)
    runs.tick(fake.host())
    assert fake.has(FILE)
    outcome = runs.remove(fake.host(), managers)
    assert (outcome.error, outcome.leftovers, outcome.remaining) == ("", (), ())
    assert not fake.has(FILE)
    assert runs.remove(fake.host()).leftovers == ()
    assert node.different(before, fake.fingerprint()) == []
    assert planning.plan_removal(fake.host(), registry.names()).changes == ()


@pytest.mark.parametrize(
    ("path", "said"),
    [("metrics", "absolute path"), ("/srv/a b", "absolute path"), ("/srv/../etc", "absolute path"), ("/", "absolute path"),
     ("/srv/", "absolute path"), ("/srv/%h", "absolute path"), ("/srv/a\nb", "absolute path"), ("/tmp/x", "cannot write"),
     ("/home/x", "cannot write"), ("/sys", "cannot write"), ("/srv/none", "make it first"), ("/etc/passwd", "make it first")],
)  # fmt: skip
def test_a_folder_into_which_the_agent_could_not_write_is_refused(fake: node.Node, path: str, said: str) -> None:
    with pytest.raises(CorralError, match=said):
        agent_install.check_metrics_dir(fake.host(), path)


def test_a_folder_that_is_there_is_taken(fake: node.Node) -> None:
    agent_install.check_metrics_dir(folder(fake, ELSEWHERE).host(), ELSEWHERE)


@pytest.mark.parametrize("chosen", [5, None, ["x"]])
def test_an_odd_setting_is_the_usual_folder(rolled: node.Node, chosen: t.Any) -> None:
    data = json.loads(rolled.get("/etc/corral/agent.json"))
    rolled.put("/etc/corral/agent.json", json.dumps({**data, "metrics_dir": chosen}))
    options = agent_install.installed(rolled.host())
    assert options is not None
    assert options.metrics_dir == METRICS_DIR


def test_a_python_that_is_gone_takes_no_other_choice_with_it(fake: node.Node) -> None:
    newer = "/usr/bin/python3.13"
    assert agent_install.installed_or_usual(fake.host(), newer) == AgentOptions(10, newer)
    fake.put("/usr/bin/python3", "")
    chosen = AgentOptions(60, "/usr/bin/python3", ELSEWHERE)
    assert not runs.install(fake.host(), options=chosen).error
    assert agent_install.installed_or_usual(fake.host(), newer) == chosen
    fake.drop("/usr/bin/python3")
    assert agent_install.installed_or_usual(fake.host(), newer) == chosen._replace(python=newer)
