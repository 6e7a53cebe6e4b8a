# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fake nodes for the tests of the pipeline."""

from __future__ import annotations

import os
import tempfile
import typing as t
from pathlib import Path

import node
import pytest
import runs
import trees
from _core.host.plan import apply_step

Make = t.Callable[..., node.Node]


# In memory where that can be had: hundreds of nodes come and go in some tests.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

# The kernel files of the machine that all fake nodes are. No fixture, since ansible-test runs each test in a process
# of its own: each would build it anew.
TEMPLATE = tempfile.TemporaryDirectory(dir=MEMORY)
trees.build(Path(TEMPLATE.name), node.MACHINE)


# Nodes to which something was done, each once: by what was done, and how the node was made.
PREPARED: dict[tuple[object, ...], node.Node] = {}
PREPARED_FOLDER = tempfile.TemporaryDirectory(dir=MEMORY)


def pytest_sessionfinish() -> None:
    TEMPLATE.cleanup()
    PREPARED_FOLDER.cleanup()


@pytest.fixture
def template() -> Path:
    return Path(TEMPLATE.name)


@pytest.fixture
def folder() -> t.Iterator[Path]:
    """A folder for nodes."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here has to outlive a power cut or to wait for a kernel."""
    monkeypatch.setattr(os, "fsync", lambda dummy: None)
    monkeypatch.setattr(apply_step, "READ_BACK_SECONDS", 0.0)
    monkeypatch.setattr(apply_step.time, "sleep", lambda dummy: None)


@pytest.fixture
def watched() -> t.Iterator[list[node.Node]]:
    """The nodes of a test: on none of them, and on no clone of one, may an exclusive slice ever share a CPU that no hand gave away (see guard.py)."""
    nodes: list[node.Node] = []
    yield nodes
    assert [line for one in nodes for line in one.seen] == []


@pytest.fixture
def make(template: Path, folder: Path, watched: list[node.Node], quick: None) -> Make:
    """Makes fresh nodes."""

    def make_one(**options: t.Any) -> node.Node:
        watched.append(node.Node(folder / f"node{len(watched)}", template, **options))
        return watched[-1]

    return make_one


@pytest.fixture
def made_once(make: Make, folder: Path, watched: list[node.Node]) -> node.MadeOnce:
    """Makes a node to which something was done: it is done once, and each test has a copy of that node.

    What is done gets a fresh node, with these options. What it keeps elsewhere than on the node, a test with a copy does not see.
    """

    def copy_of(prepare: t.Callable[[node.Node], None], **options: t.Any) -> node.Node:
        key = (prepare, *sorted(options.items()))
        if key not in PREPARED:
            fresh = make(**options)
            prepare(fresh)
            PREPARED[key] = fresh.clone(Path(PREPARED_FOLDER.name) / str(len(PREPARED)))
        copy = PREPARED[key].clone(folder / f"node{len(watched)}")
        copy.seen = []
        watched.append(copy)
        return copy

    return copy_of


@pytest.fixture
def fake(make: Make) -> node.Node:
    """One fresh node."""
    return make()


@pytest.fixture
def converged(made_once: node.MadeOnce) -> node.Node:
    """A node after a rollout."""
    return made_once(runs.converged)


@pytest.fixture
def with_agent(made_once: node.MadeOnce) -> node.Node:
    """A node after a rollout, with the agent."""
    return made_once(runs.kept)
