# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the design demands of every file, and no linter knows: layers, headers, the action group."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
CORE = CHECKOUT / "plugins" / "module_utils" / "_core"
SOURCES = sorted(CORE.rglob("*.py"))

# A layer imports itself (managers excepted) and what is further left.
LAYERS = ("model", "host", "managers", "")
# From the distribution, where it is installed: for reports and a person's YAML; the tick does without.
OPTIONAL = {"psutil", "yaml"}
# What reads or changes a machine has no place in the model.
DOES_IO = {"io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "time"}


def imports(source: Path) -> list[tuple[int, str]]:
    """(level, dotted name) of each import; level 0 is absolute. `from .. import x` names x."""
    found = []
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(node.level, name) for name in names]
    return found


def layer_of(source: Path) -> str:
    folder = source.relative_to(CORE).parts[0]
    return folder if folder in LAYERS else ""


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_core_imports_run_downward(source: Path) -> None:
    layer = layer_of(source)
    for level, name in imports(source):
        if level == 0:
            top = name.split(".")[0]
            if hasattr(sys, "stdlib_module_names"):  # Python 3.10
                others = set() if layer == "model" else OPTIONAL
                assert top in sys.stdlib_module_names | others, f"{name} is not in the standard library"
            assert top != "dataclasses", "its import alone costs more than a tick may"
            assert layer != "model" or top not in DOES_IO, f"the model does no I/O: {name}"
            continue
        up = source.parents[level - 1]
        assert up == CORE or CORE in up.parents, f"{name} lies outside the core"
        target = up.relative_to(CORE).parts[0] if up != CORE else name.split(".")[0]
        target = target if target in LAYERS else ""
        assert LAYERS.index(target) <= LAYERS.index(layer), f"{layer} must not import {target or 'the top'}: {name}"
        # cpu.py and cpu_v1.py are one manager.
        of_another = name.split("_")[0] != source.stem.split("_")[0]
        assert not (layer == target == "managers" and of_another), f"a manager never imports another: {name}"


def test_one_file_knows_ansible_modules() -> None:
    private = CHECKOUT.glob("plugins/module_utils/*.py")
    knowing = {source.name for source in private if any(name.startswith("ansible.") for dummy, name in imports(source))}
    assert knowing == {"_module.py"}
    for source in CHECKOUT.glob("plugins/modules/*.py"):
        ours = "ansible_collections.corral.node.plugins.module_utils"
        assert {name for dummy, name in imports(source)} == {"__future__", ours}, "a module is thin"


def tracked() -> list[Path]:
    """The files of the checkout, as git has them; none outside a git checkout."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=False)
    paths = [CHECKOUT / name for name in done.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_each_source_file_says_its_licence() -> None:
    written_by_tools = {CHECKOUT / "changelogs" / "changelog.yaml"}
    suffixes = {".cfg", ".j2", ".py", ".service", ".sh", ".timer", ".toml", ".yaml", ".yml"}
    without = [
        str(path.relative_to(CHECKOUT))
        for path in tracked()
        if path.suffix in suffixes
        and path not in written_by_tools
        and "SPDX-License-Identifier: GPL-3.0-or-later" not in path.read_text(encoding="utf-8")[:600]
    ]
    assert without == []


def test_action_group_is_all_modules() -> None:
    group = yaml.safe_load((CHECKOUT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]["node"]
    modules = {path.stem: path.read_text(encoding="utf-8") for path in CHECKOUT.glob("plugins/modules/*.py")}
    assert modules
    assert sorted(modules) == sorted(group)
    assert [name for name, text in modules.items() if "corral.node._attributes.action_group" not in text] == []


# The tick asks Host's questions again to know that nothing changed: what is read beside Host, it would miss.
BESIDE_HOST = {
    "host/oom.py",  # within one question, which is asked again as a whole
    "host/thread_masks.py",  # within a step, of threads that a look does not know
    "commands.py",
    "host/command.py",
    "host/files.py",
    "host/inputs.py",
    "host/lock.py",
    "host/sd_bus.py",  # its questions count as commands, with which nothing is kept
    "host/snapshot.py",
}
NOT_THE_MACHINE = {"os.environ", "os.environ.get", "os.geteuid", "os.path", "os.path.dirname", "os.sysconf"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(CORE)))
def test_the_machine_is_read_through_host_alone(source: Path) -> None:
    if str(source.relative_to(CORE)) in BESIDE_HOST:
        return
    tree = ast.parse(source.read_text(encoding="utf-8"))
    used = {ast.unparse(part) for part in ast.walk(tree) if isinstance(part, ast.Attribute)}
    used |= {part.func.id for part in ast.walk(tree) if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    assert {name for name in used if name.startswith("os.") or name == "open"} <= NOT_THE_MACHINE
    modules = {name.split(".")[0] for level, name in imports(source) if level == 0}
    assert not modules & {"ctypes", "glob", "grp", "io", "pathlib", "pwd", "shutil", "socket", "subprocess"}
