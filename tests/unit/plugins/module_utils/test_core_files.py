# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A payload's modules take from the node what is compiled there of the same file, and everything else from the payload."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import typing as t
import zipfile

import pytest
from _core.model.agent.agent_units import LAUNCHER

UTILS = pathlib.Path(__file__).parents[4] / "plugins" / "module_utils"
PACKAGE = "ansible_collections/corral/node/plugins/module_utils"
LEAF = next((UTILS / "_core" / "model").rglob("cpuset.py")).relative_to(UTILS / "_core")
MODULE = ".".join(LEAF.with_suffix("").parts)
ENTRY = min((UTILS / "_core").glob("*.py")).stem
LAUNCHED = f'LAUNCHER = "{LAUNCHER}"'
# argv: the payload, a file of module_utils; where the core's files came from that it has imported
IMPORTS = f"""
import importlib, sys
sys.path[:0] = [sys.argv[1], sys.argv[3]]
package = "{PACKAGE.replace("/", ".")}."
importlib.import_module(package + sys.argv[2])
core = [one for name, one in sys.modules.items() if name.startswith(package + "_core.") and not hasattr(one, "__path__")]
print(len(core) > 10, {{one.__file__.split("/_core/")[0] for one in core}})
"""
# argv: the payload, the node's launcher, a module, another one, what to do between the two
ASK = f"""
import importlib, os, shutil, sys
sys.path.insert(0, sys.argv[1])
package = "{PACKAGE.replace("/", ".")}"
files = importlib.import_module(package + "._core_files")
assert files.use_installed(sys.argv[2])
installed = os.path.dirname(os.path.realpath(sys.argv[2]))
entry = importlib.import_module(package + "._core." + sys.argv[3])
exec(sys.argv[5])
leaf = importlib.import_module(package + "._core." + sys.argv[4])
print(entry.__file__.startswith(installed), leaf.__file__.startswith(installed), len(files.program(entry)))
print(leaf.parse("0-1"))
"""


@pytest.fixture(name="payload")
def made_payload(tmp_path: pathlib.Path) -> pathlib.Path:
    """A zip file as Ansible sends it: what a module imports, a package in each folder."""
    made = tmp_path / "payload.zip"
    files = [*UTILS.glob("*.py"), *(UTILS / "_core").rglob("*.py")]
    with zipfile.ZipFile(made, "w") as archive:
        for path in files:
            text = path.read_text(encoding="utf-8")
            if path.name == "_core_files.py":  # where the agent's launcher is on this machine
                assert text.count(LAUNCHED) == 1
                text = text.replace(LAUNCHED, f'LAUNCHER = "{tmp_path}/corral"')
            archive.writestr(f"{PACKAGE}/{path.relative_to(UTILS)}", text)
        folders = {parent for path in files for parent in path.relative_to(UTILS).parents}
        above = ["/".join(PACKAGE.split("/")[:depth]) for depth in range(1, len(PACKAGE.split("/")))]
        for folder in (*above, *(f"{PACKAGE}/{folder}" for folder in sorted(map(str, folders)))):
            archive.writestr(f"{folder}/__init__.py".replace("/./", "/"), "")
    return made


