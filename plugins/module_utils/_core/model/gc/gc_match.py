# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Whether a keep-list or a workload's match applies to an image, a container or a pod."""

from __future__ import annotations

import fnmatch
import re
import typing as t

from ..containers.podman_json import ListedContainer, ListedImage, ListedPod
from ..profile.profile_workloads import Workload
from ..values.records import NamedTuple

UNIT_LABEL = "PODMAN_SYSTEMD_UNIT"
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")


def keeps_image(patterns: t.Iterable[str], image: ListedImage) -> t.Optional[str]:
    """The first pattern that matches the image; None if no pattern matches."""
    return next((pattern for pattern in patterns if means_image(pattern, image)), None)


def means_image(pattern: str, image: ListedImage) -> bool:
    """Whether a pattern matches the image.

    A digest matches the digest of the image or of its manifest, or the beginning of the image's id. In NAME@sha256:… name and digest must
    match. A name without a tag matches every tag. A name without a host matches in any registry: ``tools`` matches ``localhost/tools:1``.
    """
    name, at, digest = pattern.partition("@")
    if at:
        own = (*image.names, *image.digests)
        return any(end == digest for end in ends(image)) and any(named(name, text) for text in own)
    match = _DIGEST.fullmatch(pattern)
    if match and (pattern.startswith("sha256:") or not image.names):
        return any(end.partition(":")[2].startswith(match.group(1)) for end in ends(image))
    if match and image.id.startswith(match.group(1)):
        return True
    return any(named(pattern, one) for one in image.names)


def ends(image: ListedImage) -> list[str]:
    """The digests of an image: the id as a digest, and the digests of the image's names."""
    return [f"sha256:{image.id}", *(digest.rpartition("@")[2] for digest in image.digests)]


def named(pattern: str, name: str) -> bool:
    """Whether a pattern matches an image's name: ``registry/path:tag``, or ``…@digest`` if the image was pulled by digest."""
    name = name.partition("@")[0]
    pattern = pattern[: -len(":*")] if pattern.endswith(":*") else pattern
    last = pattern.rpartition("/")[2]
    forms = [pattern] if ":" in last else [pattern, f"{pattern}:*"]
    host = pattern.partition("/")[0] if "/" in pattern else ""
    if not ("." in host or ":" in host or "*" in host or host == "localhost"):
        forms += [f"*/{form}" for form in forms]
    return any(fnmatch.fnmatchcase(name, form) for form in forms)


def has_label(pattern: str, labels: t.Mapping[str, str]) -> bool:
    """Whether ``labels`` contain the label of a pattern: ``KEY`` or ``KEY=VALUE``."""
    key, equals, value = pattern.partition("=")
    return key in labels and (not equals or labels[key] == value)


class GcItem(NamedTuple):
    """A unit of removal: a container outside of pods, or a pod (with its containers, the infra container among them)."""

    id: str
    name: str
    pod: t.Optional[ListedPod]
    containers: tuple[ListedContainer, ...]

    @property
    def members(self) -> tuple[ListedContainer, ...]:
        """The containers without a pod's infra container."""
        return tuple(one for one in self.containers if not one.infra)


def items(containers: t.Sequence[ListedContainer], pods: t.Iterable[ListedPod]) -> list[GcItem]:
    """Containers and pods as units of removal; a container whose pod is not listed is left out."""
    alone = [GcItem(one.id, one.name, None, (one,)) for one in containers if not one.pod and not one.external]
    grouped = [GcItem(pod.id, pod.name, pod, tuple(one for one in containers if one.pod == pod.id)) for pod in pods]
    return alone + grouped


# Whether a pattern matches an item, for each key of MATCH_KINDS.
MATCHES: dict[str, t.Callable[[GcItem, str], bool]] = {
    "unit": lambda item, pattern: any(
        fnmatch.fnmatchcase(labels.get(UNIT_LABEL, ""), pattern) for labels in labels_of(item)
    ),
    "container": lambda item, pattern: any(fnmatch.fnmatchcase(one.name, pattern) for one in item.members),
    "pod": lambda item, pattern: item.pod is not None and fnmatch.fnmatchcase(item.pod.name, pattern),
    "label": lambda item, pattern: any(has_label(pattern, labels) for labels in labels_of(item)),
}


def belongs(item: GcItem, workload: Workload) -> bool:
    """Whether an item belongs to a workload."""
    return MATCHES[workload.match](item, workload.pattern)


def labels_of(item: GcItem) -> list[dict[str, str]]:
    """The labels of a pod and of its containers, or of a container."""
    return [*([item.pod.labels] if item.pod else []), *(one.labels for one in item.containers)]


def kept(item: GcItem, names: t.Iterable[str], labels: t.Iterable[str]) -> bool:
    """Whether the keep-lists name an item or one of its containers."""
    own = [item.name, *(one.name for one in item.members)]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in names for name in own) or any(
        has_label(pattern, label) for pattern in labels for label in labels_of(item)
    )


def group_of(item: GcItem) -> str:
    """The group in which an item without a workload counts: the item's unit, else a pod's name or a container's image."""
    unit = next((labels[UNIT_LABEL] for labels in labels_of(item) if labels.get(UNIT_LABEL)), "")
    return unit or (f"pod {item.pod.name}" if item.pod else item.containers[0].image_name or item.containers[0].image)
