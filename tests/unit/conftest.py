# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The core is imported as ``_core`` from any checkout path; helpers beside this file as plain modules.

So are tests that others take something from: pytest alone would see to that, under ansible-test it does not.
"""

from __future__ import annotations

import signal
import sys
import typing as t
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings

HERE = Path(__file__).resolve().parent

TESTS = sorted({str(test.parent) for test in HERE.rglob("test_*.py")})

sys.path[:0] = [str(HERE.parents[1] / "plugins" / "module_utils"), str(HERE), *TESTS]

from example_counts import USUAL, examples  # noqa: E402 (it lies beside this file)

# How long an example takes is the machine's business, and a loaded one's is not to be judged.
settings.register_profile("corral", deadline=None, max_examples=examples(USUAL))
settings.load_profile("corral")


@pytest.fixture(autouse=True, scope="session")
def no_real_podman() -> t.Iterator[None]:
    """No test of garbage collection starts a Podman."""
    from _core.host.containers import podman_cli
    from fake_podman import Service

    with mock.patch.object(podman_cli.Podman, "serve", staticmethod(Service)):
        yield


@pytest.fixture(autouse=True, scope="session")
def this_machine_stays() -> t.Iterator[None]:
    """No test makes a file of Corral's on the machine that it runs on."""
    places = [Path(name) for name in ("/etc/corral", "/var/lib/corral", "/run/corral") if not Path(name).exists()]
    yield
    assert [place for place in places if place.exists()] == [], "a test wrote to this machine"


@pytest.fixture(autouse=True)
def signals_stay() -> t.Iterator[None]:
    """A test that leaves a signal ignored would make the whole run deaf to it."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    after = [signal.getsignal(number) for number in numbers]
    for number, handler in zip(numbers, before):
        signal.signal(number, handler)
    assert after == before, "the test left a signal with another handler"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-case-each", action="store_true", help="of each test its first case alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--one-case-each"):
        return
    first: set[str] = set()
    left_out = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in first:
            left_out.append(item)
        first.add(name)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: t.Any) -> None:
    """Say once, at the end, which test data was not there, and what random walks contained."""
    from shared_data import KUBELET_CASES, TOPOLOGIES

    for variable, folder in (("CORRAL_KUBELET_CASES", KUBELET_CASES), ("CORRAL_TOPOLOGIES", TOPOLOGIES)):
        if not folder.is_dir():
            terminalreporter.write_line(f"NOTICE: no {folder}: its tests were skipped; point {variable} at the data")
    for test in terminalreporter.getreports("passed"):
        for name, text in test.user_properties:
            if name == "walks":
                terminalreporter.write_line(text)
