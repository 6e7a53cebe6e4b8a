# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that runs commands of ansible-playbook, one after the other; ``Commands`` of playing.py starts it.

Each line of its input is the words of a command, its folder, more of its environment and the two files for what it prints;
each line of its output is the exit code of that command. Each command is a child of this process, which has imported Ansible
once. All of them send the same modules, which Ansible then packs only once: a module of this collection costs it two seconds.

Ansible forks for each task of a host. A task costs some milliseconds, its process ten times as much, and what the task compiled
ends with the process. So a command runs its tasks in its own process, unless the word ``forks`` is given to this program:
then tasks of several hosts run at the same time, as Ansible has it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import typing as t


def copied(what: t.Any) -> t.Any:
    """An object with the same attributes: a task's process changes its own copies."""
    copy = object.__new__(type(what))
    copy.__dict__.update(what.__dict__)
    return copy


def run_here(process: t.Any) -> None:
    """In place of the start of a task's process: do what the process does, without it."""
    from ansible.executor.process import worker

    task = process._task
    process._task = task.copy(exclude_parent=True)
    process._task._parent = task._parent
    process._host = copied(process._host)
    process._new_stdin = sys.stdin  # before ansible-core 2.19 a task is given the input of its process
    known = getattr(worker, "_task", None)  # from 2.19 on
    with known.TaskContext(process._task) if known else contextlib.nullcontext():
        process._run()


def run(words: t.Sequence[str], folder: str, more: t.Mapping[str, str], output: str, errors: str) -> t.NoReturn:
    """In a child: run a command to its end."""
    from ansible.cli import playbook

    os.chdir(folder)
    os.environ.update(more)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in ((1, output), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["ansible-playbook", *words]
    code: t.Any = 250
    try:
        playbook.main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        os._exit(code or 0)


def main() -> None:
    # Children share the memory of this process as long as nothing writes to it, and to collect garbage is to write.
    gc.disable()
    from ansible.cli import playbook  # noqa: F401 - for the children
    from ansible.executor.process import worker

    if "forks" not in sys.argv[1:]:
        worker.WorkerProcess.start = run_here
        worker.display.set_queue = lambda queue: (
            None
        )  # before 2.19 _run() has what is shown sent to the process that it is
        for stream in (sys.stdout, sys.stderr):
            stream.getvalue = str  # type: ignore[attr-defined] # from 2.19 on _run() asks what a task printed by itself
    gc.freeze()
    for line in sys.stdin:
        child = os.fork() or run(*json.loads(line))
        print(os.WEXITSTATUS(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
