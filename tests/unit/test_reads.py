# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No function takes what cannot be read for absent: where an error of a read is taken for anything at all, it is listed here."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
UTILS = CHECKOUT / "plugins" / "module_utils"

# Who decides what follows from Unreadable, and what that is. A new one is a decision: from what is unreadable follows only "unknown".
TOPS = {
    "_core/main.py main": "a command ends with 1, and says so",
    "_core/pipeline/tick.py run": "the status is not in sync, the verdict unknown",
    "_core/pipeline/tick.py publish_unreadable": "the metrics are not written, and the status says so",
    "_core/pipeline/locked_run.py locked": "the run fails; the status is published",
    "_core/pipeline/locked_run.py published": "the status is not in sync, the verdict unknown",
    "_core/pipeline/applying.py carry_out": "before the steps: forgets what it noted. After them: the outcome is unknown",
    "_core/pipeline/applying.py still_differing": "the run was undone: that is said, whatever a look afterwards finds",
    "_core/pipeline/applying.py execute": "the run is undone",
    "_core/pipeline/applying.py undo_steps": "what cannot be undone is named",
    "_core/pipeline/applying.py conflict_with": "a step that may overlap is not taken",
    "_core/pipeline/applying.py attempt": "what cannot be undone is named",
    "_core/gc/gc_pass.py collect": "nothing more is removed",
    "_core/gc/gc_pass.py ended": "the pass says so",
    "_core/gc/gc_pass.py tick": "nothing is removed",
    "_core/host/state.py leave_nothing": "all stays, and the lock is released",
    "_core/host/mounts.py holders": "a process that may use a mount counts as one that does",
    "_core/host/agent/program_check.py looked_at": "an item: unknown",
    "_core/host/agent/program_check.py installed": "it is not known whether the program is as it was installed",
    "_core/cli/status_text.py status_lines": "there is no CPU map, and why",
    "_core/cli/status_text.py unconfirmed_now": "it is shown as it was published",
    "_core/cli/status_html.py page": "there is no CPU map, and why",
    "_status.py status_task": "the declared profile is not known, and why",
    "_core/host/recorded_inputs.py same": "the tick looks in full, and meets the same error",
    "_module.py run": "the module fails, and says so",
}
# Questions of which the error is a value, which mypy tells from the answer.
VALUES = {
    "_core/host/files.py if_readable": "see below",
    "_core/host/files.py errno_of": "asks again for the error that a tick kept",
    "_core/host/kubelet/kubelet_ready.py server_of": "the kubelet's readiness is unknown",
    "_core/host/devices/device_files.py has_link": "EINVAL alone says that the interface is down",
}
# Questions without which every decision is the same.
WORTHLESS = {
    "_core/host/agent/agent_now.py holder": "a name beside what is said anyway",
    "_core/host/containers/running_names.py docker_name": "a name, in place of which the container's id is shown",
    "_core/host/pids/pid_namespaces.py first_process": "a path that a process names; without it the lowest PID is taken",
}
# These take every error for "not there". In the path of a write an error of the write follows.
SWALLOWING = {
    "exists",
    "lexists",
    "isfile",
    "isdir",
    "islink",
    "ismount",
    "getmtime",
    "getsize",
    "glob",
    "iglob",
    "walk",
}
BESIDE = {
    "_core/cli/diff_command.py side": "a path that the user gives: it is opened next",
    "_core/host/files.py make_folders": "a write",
    "_core/host/files.py move_folder_away": "a write",
    "_core/host/snapshot/recorded_tree.py opened": "a path that the user gives: it is opened next",
    "_core/host/snapshot/snapshot.py write": "a write",
}


class Sites(ast.NodeVisitor):
    """Where a file asks so, by the outermost function."""

    def __init__(self, source: Path) -> None:
        self.name = str(source.relative_to(UTILS))
        self.inside: list[str] = []
        self.found: dict[str, set[str]] = {kind: set() for kind in ("except", "attempt", "if_readable", "swallowing")}
        self.visit(ast.parse(source.read_text(encoding="utf-8")))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.inside.append(node.name)
        self.generic_visit(node)
        self.inside.pop()

    def note(self, kind: str) -> None:
        self.found[kind].add(f"{self.name} {self.inside[0] if self.inside else ''}")

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        names = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)} if node.type else {"Exception"}
        if names & {"Unreadable", "Exception", "BaseException"}:
            self.note("except")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in ("attempt", "if_readable") and owner in ("host", "self", "self.host", "reader.host"):
                self.note(node.func.attr)
            if owner == "os.path" and node.func.attr in SWALLOWING:
                self.note("swallowing")
        self.generic_visit(node)


@functools.cache
def every() -> list[Sites]:
    return [Sites(source) for source in sorted(UTILS.rglob("*.py"))]


def sites(kind: str) -> set[str]:
    return {site for one in every() for site in one.found[kind]}


def test_what_follows_from_a_read_that_fails_is_listed() -> None:
    broad = {
        "_core/host/snapshot/archive_tree.py __init__",  # an archive that cannot be unpacked
        "_core/host/files.py attempt",
        "_core/host/containers/podman_worker.py main",
        "_core/host/snapshot/snapshot.py write",  # goes on
    }
    assert sites("except") - broad == set(TOPS)
    assert sites("attempt") == set(VALUES)
    assert sites("if_readable") == set(WORTHLESS)


def test_nothing_else_takes_an_error_for_not_there() -> None:
    assert sites("swallowing") == set(BESIDE)
