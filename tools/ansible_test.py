# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-test over the checkout as it is now: what git knows, and what it would add.

ansible-test wants to stand physically in .../ansible_collections/corral/node (it resolves symlinks and refuses
them), real interpreters on PATH, and get-pip.py from the internet. So the files are copied into a cached tree,
PATH gets links to the interpreters found, and a stand-in for get-pip.py calls ensurepip.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing as t

import setup
import venvs
from steps import ENOUGH, remember
from tally import Tally, from_junit

CACHE = venvs.CACHE / "ansible-test"

# As a child process, because ensurepip.bootstrap() in-process sets PIP_CONFIG_FILE=/dev/null for what follows,
# and then pip has lost the certificates or the index that the machine's pip.conf names.
GET_PIP = """\
import subprocess, sys
wanted = [a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]
subprocess.check_call([sys.executable, "-m", "ensurepip"])
subprocess.check_call([sys.executable, "-m", "pip", "install", *wanted])
"""


def own_folder(kind: str) -> pathlib.Path:
    """A folder of this checkout in the cache."""
    return CACHE / f"{kind}-{hashlib.sha256(str(setup.CHECKOUT).encode()).hexdigest()[:12]}"


def listed() -> list[str]:
    """The checkout's files, as git has them or would add them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=setup.CHECKOUT, stdout=subprocess.PIPE, check=True).stdout
    paths = sorted(filter(None, os.fsdecode(names).split("\0")))
    return [path for path in paths if os.path.lexists(setup.CHECKOUT / path)]  # else deleted and not yet committed


def fresh_tree() -> pathlib.Path:
    """Copy the checkout's files; one tree for each checkout of this machine."""
    tree = own_folder("tree") / "ansible_collections" / "corral" / "node"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for path in listed():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(setup.CHECKOUT / path, tree / path, follow_symlinks=False)
    return tree


def interpreters() -> pathlib.Path:
    """A directory with one link python3.N for each interpreter that really runs."""
    directory = CACHE / "bin"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for minor in venvs.NODE:
        python = venvs.found(minor)
        if python:
            (directory / f"python3.{minor}").symlink_to(python)
    return directory


