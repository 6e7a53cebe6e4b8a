# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: profile_layers
short_description: Collect the layers of a node's profile from its variables
version_added: 0.1.0
author:
  - Corral contributors (@corral-project)
description:
  - Gives the layers for O(corral.node.profile#module:layers), the weakest first, each with the name of its variable as
    origin.
  - First comes the variable C(corral_profile), or in its place the file on the controller that C(corral_profile_file)
    names. Ansible's search for files finds that file, in the folder C(files) beside the playbook or beside it, and at last in the
    folder in which Ansible was started. Its content is read like a file of variables, with templates and values of the vault.
    Then come all variables named C(corral_profile_layer_NN_NAME), ordered by their two digits and name.
  - Group and host variables may each declare layers of their own, because Ansible replaces only variables of the same
    name.
  - Last comes the file of the host in the folder C(corral_adopted_dir), by default C(corral_adopted) beside the inventory. There a
    rollout with C(corral_on_drift=adopt) keeps what differed on the host. Without another layer it is not used.
  - A variable that is empty (V(null)) is left out, so that a host can remove a group's layer. A variable that cannot
    be resolved, a name that does not fit the pattern, and a key that is in a mapping twice are errors.
options:
  _terms:
    description: None are taken.
    type: list
    elements: str
notes:
  - Without any of these variables the list is empty. Then O(corral.node.profile#module:layers) is to be omitted, and the
    profile that the node has declared is used.
seealso:
  - module: corral.node.profile
"""

EXAMPLES = r"""
# group_vars/all.yml:   corral_profile: {name: site, cpu: {reserved: {cores_per_numa: 1}}}
# group_vars/edge.yml:  corral_profile_layer_50_edge: {cpu: {isolated: {cores: 4, near: ens1f0}}}
# host_vars/n7.yml:     corral_profile_layer_90_host: {cpu: {isolated: {cores: 2}}}

- name: Apply the profile that the group and host variables make
  corral.node.profile:
    layers: "{{ query('corral.node.profile_layers') or omit }}"
"""

RETURN = r"""
_list:
  description: The layers, the weakest first, each with its C(origin) and its C(profile).
  type: list
  elements: dict
"""

import os
import re
import typing as t

from ansible import errors
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.corral.node.plugins.module_utils._core.cli import profile_file
from ansible_collections.corral.node.plugins.module_utils._core.model.values.errors import CorralError
from ansible_collections.corral.node.plugins.plugin_utils import without_facts
from ansible_collections.corral.node.plugins.plugin_utils.host_results import refuse_facts

# Since ansible-core 2.19 a text is a template only if it is marked as a template.
TRUSTED: dict[str, t.Any] = {"trusted_as_template": True} if hasattr(errors, "AnsibleValueOmittedError") else {}

BASE = "corral_profile"
FILE = "corral_profile_file"
ADOPTED = "corral_adopted"
PREFIX = "corral_profile_layer"
LAYER = re.compile(r"corral_profile_layer_[0-9]{2}_[A-Za-z0-9_]+")


class LookupModule(LookupBase):
    """Collects the layers from variables; nothing is merged here."""

    def run(
        self, terms: list[t.Any], variables: t.Optional[dict[str, t.Any]] = None, **kwargs: t.Any
    ) -> list[dict[str, t.Any]]:
        try:
            refuse_facts(variables or {})
            return self.layers(terms, variables or {}, kwargs)
        except (CorralError, ValueError) as error:
            raise AnsibleLookupError(str(error)) from error

    def layers(self, terms: list[t.Any], known: dict[str, t.Any], options: dict[str, t.Any]) -> list[dict[str, t.Any]]:
        """The layers, the weakest first."""
        self.set_options(var_options=known, direct=options)
        if terms:
            raise AnsibleLookupError("corral.node.profile_layers takes no terms: it reads the host's variables")
        names = sorted(name for name in known if name.startswith(PREFIX))
        wrong = [name for name in names if not LAYER.fullmatch(name)]
        if wrong:
            raise AnsibleLookupError(
                f"{', '.join(wrong)}: a layer's variable is named {PREFIX}_NN_NAME, with two digits that order it, such as "
                f"{PREFIX}_50_edge: rename {'it' if len(wrong) == 1 else 'them'}",
                obj=wrong[0],
            )
        file = without_facts.value(self._loader, known, FILE)
        layers = [self.from_file(file, known)] if file is not None else []
        layers += [
            (name, without_facts.value(self._loader, known, name, without_facts.WITH_FACTS))
            for name in ([BASE] if file is None else []) + names
        ]
        declared = [{"origin": origin, "profile": profile} for origin, profile in layers if profile is not None]
        for layer in declared:
            if not isinstance(layer["profile"], dict):
                said = (
                    f"{layer['origin']} is not a mapping: write keys of a profile (the name of a file goes into {FILE})"
                )
                raise AnsibleLookupError(said, obj=layer["profile"])
        path = self.adopted(known) if declared else ""
        if os.path.isfile(path):
            declared.append({"origin": f"{ADOPTED}/{os.path.basename(path)}", "profile": self.from_adopted(path)})
        return declared

    def adopted(self, variables: dict[str, t.Any]) -> str:
        """The path of the file with the adopted differences of this host; "" without a folder for such files."""
        folder = without_facts.value(self._loader, variables, f"{ADOPTED}_dir")
        if folder is None and variables.get("inventory_dir"):
            folder = os.path.join(variables["inventory_dir"], ADOPTED)
        host = str(variables.get("inventory_hostname", "")).replace("/", "_")
        return os.path.realpath(os.path.expanduser(os.path.join(str(folder), f"{host}.yml"))) if folder else ""

    def from_file(self, name: t.Any, variables: dict[str, t.Any]) -> tuple[str, t.Any]:
        """The origin and the profile of a file on the controller. Ansible finds and reads the file; the origin is the file's name."""
        known = os.path.expanduser(str(name))
        whole = self.find_file_in_search_path(variables, "files", known, ignore_missing=True) or os.path.realpath(known)
        if not os.path.isfile(whole):
            raise AnsibleLookupError(
                f"{FILE}: {whole}: no such file on the controller: write the path of one", obj=name
            )
        profile_file.check_text(self.text_of(whole), whole)
        try:
            data = self._loader.load_from_file(whole, **TRUSTED)
        except errors.AnsibleError as error:  # for example a template without quotes, which is a mapping in YAML
            line = getattr(error.obj, "line_num", None)
            raise AnsibleLookupError(f"{whole}: {f'line {line}: ' if line else ''}{error.message}") from None
        return os.path.basename(whole), without_facts.resolved(
            self._loader, variables, data, whole, without_facts.WITH_FACTS
        )

    def from_adopted(self, path: str) -> dict[str, t.Any]:
        """The layer that a rollout wrote, which is plain data."""
        profile = profile_file.load(self.text_of(path), path)
        if not isinstance(profile, dict):
            raise AnsibleLookupError(f"{path} is not a mapping: write keys of a profile, or remove the file")
        return profile

    def text_of(self, path: str) -> str:
        """The text of a file, decrypted if it is a vault."""
        try:
            real = self._loader.get_real_file(path)
        except OSError as error:
            raise AnsibleLookupError(f"{path}: cannot be read: {error}") from error
        return profile_file.read(real, path)
