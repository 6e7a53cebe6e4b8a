# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a keep-list and a workload's match mean."""

from __future__ import annotations

import pytest
from _core.model.containers.podman_json import ListedContainer, ListedImage, ListedPod
from _core.model.gc import gc_match
from _core.model.gc.gc_match import GcItem
from _core.model.profile.profile_workloads import Workload
from hypothesis import given
from hypothesis import strategies as st

ID = "ab" * 32
DIGEST = f"sha256:{'cd' * 32}"


def image(*names: str) -> ListedImage:
    held = tuple(f"{name.partition('@')[0].rpartition(':')[0] or name}@{DIGEST}" for name in names)
    return ListedImage(ID, names, (DIGEST, *held), 5, False)


@pytest.mark.parametrize(
    ("pattern", "names", "kept"),
    [
        ("quay.example/base:1", ["quay.example/base:1"], True),
        ("quay.example/base:1", ["quay.example/base:2"], False),
        ("quay.example/base", ["quay.example/base:2"], True),
        ("quay.example/base:*", ["quay.example/base:2"], True),
        ("quay.example/base", ["quay.example/base2:2"], False),
        ("quay.example/base", ["quay.example/base/tool:2"], False),
        ("quay.example/*", ["quay.example/base/tool:2"], True),
        ("quay.example/*", ["quay2.example/base:2"], False),
        ("*:5", ["quay.example/base:5"], True),
        ("*:5", ["quay.example/base:15"], False),
        ("tools", ["localhost/tools:1"], True),
        ("org/tools", ["quay.example/org/tools:1"], True),
        ("tools", ["localhost/mytools:1"], False),
        ("localhost:5000/x", ["localhost:5000/x:1"], True),
        ("localhost:5000/x", ["localhost/x:1"], False),
        ("other:1", ["localhost/a:1", "localhost/other:1"], True),
        (DIGEST, ["a:1"], True),
        (f"sha256:{ID}", ["a:1"], True),
        (ID[:12], [], True),
        (ID[:12], ["a:1"], True),
        (ID[:11], ["a:1"], False),
        ("sha256:" + "ef" * 32, ["a:1"], False),
        (f"quay.example/a@{DIGEST}", ["quay.example/a:1"], True),
        (f"quay.example/b@{DIGEST}", ["quay.example/a:1"], False),
        (f"quay.example/a@sha256:{'ef' * 32}", ["quay.example/a:1"], False),
        # Pulled by digest: the name has no tag.
        ("quay.example/a", [f"quay.example/a@{DIGEST}"], True),
        ("quay.example/a:*", [f"quay.example/a@{DIGEST}"], True),
        ("quay.example/*", [f"quay.example/a@{DIGEST}"], True),
        ("quay.example/a:1", [f"quay.example/a@{DIGEST}"], False),
        ("a", [f"quay.example/a@{DIGEST}"], True),
        (f"quay.example/a@{DIGEST}", [f"quay.example/a@{DIGEST}"], True),
    ],
)
def test_what_keeps_an_image(pattern: str, names: list[str], *, kept: bool) -> None:
    assert (gc_match.keeps_image([pattern], image(*names)) == pattern) is kept


@given(st.text("ab/:.", min_size=1, max_size=12))
def test_each_name_keeps_itself(name: str) -> None:
    assert gc_match.means_image(name, image(name))


def container(name: str = "c", *, infra: bool = False, pod: str = "", **labels: str) -> ListedContainer:
    return ListedContainer(f"id-{name}", name, "image", "a:1", "exited", 1.0, 2.0, pod, infra, labels, False)


def of(*containers: ListedContainer, pod: ListedPod | None = None) -> GcItem:
    return GcItem("id", pod.name if pod else containers[0].name, pod, containers)


POD = ListedPod("p", "job-1", 1.0, {"app": "batch"})


@pytest.mark.parametrize(
    ("match", "pattern", "item", "belongs"),
    [
        ("container", "web-*", of(container("web-1")), True),
        ("container", "web-*", of(container("my-web-1")), False),
        ("container", "web-1", of(container("web-1", infra=True), pod=POD), False),
        ("container", "in", of(container("in", pod="p"), pod=POD), True),
        ("pod", "job-*", of(container("in", pod="p"), pod=POD), True),
        ("pod", "job-*", of(container("job-1")), False),
        ("unit", "a@*.service", of(container(PODMAN_SYSTEMD_UNIT="a@1.service")), True),
        ("unit", "*.service", of(container()), False),
        ("label", "app=batch", of(pod=POD), True),
        ("label", "app", of(container(app="x")), True),
        ("label", "app=b", of(container(app="batch")), False),
        ("label", "app=", of(container(app="batch")), False),
    ],
)
def test_what_belongs_to_a_workload(match: str, pattern: str, item: GcItem, *, belongs: bool) -> None:
    assert gc_match.belongs(item, Workload("w", match, pattern)) is belongs


def test_items_are_containers_of_their_own_and_whole_pods() -> None:
    build = container("build")._replace(external=True)
    found = gc_match.items([container("a"), container("b", pod="p"), container("lost", pod="gone"), build], [POD])
    assert [(item.name, [one.name for one in item.containers]) for item in found] == [("a", ["a"]), ("job-1", ["b"])]