def pip_stand_in(venv: pathlib.Path, home: pathlib.Path) -> None:
    """Put GET_PIP where this ansible-core looks for its cached get-pip.py."""
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for source in venv.glob("lib/python3.*/site-packages/ansible_test/_internal/python_requirements.py"):
        for version in re.findall(r"""\bpip=['"]([0-9.]+)['"]""", source.read_text(encoding="utf-8")):
            (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(GET_PIP, encoding="utf-8")


@contextlib.contextmanager
def alone() -> t.Iterator[None]:
    """One run at a time: they share the virtual environments that ansible-test makes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def output(
    venv: pathlib.Path, words: t.Sequence[str], log: pathlib.Path, tree: pathlib.Path, *more: pathlib.Path
) -> t.Iterator[t.Iterator[str]]:
    """Run this environment's ansible-test in the tree: the lines of what it says; all of them go to the log as well.

    ``more`` are virtual environments whose Pythons it is to find first.
    """
    log.parent.mkdir(exist_ok=True)
    home = CACHE / "home"
    pip_stand_in(venv, home)
    path = [*(str(one / "bin") for one in (venv, *more)), str(interpreters()), *setup.search_path()]
    environment = {**os.environ, "HOME": str(home), "PATH": os.pathsep.join(path)}
    for name in ("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    command = [str(venv / "bin" / "ansible-test"), words[0], "--color", "no", *words[1:]]

    def lines() -> t.Iterator[str]:
        for line in process.stdout or ():
            whole.write(line)
            yield line

    with (
        open(log, "w", encoding="utf-8") as whole,
        subprocess.Popen(
            command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        yield lines()
    if process.returncode != 0:
        print(f"The whole output: {log}", flush=True)
        raise subprocess.CalledProcessError(process.returncode, command)


def sanity_once_each() -> Tally:
    """Run all sanity tests with .venv's ansible-core; `pylint` and `import` over what knows Ansible alone.

    Over the core pylint takes as long as all other tests, and finds what ruff and mypy find: its own rules of Ansible are for plugins.
    `import` takes as long for each Python: modules import most of the core, and its unit tests, which run with the oldest Python as
    well, the rest. make test-long has all of it.
    """
    if os.environ.get("CORRAL_LONG"):
        return sanity()
    total = sanity(["--skip-test", "import", "--skip-test", "pylint"])
    total = total.plus(sanity(["--test", "pylint", *beside_core()], part="-pylint"))
    # Where there is a Python for the newest ansible-core, its own sanity tests import with that one.
    for version in oldest_and_newest()[: 1 if venvs.newest_python() else 2]:
        words = ["--test", "import", "--python", version, *beside_core()]
        total = total.plus(sanity(words, part=f"-import-{version}"))
    return total


def beside_core() -> list[str]:
    """The plugins, and of module_utils what knows Ansible."""
    files = (setup.CHECKOUT / "plugins").rglob("*.py")
    paths = (path.relative_to(setup.CHECKOUT).as_posix() for path in files if "_core" not in path.parts)
    return sorted(paths)


def oldest_and_newest(venv: pathlib.Path = setup.VENV) -> list[str]:
    """The Pythons of nodes that are here and that this ansible-test knows: the oldest and the newest of them."""
    source = next(venv.glob("lib/python3.*/site-packages/ansible_test/_util/target/common/constants.py"))
    known = set(re.findall(r"'(3\.[0-9]+)'", source.read_text(encoding="utf-8")))
    here = [f"3.{minor}" for minor in venvs.NODE if venvs.found(minor)]
    there = [version for version in here if version in known]
    return there[:1] + there[1:][-1:]


def sanity(arguments: t.Sequence[str] = (), venv: pathlib.Path = setup.VENV, *, part: str = "") -> Tally:
    """Run all sanity tests (or those that the arguments name) and count them. ``part`` tells its log from others'."""
    log = setup.CHECKOUT / ".cache" / f"sanity-{venv.name.lstrip('.')}{part}.log"
    ran, failed, skipped = 0, 0, set()
    try:
        with alone(), output(venv, ["sanity", *arguments], log, fresh_tree()) as lines:
            for line in lines:
                if line.startswith(("Running ", "ERROR: ", "FATAL: ", "WARNING: ")):  # the rest is pip's progress
                    print(line, end="", flush=True)
                if line.startswith(("ERROR: ", "FATAL: ")):
                    remember(line.strip())
                skipped.update(re.findall(r"^WARNING: (Skipping sanity test .*)", line))
                ran += line.startswith("Running sanity test ")
                failed += sum(map(int, re.findall(r"The (\d+) sanity test\(s\) listed below", line)))
    except subprocess.CalledProcessError:
        failed = max(failed, 1)
    return Tally(max(ran - failed, 0), failed, len(skipped))


def units(venv: pathlib.Path, python: pathlib.Path, *arguments: str) -> Tally:
    """Run the unit tests with this environment's ansible-test and that one's Python; all of them count as one test.

    With a Python that ansible-core itself does not run on, those are the tests of module_utils.
    """
    version = f"3.{venvs.minor_of(python)}"
    log = setup.CHECKOUT / ".cache" / f"units-{version}.log"
    words = ["units", "--python", version, *arguments]
    printed: list[str] = []
    with alone():
        tree = fresh_tree()
        try:
            with output(venv, words, log, tree, python) as lines:
                printed.extend(lines)
            passed = True
        except subprocess.CalledProcessError:
            print("".join(printed), flush=True)
            passed = False
    tally, wrong = from_junit((tree / "tests" / "output" / "junit").glob("*.xml"))
    ran = tally.passed + tally.failed
    print(f"Python {version}: {ran} unit tests ran, {tally.skipped} were skipped (why: {log})", flush=True)
    if passed and ran:
        return Tally(passed=1)
    remember(*(wrong or printed[-ENOUGH:] or ["no test ran"]))
    return Tally(failed=1)


if __name__ == "__main__":
    ended = sanity(sys.argv[1:])
    print(ended.line())
    raise SystemExit(min(ended.failed, 1))
