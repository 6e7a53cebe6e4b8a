# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be in force of a kubelet's configuration, and the files that have to say it: over files that are observed."""

from __future__ import annotations

import json
import typing as t

import pytest
import yaml
from _core.host.kubelet.kubelet_node import KubeletFiles
from _core.managers.kubelet import kubelet_target
from _core.managers.kubelet.kubelet_observed import Kept, ObservedKubelet
from _core.managers.kubelet.kubelet_target import Target
from _core.model.kubelet.config_text import NotEditable
from _core.model.kubelet.kubelet_config import Layer, effective
from _core.model.kubelet.kubelet_wanted import Wanted
from _core.model.plan.plan import Step

CONFIG, FOLDER, OTHER = "/var/lib/kubelet/config.yaml", "/etc/kubelet.d", "/etc/kubelet/config.yaml"
DROPIN, KEPT = f"{FOLDER}/20-corral.conf", "/var/lib/corral/kubelet.json"
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
HEADER = "# Corral (corral.node) keeps this file as /etc/corral/profile.json declares; a change by hand is drift.\n"
NONE = Kept()
# Phase and order.
FIRST, BEFORE, FILES, AFTER = (5, -40), (5, -30), (60, 0), (60, 20)


def observed(
    texts: dict[str, str | None], kept: Kept = NONE, folder: str = "", flags: tuple[Layer, ...] = ()
) -> ObservedKubelet:
    """A node with these files of configuration; the kubelet reads drop-ins of a folder."""
    names = [CONFIG, *sorted(path for path in texts if folder and path.startswith(folder))]
    read = [(path, texts.get(path)) for path in names]
    layers = [Layer(path, yaml.safe_load(text), path != CONFIG) for path, text in read if text is not None]
    modes = {path: 0o600 for path, text in texts.items() if text is not None}
    places = KubeletFiles("/var/lib/kubelet", CONFIG, folder, {})
    return ObservedKubelet("", None, places, tuple(layers), texts, (), flags, modes, kept=kept)


def planned(seen: ObservedKubelet, **keys: t.Any) -> tuple[Target, list[tuple[str, t.Any, t.Any]]]:
    then = kubelet_target.target(seen, Wanted(keys))
    return then, [shown(step) for step in kubelet_target.write_steps(seen, then)]


def shown(step: Step) -> tuple[str, t.Any, t.Any]:
    value = step.value
    if step.target == KEPT and value is not None:
        value = json.loads(value)["data"]
    assert step.kind == "file"
    assert step.mode == {KEPT: 0o600 if value else 0o644, DROPIN: 0o644}.get(step.target, 0o600)
    return step.target, value, (step.phase, step.order)


def kept_text(file: str, **lines: str | None) -> dict[str, t.Any]:
    return {"file": file, "lines": lines}


# A file of others, without drop-ins.


def test_keys_are_written_once_the_lines_that_they_had_are_kept() -> None:
    seen = observed({CONFIG: f"{HEAD}maxPods: 110 # usual\npodsPerCore: 4\n"})
    then, steps = planned(seen, maxPods=50, podPidsLimit=9)
    assert steps == [
        (CONFIG, f"{HEAD}maxPods: 50\npodsPerCore: 4\npodPidsLimit: 9\n", FILES),
        (KEPT, kept_text(CONFIG, maxPods="maxPods: 110 # usual\n", podPidsLimit=None), BEFORE),
    ]
    assert (then.config.get("maxPods"), then.config.get("podsPerCore"), then.config.origins["maxPods",]) == (
        50,
        4,
        CONFIG,
    )
    flag = Layer("--max-pods", {"maxPods": 7})
    assert planned(observed({CONFIG: HEAD}, flags=(flag,)), maxPods=50)[0].config.get("maxPods") == 7


