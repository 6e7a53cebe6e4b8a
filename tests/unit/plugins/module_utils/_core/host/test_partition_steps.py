# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel that does not begin or end a partition yet, because control groups in it are on their way out."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from _core.host.files import Host
from _core.host.plan import apply_step
from _core.model.plan import make_step
from _core.model.plan.plan import LIVE

FILE = "/sys/fs/cgroup/corral_a.slice/cpuset.cpus.partition"


class Refusing(Host):
    """Refuses so many writes with an error."""

    def __init__(self, root: Path, code: int, times: float) -> None:
        super().__init__(str(root))
        self.code, self.times = code, times

    def write_value(self, path: str, text: str) -> None:
        if self.times > 0:
            self.times -= 1
            raise OSError(self.code, os.strerror(self.code))
        super().write_value(path, text)


def refusing(root: Path, code: int, times: float) -> Refusing:
    file = root / FILE.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text("root")
    return Refusing(root, code, times)


def test_it_is_asked_again_while_there_are_control_groups_in_it(tmp_path: Path) -> None:
    host = refusing(tmp_path, errno.EBUSY, 3)
    apply_step.perform(host, make_step.partition(FILE, "member", LIVE))
    assert host.read(FILE) == "member"


@pytest.mark.parametrize(("code", "times"), [(errno.EBUSY, float("inf")), (errno.EINVAL, 1)])
def test_what_it_refuses_for_longer_or_for_another_reason_is_an_error(
    code: int, times: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_step, "READ_BACK_SECONDS", 0.1)
    host = refusing(tmp_path, code, times)
    with pytest.raises(OSError, match=os.strerror(code)):
        apply_step.perform(host, make_step.partition(FILE, "member", LIVE))
    assert host.read(FILE) == "root"
