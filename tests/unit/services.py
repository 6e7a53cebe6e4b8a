# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Services on a fake node, as systemd starts and stops them: their slice, the unit that holds their grant, their process.

Tried on systemd 252 and 257: a slice starts before its units and stays. The link that names the invocation of the holder exists from before
its ExecStart= until after its ExecStopPost=, which runs after a failed start as well. A restart of the service, by hand or by Restart=,
keeps the holder, and starts the other units that it requires. A daemon-reload stops a holder that no unit needs any more, but not one that
lost its template: that holder stays active until the template is back.
"""

from __future__ import annotations

import os
import re
import shutil
from unittest import mock

import runs
from _core.model.values.errors import CorralError
from fake_systemd import Cgroup
from node import INVOCATIONS, Killed, Node, NodeHost, Run

HOLDER = "corral-grant@"
MARK = "/run/systemd/inaccessible/chr rwm"
AGAIN = "corral-regrant@"
TEMPLATE = "/etc/systemd/system/corral-grant@.service"
AGAIN_TEMPLATE = "/etc/systemd/system/corral-regrant@.service"
UNIT = "[Service]\nExecStart=/usr/bin/{}\n"


def add(fake: Node, *units: str, lines: str = "") -> None:
    """Install services."""
    for unit in units:
        fake.put(f"/usr/lib/systemd/system/{unit}", UNIT.format(unit.partition(".")[0].rstrip("@")) + lines)


def start(fake: Node, unit: str, host: NodeHost | None = None) -> Run | None:
    """``systemctl start``: the run, None when it was refused. ``host`` is what ``corral admit`` runs on."""
    after_reload(fake)
    if unit in fake.runs:
        return fake.runs[unit]
    fake.systemd.require(unit)
    fake.systemd.run_slice(slice_of(fake, unit))
    for holder in wanted(fake, unit):
        hold(fake, holder, host or fake.host())
    if all(hold(fake, holder, host or fake.host()) for holder in required(fake, unit)):
        return proceed(fake, unit, host)
    release(fake, held_for(fake, unit))
    fake.systemd.collect()
    return None


def running(fake: Node, unit: str) -> Run:
    """A start that nothing refuses."""
    run = start(fake, unit)
    assert run is not None, fake.said
    return run


def proceed(fake: Node, unit: str, host: NodeHost | None = None) -> Run | None:
    """A start whose holder is active: the units that each start requires, the assertions, and the process.

    Tried on 252 and 257: a unit without RemainAfterExit= runs for each start, also for a restart and one by Restart=. Where its condition
    is not met the start goes on. An assertion is checked when it is the unit's own turn. A refused start leaves the holder.
    """
    if all(again(fake, one, host or fake.host()) for one in holders_in(fake, unit, "Requires", AGAIN)):
        if all(fake.has(path) for path in settings(fake, unit, "AssertPathExists") if path):
            return begin(fake, unit)
    return None


def again(fake: Node, unit: str, host: NodeHost) -> bool:
    """A unit that grants what a start lacks; returns whether the start may go on."""
    if not fake.has(AGAIN_TEMPLATE):
        return False
    name = unit[len(AGAIN) : -len(".service")]
    (line,) = (one for one in fake.get(AGAIN_TEMPLATE).splitlines() if one.startswith("ConditionPathExists=!"))
    if fake.has(line.partition("!")[2].replace("%i", name)):
        return True
    ident = invocation(fake, unit)
    granted = corral(fake, host, "admit", "--start", unit)
    (fake.root / INVOCATIONS / f"invocation:{unit}").unlink()
    (fake.systemd.failed.discard if granted else fake.systemd.failed.add)(unit)
    return granted and bool(ident)


def wait(fake: Node, unit: str, host: NodeHost | None = None) -> bool:
    """``systemctl start`` of a unit that waits for another one (After=); returns whether its grant was made. Then go_on() or cancel()."""
    after_reload(fake)
    fake.systemd.require(unit)
    fake.systemd.run_slice(slice_of(fake, unit))
    found = all(hold(fake, one, host or fake.host()) for one in required(fake, unit))
    found = found and all(again(fake, one, host or fake.host()) for one in holders_in(fake, unit, "Requires", AGAIN))
    if found:
        fake.jobs.add(unit)
    return found


def cancel(fake: Node, unit: str) -> None:
    """The job of a waiting start is gone, or its condition is not met: no unit's state changes, and systemd stops no holder."""
    fake.jobs.discard(unit)


def go_on(fake: Node, unit: str) -> Run | None:
    """The other unit of a waiting start is there."""
    fake.jobs.discard(unit)
    return begin(fake, unit) if all(map(fake.has, settings(fake, unit, "AssertPathExists"))) else None


def settle(fake: Node) -> None:
    """The jobs that a tick or a command requested of systemd: a holder that is reloaded stops if no unit needs it."""
    asked, fake.systemd.asked = fake.systemd.asked, []
    release(fake, [holder for holder in asked if fake.has(TEMPLATE)])


