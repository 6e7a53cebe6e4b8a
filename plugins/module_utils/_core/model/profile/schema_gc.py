# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The keys of the section ``gc``: garbage collection of images and containers."""

from __future__ import annotations

from . import schema_types as types
from .schema_key import LIST, Key

KEYS: tuple[Key, ...] = (
    Key(
        "gc",
        None,
        "Garbage collection on Podman's storage: root's, and that of the `users`. It runs in a timer of its own, never in "
        "the agent's tick. A section that is left out collects nothing.",
    ),
    Key(
        "gc.images",
        None,
        "Unused images are removed, least recently used first, when the file system that holds them has reached `high`, "
        "until it is down to `low`: the kubelet's image garbage collection ([how it decides](gc.md)). The time of an image's last "
        "use is kept over restarts and reboots. `{}` takes the defaults; a `high` of 100 without `max_age` turns it off.",
    ),
    Key(
        "gc.images.high",
        types.integer(0, 100),
        "The file system's use, in percent, from which on images go (kubelet: `imageGCHighThresholdPercent`).",
        example="85",
        default=85,
    ),
    Key(
        "gc.images.low",
        types.integer(0, 100),
        "The use, in percent, down to which they go; below `high` (kubelet: `imageGCLowThresholdPercent`).",
        example="80",
        default=80,
    ),
    Key(
        "gc.images.min_age",
        types.DURATION,
        "An image that was first seen more recently never goes (kubelet: `imageMinimumGCAge`).",
        example="2m",
        default="2m",
    ),
    Key(
        "gc.images.max_age",
        types.DURATION,
        "An image that was not used for longer is removed however full the disk is; `0s`: no limit (kubelet: "
        "`imageMaximumGCAge`). The time begins when Corral began to record use, or, for an image that was never used, when it "
        "was first seen.",
        example="30d",
        default="0s",
    ),
    Key("gc.images.interval", types.INTERVAL, "How often images are checked.", example="5m", default="5m"),
    Key(
        "gc.images.keep",
        types.IMAGE,
        "Images that never go: a name (with or without a tag), a name with `*` and `?`, a name with a digest, or a digest.",
        example='["quay.example/base:*", "localhost/tools"]',
        many=LIST,
    ),
    Key(
        "gc.containers",
        None,
        "Dead containers go, the oldest first: the kubelet's container garbage collection. A pod is one of them once "
        "nothing in it runs, and goes as a whole. Those of a workload that left the profile all go. Nothing that runs is "
        "ever removed. `{}` takes the defaults.",
    ),
    Key(
        "gc.containers.min_age",
        types.DURATION,
        "A container that died more recently never goes.",
        example="10m",
        default="0s",
    ),
    Key(
        "gc.containers.max_per_workload",
        types.integer(-1, 1 << 20),
        "The most dead ones that are kept of each workload; -1: no limit. With `scope: all` a container of no workload "
        "counts with those of its unit, else of its image.",
        example="1",
        default=1,
    ),
    Key(
        "gc.containers.max_total",
        types.integer(-1, 1 << 20),
        "The most dead ones that are kept in all of each user; -1: no limit.",
        example="100",
        default=-1,
    ),
    Key(
        "gc.containers.scope",
        types.choice("declared", "all"),
        "Whose containers may go: those of the `workloads` alone, or all.",
        example="all",
        default="declared",
    ),
    Key("gc.containers.interval", types.INTERVAL, "How often containers are checked.", example="1m", default="1m"),
    Key(
        "gc.containers.volumes",
        types.BOOLEAN,
        "Whether the anonymous volumes of a container go with it. Named volumes never do.",
        example="true",
        default=False,
    ),
    Key(
        "gc.containers.keep",
        types.CONTAINER,
        "Containers and pods that never go, by name, `*` and `?` allowed.",
        example='["build-cache", "debug-*"]',
        many=LIST,
    ),
    Key(
        "gc.containers.keep_labels",
        types.CONTAINER_LABEL,
        "Containers and pods that never go, by a label they have: `KEY`, or `KEY=VALUE`.",
        example='["keep=true"]',
        many=LIST,
    ),
    Key(
        "gc.users",
        types.ACCOUNT,
        "Users whose rootless storage is collected as well, each through that user's own Podman. Root's storage always is.",
        example="[alice]",
        many=LIST,
    ),
)
