# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The kubelet configuration that has to be in force, and the steps that write this configuration to files."""

from __future__ import annotations

import typing as t

from ...host import state
from ...host.kubelet import kubelet_node
from ...model.kubelet import config_text, kubelet_drift, kubelet_wanted
from ...model.kubelet.config_text import NotEditable
from ...model.kubelet.kubelet_config import Config, Layer, effective
from ...model.kubelet.kubelet_wanted import Wanted
from ...model.plan import make_step
from ...model.plan.plan import CLAIM, FILES, Step
from ...model.profile.profile_kubelet import Kubelet
from ...model.values.errors import CorralError
from ...model.values.records import NamedTuple
from .kubelet_observed import Kept, ObservedKubelet
from .kubelet_places import KEPT


class Target(NamedTuple):
    """``config``: the configuration that has to be in force. ``text``: the wanted text of the file that Corral writes (None: no file).
    ``kept``: the original lines of a file of others that Corral has to keep.
    """

    config: Config
    text: t.Optional[str]
    kept: Kept = Kept()


def wanted_of(seen: ObservedKubelet, kubelet: Kubelet) -> tuple[Wanted, Target]:
    """The wanted keys and their target. Raises NotEditable."""
    wanted = kubelet_wanted.compile(kubelet, seen.machine)
    wanted = kubelet_wanted.complete(wanted, kubelet, seen.machine, lambda one: target(seen, one).config)
    return wanted, target(seen, wanted)


def target(seen: ObservedKubelet, wanted: Wanted) -> Target:
    """The target of the wanted keys. Raises NotEditable."""
    if seen.dropin:
        layers = layers_below_dropin(seen)
        patch = wanted.patch(kubelet_wanted.below(layers, seen.dropin))
        config = kubelet_wanted.in_force(layers, seen.flags, seen.dropin, patch)
        return Target(config, config_text.drop_in(patch) if patch else None)
    return edited(seen, wanted)


def layers_below_dropin(seen: ObservedKubelet) -> list[Layer]:
    """The observed layers. A file of others in which Corral changed keys has its original lines in the result. Raises NotEditable."""
    path = seen.kept.file
    return [
        layer._replace(data=load(config_text.changed(seen.texts.get(path) or "", seen.kept.lines), path))
        if layer.origin == path
        else layer
        for layer in seen.layers
    ]


def edited(seen: ObservedKubelet, wanted: Wanted) -> Target:
    """The target in a file of others: keys that are no longer wanted get their original lines back. Raises NotEditable."""
    path = seen.places.config
    text = seen.texts.get(path) or ""
    kept = seen.kept if seen.kept.file == path else Kept(path)
    bare = load(config_text.changed(text, kept.lines), path)
    keys = wanted.replacing(bare)
    back = {key: old for key, old in kept.lines.items() if key not in keys}
    present = next((layer.data for layer in seen.layers if layer.origin == path), {})
    as_written = {key: present[key] for key in keys if is_written(key, keys, present)}
    lines = {key: config_text.key_lines(key, value) for key, value in keys.items() if key not in as_written}
    new = config_text.changed(text, {**back, **lines})
    originals = config_text.blocks_of(text, keys)
    kept_now = {
        key: kept.lines[key] if key in kept.lines else originals[key]
        for key in keys
        if key in kept.lines or key in lines
    }
    data = load(new, path)
    expected = {**{key: value for key, value in bare.items() if key not in keys}, **keys, **as_written}
    if data != expected:
        raise NotEditable("the result would not be what is wanted")
    layers = [layer._replace(data=data) for layer in seen.layers]  # without drop-ins there is only this layer
    return Target(effective(layers, seen.flags), new, Kept(path, kept_now) if kept_now else Kept())


def is_written(key: str, keys: t.Mapping[str, t.Any], present: t.Mapping[str, t.Any]) -> bool:
    """Whether a file has a key with the wanted meaning already, in any spelling. ``present``: the file's keys and values."""
    return key in present and kubelet_drift.same(key, present[key], keys[key])


def load(text: str, path: str) -> dict[str, t.Any]:
    """The keys of an edited configuration; empty if the text is empty. Raises NotEditable."""
    try:
        return kubelet_node.load(text, path) or {}
    except CorralError as error:
        raise NotEditable(str(error)) from None


def write_steps(seen: ObservedKubelet, then: Target) -> list[Step]:
    """The steps that write Corral's drop-in, or the keys in a file of others; no steps if the files have the wanted text."""
    steps = []
    if seen.dropin:
        present = next((layer.data for layer in seen.layers if layer.origin == seen.dropin), None)
        wanted = None if then.text is None else load(then.text, seen.dropin)
        is_there = seen.texts.get(seen.dropin) is not None
        if present != wanted and (is_there or needs_file(seen, then)):
            steps.append(make_step.file(seen.dropin, then.text, FILES))
        return [*steps, *(moved_away(seen) if seen.kept.file else ())]
    if then.text != seen.texts.get(seen.own):
        steps.append(make_step.file(seen.own, then.text, FILES, mode=seen.modes[seen.own]))
    # KEPT has an original line until the line is restored, wherever the run dies. If KEPT has the lines of another file, that file gets its
    # lines back before KEPT takes the lines of this file.
    now, before = seen.kept, seen.kept.lines
    if now.file not in ("", seen.own):
        steps += [step._replace(phase=CLAIM, order=-40) for step in moved_away(seen) if step.target != KEPT]
        before = {}
    meanwhile = Kept(seen.own, {**before, **then.kept.lines})
    if meanwhile.lines and meanwhile != now:
        steps.append(keep_step(meanwhile, CLAIM, -30))
        now = meanwhile
    if then.kept != now:
        steps.append(keep_step(then.kept, FILES, 20))
    return steps


def needs_file(seen: ObservedKubelet, then: Target) -> bool:
    """Whether the configuration differs from the target if only the files of others are read."""
    return bool(kubelet_drift.changing(effective(layers_below_dropin(seen), seen.flags), then.config))


def keep_step(kept: Kept, phase: int, order: int) -> Step:
    """The step that writes the original lines to KEPT; KEPT is removed if there is no file of others."""
    if not kept.file:
        return make_step.file(KEPT, None, phase, order)
    text = state.checked_text({"file": kept.file, "lines": dict(kept.lines)})
    return make_step.file(KEPT, text, phase, order, mode=state.PRIVATE)


def moved_away(seen: ObservedKubelet) -> list[Step]:
    """The steps that restore the original lines in a file of others, and remove KEPT. Raises NotEditable."""
    path = seen.kept.file
    text = seen.texts.get(path)
    if text is None:
        return [keep_step(Kept(), FILES, 20)]
    back = config_text.changed(text, seen.kept.lines)
    return [
        *([make_step.file(path, back, FILES, mode=seen.modes[path])] if back != text else []),
        keep_step(Kept(), FILES, 20),
    ]