def test_lines_come_back_before_they_are_kept_no_longer() -> None:
    kept = Kept(CONFIG, {"maxPods": "maxPods: 110 # usual\n", "podPidsLimit": None})
    seen = observed({CONFIG: f"{HEAD}maxPods: 50\npodPidsLimit: 9\n"}, kept)
    assert planned(seen, maxPods=50, podPidsLimit=9)[1] == []
    then, steps = planned(seen, podPidsLimit=9)
    assert steps == [
        (CONFIG, f"{HEAD}maxPods: 110 # usual\npodPidsLimit: 9\n", FILES),
        (KEPT, kept_text(CONFIG, podPidsLimit=None), AFTER),
    ]
    assert then.config.get("maxPods") == 110
    assert planned(seen)[1] == [(CONFIG, f"{HEAD}maxPods: 110 # usual\n", FILES), (KEPT, None, AFTER)]
    assert planned(seen, podPidsLimit=9, podsPerCore=3)[1] == [
        (CONFIG, f"{HEAD}maxPods: 110 # usual\npodPidsLimit: 9\npodsPerCore: 3\n", FILES),
        (KEPT, kept_text(CONFIG, maxPods="maxPods: 110 # usual\n", podPidsLimit=None, podsPerCore=None), BEFORE),
        (KEPT, kept_text(CONFIG, podPidsLimit=None, podsPerCore=None), AFTER),
    ]


def test_a_line_that_says_so_already_stays_as_it_is_written() -> None:
    text = f"{HEAD}imageMinimumGCAge: 120s # two minutes\n"
    assert planned(observed({CONFIG: text}), imageMinimumGCAge="2m") == (
        Target(effective([Layer(CONFIG, yaml.safe_load(text))]), text),
        [],
    )
    # It was Corral's, and is written otherwise by now.
    kept = Kept(CONFIG, {"imageMinimumGCAge": None})
    then, steps = planned(observed({CONFIG: text}, kept), imageMinimumGCAge="2m")
    assert (then.text, then.kept, steps) == (text, kept, [])


def test_gates_of_others_stay_in_their_file() -> None:
    seen = observed({CONFIG: f"{HEAD}featureGates: {{A: false}}\n"})
    then, steps = planned(seen, featureGates={"B": True})
    assert then.config.get("featureGates") == {"A": False, "B": True}
    assert steps[1] == (KEPT, kept_text(CONFIG, featureGates="featureGates: {A: false}\n"), BEFORE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # Another key has its value from the one that changes.
        (f"{HEAD}maxPods: &n 110\npodsPerCore: *n\n", "found undefined alias"),
        (f"{HEAD}maxPods: 1\nmaxPods: 2\n", "the key maxPods is there twice"),
        ('{"maxPods": 1}', "line 1 begins no key"),
    ],
)
def test_a_file_whose_keys_hang_together_is_not_edited(text: str, said: str) -> None:
    with pytest.raises(NotEditable, match=said):
        planned(observed({CONFIG: text}), maxPods=50)


def test_a_value_that_does_not_read_back_is_not_written() -> None:
    with pytest.raises(NotEditable, match="the result would not be what is wanted"):
        planned(observed({CONFIG: HEAD}), enforceNodeAllocatable=("pods",))


def test_a_file_of_nothing_but_corrals_keys_is_empty_without_them() -> None:
    kept = Kept(CONFIG, {"maxPods": None})
    for rest in ("", "# nothing\n"):
        then, steps = planned(observed({CONFIG: f"{rest}maxPods: 50\n"}, kept))
        assert (then.text, then.config.get("maxPods")) == (rest, 110)
        assert steps == [(CONFIG, rest, FILES), (KEPT, None, AFTER)]


@pytest.mark.parametrize("wanted", [{"podPidsLimit": 5}, {}])
def test_a_file_that_is_read_no_longer_has_its_lines_back_before_others_are_kept(wanted: dict[str, int]) -> None:
    kept = Kept(OTHER, {"maxPods": "maxPods: 70\n", "podPidsLimit": None})
    seen = observed({CONFIG: f"{HEAD}maxPods: 110\n", OTHER: f"{HEAD}maxPods: 50\npodPidsLimit: 5\n"}, kept)
    then, steps = planned(seen, **wanted)
    back = (OTHER, f"{HEAD}maxPods: 70\n", FIRST)
    assert then.config.get("maxPods") == 110
    if not wanted:
        assert steps == [back, (KEPT, None, AFTER)]
        return
    assert steps == [
        (CONFIG, f"{HEAD}maxPods: 110\npodPidsLimit: 5\n", FILES),
        back,
        (KEPT, kept_text(CONFIG, podPidsLimit=None), BEFORE),
    ]


