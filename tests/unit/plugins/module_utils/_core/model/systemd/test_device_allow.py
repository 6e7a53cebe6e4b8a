# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DeviceAllow= over several files, in the form that systemd writes it."""

from __future__ import annotations

import pytest
from _core.model.systemd.device_allow import added_up, binds, can_be_set
from _core.model.systemd.unit_property import Setting


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["/dev/a", "/dev/b rw"], ("/dev/a rwm", "/dev/b rw")),
        (["/dev/a mr", "/dev/a  rm"], ("/dev/a rm",)),
        (["/dev/a", "", "char-tun rw"], ("char-tun rw",)),
        (
            ["/dev/%i", "/dev/%p", "/dev/%n r", "/dev/%N", "/dev/a%%b"],
            ("/dev/x rwm", "/dev/tty rwm", "/dev/tty@x.service r", "/dev/tty@x rwm", "/dev/a%b rwm"),
        ),
        (["/dev/%t"], ("/dev/%t rwm",)),
        ([""], ()),
    ],
    ids=str,
)
def test_it_adds_up(values: list[str], wanted: tuple[str, ...]) -> None:
    assert added_up([Setting("f", value) for value in values], "tty@x.service") == wanted


@pytest.mark.parametrize(
    ("line", "can"),
    [
        ("/dev/a rwm", True),
        ("char-* r", True),
        ("block-sd w", True),
        ("/run/systemd/inaccessible/chr rwm", True),
        ("/dev/%t rwm", False),
        ("/etc/shadow rwm", False),
        ("/dev/a b", False),
        ("/dev/a", False),
        ("/dev/a rwm\n", False),
    ],
)
def test_what_set_property_takes(line: str, can: bool) -> None:
    assert can_be_set(line) is can


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["/dev/vfio/7", "/dev/vfio/vfio", "/dev/vfio/8"], ["-/dev/vfio"]),
        (["/dev/ttyUSB0", "/dev/a,b=c#d"], ["-/dev/a,b=c#d", "-/dev/ttyUSB0"]),
        (["/dev/bus/usb/001/004"], ["-/dev/bus/usb/001"]),
        (["/dev/a:b", "/dev/x:y/z", "/dev/a b", "/dev/%i", "/dev/a\n", "/dev/../etc/passwd", "/etc/passwd"], []),
        (["/dev/shm/x", "/dev/pts/0", "/dev/hugepages/x", "/dev/mqueue/x"], []),
        ([], []),
    ],
)
def test_what_a_unit_with_a_dev_of_its_own_is_shown(paths: list[str], wanted: list[str]) -> None:
    assert binds(paths, [Setting("f", "yes")], []) == wanted
    assert binds(paths, [Setting("f", "yes"), Setting("g", "no")], []) == []
    assert binds(paths, [], []) == []
    assert binds(paths, [Setting("f", "yes")], [Setting("f", "-/dev /etc")]) == []
