# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""gc.json as metrics in Prometheus' text format. See metrics.py; docs/metrics.md explains each metric."""

from __future__ import annotations

import typing as t

from .metrics import COUNTER, GAUGE, Family, Samples, rendered

FAMILIES = (
    Family("corral_gc_last_pass_timestamp_seconds", GAUGE, "When images or containers were last checked."),
    Family("corral_gc_removed_total", COUNTER, "Images or containers (pods) removed since the node started."),
    Family("corral_gc_freed_bytes_total", COUNTER, "Bytes that removed images gave back since the node started."),
    Family("corral_gc_errors_total", COUNTER, "What passes could not read since the node started."),
    Family("corral_gc_failing", GAUGE, "1 when the last pass could not read everything."),
    Family("corral_gc_images", GAUGE, "Images on a file system."),
    Family("corral_gc_dead_containers", GAUGE, "Dead containers and pods that may go, and are kept."),
    Family("corral_gc_size_bytes", GAUGE, "Size of a file system that holds images."),
    Family("corral_gc_available_bytes", GAUGE, "What is free of it after the last pass."),
    Family(
        "corral_gc_threshold_ratio", GAUGE, "The part of it from which on images go (high), and down to which (low)."
    ),
    Family("corral_gc_short_bytes", GAUGE, "By how much the last pass freed less than was asked of it."),
)


def text(status: t.Mapping[str, t.Any]) -> str:
    """The text of the metrics file; ``status`` is the content of gc.json."""
    return rendered(FAMILIES, samples(status))


def samples(status: t.Mapping[str, t.Any]) -> dict[str, Samples]:
    """The samples of each metric by its name."""
    totals, parts = status["totals"], {kind: status[kind] for kind in ("images", "containers") if status[kind]}
    by_name: dict[str, Samples] = {
        "corral_gc_last_pass_timestamp_seconds": [({"kind": kind}, part["time"]) for kind, part in parts.items()],
        "corral_gc_removed_total": [({"kind": kind}, totals[kind]) for kind in ("images", "containers")],
        "corral_gc_freed_bytes_total": [({}, totals["bytes"])],
        "corral_gc_errors_total": [({}, totals["errors"])],
        "corral_gc_failing": [({}, bool(status["error"]) or any(part["errors"] for part in parts.values()))],
    }
    for disk in parts.get("images", {}).get("file_systems", ()):
        path = {"path": disk["path"]}
        for name, value in (
            ("images", disk["images"] - len(disk["removed"] if not parts["images"]["dry"] else ())),
            ("size_bytes", disk["capacity"]),
            ("available_bytes", disk["available"]),
            ("short_bytes", disk["short"]),
        ):
            by_name.setdefault(f"corral_gc_{name}", []).append((path, value))
        for name in ("high", "low"):
            row = ({**path, "threshold": name}, disk[name] / 100)
            by_name.setdefault("corral_gc_threshold_ratio", []).append(row)
    if "containers" in parts:
        containers = parts["containers"]
        by_name["corral_gc_dead_containers"] = [
            ({}, containers["dead"] - (0 if containers["dry"] else len(containers["removed"])))
        ]
    return by_name