@pytest.mark.parametrize("text", [None, f"{HEAD}maxPods: 70\n"])
def test_a_file_that_is_gone_or_has_its_lines_already_is_only_forgotten(text: str | None) -> None:
    kept = Kept(OTHER, {"maxPods": "maxPods: 70\n"})
    seen = observed({CONFIG: HEAD, OTHER: text}, kept)
    assert [shown(step) for step in kubelet_target.moved_away(seen)] == [(KEPT, None, AFTER)]
    assert planned(seen)[1] == [(KEPT, None, AFTER)]
    seen = observed({CONFIG: HEAD, OTHER: text}, kept, FOLDER)
    assert planned(seen)[1] == [(KEPT, None, AFTER)]


# A drop-in of Corral's own.


def test_a_drop_in_has_what_is_wanted_and_null_for_what_others_have_more() -> None:
    seen = observed({CONFIG: f"{HEAD}maxPods: 110\nsystemReserved: {{cpu: '1', pid: '9'}}\n"}, folder=FOLDER)
    then, steps = planned(seen, maxPods=50, systemReserved={"cpu": "2"})
    text = f"{HEADER}{HEAD}maxPods: 50\nsystemReserved: {{pid: null, cpu: '2'}}\n"
    assert [(path, yaml.safe_load(value), at) for path, value, at in steps] == [(DROPIN, yaml.safe_load(text), FILES)]
    assert (then.text or "").startswith(HEADER)
    assert (then.config.get("maxPods"), then.config.get("systemReserved")) == (50, {"cpu": "2"})
    assert then.config.origins["maxPods",] == DROPIN
    assert then.kept == Kept()


def test_a_drop_in_is_written_only_where_others_do_not_give_the_same() -> None:
    files = {CONFIG: f"{HEAD}maxPods: 50\n"}
    assert planned(observed(files, folder=FOLDER), maxPods=50)[1] == []
    then, steps = planned(observed(files, folder=FOLDER), maxPods=60)
    assert [step[0] for step in steps] == [DROPIN]
    own = {**files, DROPIN: then.text}
    assert planned(observed(own, folder=FOLDER), maxPods=60)[1] == []
    # It is there: it says what is wanted, also where others do.
    (step,) = planned(observed(own, folder=FOLDER), maxPods=50)[1]
    assert (step[0], yaml.safe_load(step[1])["maxPods"]) == (DROPIN, 50)
    # One that the kubelet does not take is among no layers, and is written again.
    damaged = observed(own, folder=FOLDER)
    damaged = damaged._replace(layers=damaged.layers[:1])
    assert [step[0] for step in planned(damaged, maxPods=50)[1]] == [DROPIN]
    # With nothing to say it goes.
    assert planned(observed(own, folder=FOLDER))[1] == [(DROPIN, None, FILES)]
    assert planned(observed(files, folder=FOLDER)) == (Target(effective(observed(files).layers), None), [])


def test_a_drop_in_takes_the_place_of_keys_in_a_file_of_others() -> None:
    """That file has its own lines again, so that the drop-in is over those."""
    kept = Kept(CONFIG, {"maxPods": "maxPods: 110\n", "systemReserved": "systemReserved: {pid: '9'}\n"})
    text = f"{HEAD}maxPods: 50\nsystemReserved: {{cpu: '2'}}\npodsPerCore: 4\n"
    seen = observed({CONFIG: text}, kept, FOLDER)
    then, steps = planned(seen, maxPods=50, systemReserved={"cpu": "2"})
    assert [(path, yaml.safe_load(value or ""), at) for path, value, at in steps] == [
        (DROPIN, {**yaml.safe_load(HEAD), "maxPods": 50, "systemReserved": {"pid": None, "cpu": "2"}}, FILES),
        (CONFIG, yaml.safe_load(f"{HEAD}maxPods: 110\nsystemReserved: {{pid: '9'}}\npodsPerCore: 4\n"), FILES),
        (KEPT, None, AFTER),
    ]
    found = (then.config.get("maxPods"), then.config.get("systemReserved"), then.config.get("podsPerCore"))
    assert found == (50, {"cpu": "2"}, 4)
    # What that file has of its own is enough.
    assert [step[0] for step in planned(seen, maxPods=110)[1]] == [CONFIG, KEPT]
