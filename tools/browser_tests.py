# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the tests of the fleet's page in Debian's Chromium, and installs that if it may."""

from __future__ import annotations

import sys

import setup
import venvs
from steps import Step, cannot
from tally import Tally
from unit_tests import unit_tests

sys.path.insert(0, str(setup.CHECKOUT / "lab"))
import lab_packages
from lab_base import LabError


def pages() -> Tally:
    try:
        lab_packages.ensure({"chromium": "chromium"})
    except LabError as error:
        return cannot(f"the tests of pages in a browser are left out: {error}")
    return unit_tests(venvs.made("browser", sys.executable), "tests/browser")


def steps() -> list[Step]:
    return [Step("pages in a browser", pages)]
