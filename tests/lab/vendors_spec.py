# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CDI spec of another vendor on a node, in YAML as vendors' own tools write it. As a script it prints by what a change shows."""

from __future__ import annotations

import hashlib
import os

PATH = "/etc/cdi/vendor.yaml"
TEXT = """\
---
cdiVersion: 0.3.0
kind: vendor.example/widget
devices:
  - name: w0
    containerEdits:
      deviceNodes: [{path: /dev/tty50}]
      env: [VENDOR_WIDGET=w0]
  - name: w1
    containerEdits:
      deviceNodes: [{path: /dev/tty51}]
      env: [VENDOR_WIDGET=w1]
containerEdits:
  deviceNodes: [{path: /dev/tty52}]
  env: [VENDOR_ALL=all]
  mounts: [{hostPath: /etc/vendor, containerPath: /vendor, options: [ro, bind]}]
"""


def make() -> None:
    """Write it, and what it mounts."""
    for path, text in ((PATH, TEXT), ("/etc/vendor/words", "words of the vendor\n")):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)


def stamp() -> str:
    """What differs after each write of the spec, or a rename over it."""
    found = os.lstat(PATH)
    with open(PATH, "rb") as file:
        content = hashlib.sha256(file.read()).hexdigest()
    return f"{found.st_ino} {found.st_mode:o} {found.st_uid}:{found.st_gid} {found.st_mtime_ns} {found.st_ctime_ns} {content}"


if __name__ == "__main__":
    print(stamp())