def stop(fake: Node, unit: str, host: NodeHost | None = None) -> None:
    """``systemctl stop``. ``host`` is what ``corral release`` runs on."""
    after_reload(fake)
    holders = held_for(fake, unit)
    end(fake, unit)
    release(fake, holders, host)
    fake.systemd.collect()


def restart(fake: Node, unit: str) -> Run | None:
    """``systemctl restart``."""
    end(fake, unit)
    return start(fake, unit)


def crash(fake: Node, unit: str, *, always: bool = False) -> Run | None:
    """Its process dies; with Restart=always (``always``) it starts again, after the units that the unit requires."""
    after_reload(fake)
    holders = held_for(fake, unit)
    end(fake, unit)
    if always:
        return start(fake, unit)
    release(fake, holders)
    fake.systemd.collect()
    return None


def settings(fake: Node, unit: str, name: str) -> list[str]:
    """All assignments that count for a unit: as loaded, else as its files have them."""
    return fake.systemd.values(unit, name)


def slice_of(fake: Node, unit: str) -> str:
    return fake.systemd.slice_of(unit)


def required(fake: Node, unit: str) -> list[str]:
    """The units that hold grants for it, without which it does not start."""
    return holders_in(fake, unit, "Requires")


def wanted(fake: Node, unit: str) -> list[str]:
    """The units that hold its grants of another name."""
    return holders_in(fake, unit, "Wants")


def held_for(fake: Node, unit: str) -> list[str]:
    """All units that hold grants for it."""
    return [*required(fake, unit), *wanted(fake, unit)]


def holders_in(fake: Node, unit: str, key: str, kind: str = HOLDER) -> list[str]:
    """The units that hold grants, or another ``kind``, of those that a dependency names."""
    words = [word for value in settings(fake, unit, key) for word in value.split()]
    return [word for word in words if word.startswith(kind)]


def hold(fake: Node, holder: str, host: NodeHost) -> bool:
    """Start the unit that holds a grant, unless it is active."""
    if holder in fake.holders:
        return True
    if not fake.has(TEMPLATE):
        return False
    ident = invocation(fake, holder)
    if corral(fake, host, "admit", "--start", holder):
        fake.holders[holder] = ident
        fake.systemd.services.add(holder)
        fake.systemd.failed.discard(holder)
        return True
    let_go(fake, holder, fake.host())
    fake.systemd.failed.add(holder)
    return False


def let_go(fake: Node, holder: str, host: NodeHost) -> None:
    """ExecStopPost= of the unit that holds a grant."""
    corral(fake, host, "release", "--stop", holder)
    fake.holders.pop(holder, None)
    fake.systemd.services.discard(holder)
    (fake.root / INVOCATIONS / f"invocation:{holder}").unlink()


def release(fake: Node, holders: list[str], host: NodeHost | None = None) -> None:
    """StopWhenUnneeded= of ``holders``: they hold grants for a unit that stopped or did not start, and for no other.

    Without a reload systemd checks only units that the stopped unit required or wanted, as it was loaded.
    """
    needed = {holder for unit in (*fake.runs, *fake.jobs) for holder in held_for(fake, unit)}
    for holder in holders:
        if holder in fake.holders and holder not in needed:
            let_go(fake, holder, host or fake.host())


def after_reload(fake: Node) -> None:
    """The jobs of a daemon-reload and of a reload of holders: they run once the requesting run has released the node's lock."""
    if fake.systemd.reloads != fake.reloads and fake.has(TEMPLATE):
        release(fake, list(fake.holders))
    elif fake.systemd.asked:
        release(fake, fake.systemd.asked)
    fake.reloads, fake.systemd.asked = fake.systemd.reloads, []


def corral(fake: Node, host: NodeHost, verb: str, flag: str, holder: str) -> bool:
    """The command of the unit that holds a grant; returns whether it succeeded."""
    name = holder.partition("@")[2][: -len(".service")]
    ident = os.readlink(fake.root / INVOCATIONS / f"invocation:{holder}")
    with mock.patch.dict(os.environ, {"INVOCATION_ID": ident}):
        try:
            return runs.command(host, verb, flag, name) in (0, 2)
        except (CorralError, OSError, Killed) as error:
            fake.said.append(str(error))
            return False


def invocation(fake: Node, unit: str) -> str:
    """A new INVOCATION_ID of a unit, as systemd shows it."""
    fake.started += 1
    ident = f"{fake.started:032x}"
    link = fake.root / INVOCATIONS / f"invocation:{unit}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(ident)
    return ident


