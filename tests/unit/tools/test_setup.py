# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tools are set up with."""

from __future__ import annotations

from pathlib import Path

import pytest
import setup


def test_a_virtual_environment_that_is_a_link_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tmp_path / "others"
    (others / "bin").mkdir(parents=True)
    (others / "bin" / "python").write_text("its own")
    (tmp_path / ".venv").symlink_to(others)
    monkeypatch.setattr(setup, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup, "STAMP", tmp_path / ".venv" / "corral-stamp")
    with pytest.raises(SystemExit, match=r"\.venv is a link to .*/others, which was not made here: remove the link"):
        setup.virtualenv()
    assert (others / "bin" / "python").read_text() == "its own"


def test_the_distributions_python_comes_before_a_version_managers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    managed = tmp_path / "versions" / "3.11.7" / "bin"
    managed.mkdir(parents=True)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{managed}:{tmp_path}/shims:{setup.VENV}/bin:/usr/bin:/bin")
    found = setup.search_path()
    assert found[:2] == ["/usr/bin", "/bin"]
    assert str(managed) in found


@pytest.mark.parametrize(("text", "wanted"), [(None, 0), ("", 0), ("30", 30)])
def test_a_number_of_the_environment(text: str | None, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORRAL_KILLS", raising=False)
    if text is not None:
        monkeypatch.setenv("CORRAL_KILLS", text)
    assert setup.number("CORRAL_KILLS") == wanted


@pytest.mark.parametrize("text", ["abc", "-1", "2.5"])
def test_what_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_KILLS", text)
    with pytest.raises(SystemExit, match=f"CORRAL_KILLS is '{text}': write a whole number such as 10"):
        setup.number("CORRAL_KILLS")
