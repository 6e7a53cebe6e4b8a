# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other programs answer and write: Podman, the CDI specs of vendors, their events."""

from __future__ import annotations

import dataclasses
import json
import random
import typing as t

import mutation
import yaml
from _core.cli import profile_file
from _core.model.devices import cdi_spec
from _core.model.gc_policy import gc_match, gc_records, image_layers, podman_json
from _core.model.values.errors import CorralError
from fuzz_target import Outcome, Target
from oracles import texts_in

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
NOW = "2026-11-20T10:00:00.123456789Z"
ANSWERS: dict[str, t.Any] = {
    "images": [
        {"Id": ID, "Names": ["quay.example/base:1"], "RepoDigests": [f"quay.example/base@sha256:{ID}"], "Digest": f"sha256:{ID}",
         "Size": 5 << 20, "ReadOnly": False, "Created": 1_700_000_000, "Labels": {"a": "b"}},
        {"Id": f"sha256:{OTHER}", "Names": None, "Size": 0, "readOnly": True},
    ],
    "containers": [
        {"Id": ID, "Names": ["web"], "ImageID": OTHER, "Image": "quay.example/web:2", "State": "running", "Created": NOW, "StartedAt": 1_700_000_100,
         "ExitedAt": -62135596800, "Pod": OTHER, "IsInfra": False, "Labels": {"app": "web"}},
        {"Id": OTHER, "Names": [], "ImageID": ID, "Image": "x", "State": "Exited", "Created": 1_700_000_000, "StartedAt": 1_700_000_100,
         "ExitedAt": 1_700_000_200, "Pod": "", "IsInfra": True, "Labels": None},
    ],
    "pods": [{"Id": ID, "Name": "pod", "Created": "2026-11-20T10:00:00+05:30", "Labels": {"app": "web"}}],
    "store": {"store": {"graphRoot": "/home/alice/.local/share/containers/storage", "graphDriverName": "overlay"}},
    "store_of_image": {"GraphDriver": {"Name": "overlay", "Data": {"UpperDir": "/var/lib/containers/storage/overlay/abc/diff"}}},
    "refusal": [{"Id": ID, "Err": "image is in use"}, {"ExitCode": 125, "Errors": ["no such image"]}],
    "event_uses": {"Actor": {"Attributes": {"image": "quay.example/web:2", "name": "web"}, "ID": ID}, "time": 1_700_000_000, "Type": "container"},
    "layers": {"images": [{"id": ID, "layer": OTHER, "names": ["x"]}], "layers": [{"id": OTHER, "parent": "", "diff-size": 4096}]},
    "records": {"version": 1, "images": {ID: {"first": 5, "last": 9}}, "workloads": {}, "boot": "first", "off": 3},
}  # fmt: skip


def plain(value: t.Any) -> t.Any:
    """Named tuples as data."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: plain(inner) for key, inner in value._asdict().items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


class Podman(Target):
    """Its answers as JSON; what is understood of them may be printed."""

    def make(self, chance: random.Random) -> t.Any:
        what = chance.choice(sorted(ANSWERS))
        if chance.random() < 0.8:
            return what, json.dumps(mutation.mutated_data(chance, ANSWERS[what]))
        return what, mutation.mutated_text(chance, json.dumps(ANSWERS[what]))

    def run(self, data: t.Any) -> Outcome:
        what, text = data
        if what in ("refusal", "event_uses"):
            found = getattr(podman_json, what)(text)
            return Outcome("understood", tuple(texts_in(found)))
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            return Outcome("not JSON")
        if what == "records":
            gc_records.to_data(gc_records.read(loaded, gc_records.Clock(1_700_000_000.0, 500.0, "first")))
            return Outcome("understood")
        try:
            if what == "layers":
                part = loaded if isinstance(loaded, dict) else {}
                found = image_layers.read(part.get("images"), part.get("layers"))
            else:
                found = getattr(podman_json, what)(loaded)
                self.decide(what, found)
        except ValueError as error:
            return Outcome("refused", (str(error),))
        return Outcome("understood", tuple(texts_in(plain(found))))

    def decide(self, what: str, found: t.Any) -> None:
        """What garbage collection asks of it."""
        if what == "images":
            for image in found:
                gc_match.keeps_image(("quay.example/*", "localhost/keep", f"sha256:{ID}"), image)
        if what == "containers":
            podman_json.last_uses(found, 1_700_000_000.0)
            for item in gc_match.items(found, []):
                gc_match.kept(item, ("web*",), ("app=web",))


SPEC = {
    "cdiVersion": "0.5.0", "kind": "vendor.example/gpu", "annotations": {"a": "b"},
    "containerEdits": {"env": ["A=b"], "hooks": [{"hookName": "createContainer", "path": "/usr/bin/hook"}]},
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/gpu0", "major": 240, "permissions": "rw"}]}},
        {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0"}], "mounts": [{"hostPath": "/a", "containerPath": "/b"}]}},
    ],
}  # fmt: skip


class Cdi(Target):
    """The specs of other vendors, JSON or YAML."""

    def make(self, chance: random.Random) -> t.Any:
        data = mutation.mutated_data(chance, SPEC) if chance.random() < 0.8 else SPEC
        text = json.dumps(data) if chance.random() < 0.7 else yaml.safe_dump(SPEC)
        return text if chance.random() < 0.7 else mutation.mutated_text(chance, text)

    def run(self, data: t.Any) -> Outcome:
        try:
            loaded = profile_file.load(data, "/etc/cdi/vendor.json")
        except CorralError as error:
            return Outcome("refused as text", (str(error),))
        try:
            found = cdi_spec.parse(loaded, "/etc/cdi/vendor.json")
        except CorralError as error:
            return Outcome("refused as a spec", (str(error),))
        return Outcome("understood", tuple(texts_in(plain(found))))


TARGETS = {"podman": Podman, "cdi-spec": Cdi}