def begin(fake: Node, unit: str) -> Run:
    """The process of a service, in a control group of its own."""
    fake.systemd.require(unit)
    fake.systemd.services.add(unit)
    fake.systemd.attach_program(unit)
    slice_unit = slice_of(fake, unit)
    fake.systemd.run_slice(slice_unit)
    place = f"{fake.systemd.place(slice_unit)}/{unit}"
    fake.systemd.realise_family(place)
    ident = invocation(fake, unit)
    pid = fake.started
    group = fake.systemd.cgroups[place] = Cgroup()
    group.tasks = [pid]
    score = ([value for value in settings(fake, unit, "OOMScoreAdjust") if value] or ["0"])[-1]
    fake.put(f"/proc/{pid}/comm", f"{unit.partition('.')[0][:15]}\n")
    fake.put(f"/proc/{pid}/cgroup", f"0::/{place}\n")
    fake.put(f"/proc/{pid}/oom_score_adj", f"{score}\n")
    fake.put(f"/proc/{pid}/status", f"Name:\t{unit[:15]}\nTgid:\t{pid}\n")
    seen = fake.systemd.effective(place), fake.systemd.effective_mems(place)
    run = Run(place, pid, ident, *seen, environment(fake, unit), allowed(fake, unit))
    fake.runs[unit] = run
    fake.systemd.sync()
    return run


def environment(fake: Node, unit: str) -> dict[str, str]:
    """The variables of the files of EnvironmentFile=, which systemd reads at each start; a file with a - before it may be absent.

    The path is a pattern (glob(7)), with specifiers filled in before: a backslash in it makes the next character plain.
    """
    variables: dict[str, str] = {}
    for value in settings(fake, unit, "EnvironmentFile"):
        value = re.sub(r"\\(.)", r"\1", value)
        text = fake.get(value.lstrip("-")) if fake.has(value.lstrip("-")) or not value.startswith("-") else ""
        lines = (line for line in text.splitlines() if line and line[0] not in "#;")
        variables.update(line.partition("=")[::2] for line in lines)
    return variables


def allowed(fake: Node, unit: str) -> frozenset[str] | None:
    """The devices that a service may open beside the usual ones; None for all (systemd.resource-control(5)).

    An entry with a number has the name of its file in /dev, or of the link there that leads to it. The entry that marks the owner of a list
    opens nothing.
    """
    entries = fake.systemd.devices_allowed(unit)
    policy = [value for value in settings(fake, unit, "DevicePolicy") if value][-1:] or ["auto"]
    return (
        None
        if policy == ["auto"] and not entries
        else frozenset(name_of(fake, entry.split()[0]) for entry in entries if entry != MARK)
    )


def name_of(fake: Node, path: str) -> str:
    """The name in /dev of the device of an entry of DeviceAllow=."""
    if not path.startswith(("/dev/char/", "/dev/block/")):
        return path
    files = [one for one in (fake.root / "dev").rglob("*") if one.is_file()]
    named = [one for one in files if one.read_text().strip() == path[len("/dev/") :]]
    named.sort(key=lambda one: (not one.is_symlink(), one))
    return f"/{named[0].relative_to(fake.root)}" if named else path


def sees(fake: Node, unit: str, path: str) -> bool:
    """Whether a service that starts now has this file in its /dev (systemd.exec(5), PrivateDevices= and BindPaths=).

    A folder is there with all that is in it, and a link in it leads to what the service has; one that is bound itself is followed.
    """
    private = [value for value in settings(fake, unit, "PrivateDevices") if value][-1:]
    if private not in (["yes"], ["true"]):
        return fake.has(path)
    bound: list[str] = []
    for value in settings(fake, unit, "BindPaths"):
        bound = [*bound, *value.split()] if value else []
    bound = [one.partition(":")[0] for one in bound]
    missing = [one for one in bound if not one.startswith("-") and not fake.has(one)]
    assert missing == [], f"{unit} does not start"
    places = [one.lstrip("-") for one in bound]
    if path in places or not fake.has(path):
        return fake.has(path)
    if not any(path.startswith(f"{place}/") for place in places):
        return False
    file = fake.root / path.lstrip("/")
    if not file.is_symlink():
        return True
    return sees(fake, unit, os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(file))))


def end(fake: Node, unit: str) -> None:
    """The processes of a service are gone, and so is its control group. Its slice stays."""
    fake.end_service(unit)


def reboot(fake: Node) -> None:
    """Everything ends, and what is kept in files comes back: slices, then corral-boot.service."""
    for unit in list(fake.runs):
        end(fake, unit)
    fake.holders.clear()
    for tree in ("run/systemd/system.control", "run/systemd/transient", INVOCATIONS):
        shutil.rmtree(fake.root / tree, ignore_errors=True)
    systemd = fake.systemd
    for unit in [unit for unit in systemd.units if "-" not in unit]:
        systemd.stop_slice(unit)
    systemd.cgroups = {"": Cgroup()}
    fake.boot_anew()
    systemd.boot()
    runs.tick(fake.host(), at_boot=True)