@pytest.fixture(name="release", scope="module")
def made_release(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The core, compiled as the agent installs it."""
    folder = tmp_path_factory.mktemp("release") / "_core"
    shutil.copytree(UTILS / "_core", folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([sys.executable, "-I", "-m", "compileall", "-q", str(folder)], check=True)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(name="node")
def made_node(release: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A release of the agent, with its times, and a link to the launcher beside it."""
    folder = tmp_path / "libexec" / "releases" / "one" / "_core"
    shutil.copytree(release, folder)
    (tmp_path / "corral").symlink_to("libexec/releases/one/corral")
    return folder


def asked(payload: pathlib.Path, between: str = "", launcher: str = "corral") -> list[str]:
    """Whether the first and the second module came from the node, how many files the payload has; the second works."""
    words = [sys.executable, "-I", "-c", ASK, str(payload), str(payload.parent / launcher), ENTRY, MODULE, between]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    assert said[1:] == ["frozenset({0, 1})"]
    return said[0].split()


def compiled(source: pathlib.Path) -> pathlib.Path:
    return source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"


def written(path: pathlib.Path, data: bytes) -> None:
    """Written with the times that the file had before."""
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


DIFFERENT: dict[str, t.Callable[[pathlib.Path], object]] = {
    "another release": lambda leaf: written(leaf, leaf.read_bytes().replace(b"the", b"hte", 1)),
    "longer": lambda leaf: written(leaf, leaf.read_bytes() + b"\n"),
    "gone": lambda leaf: leaf.unlink(),
    "a link into nothing": lambda leaf: (leaf.unlink(), leaf.symlink_to("/nonexistent")),
    "written by others": lambda leaf: leaf.chmod(0o666),
    "written by a group": lambda leaf: leaf.chmod(0o664),
    "not compiled": lambda leaf: compiled(leaf).unlink(),
    "compiled of another text": lambda leaf: os.utime(leaf, (1, 1)),
    "compiled by another Python": lambda leaf: written(compiled(leaf), b"\0\0\0\0" + compiled(leaf).read_bytes()[4:]),
    "compiled, empty": lambda leaf: written(compiled(leaf), b""),
    "compiled, half": lambda leaf: written(compiled(leaf), compiled(leaf).read_bytes()[:200]),
    "compiled, zeros": lambda leaf: written(compiled(leaf), compiled(leaf).read_bytes()[:100] + bytes(4000)),
    "compiled, something else": lambda leaf: written(compiled(leaf), compiled(leaf).read_bytes()[:16] + b"N"),
    "compiled, written by others": lambda leaf: compiled(leaf).chmod(0o666),
}


def test_the_same_file_is_loaded_as_the_node_has_compiled_it(payload: pathlib.Path, node: pathlib.Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in node.rglob("*")}
    *loaded, count = asked(payload)
    assert loaded == ["True", "True"]
    assert int(count) == len(
        list((UTILS / "_core").rglob("*.py"))
    )  # what is installed comes from the payload all the same
    assert {path: path.stat().st_mtime_ns for path in node.rglob("*")} == before


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_differs_on_the_node_comes_from_the_payload(what: str, payload: pathlib.Path, node: pathlib.Path) -> None:
    DIFFERENT[what](node / LEAF)
    assert asked(payload)[:2] == ["True", "False"]


def test_what_another_run_takes_away_or_replaces_meanwhile_comes_from_the_payload(
    payload: pathlib.Path, node: pathlib.Path
) -> None:
    replace = f"file = open('{node / LEAF}', 'a'); file.write('parse = None'); file.close()"
    assert asked(payload, replace)[:2] == ["True", "False"]
    assert asked(payload, "shutil.rmtree(installed)")[:2] == ["True", "False"]


def test_a_run_that_changes_which_release_runs_goes_on_with_the_one_it_began_with(
    payload: pathlib.Path, node: pathlib.Path
) -> None:
    upgrade = "os.unlink(sys.argv[2]); os.symlink('libexec/releases/two/corral', sys.argv[2])"
    assert asked(payload, upgrade)[:2] == ["True", "True"]
    assert asked(payload)[:2] == ["False", "False"]


def test_a_program_from_before_there_were_releases_is_loaded_as_well(payload: pathlib.Path, node: pathlib.Path) -> None:
    launcher = node.parent / "corral"
    launcher.write_text("")
    assert asked(payload, launcher=str(launcher))[:2] == ["True", "True"]


def test_a_node_without_the_agent_has_none(payload: pathlib.Path) -> None:
    assert asked(payload, launcher="nothing/corral")[:2] == ["False", "False"]


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("name", sorted(path.stem for path in UTILS.glob("*.py") if path.stem != "_core_files"))
def test_what_modules_import_takes_its_core_from_the_node(
    name: str, installed: bool, payload: pathlib.Path, node: pathlib.Path
) -> None:
    basic = pytest.importorskip("ansible.module_utils.basic")
    if not installed:
        shutil.rmtree(node)
    words = [sys.executable, "-I", "-c", IMPORTS, str(payload), name, str(pathlib.Path(basic.__file__).parents[2])]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    assert said == f"True {{'{node.parent if installed else payload / PACKAGE}'}}"
