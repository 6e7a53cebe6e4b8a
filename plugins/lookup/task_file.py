# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: task_file
short_description: Read a file of tasks before it is included
version_added: 0.1.0
author:
  - Corral contributors (@corral-project)
description:
  - Finds a file of tasks on the controller, and says what would keep Ansible from running its tasks.
  - Ansible reads a file of C(include_tasks) when the play is there, and ends the whole run at one that is not YAML or
    that names an unknown module. The playbook C(corral.node.rollout) reads the files of C(corral_drain) and C(corral_undrain) with
    this lookup before it changes the first host.
  - C(meta) with V(end_host), V(end_batch) or V(end_play) is a problem as well, since the rollout of a host would end halfway.
  - So is the tag V(never), since a rollout gives all of these tasks the tag V(always), which is stronger.
  - So is C(notify) where the tasks use no role, since a rollout has no handlers of its own.
  - What these tasks import is read as well, and files that they include by a name without a template, beside their own file.
    Roles of C(include_role) are not.
options:
  _terms:
    description: Paths. A relative one is looked for beside the playbook, then in the folder in which Ansible was started.
    type: list
    elements: path
    required: true
"""

EXAMPLES = r"""
- name: See that the tasks can be run
  ansible.builtin.assert:
    that: found.problem == ''
    fail_msg: "{{ found.problem }}"
  vars:
    found: "{{ lookup('corral.node.task_file', 'drain.yml') }}"
"""

RETURN = r"""
_list:
  description:
    - Of each path, C(path), where the file is, and C(problem), what is wrong and what to do. C(problem) is empty if the tasks can be run.
  type: list
  elements: dict
