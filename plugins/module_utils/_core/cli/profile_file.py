# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""A profile in a file of the user, JSON or YAML: data, or a refusal that names the file.

The usual loaders silently take the last of two equal keys; here they are refused.
"""

from __future__ import annotations

import json
import typing as t

from ..model.profile.schema_reader import DuplicateKey, unique
from ..model.values import yaml_error
from ..model.values.errors import refusal


def load(text: str, path: str) -> t.Any:
    """The data of a profile file; ``path`` is what a refusal calls it."""
    try:
        return json.loads(text, object_pairs_hook=unique)
    except DuplicateKey as error:
        raise refusal(str(error), path=path) from None
    except (ValueError, RecursionError):
        pass
    try:
        import yaml
    except ImportError:
        raise refusal("is not JSON, and PyYAML is not installed here: install python3-yaml", path=path) from None
    try:
        return _load_yaml(yaml, text)
    except DuplicateKey as error:
        raise refusal(str(error), path=path) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise refusal(yaml_error.line(error), path=path) from None
    except (AttributeError, LookupError):
        # So PyYAML fails at a value that its tag does not fit: `!!int ""`, `!!bool maybe`, `!!timestamp soon`.
        raise refusal("is not YAML: a value is not what its tag (!!) says: leave the tag out", path=path) from None


def check_text(text: str, path: str) -> None:
    """Raise CorralError for text that is not YAML, and for a key that is in a mapping twice; what its values mean is its loader's to say."""
    try:
        json.loads(text, object_pairs_hook=unique)
        return
    except DuplicateKey as error:
        raise refusal(str(error), path=path) from None
    except (ValueError, RecursionError):
        pass
    import yaml

    # Ansible uses libyaml where PyYAML has it, which takes more: a tab between a key's colon and its value.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        _checked(yaml, loader.get_single_node())
    except DuplicateKey as error:
        raise refusal(str(error), path=path) from None
    except yaml.YAMLError as error:
        raise refusal(yaml_error.line(error), path=path) from None
    except (RecursionError, ValueError):
        pass
    finally:
        loader.dispose()


def _load_yaml(yaml: t.Any, text: str) -> t.Any:
    """As yaml.safe_load, but every mapping is checked as it is written, before merge keys (<<) add their keys."""
    loader = yaml.SafeLoader(text)
    try:
        root = _checked(yaml, loader.get_single_node())
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _checked(yaml: t.Any, root: t.Any) -> t.Any:
    """The node of a document, of which no mapping has a key twice. Raises DuplicateKey."""
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _refuse_twice(node)
            todo += [part for pair in node.value for part in pair]
        else:
            todo += node.value
    return root


def _refuse_twice(mapping: t.Any) -> None:
    before = set()
    for key, dummy in mapping.value:
        name = (key.tag, key.value) if isinstance(key.value, str) else id(key)
        if name in before:
            raise DuplicateKey(key.value, line=key.start_mark.line + 1)
        before.add(name)
