# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback that keeps what Ansible has made of the collection's modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ansible.plugins.callback")
CALLBACKS = Path(__file__).resolve().parents[3] / "tools" / "callback"
NOTHING_OF_IT = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
"""
BOOK = """
- hosts: localhost
  gather_facts: false
  connection: local
  tasks:
    - corral.node.says:
"""
MODULE = """
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.corral.node.plugins.module_utils.words import WORD

AnsibleModule({}).exit_json(msg=f"it says {WORD}")
"""


def played(folder: Path) -> str:
    """Play the book in an Ansible process of its own, with Ansible's own words about what it makes."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
        "ANSIBLE_CALLBACKS_ENABLED": "kept_modules",
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_DEBUG": "true",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "CORRAL_KEPT_MODULES": str(folder / "kept"),
        "HOME": str(folder),
    }
    words = [str(Path(sys.executable).parent / "ansible-playbook"), "-v", "-i", "localhost,", str(folder / "book.yml")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, cwd=folder)
    assert "Callback dispatch" not in done.stdout + done.stderr, "it failed"
    return done.stdout


def test_a_playbook_without_a_module_of_the_collection_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "ansible_collections/corral/node").mkdir(parents=True)
    (tmp_path / "book.yml").write_text(NOTHING_OF_IT)
    assert "Hello world!" in played(tmp_path)
    assert not (tmp_path / "kept").exists()


def test_a_module_is_made_once_for_all_playbooks_and_anew_when_it_or_what_it_imports_changes(tmp_path: Path) -> None:
    plugins = tmp_path / "ansible_collections/corral/node/plugins"
    for folder in ("modules", "module_utils"):
        (plugins / folder).mkdir(parents=True)
    (tmp_path / "book.yml").write_text(BOOK)
    (plugins / "modules/says.py").write_text(MODULE)
    words = plugins / "module_utils/words.py"
    for word in ("yes", "yes", "no"):
        new = not words.exists() or word not in words.read_text()
        words.write_text(f"WORD = {word!r}\n")
        said = played(tmp_path)
        assert (f"it says {word}" in said, "ANSIBALLZ: Creating module" in said) == (True, new)
        assert len(list((tmp_path / "kept").iterdir())) == 1