"""

import os
import typing as t

from ansible import constants, errors
from ansible.errors import AnsibleError, AnsibleFileNotFound
from ansible.playbook.block import Block
from ansible.playbook.helpers import load_list_of_blocks
from ansible.playbook.play import Play
from ansible.playbook.role_include import IncludeRole
from ansible.playbook.task import Task
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.lookup import LookupBase
from ansible.vars.manager import VariableManager
from ansible_collections.corral.node.plugins.plugin_utils.host_results import refuse_facts
from jinja2.exceptions import TemplateError

# Since ansible-core 2.19 a text is a template only if it is marked as a template.
TRUSTED: dict[str, t.Any] = {"trusted_as_template": True} if hasattr(errors, "AnsibleValueOmittedError") else {}

# These words end the play, or the work on a host, between the host's change and its health checks.
ENDS = ("end_host", "end_batch", "end_play")
METAS = ("clear_facts", "clear_host_errors", "flush_handlers", "noop", "refresh_inventory", "reset_connection")


class LookupModule(LookupBase):
    """Reads files of tasks as Ansible does when it includes them."""

    def run(
        self, terms: list[t.Any], variables: t.Optional[dict[str, t.Any]] = None, **kwargs: t.Any
    ) -> list[dict[str, str]]:
        self.set_options(var_options=variables, direct=kwargs)
        try:
            refuse_facts(variables or {})
        except ValueError as error:
            raise errors.AnsibleLookupError(str(error)) from error
        return [self.found(os.path.expanduser(str(term)), (variables or {}).get("playbook_dir", "")) for term in terms]

    def found(self, name: str, folder: str) -> dict[str, str]:
        """The path of the file, and what is wrong with it."""
        places = (os.path.join(folder, name), os.path.realpath(name))
        for path in places:
            if os.path.isfile(path):
                read: dict[str, list[Task]] = {}
                return {"path": path, "problem": self.problem_of(path, read) or problem_of_handlers(read)}
        problem = "no such file beside the playbook or where ansible-playbook was started: write the path of one"
        return {"path": "", "problem": problem}

    def problem_of(self, path: str, read: dict[str, list[Task]]) -> str:
        """What is wrong with a file or with the files that it includes; "" if Ansible can read them. Their tasks are added to `read`."""
        path = os.path.normpath(path)
        if path in read:
            return ""
        read[path] = []
        try:
            tasks = self._loader.load_from_file(path, **TRUSTED)
            if tasks is not None:  # an empty file has no tasks
                read[path] += self.tasks_of_file(path, tasks)
            files = files_of(read[path])
        # ansible-core 2.19 raises a TemplateError for an undefined name in a template that a lookup makes.
        except (AnsibleError, TemplateError, ValueError) as error:
            return f"{path}: {said(error)}: correct the file"
        for other in files:
            problem = self.problem_of(other, read) if os.path.isfile(other) else ""
            if problem:
                return problem
        return ""

    def tasks_of_file(self, path: str, tasks: t.Any) -> t.Iterator[Task]:
        """The tasks of a file, and the tasks that they import. Raises AnsibleError if Ansible would do so when it includes the file."""
        if not isinstance(tasks, list):
            raise AnsibleError("a file of tasks is a list of tasks")
        if any(isinstance(one, dict) and "hosts" in one for one in tasks):
            raise AnsibleError("this is a playbook: write its tasks alone, without hosts")
        play = Play()
        include = TaskInclude.load({"ansible.builtin.include_tasks": {"file": path}}, block=Block(play=play))
        # Names of imports may contain only extra variables: Ansible reads the file without a host.
        known = VariableManager(loader=self._loader)
        try:
            blocks = load_list_of_blocks(tasks, play, parent_block=include, variable_manager=known, loader=self._loader)
        except AnsibleError:
            # Ansible reads a misspelt keyword as a second module; loading the task alone tells which keyword is unknown.
            for task in tasks:
                if isinstance(task, dict) and not Block.is_block(task):
                    Task.load(task, loader=self._loader)
            raise
        return tasks_of(blocks)


def tasks_of(parts: list[t.Any]) -> t.Iterator[Task]:
    """The tasks of blocks, in their order."""
    for part in parts:
        if isinstance(part, Block):
            yield from tasks_of([*part.block, *part.rescue, *part.always])
        elif not part.implicit:  # implicit: added by Ansible, as at the end of a role
            yield part


def files_of(tasks: list[Task]) -> list[str]:
    """The files that tasks include by name. Raises AnsibleError for a task that a rollout cannot run as intended."""
    files = []
    for task in tasks:
        action = str(task.action).rpartition(".")[2]
        word = str(task.args.get("_raw_params", ""))
        if action == "meta" and word in ENDS:
            message = f"meta: {word} would end the rollout of the host halfway; leave tasks out with a condition (when), and hosts with --limit"
            raise AnsibleError(message, obj=task.get_ds())
        if action == "meta" and word not in METAS and not (word == "end_role" and task._role):
            message = f"meta: {word}: Ansible knows here {', '.join(METAS)}"
            raise AnsibleError(message, obj=task.get_ds())
        if "never" in task.tags:
            message = "tags: never: a rollout runs all tasks of the file, whatever their tags; leave tasks out with a condition (when)"
            raise AnsibleError(message, obj=task.get_ds())
        if action == "include_tasks" and not task._role and not is_template(task):
            files.append(os.path.join(folder_of(task), word))
    return files


def problem_of_handlers(read: dict[str, list[Task]]) -> str:
    """The problem of a task that notifies a handler: a rollout has no handlers, so Ansible ends the run. A role may bring handlers."""
    tasks = [(path, task) for path, found in read.items() for task in found]
    roles = any(task._role or isinstance(task, IncludeRole) or is_template(task) for dummy, task in tasks)
    if roles or not constants.ERROR_ON_MISSING_HANDLER:
        return ""
    for path, task in tasks:
        if task.notify:
            names = task.notify if isinstance(task.notify, str) else ", ".join(map(str, task.notify))
            return f"{path}: notify: {names}: a rollout has no handlers: write what the handler does as a task"
    return ""


def is_template(task: Task) -> bool:
    """Whether a task includes a file whose name is known only during the run."""
    return isinstance(task, TaskInclude) and "{{" in str(task.args["_raw_params"])


def folder_of(task: Task) -> str:
    """The folder of the file that has the task: the file that was read, or a file that it imports."""
    folder, parent = "", task._parent
    while parent is not None:
        if isinstance(parent, TaskInclude):
            folder = os.path.join(os.path.dirname(str(parent.args["_raw_params"])), folder)
        parent = parent._parent
    return folder


def said(error: Exception) -> str:
    """Ansible's message about a file, on one line, with the line number in the file if Ansible knows it."""
    # ansible-core before 2.19 shows the place below the reason, and another parser's message above the reason.
    text = str(getattr(error, "message", error)).partition("\n\nThe error appears")[0]
    if isinstance(error, AnsibleFileNotFound):
        text = text.partition("\n")[2]  # the part that names the file
    text = text.rpartition("Syntax Error while loading YAML.")[2].strip().partition("\n")[0].rstrip(".")
    place: t.Any = getattr(error, "obj", None)
    line = place.ansible_pos[1] if hasattr(place, "ansible_pos") else getattr(place, "line_num", None)
    return f"line {line}: {text}" if line else text
