# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a keep-list or a workload's match applies to an image, a container or a pod."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ..profile.profile_workloads import Workload
from ..values.records import NamedTuple
from .podman_json import ListedContainer, ListedImage, ListedPod

UNIT_LABEL = "PODMAN_SYSTEMD_UNIT"
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")


def keeps_image(patterns: t.Iterable[str], image: ListedImage) -> t.Optional[str]:
    """The first of the patterns that matches the image, None when none does."""
    return next((pattern for pattern in patterns if means_image(pattern, image)), None)


def means_image(pattern: str, image: ListedImage) -> bool:
    """Whether a pattern matches the image.

    A digest is the image's own, its manifest's, or the beginning of its id; NAME@sha256:… asks for both. A name without
    a tag means every tag. A name whose first part is no host means that name in any registry: ``tools`` is
    ``localhost/tools:1`` as well.
    """
    name, at, digest = pattern.partition("@")
    if at:
        own = (*image.names, *image.digests)
        return any(end == digest for end in ends(image)) and any(named(name, one) for one in own)
    match = _DIGEST.fullmatch(pattern)
    if match and (pattern.startswith("sha256:") or not image.names):
        return any(end.partition(":")[2].startswith(match.group(1)) for end in ends(image))
    if match and image.id.startswith(match.group(1)):
        return True
    return any(named(pattern, one) for one in image.names)


def ends(image: ListedImage) -> list[str]:
    """The digests of an image: its own, and those of its names."""
    return [f"sha256:{image.id}", *(digest.rpartition("@")[2] for digest in image.digests)]


def named(pattern: str, name: str) -> bool:
    """Whether a pattern matches a name of an image (``registry/path:tag``, or ``…@digest`` for one pulled by that)."""
    name = name.partition("@")[0]
    pattern = pattern[: -len(":*")] if pattern.endswith(":*") else pattern
    last = pattern.rpartition("/")[2]
    forms = [pattern] if ":" in last else [pattern, f"{pattern}:*"]
    host = pattern.partition("/")[0] if "/" in pattern else ""
    if not ("." in host or ":" in host or "*" in host or host == "localhost"):
        forms += [f"*/{form}" for form in forms]
    return any(fnmatch.fnmatchcase(name, form) for form in forms)


def has_label(pattern: str, labels: t.Mapping[str, str]) -> bool:
    """Whether labels hold ``KEY`` or ``KEY=VALUE``."""
    key, equals, value = pattern.partition("=")
    return key in labels and (not equals or labels[key] == value)


class Item(NamedTuple):
    """A unit of removal: a container outside of pods, or a pod (with its containers, the infra container among them)."""

    id: str
    name: str
    pod: t.Optional[ListedPod]
    containers: tuple[ListedContainer, ...]

    @property
    def members(self) -> tuple[ListedContainer, ...]:
        """The containers without the one that holds a pod together."""
        return tuple(one for one in self.containers if not one.infra)


def items(containers: t.Sequence[ListedContainer], pods: t.Iterable[ListedPod]) -> list[Item]:
    """Containers and pods as units; a container of a pod that is not listed is left out."""
    alone = [Item(one.id, one.name, None, (one,)) for one in containers if not one.pod and not one.external]
    grouped = [Item(pod.id, pod.name, pod, tuple(one for one in containers if one.pod == pod.id)) for pod in pods]
    return alone + grouped


# Whether a pattern matches an item, for each key of MATCH_KINDS.
MATCHES: dict[str, t.Callable[[Item, str], bool]] = {
    "unit": lambda item, pattern: any(
        fnmatch.fnmatchcase(labels.get(UNIT_LABEL, ""), pattern) for labels in labels_of(item)
    ),
    "container": lambda item, pattern: any(fnmatch.fnmatchcase(one.name, pattern) for one in item.members),
    "pod": lambda item, pattern: item.pod is not None and fnmatch.fnmatchcase(item.pod.name, pattern),
    "label": lambda item, pattern: any(has_label(pattern, labels) for labels in labels_of(item)),
}


def belongs(item: Item, workload: Workload) -> bool:
    """Whether an item is a workload's."""
    return MATCHES[workload.match](item, workload.pattern)


def labels_of(item: Item) -> list[dict[str, str]]:
    """The labels of a pod and of its containers, or of a container."""
    return [*([item.pod.labels] if item.pod else []), *(one.labels for one in item.containers)]


def kept(item: Item, names: t.Iterable[str], labels: t.Iterable[str]) -> bool:
    """Whether the keep-lists name an item, or a part of it."""
    own = [item.name, *(one.name for one in item.members)]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in names for name in own) or any(
        has_label(pattern, label) for pattern in labels for label in labels_of(item)
    )


def group_of(item: Item) -> str:
    """What an item of no workload counts with: those of its unit, else of its image (a pod: its own name)."""
    unit = next((labels[UNIT_LABEL] for labels in labels_of(item) if labels.get(UNIT_LABEL)), "")
    return unit or (f"pod {item.pod.name}" if item.pod else item.containers[0].image_name or item.containers[0].image)
