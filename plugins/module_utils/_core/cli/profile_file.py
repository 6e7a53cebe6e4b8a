# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The data of a profile in a user's file, JSON or YAML. A refusal names the file.

A mapping with the same key twice is refused; the usual loaders silently take the last value.
"""

from __future__ import annotations

import json
import typing as t

from ..host import user_file
from ..host.files import READ_LIMIT, TOO_LARGE
from ..model.profile.schema_reader import DuplicateKey, unique
from ..model.values import yaml_error
from ..model.values.data_bounds import DEEPEST, OutOfBounds, check_bounds
from ..model.values.errors import refusal


def read(path: str, name: str = "") -> str:
    """The whole text of a file that a user names; a refusal calls the file ``name``. Raises CorralError."""
    try:
        data = user_file.read(path, READ_LIMIT)
        if len(data) > READ_LIMIT:
            raise refusal(f"cannot be read: {TOO_LARGE}", path=name or path)
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise refusal(f"cannot be read: {why}", path=name or path) from None


def load(text: str, path: str) -> t.Any:
    """The data of a profile file with this text. Raises CorralError; a refusal calls the file ``path``."""
    try:
        data = json.loads(text, object_pairs_hook=unique)
        check_bounds(data, lambda row: row.values() if isinstance(row, dict) else row if isinstance(row, list) else ())
        return data
    except (DuplicateKey, OutOfBounds) as error:
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
    except OutOfBounds as error:
        raise refusal(str(error), path=path) from None
    except RecursionError:
        raise refusal(f"is nested more than {DEEPEST} levels deep: write it flat", path=path) from None
    except (yaml.YAMLError, ValueError) as error:
        raise refusal(yaml_error.line(error), path=path) from None
    except (AttributeError, LookupError):
        # PyYAML's errors for a value that does not fit its tag: `!!int ""`, `!!bool maybe`, `!!timestamp soon`.
        raise refusal("is not YAML: a value is not what its tag (!!) says: leave the tag out", path=path) from None


def check_text(text: str, path: str) -> None:
    """Raise CorralError for a text that is not YAML, or has a key twice in a mapping. The values are not checked."""
    try:
        json.loads(text, object_pairs_hook=unique)
        return
    except DuplicateKey as error:
        raise refusal(str(error), path=path) from None
    except (ValueError, RecursionError):
        pass
    import yaml

    # Ansible uses libyaml if PyYAML has it. libyaml also accepts a tab between a key's colon and its value.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        _checked(yaml, loader.get_single_node())
    except DuplicateKey as error:
        raise refusal(str(error), path=path) from None
    except OutOfBounds as error:
        raise refusal(str(error), path=path) from None
    except yaml.YAMLError as error:
        raise refusal(yaml_error.line(error), path=path) from None
    except (RecursionError, ValueError):
        pass
    finally:
        loader.dispose()


def _load_yaml(yaml: t.Any, text: str) -> t.Any:
    """The data, as from yaml.safe_load(). Every mapping is checked as it is written, before merge keys (<<) add keys."""
    loader = yaml.SafeLoader(text)
    try:
        root = _checked(yaml, loader.get_single_node())
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _checked(yaml: t.Any, root: t.Any) -> t.Any:
    """The root node, after a check. Raises DuplicateKey for a mapping with a key twice, and OutOfBounds (a ValueError)."""
    check_bounds(root, lambda node: () if isinstance(node.value, str) else parts_of(node))
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _refuse_twice(node)
        todo += parts_of(node)
    return root


def parts_of(node: t.Any) -> list[t.Any]:
    """The nodes in a mapping (its keys and values) or in a sequence."""
    return [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]


def _refuse_twice(mapping: t.Any) -> None:
    before = set()
    for key, dummy in mapping.value:
        name = (key.tag, key.value) if isinstance(key.value, str) else id(key)
        if name in before:
            raise DuplicateKey(key.value, line=key.start_mark.line + 1)
        before.add(name)
