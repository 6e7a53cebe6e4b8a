# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes docs/profile.md from the schema and examples/edge.yml. A test says when it has to be run again."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "plugins" / "module_utils"))

from _core.model.profile import schema, schema_key  # noqa: E402

PAGE = REPOSITORY / "docs" / "profile.md"

HEAD = """<!--
Copyright (c) 2026 Corral contributors
GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
SPDX-License-Identifier: GPL-3.0-or-later

Written by tools/profile_reference.py from plugins/module_utils/_core/model/profile/schema*.py. Do not edit.
-->

# The profile

A profile declares what a node's resources are for, by intent (one core on each NUMA node for housekeeping, one core
near a network card isolated, the rest shared) or by literal numbers. It is YAML on the controller and JSON on the
node, and it is compiled on each node against what the node has: one profile serves unlike machines.

A profile that is wrong is refused before anything is changed, with all its problems at once. Each names the path, the
value and what to do:

```text
cpu.reserved.cpus: 9-15: this node has CPUs 0-7; name CPUs among those, or use cores_per_numa
cpu.isolatd: unknown key: did you mean cpu.isolated?
irq: not in this version of Corral: leave the key out
```

## An example

```yaml
{example}```

`bin/corral pools --profile examples/edge.yml` shows what it gives on this machine, with `--root TREE` on a recorded one.

## One profile for unlike nodes

The example names no CPU and no NUMA node. Such a key says what is meant, and each node finds its own answer:

| key | means on each node |
|---|---|
| `cpu.reserved.cores_per_numa: 1`, `cpu.reserved.count: 4` | that many cores of each NUMA node; that many CPUs, as the kubelet chooses them |
| `cpu.isolated.numa: last`, `cpu.isolated.near: ens1f0` | the last NUMA node that has CPUs; the NUMA node of a device |
| `memory.hugepages[].node: each`, `near: ens1f0` | a pool on each NUMA node that has memory; on the NUMA node of a device |
| `memory.hugepages[].share: 25%`, `memory.reserved_per_numa: 10%` | that share of the memory |
| `optional: true` | a node that cannot have the part does without it, and a note says why |

The node's effective profile has the answers: `corral plan --explain` shows them beside the keys, `corral pools` the CPUs.

## In an editor

[profile.schema.json](profile.schema.json) is a JSON Schema of all keys, for completion and for marking what is wrong while
you write: `# yaml-language-server: $schema=PATH/profile.schema.json` in the first line of a profile. A check of a repository
of profiles can use it as well (`check-jsonschema --schemafile profile.schema.json FILE`). It accepts every profile that
Corral accepts. What depends on several keys or on the node, `corral plan --profile FILE` says.

## How values are written

- **CPU list**: as the kernel and the kubelet write it, `0-3,8`: no blanks, no strides. A single CPU may be a number.
- **quantity in bytes**: as Kubernetes writes it: `512Mi`, `1Gi`, `1500M`, `1073741824`.
- **share in percent**: above 0% and up to 100%, with at most two decimals: `25%`, `12.5%`.
- **page size**: a quantity that is a power of two: `2Mi`, `1Gi`.
- **octal mode in quotes**: `"0770"`. Without quotes YAML makes another number of it.
- **true or false**: without quotes.
- **top-level slice**: a slice that lies in no other, such as `system.slice`, or `init.scope`.
- A key that is empty (`null`) counts as left out; in a layer it takes an earlier layer's key away ([compose.md](compose.md)
  has how group and host variables become one profile).
- A key that is in one mapping twice is refused.

## Keys

| key | value | default | since |
|---|---|---|---|
"""

LATER = """
## Keys of later versions

Known already, and refused by name until their time has come.

"""


def page() -> str:
    """The text of docs/profile.md."""
    example = (REPOSITORY / "examples" / "edge.yml").read_text(encoding="utf-8").partition("---\n")[2]
    now = [key for key in schema.KEYS if not key.later]
    rows = [f"| [`{key.path}`](#{_anchor(key)}) | {_kind(key)} | {_default(key)} | {key.since} |" for key in now]
    later = [f"- `{key.path}`: {key.doc}" for key in schema.KEYS if key.later]
    return (
        HEAD.replace("{example}", example) + "\n".join([*rows, "", *map(_entry, now)]) + LATER + "\n".join(later) + "\n"
    )


def _entry(key: schema_key.Key) -> str:
    example = f"\n\n```yaml\n{key.name}: {key.example}\n```" if key.example else ""
    return f"### {key.path}\n\n{key.doc}{example}\n"


def _anchor(key: schema_key.Key) -> str:
    """The anchor that GitHub gives a heading: lower case, without dots and brackets."""
    return "".join(char for char in key.path.lower() if char.isalnum() or char in "-_")


def _kind(key: schema_key.Key) -> str:
    value = key.type.name if key.type else "section"
    if key.many == schema_key.LIST:
        return "list of sections" if key.type is None else f"list: {value}"
    return f"mapping: {key.keys.name} to {value}" if key.keys else value


def _default(key: schema_key.Key) -> str:
    if key.required:
        return "required"
    if key.default is None:
        return ""
    default: t.Any = key.default
    text = f"[{', '.join(default)}]" if isinstance(default, tuple) else str(default)
    return f"`{text.lower() if isinstance(default, bool) else text}`"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
