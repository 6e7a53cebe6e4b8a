# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Garbage collection: what deciding costs beside reading Podman's answers, and a real pass beside Podman's own prune.

Deciding is over generated listings, each 1,000 long, on this machine; the floor is json.loads of the same texts. The
pass removes 30 images on a virtual node (--deciding-only leaves it out).
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import bench
import lab_node
from _core.model.containers import podman_json
from _core.model.gc import container_gc, gc_match, gc_records, image_gc, image_layers
from _core.model.profile.profile_workloads import Workload

SCRIPT = bench.HERE / "collect_node.py"
NOW = 1_800_000_000.0
DAY = 86400
LIMIT = 1800  # s
KEEP = ("quay.example/base:*", "localhost/tools", "registry.example/*/keep:?")


def identity(number: int) -> str:
    return f"{number:064x}"


def image_listing(count: int, chance: random.Random) -> str:
    """What `podman images --all --format json` answers."""
    rows = [
        {
            "Id": identity(number),
            "Names": [f"registry.example/team{number % 7}/app{number}:{number % 5}"],
            "RepoDigests": [f"registry.example/team{number % 7}/app{number}@sha256:{identity(number + 7)}"],
            "Digest": f"sha256:{identity(number + 7)}",
            "Size": chance.randrange(1 << 20, 1 << 30),
            "Labels": {"version": str(number)},
            "Containers": 0,
            "Created": int(NOW) - chance.randrange(90 * DAY),
        }
        for number in range(count)
    ]
    return json.dumps(rows)


def container_listing(count: int, chance: random.Random) -> str:
    """What `podman ps --all --external --format json` answers: all of them dead."""
    rows = [
        {
            "Id": identity(10**6 + number),
            "Names": [f"batch-{number % 50}-{number}"],
            "Image": f"registry.example/team{number % 7}/app{number % 200}:{number % 5}",
            "ImageID": identity(number % 200),
            "State": "exited",
            "Created": int(NOW) - chance.randrange(10 * DAY, 20 * DAY),
            "ExitedAt": int(NOW) - chance.randrange(10 * DAY),
            "Pod": "",
            "IsInfra": False,
            "Labels": {"app": f"batch-{number % 50}"},
        }
        for number in range(count)
    ]
    return json.dumps(rows)


def storage_lists(count: int) -> tuple[str, str]:
    """The storage's images.json and layers.json: each image four layers, of which two are shared by ten."""
    images = [{"id": identity(number), "layer": f"top{number}"} for number in range(count)]
    layers: list[dict[str, t.Any]] = []
    for base in range(0, count, 10):
        layers += [
            {"id": f"base{base}", "diff-size": 80 << 20},
            {"id": f"lib{base}", "parent": f"base{base}", "diff-size": 1 << 20},
        ]
    for number in range(count):
        parent = f"lib{number - number % 10}"
        layers += [
            {"id": f"mid{number}", "parent": parent, "diff-size": 5 << 20},
            {"id": f"top{number}", "parent": f"mid{number}", "diff-size": 9 << 10},
        ]
    return json.dumps(images), json.dumps(layers)


def decide_images(texts: t.Sequence[str]) -> int:
    """From Podman's answers to the images that go: half of the disk is to be freed."""
    listed = podman_json.images(json.loads(texts[0]))
    used = podman_json.last_uses(podman_json.containers(json.loads(texts[1])), NOW)
    layers = image_layers.read(json.loads(texts[2]), json.loads(texts[3]))
    uses = gc_records.seen({}, (image.id for image in listed), used, NOW - DAY)
    found = [
        image_gc.Image(
            image.id, image.size, False, gc_match.keeps_image(KEEP, image) is not None, uses[image.id].first, uses[image.id].last
        )
        for image in listed
    ]  # fmt: skip
    gone: list[str] = []

    def remove(image: image_gc.Image) -> t.Optional[int]:
        gained = layers.gain(image.id)
        layers.remove(image.id)
        gone.append(image.id)
        return gained

    limits = image_gc.ImageLimits(85, 50, min_age=120)
    image_gc.free(image_gc.candidates(found), 5 << 30, limits, NOW, remove)
    return len(gone)


