# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup task_file finds what Ansible would end a run for, and reads what Ansible can run. Ansible runs it, once for all files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ansible")

CHECKOUT = Path(__file__).resolve().parents[2]
NOTE = "- ansible.builtin.command: ls\n"
END = "- ansible.builtin.meta: end_host\n"
ACTION = "from ansible.plugins.action import ActionBase\n\n\nclass ActionModule(ActionBase):\n    pass\n"
OTHERS = {
    "more.yml": NOTE, "sub/first.yml": "- import_tasks: second.yml\n", "sub/second.yml": "- include_tasks: end.yml\n", "sub/end.yml": END,
    "notifies.yml": f"{NOTE}  notify: reload\n",
    "roles/lb/tasks/main.yml": "- ansible.builtin.include_tasks: more.yml\n- ansible.builtin.command: ls\n  notify: reload\n",
    "roles/lb/tasks/more.yml": NOTE, "roles/lb/handlers/main.yml": f"- name: reload\n  {NOTE[2:]}",
    "roles/ends/tasks/main.yml": END,
    "collections/ansible_collections/x/y/plugins/action/pool.py": ACTION,
}  # fmt: skip
# Name of a file -> its tasks, and what is said of them ("": nothing).
FILES = {
    "become of an include": ("- include_tasks: more.yml\n  become: false\n", "'become' is not a valid attribute for a TaskInclude"),
    "delegated include": ("- include_role: {name: lb}\n  delegate_to: x\n", "'delegate_to' is not a valid attribute for a IncludeRole"),
    "option of an include": ("- include_tasks: {file: more.yml, tags: x}\n", "Invalid options for include_tasks: tags"),
    "no file": ("- include_tasks: {apply: {tags: x}}\n", "No file specified for include_tasks"),
    "no role": ("- include_role: {tasks_from: x}\n", "'name' is a required field for include_role"),
    "loop of an import": ("- import_tasks: more.yml\n  loop: [1]\n", "You cannot use loops on 'import_tasks' statements"),
    "import of nothing": ("- import_tasks: nowhere.yml\n", "nowhere.yml' on the Ansible Controller"),
    "import of no role": ("- import_role: {name: nowhere}\n", "the role 'nowhere' was not found"),
    "import by a host": ("- import_tasks: '{{ inventory_hostname }}.yml'\n", "'inventory_hostname' is undefined"),
    "rescue alone": ("- rescue:\n  - command: ls\n", "'rescue' keyword cannot be used without 'block'"),
    "playbook": ("- hosts: all\n  tasks: []\n", "this is a playbook: write its tasks alone, without hosts"),
    "unknown meta": ("- meta: nonsense\n", "meta: nonsense: Ansible knows here clear_facts"),
    "end of no role": ("- meta: end_role\n", "end_role"),
    "end of the play in a role": ("- import_role: {name: ends}\n", "meta: end_host would end the rollout"),
    "end two imports below": ("- import_tasks: sub/first.yml\n", "sub/end.yml: "),
    "group of defaults": (f"{NOTE}  module_defaults: {{group/no.such.group: {{a: 1}}}}\n", "could not resolve the module_defaults group"),
    "handler": (f"{NOTE}  notify: reload\n", "notify: reload: a rollout has no handlers: write what the handler does as a task"),
    "handler of a block": ("- block:\n  - command: ls\n  notify: [reload, restart]\n", "notify: reload, restart: "),
    "handler below": ("- include_tasks: notifies.yml\n", "notifies.yml: notify: reload: "),
    "task for --tags alone": (f"{NOTE}  tags: [never, debug]\n", "tags: never: a rollout runs all tasks of the file"),
    "block for --tags alone": ("- block:\n  - command: ls\n  tags: never\n", "tags: never: "),
    "nothing": ("", ""),
    "comments": ("---\n# nothing\n", ""),
    "collection of a block": ("- collections: [x.y]\n  block:\n  - pool: {a: 1}\n", ""),
    "handler of a role": (f"- include_role: {{name: lb}}\n- import_role: {{name: lb}}\n{NOTE}  notify: reload\n", ""),
    "handler of a role below": ("- include_role: {name: lb}\n- include_tasks: notifies.yml\n", ""),
    "handler of what is not known": (f"- include_tasks: '{{{{ x }}}}.yml'\n{NOTE}  notify: reload\n", ""),
    "import by a variable of -e": ("- import_tasks: '{{ of_all }}.yml'\n", ""),
    "itself": ("- include_tasks: itself.yml\n  when: false\n", ""),
    "loops": ("- include_tasks: '{{ item }}'\n  loop: [more.yml]\n- ping:\n  delegate_to: '{{ lb }}'\n  throttle: 1\n", ""),
    "inline vault": (f"{NOTE}  vars:\n    x: !vault |\n      $ANSIBLE_VAULT;1.1;AES256\n      3333\n", ""),
}  # fmt: skip


def test_what_ansible_would_end_a_run_for_is_found_and_all_else_is_read(tmp_path: Path) -> None:
    collections = tmp_path / "collections" / "ansible_collections"
    for name, text in {**OTHERS, **{f"{name}.yml": text for name, (text, dummy) in FILES.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (collections / "corral").mkdir()
    (collections / "corral" / "node").symlink_to(CHECKOUT)
    asked = {"asked": [f"{name}.yml" for name in FILES], "of_all": "more", "ansible_python_interpreter": sys.executable}
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False,
        "tasks": [{"copy": {"content": "{{ query('corral.node.task_file', *asked) | to_json }}", "dest": str(tmp_path / "found.json")}}],
    }  # fmt: skip
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    environment = {
        **os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
        "ANSIBLE_REMOTE_TEMP": str(tmp_path / "remote"), "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"),
    }  # fmt: skip
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "-i",
        "localhost,",
        "-e",
        json.dumps(asked),
        "play.yml",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [one["problem"] for one in json.loads((tmp_path / "found.json").read_text())]
    wrong = {
        name: problem
        for (name, (dummy, because)), problem in zip(FILES.items(), found)
        if because not in problem or bool(problem) != bool(because)
    }
    assert wrong == {} and len(found) == len(FILES)
