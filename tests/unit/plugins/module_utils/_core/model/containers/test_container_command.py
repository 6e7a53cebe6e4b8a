# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which commands of a service run a container outside the service's slice."""

from __future__ import annotations

import pytest
from _core.model.containers import container_command

SLICE = "corral_web.slice"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/usr/bin/podman run --rm --name web image", "podman run"),
        # As podman-generate-systemd(1) writes it.
        ("-/usr/bin/podman --log-level=info run -d --cgroups=no-conmon image", "podman run"),
        ("/usr/bin/podman --log-level debug run image", "podman run"),
        ("/usr/bin/podman --root /x start run", ""),
        ("/usr/bin/podman container run image", "podman run"),
        (f"/usr/bin/podman run --cgroup-parent=/{SLICE}/ image", ""),
        ("/usr/bin/podman run --cgroup-parent=corral_%p.slice image", ""),
        ("/usr/bin/podman run --cgroups=split image", ""),
        ("/usr/bin/podman run --cgroups split image", ""),
        ("/usr/bin/podman run --cgroups=disabled image", ""),
        (f"/usr/bin/podman run --cgroup-parent={SLICE} image", ""),
        ("/usr/bin/podman run --cgroup-parent=corral_other.slice image", "podman run"),
        ("/usr/bin/docker run --cgroups=split image", "docker run"),
        (f"/usr/bin/docker run --cgroup-parent {SLICE} image", ""),
        ("@/usr/bin/podman podman run image", "podman run"),
        ("@-/usr/bin/podman podman run --cgroups=split image", ""),
        ("/bin/true ; /usr/bin/podman run image", "podman run"),
        ("/usr/bin/podman run image app --cgroups=split", "podman run"),
        ("/usr/bin/podman run --name web -d image app --cgroups=split", "podman run"),
        ("/usr/bin/podman run --name web --network none --cgroups=split image app", ""),
        ("/usr/bin/podman start web", ""),
        ("/usr/bin/podman exec web run", ""),
        ("/usr/bin/web run --cgroups=none", ""),
        ("/usr/bin/podman", ""),
        ("/usr/bin/podman run 'unclosed", ""),
        ("", ""),
    ],
)
def test_a_command_that_runs_a_container_elsewhere(command: str, said: str) -> None:
    assert container_command.run_elsewhere(["/bin/true", command], SLICE) == said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/usr/bin/podman start -a web", "podman start"),
        ("/usr/bin/podman --log-level debug kube play web.yml", "podman kube"),
        ("/usr/bin/podman container start web", "podman start"),
        ("/usr/bin/docker compose up", "docker compose"),
        ("/usr/bin/podman exec web start", ""),
        ("/usr/bin/podman run image start", ""),
        ("/usr/bin/web start", ""),
    ],
)
def test_a_command_that_starts_containers_it_does_not_place(command: str, said: str) -> None:
    assert container_command.starts_others(["/bin/true", command]) == said
