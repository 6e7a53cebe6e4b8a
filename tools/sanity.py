# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-test sanity over the checkout as it is now: what git knows, and what it would add.

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
from tally import Tally

CACHE = pathlib.Path(os.environ.get("CORRAL_CACHE") or "~/.cache/corral").expanduser() / "ansible-test"
TARGETS = range(9, 15)  # Python 3.9 (RHEL 9) to 3.14; what the machine has not got, ansible-test skips

# As a child process, because ensurepip.bootstrap() in-process sets PIP_CONFIG_FILE=/dev/null for what follows,
# and then pip has lost the certificates or the index that the machine's pip.conf names.
GET_PIP = """\
import subprocess, sys
wanted = [a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]
subprocess.check_call([sys.executable, "-m", "ensurepip"])
subprocess.check_call([sys.executable, "-m", "pip", "install", *wanted])
"""


def fresh_tree() -> pathlib.Path:
    """Copy the checkout's files; one tree for each checkout of this machine."""
    name = hashlib.sha256(str(setup.CHECKOUT).encode()).hexdigest()[:12]
    tree = CACHE / f"tree-{name}" / "ansible_collections" / "corral" / "node"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=setup.CHECKOUT, stdout=subprocess.PIPE, check=True).stdout
    for path in sorted(filter(None, os.fsdecode(listed).split("\0"))):
        source = setup.CHECKOUT / path
        if source.is_symlink() or source.is_file():  # else deleted and not yet committed
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / path, follow_symlinks=False)
    return tree


def interpreters() -> pathlib.Path:
    """A directory with one link python3.N for each interpreter that really runs."""
    directory = CACHE / "bin"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for minor in TARGETS:
        found = setup.interpreter(minor)
        if found and minor != sys.version_info[1]:  # the controller's own is that of .venv
            (directory / f"python3.{minor}").symlink_to(found)
    return directory


def pip_stand_in(home: pathlib.Path) -> None:
    """Put GET_PIP where this ansible-core looks for its cached get-pip.py."""
    import ansible_test

    source = pathlib.Path(ansible_test.__file__).parent / "_internal" / "python_requirements.py"
    cache = home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in re.findall(r"""\bpip=['"]([0-9.]+)['"]""", source.read_text(encoding="utf-8")):
        (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(GET_PIP, encoding="utf-8")


@contextlib.contextmanager
def alone() -> t.Iterator[None]:
    """One sanity run at a time: they share the virtual environments that ansible-test makes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(arguments: t.Sequence[str] = ()) -> Tally:
    """Run all sanity tests (or those that the arguments name) and count them."""
    log = setup.CHECKOUT / ".cache" / "sanity.log"
    log.parent.mkdir(exist_ok=True)
    with alone():
        home = CACHE / "home"
        pip_stand_in(home)
        tree = fresh_tree()
        path = [str(setup.VENV / "bin"), str(interpreters()), *setup.search_path()]
        environment = {**os.environ, "HOME": str(home), "PATH": os.pathsep.join(path)}
        for name in ("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH", "VIRTUAL_ENV"):
            environment.pop(name, None)
        command = [str(setup.VENV / "bin" / "ansible-test"), "sanity", "--color", "no", *arguments]
        ran, failed, skipped = 0, 0, set()
        with (
            open(log, "w", encoding="utf-8") as whole,
            subprocess.Popen(
                command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process,
        ):
            for line in process.stdout or ():
                whole.write(line)
                if line.startswith(("Running ", "ERROR: ", "FATAL: ", "WARNING: ")):  # the rest is pip's progress
                    sys.stdout.write(line)
                    sys.stdout.flush()
                skipped.update(re.findall(r"^WARNING: (Skipping sanity test .*)", line))
                ran += line.startswith("Running sanity test ")
                failed += sum(map(int, re.findall(r"The (\d+) sanity test\(s\) listed below", line)))
    if process.returncode != 0:
        print(f"The whole output: {log}", flush=True)
        failed = max(failed, 1)
    return Tally(max(ran - failed, 0), failed, len(skipped))


if __name__ == "__main__":
    ended = run(sys.argv[1:])
    print(ended.line())
    raise SystemExit(min(ended.failed, 1))
