# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The places where the devices manager writes, and the order of the manager's steps."""

from __future__ import annotations

import re

from ...model.devices import device_delivery
from ...model.devices.device import VFIO_DRIVER
from ...model.devices.device_delivery import CDI_FILES, CDI_FOLDER, FOLDER
from ...model.plan.places import Place
from ...model.systemd.device_allow import ENTRY
from ...model.systemd.unit_property import DEVICE_ALLOW

NAME = "devices"
PCI = "/sys/bus/pci/devices"
WRITES = (
    Place("file", rf"{re.escape(FOLDER)}/[^/]+{re.escape(device_delivery.ENDING)}", volatile=True),
    Place("file", rf"{re.escape(CDI_FOLDER)}/{CDI_FILES.pattern}", volatile=True),
    Place("driver", rf"{PCI}/{device_delivery.PCI_ADDRESS.pattern}", VFIO_DRIVER.pattern, volatile=True),
    Place("driver", rf"{PCI}/{device_delivery.PCI_ADDRESS.pattern}", None, volatile=True),
    Place("property", r"[^/]+\.service", rf"{DEVICE_ALLOW}=({ENTRY}(\n{ENTRY})*)?", volatile=True),
)
# The depths of make_step.take_and_give(). A unit's environment names a device only while the unit's list has the device; a group's VFIO
# file exists only while one of its functions is bound. Files and folders are removed last: if a run dies before, the next run begins again.
TOLD, OPENED, BOUND, ENDED = range(4)
