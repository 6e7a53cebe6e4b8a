# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit tests by pytest itself, counted from its own report."""

from __future__ import annotations

import pathlib
import subprocess

import setup
from steps import remember
from tally import Tally, from_junit


def unit_tests(venv: pathlib.Path = setup.VENV, *arguments: str) -> Tally:
    """All of them, or those that the arguments select, with the Python of a virtual environment that has pytest.

    ansible-test runs each test in a process of its own, which takes several times as long as the tests.
    """
    report = setup.CHECKOUT / ".cache" / f"pytest-{venv.name.lstrip('.')}.xml"
    report.unlink(missing_ok=True)
    kept = report.with_suffix("")  # each Python has its own: both may run at once
    command = [str(venv / "bin" / "pytest"), "--quiet", f"--junitxml={report}", f"--override-ini=cache_dir={kept}"]
    code = subprocess.run([*command, *arguments], cwd=setup.CHECKOUT, env=setup.environment(), check=False).returncode
    tally, wrong = from_junit([report] if report.is_file() else [])
    remember(*wrong)
    if code == 0 or tally.failed:
        return tally
    remember(f"pytest ended with {code}")
    return tally.plus(Tally(failed=1))
