# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test data that is not part of the collection: tables of the kubelet, recorded machines.

``CORRAL_KUBELET_CASES`` and ``CORRAL_TOPOLOGIES`` point the tests at other folders of the same form.
"""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or REPOSITORY / default)


KUBELET_CASES = folder("CORRAL_KUBELET_CASES", "../shared/kubelet-cases")
TOPOLOGIES = folder("CORRAL_TOPOLOGIES", "../shared/topologies")


def document(name: str) -> dict[str, t.Any]:
    """One file of kubelet cases, or {} when it is not there."""
    path = KUBELET_CASES / name
    return t.cast("dict[str, t.Any]", json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def cases(name: str, select: t.Callable[[dict[str, t.Any]], bool] = lambda case: True) -> list[t.Any]:
    """The cases of a file as pytest parameters; one skipped parameter with the reason when the file is absent."""
    found = document(name).get("cases")
    if found is None:
        return [absent(KUBELET_CASES / name, "CORRAL_KUBELET_CASES")]
    return [pytest.param(case, id=str(case["id"])) for case in found if select(case)]


def absent(path: Path, variable: str) -> t.Any:
    return pytest.param(None, id="absent", marks=pytest.mark.skip(reason=f"no {path}; point {variable} at the data"))
