# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other programs answer and write: Podman, the CDI specs of vendors, their events."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import typing as t
from pathlib import Path
from unittest import mock

import mutation
import yaml
from _core.cli import profile_file
from _core.host.containers import podman_cli, podman_unit, podman_worker
from _core.host.files import Host
from _core.model.containers import podman_json
from _core.model.devices import cdi_spec
from _core.model.gc import gc_match, gc_records
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


# A request of a pass with what answers it honestly.
REQUESTS: dict[str, tuple[str, t.Callable[[podman_cli.Podman], t.Any]]] = {
    "images": ("images", lambda podman: podman.images()),
    "containers": ("containers", lambda podman: podman.containers()),
    "pods": ("pods", lambda podman: podman.pods()),
    "store": ("store", lambda podman: podman.store([])),
    "store of an image": ("store_of_image", lambda podman: podman.store([IMAGE])),
    "uses": ("event_uses", lambda podman: podman.recent_uses(0)),
    "layers": ("layers", lambda podman: podman.layers("/storage", "overlay")),
    "removal": ("refusal", lambda podman: podman.remove_image(IMAGE)),
    "removal of an item": ("refusal", lambda podman: podman.remove_item(POD, volumes=True)),
}  # fmt: skip
IMAGE = podman_json.ListedImage(ID, ("quay.example/base:1", "x:2"), (), 4096, False)
POD = gc_match.items([], podman_json.pods(ANSWERS["pods"]))[0]


class Process:
    """The process of a user's that asks Podman. It writes what it wants to, or what Podman answered."""

    def __init__(self, folder: Path, kind: str, status: int, answer: t.Any) -> None:
        self.file, self.kind, self.status, self.answer = folder / "list.json", kind, status, answer

    def ask(self, request: t.Mapping[str, t.Any], *dummy: float) -> podman_unit.Answer:
        if self.kind == "lines":
            return podman_unit.answer_of(iter(self.answer))
        if "file" in request:
            self.file.write_bytes(mutation.encoded(self.answer))
            request = {**request, "file": str(self.file)}
        elif "path" not in request:
            raise podman_unit.ServiceError(125, self.answer[:1000])
        lines = podman_worker.answers(dict(request), lambda *dummy: (self.status, self.answer))
        return podman_unit.answer_of(iter(list(lines)))

    def close(self) -> None:
        """Nothing runs."""


class Podman(Target):
    """What a user's Podman answers, and what the process that asks it writes; what is understood of them may be printed."""

    def prepare(self) -> None:
        self.lines = {name: self.honest(*of) for name, of in REQUESTS.items()}

    def honest(self, what: str, ask: t.Callable[[podman_cli.Podman], t.Any]) -> list[bytes]:
        """The lines that answer a request, those of its first answer where there are more."""
        lines: list[list[bytes]] = []

        def answer(found: t.Iterator[bytes]) -> t.NoReturn:
            lines.append(list(found))
            raise podman_unit.ServiceError(125)

        process = Process(self.folder, "body", 200, json.dumps(ANSWERS[what]))
        with mock.patch.object(podman_unit, "answer_of", answer), contextlib.suppress(podman_cli.PodmanError):
            ask(self.podman(process))
        return lines[0]

    def podman(self, process: Process) -> podman_cli.Podman:
        podman = podman_cli.Podman(Host(str(self.folder), clock=lambda: 1_700_000_000.0, uptime=lambda: 500.0))
        podman.serve = lambda *dummy: process  # type: ignore[assignment, return-value]
        return podman

    def make(self, chance: random.Random) -> t.Any:
        name = chance.choice([*sorted(REQUESTS), "records"])
        what = REQUESTS[name][0] if name in REQUESTS else name
        if name == "records" or chance.random() < 0.5:
            answer: t.Any = json.dumps(mutation.mutated_data(chance, ANSWERS[what]))
            if chance.random() < 0.2:
                answer = mutation.mutated_text(chance, json.dumps(ANSWERS[what]))
            return name, "body", chance.choice((200, 200, 200, 204, 404, 500)), answer
        return name, "lines", 0, self.hostile(chance, self.lines[name])

    def hostile(self, chance: random.Random, lines: list[bytes]) -> list[bytes]:
        """Lines of the process, some of them changed, left out, sent twice or in front of others."""
        lines = list(lines)
        for dummy in range(chance.choice((1, 1, 2, 4))):
            place = chance.randrange(len(lines) + 1)
            how = chance.randrange(8)
            if place == len(lines):
                lines.append(mutation.encoded(mutation.word(chance)))
            elif how < 5:
                with contextlib.suppress(ValueError, RecursionError):
                    lines[place] = json.dumps(mutation.mutated_data(chance, json.loads(lines[place]))).encode()
            elif how == 5:
                lines[place] = mutation.mutated(chance, lines[place])
            elif how == 6:
                lines[place:place] = [lines[place]] * chance.choice((1, 1, 30))
            else:
                del lines[place]
        # As Worker.lines() gives them; after the last one the process is not heard of again.
        return [line[: podman_unit.LINE] for line in b"\n".join(lines).split(b"\n")]

    def run(self, data: t.Any) -> Outcome:
        name, kind, status, answer = data
        if name == "records":
            return self.records(answer)
        podman = self.podman(Process(self.folder, kind, status, answer))
        try:
            found = REQUESTS[name][1](podman)
            self.decide(name, found)
        except podman_cli.PodmanError as error:
            return Outcome("refused", (str(error),))
        return Outcome("not known" if found is None else "understood", tuple(texts_in(plain(found))))

    def records(self, text: str) -> Outcome:
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError):
            return Outcome("not JSON")
        gc_records.to_data(gc_records.read(loaded, gc_records.Clock(1_700_000_000.0, 500.0, "first")))
        return Outcome("records")

    def decide(self, name: str, found: t.Any) -> None:
        """What garbage collection asks of it."""
        if name == "images":
            for image in found:
                gc_match.keeps_image(("quay.example/*", "localhost/keep", f"sha256:{ID}"), image)
        if name == "containers":
            podman_json.last_uses(found, 1_700_000_000.0)
            for item in gc_match.items(found, []):
                gc_match.kept(item, ("web*",), ("app=web",))


SPEC = {
    "cdiVersion": "0.6.0", "kind": "vendor.example/gpu", "annotations": {"a": "b"},
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
