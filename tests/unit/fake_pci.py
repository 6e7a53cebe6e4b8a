# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers of PCI functions as the kernel binds them (Documentation/ABI/testing/sysfs-bus-pci, drivers/pci/pci-driver.c, drivers/vfio).

driver_override names the only driver that may take a function; a line without a name ends that. It does not change a bound driver.
drivers_probe looks for a driver for a function without one; finding none is no error. An interface exists while its driver is bound, the
file of an IOMMU group while one of its functions is bound to VFIO.
"""

from __future__ import annotations

import copy
import errno
import os
import typing as t
from pathlib import Path

PCI, DRIVERS, NET = "sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/class/net"


class Function(t.NamedTuple):
    """A function: the driver that knows its ids ("" for none), its network interface and its group."""

    default: str
    interface: str
    group: int | None


class FakePci:
    """The functions that can be bound; ``stuck`` are those whose driver does not let go, ``refusing`` those that no driver takes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.functions: dict[str, Function] = {}
        self.stuck: set[str] = set()
        self.refusing: set[str] = set()
        self.held_up: list[
            str
        ] = []  # functions that were unbound while a process had their group open: the kernel waits
        self.open_files: t.Callable[[], t.Container[str]] = lambda: ()

    def clone(self, root: Path) -> FakePci:
        twin = copy.copy(self)
        twin.root = root
        twin.functions, twin.stuck, twin.refusing = dict(self.functions), set(self.stuck), set(self.refusing)
        twin.held_up = []
        return twin

    def load(self, *drivers: str) -> None:
        """Load the modules of drivers."""
        for driver in drivers:
            folder = self.root / DRIVERS / driver
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "unbind").write_text("")
        (self.root / DRIVERS).parent.joinpath("drivers_probe").write_text("")

    def plug(self, address: str, default: str, *, interface: str = "", group: int | None = None, **files: str) -> None:
        """Plug a function in; its driver takes it."""
        self.functions[address] = Function(default, interface, group)
        folder = self.root / PCI / address
        folder.mkdir(parents=True, exist_ok=True)
        known = {
            "vendor": "0x8086",
            "device": "0x1572",
            "class": "0x020000",
            "numa_node": "1",
            "driver_override": "(null)",
        }
        for name, text in {**known, **files}.items():
            (folder / name).write_text(f"{text}\n")
        if group is not None:
            (folder / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{group}")
        self.probe(address)

    def driver(self, address: str) -> str:
        link = self.root / PCI / address / "driver"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else ""

    def override(self, address: str) -> str:
        text = (self.root / PCI / address / "driver_override").read_text().strip()
        return "" if text == "(null)" else text

    def write(self, path: str, text: str) -> None:
        """The kernel's reaction to a write."""
        folder, dummy, name = path.rpartition("/")
        address = text.strip()
        if name == "driver_override":
            (self.root / path.lstrip("/")).write_text(f"{address or '(null)'}\n")
            return
        if name == "unbind":
            if address not in self.functions or self.driver(address) != os.path.basename(folder):
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path)
            if address not in self.stuck:
                self.unbind(address)
        elif name == "drivers_probe":
            if address not in self.functions:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path)
            if not self.driver(address):
                self.probe(address)
        else:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    def bind_anew(self, address: str, override: str = "") -> None:
        """A hand writes the override, or takes it back, and has a driver chosen anew."""
        self.write(f"/{PCI}/{address}/driver_override", f"{override}\n")
        self.unbind(address)
        self.probe(address)

    def unbind(self, address: str) -> None:
        function = self.functions[address]
        if f"/dev/vfio/{function.group}" in self.open_files() and self.driver(address) == "vfio-pci":
            self.held_up.append(address)
        (self.root / PCI / address / "driver").unlink()
        if function.interface:
            link = self.root / NET / function.interface
            if link.is_symlink():
                link.unlink()
        self.group_file(function.group)

    def probe(self, address: str) -> None:
        function = self.functions[address]
        wanted = self.override(address) or function.default
        if not wanted or address in self.refusing or not (self.root / DRIVERS / wanted).is_dir():
            return
        (self.root / PCI / address / "driver").symlink_to(f"../../drivers/{wanted}")
        if function.interface and wanted == function.default:
            folder = self.root / "sys/devices/pci" / address / "net" / function.interface
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "flags").write_text("0x1002\n")
            link = self.root / NET / function.interface
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../devices/pci/{address}/net/{function.interface}")
        self.group_file(function.group)

    def group_file(self, group: int | None) -> None:
        if group is None:
            return
        has = any(self.driver(one) == "vfio-pci" for one, function in self.functions.items() if function.group == group)
        file = self.root / f"dev/vfio/{group}"
        if has:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"char/240:{group}\n")
        else:
            file.unlink(missing_ok=True)

    def bring(self, interface: str, *, up: bool) -> None:
        (self.root / NET / interface / "flags").write_text("0x1003\n" if up else "0x1002\n")
