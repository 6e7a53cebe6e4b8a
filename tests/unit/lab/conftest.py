# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[3] / "lab"
sys.path.insert(0, str(LAB))


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    """No test sees the user's images or nodes."""
    monkeypatch.setenv("CORRAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CORRAL_RUN", str(tmp_path / "run"))
    yield