def decide_containers(text: str) -> int:
    """From Podman's answer to the containers that go: 50 workloads of 20 dead ones, one of each stays."""
    workloads = [Workload(f"batch-{number}", "label", f"app=batch-{number}") for number in range(50)]
    dead = []
    for item in gc_match.items(podman_json.containers(json.loads(text)), []):
        own = next((one for one in workloads if gc_match.belongs(item, one)), None)
        dead.append(container_gc.Dead(item.id, own, item.containers[0].ended or 0.0))
    return len(container_gc.evict(dead, container_gc.DeadLimits(0, 1, -1), NOW))


def deciding(count: int, turns: int) -> None:
    """The table of deciding."""
    chance = random.Random(1)
    images, containers, lists = image_listing(count, chance), container_listing(count, chance), storage_lists(count)
    texts = (images, containers, *lists)
    gone = decide_images(texts), decide_containers(containers)
    taken = bench.by_turns(
        {
            "json": lambda: [json.loads(text) for text in texts],
            "images": lambda: decide_images(texts),
            "json of containers": lambda: json.loads(containers),
            "containers": lambda: decide_containers(containers),
        },
        turns,
    )
    rows = []
    for name, floor, what in (
        ("json", "json", f"json.loads of {count} images, as many containers and their layers (the floor)"),
        ("images", "json", f"which of {count} images go: {gone[0]} do"),
        ("json of containers", "json of containers", f"json.loads of {count} containers (the floor)"),
        ("containers", "json of containers", f"which of {count} dead containers go: {gone[1]} do"),
    ):
        milliseconds = [one * 1000 for one in taken[name]]
        rows.append((what, bench.spread(milliseconds, 1), bench.ratio(taken[name], taken[floor])))
    bench.say(bench.table(("what", "milliseconds: median (min–max)", "by its floor"), rows))


def passing(count: int) -> int:
    """The table of a real pass; the exit status."""
    with tempfile.TemporaryDirectory(prefix="corral-") as folder, lab_node.node(Path(folder)) as inventory:
        lab_node.play(lab_node.tools(), inventory, "agent")
        words = [str(lab_node.LAB), "ssh", lab_node.NODE, "python3", "-", str(count)]
        with SCRIPT.open() as script, tempfile.TemporaryFile("w+") as out:
            done = subprocess.run(words, stdin=script, stdout=out, timeout=LIMIT, check=False)
            out.seek(0)
            output = out.read()
    if done.returncode != 0:
        print(f"the node's script ended with {done.returncode}: {output}", file=sys.stderr)
        return 1
    measured = json.loads(output.splitlines()[-1])
    floor = [measured["prune"]]
    rows = [
        (
            f"podman image prune --all --filter until=… ({measured['pruned']} images)",
            f"{measured['prune']:.1f}",
            "1.0×",
        ),
        (
            f"corral gc ({measured['collected']} images, each measured)",
            f"{measured['gc']:.1f}",
            bench.ratio([measured["gc"]], floor),
        ),
        (
            f"corral gc ({measured['collected']} images, nothing to do)",
            f"{measured['idle']:.1f}",
            bench.ratio([measured["idle"]], floor),
        ),
        ("corral --help: its own start", f"{measured['start']:.1f}", bench.ratio([measured["start"]], floor)),
    ]
    bench.say(bench.table(("on the virtual node", "seconds", "by the stock way"), rows))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="how often each decision is made (default: 20)")
    parser.add_argument("--images", type=int, default=30, help="images of the real pass (default: 30)")
    parser.add_argument("--deciding-only", action="store_true", help="no virtual node")
    args = parser.parse_args()
    bench.header("make bench-collect")
    deciding(1000, args.turns)
    status = 0 if args.deciding_only else passing(args.images)
    bench.footer()
    return status


if __name__ == "__main__":
    raise SystemExit(main())
