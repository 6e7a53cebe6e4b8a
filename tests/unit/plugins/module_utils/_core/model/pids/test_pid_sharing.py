# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers that share a PID namespace or do not, against what is declared."""

from __future__ import annotations

import pytest
from _core.model.pids import pid_sharing
from _core.model.pids.pid_sharing import ContainerProcess
from _core.model.profile.profile_workloads import Workload
from _core.model.tenants.tenant import Members, Tenant

NODE = "pid:[1]"
WORKLOAD = Workload("web", "pod", "web")


def containers(*spaces: str) -> list[ContainerProcess]:
    """Containers a, b, ... in these namespaces; "infra" before one makes it the pod's infra container."""
    found = []
    for number, space in enumerate(spaces):
        name = "abcdef"[number] + (pid_sharing.INFRA if space.startswith("infra") else "")
        found.append(ContainerProcess(name, number + 10, space.removeprefix("infra ")))
    return found


def named(*names: str, shares: str = "") -> str:
    verb = f"shares that of {shares}" if shares else "does not share that of a-infra"
    return "; ".join(
        f"{one} (PID {10 + 'abcdef'.index(one[0])}, started by Podman, outside a service) {verb}" for one in names
    )


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("spaces", [(), ("x",)])
def test_one_container_neither_shares_nor_not(shared: bool, spaces: tuple[str, ...]) -> None:
    assert pid_sharing.difference(shared, containers(*spaces), NODE) is None


@pytest.mark.parametrize(
    ("shared", "spaces", "actual", "reason"),
    [
        (True, ("infra x", "x", "x"), None, ""),
        (False, ("infra x", "y", "z"), None, ""),
        (True, ("infra x", "y"), "separate", named("b")),
        (True, ("infra x", "y", "z"), "separate", named("b", "c")),
        (True, ("infra x", "x", "y"), "shared in part", named("c")),
        # The infra container's is the right one, however many have another.
        (True, ("infra x", "y", "y"), "shared in part", named("b", "c")),
        (True, ("infra x", "x", "y", "y", "y"), "shared in part", named("c", "d", "e")),
        (False, ("x", "x"), "shared", named("b", shares="a")),
        (False, ("infra x", "y", "y"), "shared in part", named("c", shares="b")),
        (False, ("x", "x", "y", "y"), "shared in part", f"{named('b', shares='a')}; {named('d', shares='c')}"),
    ],
)
def test_what_differs_is_named(shared: bool, spaces: tuple[str, ...], actual: str | None, reason: str) -> None:
    found = pid_sharing.difference(shared, containers(*spaces), NODE)
    assert (found and found.actual) == actual
    if found:
        assert (found.reason, found.known) == (reason, True)


def test_without_an_infra_container_most_are_right() -> None:
    found = pid_sharing.difference(True, containers("y", "x", "x"), NODE)
    assert found
    assert (found.actual, found.pid) == ("shared in part", 10)
    assert found.reason.endswith("does not share that of b")


@pytest.mark.parametrize("shared", [True, False])
def test_the_hosts_namespace_is_neither(shared: bool) -> None:
    found = pid_sharing.difference(shared, containers("x", NODE), NODE)
    assert found
    assert (found.actual, found.pid) == ("the host's", 11)
    assert "b (PID 11" in found.reason
    assert found.reason.endswith("has the host's PID namespace")


@pytest.mark.parametrize("shared", [True, False])
def test_what_cannot_be_read_is_unknown(shared: bool) -> None:
    found = pid_sharing.difference(shared, containers("x", ""), NODE)
    assert found
    assert (found.known, found.reason) == (False, "the PID namespace of b cannot be read")


def test_the_cause_says_since_when_and_by_what() -> None:
    one = ContainerProcess("web", 7, "x", "web.service", "2026-01-01 00:00:00 UTC")
    assert pid_sharing.cause(one) == "web (PID 7, since 2026-01-01 00:00:00 UTC, started by web.service)"


@pytest.mark.parametrize(
    ("declared", "allowed", "found"),
    [(None, True, None), (True, True, True), (False, True, False), (None, False, False), (True, False, False)],
)
def test_a_tenant_that_forbids_it_wants_them_apart(declared: bool | None, allowed: bool, found: bool | None) -> None:
    tenants = [Tenant("acme", Members(), share_process_namespace=allowed)]
    workload = WORKLOAD._replace(share_process_namespace=declared)
    assert pid_sharing.wanted(workload, "acme", tenants) == found
    assert pid_sharing.wanted(workload, "", tenants) == declared
