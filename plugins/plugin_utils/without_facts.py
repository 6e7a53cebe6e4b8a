# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Variables as the inventory, the plays and -e have them. A variable that is made of a node's fact, also of an earlier run, is an error.

Ansible makes each fact a variable that is stronger than the inventory's. So a node could change every variable made of other variables.
"""

from __future__ import annotations

import typing as t

from ansible import constants, errors, template
from ansible.errors import AnsibleLookupError

# ansible-core before 2.19 has no error for an omitted value, but a text in its place: the variable omit.
OMITTED = getattr(errors, "AnsibleValueOmittedError", ())
FACT = "a fact of a node"
# default() and the test defined accept an undefined variable, but no error. Without a name the lookup fails with FACT.
IN_PLACE_OF_A_FACT = getattr(template, "trust_as_template", str)("{{ lookup('corral.node.inventory_values') }}")
WITH_FACTS = ("ansible_",)  # prefixes of the facts that a layer may use: no variable of a user begins with these


LOOKUPS = ("lookup", "query", "q")


class Facts:
    """A part of Ansible's cache of facts: one host's facts whose names begin with one of the prefixes `kept`."""

    def __init__(self, cache: t.Any, host: str, kept: tuple[str, ...]) -> None:
        self.cache, self.host, self.kept = cache, host, kept

    def all(self, host: str) -> dict[str, t.Any]:
        try:
            return self.cache.get(host) or {}
        except KeyError:  # raised by ansible-core's cache plugins
            return {}

    def get(self, host: str, dummy: object = None) -> dict[str, t.Any]:
        mine = self.all(host) if host == self.host else {}
        return {name: fact for name, fact in mine.items() if name.startswith(self.kept)}


def resolved(
    loader: t.Any, variables: t.Mapping[str, t.Any], value: t.Any, name: str, kept: tuple[str, ...] = ()
) -> t.Any:
    """A value with its templates resolved. An error names the variable or the file, which Ansible's own error leaves out.

    A value that is made of a ``kept`` fact must use no lookup: the node would decide what the controller reads or runs.
    """
    try:
        return without(loader, variables, value, name, ())
    except FactFound:
        if not kept:
            raise
    if not isinstance(value, (dict, list)):
        return without(loader, variables, value, name, kept)
    parts = {}
    for place, part in value.items() if isinstance(value, dict) else enumerate(value):
        try:
            parts[place] = resolved(loader, variables, part, name, kept)
        except OMITTED:
            pass
    return parts if isinstance(value, dict) else list(parts.values())


class FactFound(AnsibleLookupError):
    """A value is made of a fact."""


def without(loader: t.Any, variables: t.Mapping[str, t.Any], value: t.Any, name: str, kept: tuple[str, ...]) -> t.Any:
    """A value that may use only the ``kept`` facts of its own host, and no lookup if facts are kept. Raises FactFound for other facts."""
    if "hostvars" not in variables:
        raise AnsibleLookupError(f"{name}: ask for it in a task of the host itself, not by the variables of another")
    # Names in Ansible's ansible_facts lack the prefix ansible_: there ansible_domain and a fact domain are the same.
    manager = variables["hostvars"]._variable_manager
    facts = Facts(manager._fact_cache, variables["inventory_hostname"], kept)
    injected = facts.all(facts.host) if constants.INJECT_FACTS_AS_VARS else ()
    names = {fact for fact in injected if not (kept and fact.startswith(kept))} | {"vars"}
    names |= set() if kept else {"ansible_facts", "ansible_local"}
    instead = dict.fromkeys(LOOKUPS, "a lookup") if kept else {}
    known = {**variables, **dict.fromkeys(names, IN_PLACE_OF_A_FACT), **instead}
    manager._fact_cache = facts  # what hostvars reads
    try:
        return template.Templar(loader, known).template(value)
    except OMITTED:
        raise
    except errors.AnsibleError as error:
        why = str(error.message)
        if kept and "not callable" in why:
            said = f"it is made of {FACT} and of a lookup, which would read what the node says: make it of one of them"
            raise AnsibleLookupError(f"{name}: {said}", obj=error.obj) from None
        if FACT in why:
            way = "write ansible_facts.NAME for one of its own" if kept else "write it with variables of the inventory"
            said = f"{name}: it is made of {FACT}, or of vars, which has them: {way}"
            raise FactFound(said, obj=error.obj) from None
        raise AnsibleLookupError(f"{name}: {why}", obj=error.obj) from None
    finally:
        manager._fact_cache = facts.cache


def value(loader: t.Any, variables: t.Mapping[str, t.Any], name: str, kept: tuple[str, ...] = ()) -> t.Any:
    """A variable's value; None if the variable does not exist, is empty, or is omitted on purpose."""
    try:
        plain = resolved(loader, variables, variables.get(name), name, kept)
    except OMITTED:
        return None
    return None if plain == variables.get("omit", OMITTED) else plain
