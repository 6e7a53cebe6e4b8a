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
  - C(meta) with V(end_host), V(end_batch), V(end_play) or V(end_role) is a problem as well, since the rollout of a host would end halfway.
  - Files that these tasks import or include by a name without a template, beside their own file, are read as well. Roles are not.
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

from ansible import errors
from ansible.errors import AnsibleError
from ansible.playbook.block import Block
from ansible.playbook.role_include import IncludeRole
from ansible.playbook.task import Task
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.lookup import LookupBase

# Since ansible-core 2.19 a text is a template only where it is marked as one.
TRUSTED: dict[str, t.Any] = {"trusted_as_template": True} if hasattr(errors, "AnsibleValueOmittedError") else {}

PARTS = ("block", "rescue", "always")
OTHER_FILES = ("import_tasks", "include_tasks")
ROLES = ("import_role", "include_role")
# They end the work on a host, or the play, between its change and its health checks. Outside of a role end_role ends the whole run.
ENDS = ("end_host", "end_batch", "end_play", "end_role")


class LookupModule(LookupBase):
    """Reads files of tasks as Ansible does when it includes them."""

    def run(
        self, terms: list[t.Any], variables: t.Optional[dict[str, t.Any]] = None, **kwargs: t.Any
    ) -> list[dict[str, str]]:
        self.set_options(var_options=variables, direct=kwargs)
        return [self.found(os.path.expanduser(str(term)), (variables or {}).get("playbook_dir", "")) for term in terms]

    def found(self, name: str, folder: str) -> dict[str, str]:
        """Where the file is, and what is wrong with it."""
        places = (os.path.join(folder, name), os.path.realpath(name))
        for path in places:
            if os.path.isfile(path):
                return {"path": path, "problem": self.problem_of(path, set())}
        problem = "no such file beside the playbook or where ansible-playbook was started: write the path of one"
        return {"path": "", "problem": problem}

    def problem_of(self, path: str, seen: set[str]) -> str:
        """What is wrong with a file or with those that it includes; "" if its tasks can be run."""
        if os.path.realpath(path) in seen:
            return ""
        seen.add(os.path.realpath(path))
        try:
            tasks = self._loader.load_from_file(path, **TRUSTED)
            files = [] if tasks is None else self.files_of(tasks)  # an empty file has no tasks
        except (AnsibleError, ValueError) as error:
            return f"{path}: {said(error)}: correct the file"
        for name in files:
            other = os.path.join(os.path.dirname(path), name)
            problem = self.problem_of(other, seen) if os.path.isfile(other) else ""
            if problem:
                return problem
        return ""

    def files_of(self, tasks: t.Any) -> list[str]:
        """The files that tasks import or include by name. Raises AnsibleError for a task that Ansible cannot run."""
        if not isinstance(tasks, list):
            raise AnsibleError("a file of tasks is a list of tasks")
        files = []
        for one in tasks:
            if not isinstance(one, dict):
                raise AnsibleError(f"{one!r} is not a task", obj=one)
            if Block.is_block(one):
                Block.load({**{key: value for key, value in one.items() if key not in PARTS}, "block": []})
                for part in PARTS:
                    files += self.files_of(one.get(part) or [])
                continue
            task = Task.load(one, loader=self._loader)
            action = str(task.action).rpartition(".")[2]
            word = str(task.args.get("_raw_params", task.args.get("file", "")))
            if action == "meta" and word in ENDS:
                message = f"meta: {word} would end the rollout of the host halfway; leave tasks out with a condition (when), and hosts with --limit"
                raise AnsibleError(message, obj=one)
            if action in ROLES:
                IncludeRole.load(one, loader=self._loader)  # it checks what a role is given
            if action in OTHER_FILES:
                TaskInclude.load(one, loader=self._loader)
                files += [] if "{{" in word else [word]
        return files


def said(error: Exception) -> str:
    """What Ansible says of a file, with the line where it knows it, in one line."""
    # ansible-core before 2.19 shows the place below the reason, and before it what another parser thinks.
    text = str(getattr(error, "message", error)).partition("\n\nThe error appears")[0]
    text = text.rpartition("Syntax Error while loading YAML.")[2].strip().partition("\n")[0].rstrip(".")
    place: t.Any = getattr(error, "obj", None)
    line = place.ansible_pos[1] if hasattr(place, "ansible_pos") else getattr(place, "line_num", None)
    return f"line {line}: {text}" if line else text
