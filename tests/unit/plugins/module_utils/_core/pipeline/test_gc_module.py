# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gc as Ansible runs it: what it declares, the pass that ``collect`` makes, and what ``corral status`` shows."""

from __future__ import annotations

import importlib
import json
import re
import sys
import types
import typing as t

import node
import pytest
import runs
from _core.host import state
from _core.host.command import Command
from _core.host.files import Host
from _core.reports import gc_report
from fake_podman import Service
from shared_data import REPOSITORY

pytest.importorskip("ansible.module_utils.basic")

STORE = "/var/lib/containers/storage"
TIMER = "corral-gc.timer"
OPTIONS = ("images", "containers", "users")
GIB = 1 << 30
ALL: dict[str, t.Any] = {"images": {"min_age": "0s"}, "containers": {"scope": "all", "max_per_workload": 0}}


def shell() -> t.Any:
    """The module's own code, as a package of another name; it brings a core of its own, which works on the same nodes."""
    package = types.ModuleType("corral_shell")
    package.__path__ = [str(REPOSITORY / "plugins" / "module_utils")]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}._gc")


GC = shell()
sys.modules[f"{GC.__package__}._core.host.containers.podman_cli"].Podman.serve = staticmethod(Service)  # type: ignore[attr-defined]


class Podman:
    """Some images and containers of root's; an image gives its size back when it goes."""

    def __init__(self, fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.capacity, self.free = 100 * GIB, 5 * GIB
        self.images = {f"{number}" * 64: f"localhost/app:{number}" for number in range(1, 5)}
        self.dead = {"a" * 64: "batch-1", "b" * 64: "batch-2"}
        self.fail: tuple[str, ...] = ()
        self.removed: list[str] = []
        self.before = fake.run
        monkeypatch.setattr(fake, "run", self.run)
        for kind in (Host, sys.modules[f"{GC.__package__}._core.host.files"].Host):
            monkeypatch.setattr(kind, "space", lambda dummy, path: (1, self.capacity, self.free))

    def run(self, *argv: str) -> Command:
        if argv[0] != "podman":
            return self.before(*argv)
        if argv[1] == "events":
            return Command(0, "", "")
        if argv[1] == "image":
            return Command(125, "", "Error: image not known")
        if argv[1] in self.fail:
            return Command(125, "", "Error: the database is locked")
        created = 1_699_000_000
        answers: dict[str, t.Any] = {
            "info": {"store": {"graphRoot": STORE, "graphDriverName": "overlay"}},
            "images": [{"Id": key, "Names": [name], "Size": 10 * GIB} for key, name in self.images.items()],
            "ps": [
                {"Id": key, "Names": [name], "State": "exited", "ImageID": "1" * 64, "Created": created + index,
                 "ExitedAt": created + 60 + index}
                for index, (key, name) in enumerate(self.dead.items())
            ],
            "pod": [],
        }  # fmt: skip
        if argv[1] in answers:
            return Command(0, json.dumps(answers[argv[1]]), "")
        assert argv[1] in ("rm", "rmi"), argv
        self.removed.append((self.images if argv[1] == "rmi" else self.dead).pop(argv[-1]))
        self.free += 10 * GIB if argv[1] == "rmi" else 0
        return Command(0, "", "")


class Module:
    """What AnsibleModule is to the code: parameters in, warnings out."""

    def __init__(self, *, check: bool = False, **params: t.Any) -> None:
        common = {"state": "present", "during_pause": "refuse", "lock_timeout": 1, "collect": False}
        self.params: dict[str, t.Any] = {**common, **dict.fromkeys(OPTIONS), **params}
        self.check_mode, self._diff, self._verbosity = check, True, 0
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture
def podman(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> Podman:
    runs.install(fake.host())
    return Podman(fake, monkeypatch)


def task(fake: node.Node, *, check: bool = False, warned: tuple[str, ...] = (), **params: t.Any) -> dict[str, t.Any]:
    """One task of the module."""
    module = Module(check=check, **params)
    patch = GC.SectionPatch("gc", {name: module.params[name] for name in OPTIONS}, module.params["state"] == "present")
    result = t.cast("dict[str, t.Any]", GC.gc_task(module, fake.host(), patch))
    assert tuple(module.warnings) == warned
    return result


def refused(fake: node.Node, **params: t.Any) -> str:
    """What the module says when it refuses."""
    before = fake.fingerprint("run/corral")
    with pytest.raises(GC._module.CorralError) as error:
        task(fake, **params)
    assert fake.fingerprint("run/corral") == before
    return str(error.value)


def declared(fake: node.Node) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(fake.get(state.DECLARED)))


def test_what_is_given_is_added_and_an_empty_mapping_takes_the_defaults(fake: node.Node, podman: Podman) -> None:
    none = dict.fromkeys(("high", "low", "min_age", "max_age", "interval", "keep"))
    assert task(fake, images=none)["changed"]
    defaults = {"high": 85, "low": 80, "min_age": "2m", "max_age": "0s", "interval": "5m"}
    assert declared(fake)["gc"] == {"images": defaults}
    task(fake, images={**none, "max_age": "30d", "keep": ["base", "tools"]}, containers={"scope": "all"})
    task(fake, images={**none, "keep": ["base"]})
    assert declared(fake)["gc"]["images"] == {**defaults, "max_age": "30d", "keep": ["base"]}
    assert declared(fake)["gc"]["containers"]["scope"] == "all"
    assert task(fake, images=none)["changed"] is False
    assert podman.removed == []
    assert task(fake, state="absent")["changed"]
    assert not fake.has(state.DECLARED)


def test_check_mode_is_a_dry_run_that_writes_nothing_even_before_anything_is_declared(
    fake: node.Node, podman: Podman
) -> None:
    before = fake.fingerprint()
    result = task(fake, check=True, collect=True, **ALL)
    assert (fake.fingerprint(), podman.removed) == (before, [])
    assert result["changed"]
    assert [change["subject"] for change in result["changes"]][-1] == state.ORIGINS
    told = result["collected"]
    assert told["dry"] == "asked for a dry run"
    assert [one["names"] for one in told["containers"]["removed"]] == [("container batch-1",), ("container batch-2",)]
    # The declaration is not in place, and nobody knows yet for how long an image was not used: the disk alone decides.
    assert told["images"]["freed"] == 20 * GIB
    plan, going = result["diff"]
    assert "corral-gc.timer" in plan["after"]
    assert sorted(going["before"].splitlines())[:2] == ["container batch-1", "container batch-2"]
    assert going["before"].count("image localhost/app:") == 2
    assert going["after"] == ""
    assert result["report"][-1] == "4 would go, about 20Gi"


def test_a_pass_is_made_after_the_declaration_is_in_place(fake: node.Node, podman: Podman) -> None:
    result = task(fake, collect=True, **ALL)
    assert (result["changed"], result["in_sync"], result["drift"]) == (True, True, [])
    assert sorted(podman.removed)[:2] == ["batch-1", "batch-2"]
    assert len(podman.removed) == 4
    assert result["collected"]["images"]["file_systems"][0]["used_percent"] == 75
    assert TIMER in fake.systemd.active
    again = task(fake, collect=True, **ALL)
    assert (again["changed"], again["report"][-1]) == (False, "nothing to collect")
    assert isinstance(again["diff"], dict)


def test_with_its_part_goes_all_that_a_pass_left(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    Podman(fake, monkeypatch)
    before = fake.fingerprint()
    warned = ("gc: collects once the agent is installed on the node (corral.node.agent)",)
    task(fake, collect=True, warned=warned, **ALL)
    assert task(fake, state="absent")["changed"]
    assert node.different(before, fake.fingerprint()) == []


@pytest.mark.parametrize("how", ["module", "command"])
def test_what_a_pass_leaves_is_in_the_status_when_it_returns(how: str, fake: node.Node, podman: Podman) -> None:
    def items() -> list[tuple[str, str]]:
        if how == "module":
            task(fake, collect=True)
        else:
            runs.command(fake.host(), "gc")
        status = json.loads(fake.get(state.STATUS))
        assert status["in_sync"] == (not status["items"])
        return [(item["subject"], item["property"]) for item in status["items"]]

    task(fake, images={"min_age": "0s"})
    podman.fail = ("rmi",)
    fake.wait(3600)
    assert items() == [(STORE, "disk use")]
    podman.fail = ()
    assert items() == []


def test_collect_alone_is_a_pass_by_what_is_declared_whatever_its_name(fake: node.Node, podman: Podman) -> None:
    workloads = [{"name": "batch", "match": {"container": "batch-*"}}]
    runs.declare(fake.host(), gc={"containers": {}}, workloads=workloads)
    assert task(fake, check=True, collect=True)["collected"]["containers"]["dead"] == 2
    result = task(fake, collect=True)
    assert (podman.removed, result["changed"], result["changes"]) == (["batch-1"], True, [])
    assert result["collected"]["images"] is None
    assert refused(fake, collect=True, images={}).startswith("this node has the profile edge")
    assert refused(fake, images={}).startswith("this node has the profile edge")
    assert task(fake, containers={})["changed"] is False


def test_what_makes_no_sense_is_refused(fake: node.Node, podman: Podman) -> None:
    assert refused(fake).startswith("declares nothing: write images or containers, or collect: true")
    assert refused(fake, users=["root"]).startswith("collects nothing: write images or containers")
    assert refused(fake, collect=True).startswith("collect: this node declares no gc")
    assert refused(fake, collect=True, state="absent").startswith("collect: ")
    assert refused(fake, images={"high": 70, "low": 90}) == (
        "images.low: 90: is not below images.high (70): write at most 69, or a larger images.high"
    )
    assert refused(fake, containers={"min_age": "1 hour"}).startswith(
        "containers.min_age: 1 hour: is not a valid duration"
    )
    assert refused(fake, images={}, users=["nobody-knows"]).startswith(
        "users[0]: nobody-knows: this node has no such user"
    )
    runs.converged(fake)
    assert refused(fake, collect=True).startswith("collect: this node declares no gc")


def test_a_node_with_a_kubelet_is_refused(fake: node.Node, podman: Podman) -> None:
    fake.put("/etc/systemd/system/multi-user.target.wants/kubelet.service", "")
    fake.put("/usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    (fake.root / "etc/systemd/system/multi-user.target.wants/kubelet.service").unlink()
    (fake.root / "etc/systemd/system/multi-user.target.wants/kubelet.service").symlink_to("/lib/kubelet.service")
    assert refused(fake, images={}, collect=True).startswith("kubelet.service on this node collects")
    assert podman.removed == []


def test_without_the_agent_nobody_would_collect(fake: node.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    podman = Podman(fake, monkeypatch)
    warned = ("gc: collects once the agent is installed on the node (corral.node.agent)",)
    task(fake, images={}, warned=warned)
    task(fake, images={"min_age": "0s"}, collect=True, warned=warned)
    assert len(podman.removed) == 2


def test_without_workloads_the_scope_declared_is_warned_about(fake: node.Node, podman: Podman) -> None:
    said = "gc.containers: no workloads are declared, so no container goes; scope: all means every dead one"
    task(fake, containers={}, collect=True, warned=(said,))
    assert podman.removed == []


def test_what_cannot_be_looked_at_fails_and_nothing_goes(fake: node.Node, podman: Podman) -> None:
    podman.fail = ("images",)
    result = task(fake, collect=True, **ALL)
    assert (result["failed"], result["changed"]) == (True, True)
    assert result["msg"] == "not collected: podman images: the database is locked"
    assert podman.removed == [], "a storage that cannot list its images is not relied upon"
    assert {(item["verdict"], item["reason"]) for item in result["drift"]} == {
        ("unknown", "podman images: the database is locked")
    }
    podman.fail = ()
    assert task(fake, collect=True)["in_sync"], "what the pass before had left undone is told anew"


def test_a_paused_node_keeps_everything_unless_the_task_says_otherwise(fake: node.Node, podman: Podman) -> None:
    task(fake, **ALL)
    runs.command(fake.host(), "pause", "--for", "1h")
    assert task(fake, check=True, collect=True)["changed"]
    with pytest.raises(GC._module.CorralError, match="nothing was changed: end the pause"):
        task(fake, collect=True)
    assert podman.removed == []
    # What would go is drift by now, and none that this task could mend.
    assert task(fake, **ALL)["changed"] is False
    assert task(fake, collect=True, during_pause="apply")["changed"]
    assert len(podman.removed) == 4
    assert task(fake, collect=True)["changed"] is False, "there is nothing to change"


def test_mode_audit_only_looks(fake: node.Node, podman: Podman) -> None:
    runs.declare(fake.host(), gc={"images": {"min_age": "0s"}}, mode="audit")
    for check in (True, False):
        result = task(fake, collect=True, check=check)
        assert (result["changed"], result["collected"]["dry"]) == (False, "mode audit")
        assert len(result["collected"]["images"]["file_systems"][0]["removed"]) == 2
        assert isinstance(result["diff"], dict)
    assert (podman.removed, result["in_sync"]) == ([], False)
    assert result["drift"][0]["reason"].startswith("would free about 20Gi (mode audit): localhost/app:")


def test_a_pass_that_another_one_keeps_out_is_refused(fake: node.Node, podman: Podman) -> None:
    task(fake, **ALL)
    held = GC.gc_pass.lock.Lock(fake.host(), GC.gc_pass.LOCK)
    assert held.take()
    try:
        assert refused(fake, collect=True, lock_timeout=0).endswith(
            "another pass of garbage collection runs: try again"
        )
        assert task(fake, check=True, collect=True)["collected"]["dry"], "a dry run is in nobody's way"
    finally:
        held.release()
    assert podman.removed == []


# corral status


def shown(fake: node.Node, *words: str) -> str:
    runs.tick(fake.host())
    return runs.printed(fake.host(), "status", *words, code=None)


def columns(lines: t.Iterable[str]) -> list[list[str]]:
    return [re.split(" {2,}", line) for line in lines if line.startswith("gc")]


def test_status_shows_the_last_passes(fake: node.Node, podman: Podman) -> None:
    task(fake, **ALL)
    assert columns(shown(fake).splitlines()) == [], "no pass was made"
    task(fake, collect=True)
    fake.wait(42)
    assert columns(shown(fake).splitlines()) == [
        [
            f"gc: {STORE}: 75 % of 100Gi used, images go from 85 % down to 80 %",
            "42 s ago: 2 removed, 20Gi freed",
        ],
        ["gc: containers: 0 dead", "42 s ago: 2 removed"],
        ["gc: since the node started 2 images and 2 containers removed, 20Gi freed, 0 failures"],
    ]
    assert json.loads(shown(fake, "--json"))["gc"]["totals"]["images"] == 2
    fake.put(state.GC_STATUS, '{"images": 1}')
    assert f"gc: {state.GC_STATUS} is not as Corral wrote it" in shown(fake)


@pytest.mark.parametrize("moment", ["1" + "0" * 400, "Infinity", "NaN", "-Infinity"])
def test_a_pass_at_no_possible_time_is_no_pass(fake: node.Node, podman: Podman, moment: str) -> None:
    runs.declare(fake.host(), gc=ALL)
    fake.put(state.GC_STATUS, f'{{"time": {moment}}}')
    assert runs.tick(fake.host(), by_timer=False) == 0
    fake.put(state.GC_STATUS, f'{{"time": {moment}}}')
    assert runs.tick(fake.host(), by_timer=True) == 0


def test_status_shows_what_would_go_and_what_failed(fake: node.Node, podman: Podman) -> None:
    def rows() -> list[list[str]]:
        task(fake, collect=True)
        return columns(gc_report.lines_of(json.loads(fake.get(state.GC_STATUS)), fake.time))

    runs.declare(fake.host(), gc={"images": {"min_age": "0s"}, "containers": {"scope": "all"}}, mode="audit")
    assert [row[-1] for row in rows()] == [
        "0 s ago: 2 would go (mode audit), 20Gi",
        "0 s ago: 1 would go (mode audit)",
        "gc: since the node started 0 images and 0 containers removed, 0 freed, 0 failures",
    ]
    podman.fail = ("ps",)
    assert rows() == [
        ["gc: images: not all known", "0 s ago: 1 failed"],
        ["gc: containers: not all known", "0 s ago: 0 removed, 1 failed"],
        ["gc: since the node started 0 images and 0 containers removed, 0 freed, 1 failures"],
    ]
