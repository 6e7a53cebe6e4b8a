# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with devices on both NUMA nodes: who may open what, and what tenants cannot take from each other.

What units and containers may open they try themselves; limits and events are the kernel's. With names of steps it takes those alone.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import shutil
import sys
import typing as t

from on_node import expect, exposed, in_sync, read, run, run_named, tick, wait, write
from pods import pod, pod_has_ended, quadlet_pod
from vendors_spec import make as make_vendors_spec
from workloads import CGROUP, CHECKPOINT, ETC, cpus, grants, image

TTYS = [f"/dev/tty{number}" for number in range(40, 50)]
OPENS = "/usr/local/bin/opens"
VFIO_GROUPS = "/dev/vfio"
# Tries to open each of these devices and the groups of VFIO, and writes down what became of that beside its environment and its CPUs;
# again at each SIGUSR1.
OPENS_TEXT = f"""#!/usr/bin/python3
import json, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
own = {{name: text for name, text in os.environ.items() if name.startswith(("CORRAL_", "PCIDEVICE_"))}}
while True:
    groups = os.listdir({VFIO_GROUPS!r}) if os.path.isdir({VFIO_GROUPS!r}) else []
    found = {{}}
    for path in {TTYS!r} + [{VFIO_GROUPS!r} + "/" + name for name in groups if name.isdigit()]:
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
            found[path] = 0
        except OSError as error:
            found[path] = error.errno
    with open("/run/new-" + sys.argv[1], "w") as file:
        json.dump([found, own, sorted(os.sched_getaffinity(0)), os.listdir("/dev")], file)
    os.rename("/run/new-" + sys.argv[1], "/run/opens-" + sys.argv[1])
    signal.sigwait([signal.SIGUSR1])
"""
CHECKS = "/usr/local/bin/tty-ok"
SICK, HANGS = "/run/sick", "/run/hangs"
CHECKED = "/run/corral/devices-checked.json"  # which a pass writes at its end
ASKED = "corral-asked"
# Healthy but for the devices that these files name; it logs what it was asked, and where and as whom it ran: the user whom it is may
# write nowhere, and systemd removes his shared memory.
CHECKS_TEXT = f"""#!/bin/sh
has() {{ [ -e "$1" ] && [ "$(cat "$1")" = "$device" ]; }}
device=$1
{{ echo "$*"; echo "$CORRAL_DEVICE"; echo "$CORRAL_FILES"; cat /proc/self/cgroup; grep -e Uid: -e CapBnd: -e Cpus_allowed_list /proc/self/status; }} |
    tr '\\n' ' ' | logger --tag={ASKED}
has {HANGS} && sleep 1000
echo "asked about $device"
printf 'it is \\007 sick\\n'
has {SICK} && exit 3
exit 0
"""
BOMB = "/usr/local/bin/bomb"
# As many processes as it may have, for as long as it runs; once there are no more it says how many it made.
BOMB_TEXT = """#!/usr/bin/python3
import os, time
made = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(1e6)
        made += 1
    except BlockingIOError:
        break
with open("/run/new-bomb", "w") as file:
    file.write(str(made))
os.rename("/run/new-bomb", "/run/bomb")
time.sleep(1e6)
"""
VFIO = "/usr/local/bin/vfio-user"
# Opens the groups in /dev/vfio that it may, and asks the kernel whether each can be used (VFIO_GROUP_GET_STATUS).
VFIO_TEXT = """#!/usr/bin/python3
import fcntl, json, os, struct, time
found = {}
for name in filter(str.isdigit, os.listdir("/dev/vfio")):
    try:
        group = os.open("/dev/vfio/" + name, os.O_RDWR)
        status = struct.unpack("II", fcntl.ioctl(group, 0x3B67, struct.pack("II", 8, 0)))
        found[name] = status[1] & 1
        os.close(group)
    except OSError as error:
        found[name] = -error.errno
with open("/run/new-dpdk", "w") as file:
    json.dump([found, os.environ["PCIDEVICE_LAB_EXAMPLE_NIC"]], file)
os.rename("/run/new-dpdk", "/run/opens-dpdk")
time.sleep(1e6)
"""
HOG_TEXT = "import time; kept = [bytearray(1 << 20) for dummy in range(400)]; time.sleep(1e6)"
OFTEN = "[Unit]\nStartLimitIntervalSec=0\n"
UNITS = {
    **{f"{name}.service": f"{OFTEN}[Service]\nExecStart={OPENS} {name}\n" for name in ("two", "three")},
    "one.service": f"{OFTEN}[Service]\nExecStart={OPENS} one\nPrivateDevices=yes\n[Install]\nWantedBy=multi-user.target\n",
    "dpdk.service": f"{OFTEN}[Service]\nExecStart={VFIO}\n",
    "acme-bomb.service": f"[Service]\nExecStart={BOMB}\nTimeoutStopSec=5\n",
    "acme-hog.service": f"[Service]\nExecStart=/usr/bin/python3 -c '{HOG_TEXT}'\n",
    "acme-more.service": "[Service]\nExecStart=/usr/bin/sleep infinity\n",
    "globex-db.service": "[Service]\nExecStart=/usr/bin/sleep infinity\n",
}
ACME, GLOBEX = (f"{CGROUP}/corral.slice/corral-{name}.slice" for name in ("acme", "globex"))
VIRTIO_RNG = ("0x1af4", "0x1044")
NIC = ("0x15ad", "0x07b0")  # vmxnet3, of which the kernels for virtual machines have the driver


def prepare() -> None:
    """The units and their programs, before any profile."""
    for path, text in ((OPENS, OPENS_TEXT), (BOMB, BOMB_TEXT), (CHECKS, CHECKS_TEXT), (VFIO, VFIO_TEXT)):
        write(path, text)
        os.chmod(path, 0o755)
    for unit, text in UNITS.items():
        write(f"{ETC}/{unit}", text)
    run("systemctl", "daemon-reload")
    make_vendors_spec()
    run("modprobe", "--all", "vmxnet3", "vfio-pci")  # Corral loads no module, and the lab's udev does not look at PCI.
    image()


def functions(kind: tuple[str, str]) -> dict[str, int]:
    """The PCI functions of a kind by address, and their NUMA nodes."""
    found = {}
    for folder in glob.glob("/sys/bus/pci/devices/*"):
        if (read(f"{folder}/vendor"), read(f"{folder}/device")) == kind:
            found[os.path.basename(folder)] = int(read(f"{folder}/numa_node"))
    return found


def rngs() -> dict[str, int]:
    """The random number generators."""
    return functions(VIRTIO_RNG)


def opened(name: str) -> tuple[set[str], set[int], dict[str, str], list[int]]:
    """What a unit could open at its start, the errors of the rest, its variables and its CPUs."""
    tried, own, mask, dummy = json.loads(read(f"/run/opens-{name}"))
    return {path for path in tried if tried[path] == 0}, {code for code in tried.values() if code}, own, mask


def shown_to(name: str) -> list[str]:
    """What a unit had in its /dev at its start."""
    return t.cast("list[str]", json.loads(read(f"/run/opens-{name}"))[3])


def start(name: str) -> None:
    """Start a unit, and wait until it has tried to open devices."""
    ask(name, "start", name)


def opens_now(name: str) -> set[str]:
    """What a unit that runs can open now."""
    ask(name, "kill", "--kill-whom=main", "--signal=USR1", name)
    return opened(name)[0]


def ask(name: str, *words: str) -> None:
    path = f"/run/opens-{name}"
    if os.path.exists(path):
        os.remove(path)
    run("systemctl", *words)
    wait(f"{name} has tried", lambda: os.path.exists(path))


def named(text: str, *words: str) -> None:
    for word in words:
        if word not in text:
            raise AssertionError(f"{word!r} is not in {text}")


def given() -> None:
    """Units open what they were granted and nothing else, and it is all on one NUMA node."""
    start("one")
    start("two")
    mine, errors, own, mask = opened("one")
    others, dummy, dummy2, dummy3 = opened("two")
    expect("devices of one and two", (len(mine), len(others), mine & others), (2, 1, set()))
    expect("the errors of others", errors, {errno.EPERM})
    expect("who has a /dev of its own", ["kmsg" in shown_to(name) for name in ("one", "two")], [False, True])
    expect("and the devices in it", mine <= {f"/dev/{name}" for name in shown_to("one")}, True)
    expect("its files in its environment", set(own["CORRAL_FILES_LAB_EXAMPLE_TTY"].split(",")), mine)
    nodes = rngs()
    functions = own["PCIDEVICE_LAB_EXAMPLE_RNG"].split(",")
    expect("nodes of its functions", [nodes[one] for one in functions], [1, 1])
    expect("its CPUs", set(mask) <= {4, 5, 6, 7} and len(mask) == 2, True)
    in_sync()
    shown = json.loads(run("corral", "devices", "--json"))
    listed = {row["id"]: row["workload"] for one in shown["resources"] for row in one["devices"]}
    expect("whose corral devices says they are", {listed[path] for path in mine}, {"one"})
    expect("and the others", [listed[path] for path in others], ["two"])


def refused() -> None:
    """More than there is, with who has them."""
    run("systemctl", "start", "three", code=None)
    expect("three", run("systemctl", "is-active", "three", code=None).strip() in ("inactive", "failed"), True)
    said = run("journalctl", "--boot", "--output=cat", "--unit=corral-grant@three.service")
    named(said, "lab.example/tty", "one has /dev/tty4", "two has /dev/tty4")
    run("systemctl", "stop", "two")
    start("three")
    expect("three has what two had, and the rest", len(opened("three")[0]), 8)
    expect("nothing of them is one's", opened("three")[0] & opened("one")[0], set())
    run("systemctl", "stop", "three")
    run("systemctl", "restart", "one")
    in_sync()


def container() -> None:
    """A container finds what its grant has by the CDI device of that grant."""
    run("corral", "admit", "box")
    words = ("podman", "run", "--rm", "--network=none", "--cgroup-parent=corral.slice/corral-box.slice")
    listed = "for one in /dev/tty4*; do [ -c $one ] && echo $one; done; echo $CORRAL_FILES_LAB_EXAMPLE_TTY"
    said = run(*words, "--name=box", "--device=corral.node/grant=box", "busybox", "sh", "-c", listed).split()
    files = [row["id"] if isinstance(row, dict) else row for row in device_ids("box")]
    expect("its device, by file and by variable", said, [files[0], files[0]])
    run("corral", "release", "box")
    in_sync()


def device_ids(workload: str) -> list[str]:
    """The ids of the devices that a workload holds, by Corral's checkpoint."""
    rows = grants()[workload]["devices"]
    return [one for row in rows for one in (row[-1] if isinstance(row[-1], list) else [row[-1]])]


def unplugged() -> None:
    """A device that goes is drift that names its holder, which runs on; no other workload gets it until it is back."""
    functions = opened("one")[2]["PCIDEVICE_LAB_EXAMPLE_RNG"].split(",")
    pid = run("systemctl", "show", "-p", "MainPID", "--value", "one")
    write(f"/sys/bus/pci/devices/{functions[0]}/remove", "1")
    items = tick()["items"]
    named(json.dumps(items), functions[0], "one")
    expect("one runs on", run("systemctl", "show", "-p", "MainPID", "--value", "one"), pid)
    write("/sys/bus/pci/rescan", "1")
    wait("it is back", lambda: functions[0] in rngs())
    in_sync()


def checked() -> None:
    """The profile's own command makes a device unhealthy: its holder runs on and is named, and its next start gets another one."""
    mine = opened("one")[0]
    device = min(mine)
    pid = run("systemctl", "show", "-p", "MainPID", "--value", "one")
    timeout = json.loads(read("/etc/corral/profile.json"))["devices"][0]["check"]["timeout"].rstrip("s")
    for path, said in (
        (
            SICK,
            f"{CHECKS}: exit code 3: it is \\x07 sick (it ran as user: dynamic; where it needs root, set user: root)",
        ),
        (HANGS, f"{CHECKS}: no answer within {timeout} s"),
    ):
        write(path, device)
        next_pass(60 + int(timeout))
        items = tick()["items"]
        expect("the drift", [row["actual"] for row in items if row["subject"] == f"one {device}"], [said])
        expect("one runs on", run("systemctl", "show", "-p", "MainPID", "--value", "one"), pid)
        if path == HANGS:
            run("systemctl", "stop", "one")
            # On a loaded node systemd stops the unit that holds the grant some seconds later; a start before that is a restart.
            wait("its grant has ended", lambda: "one" not in grants())
            start("one")
            expect(
                "one has two devices, and not that one", (len(opened("one")[0]), device in opened("one")[0]), (2, False)
            )
        os.remove(path)
    shown = json.loads(run("corral", "devices", "--check", "--json"))
    expect(
        "all are healthy", [one["id"] for row in shown["resources"] for one in row["devices"] if not one["healthy"]], []
    )
    in_sync()
    words = asked()[-1].split()
    expect("its words, environment and file", words[1:3], [words[0]] * 2)
    expect("a unit of its own", bool(re.search(r":/system\.slice/run-[^/]+\.service$", words[3])), True)
    # The users of systemd.exec(5), DynamicUser=.
    expect("a user of its own", {61184 <= int(one) <= 65519 for one in words[5:9]}, {True})
    expect("what it could be allowed", int(words[10], 16), 0)
    expect("its CPUs", cpus(words[12]) <= {0, 1}, True)


def next_pass(seconds: int) -> None:
    """The next pass of the timer, now. It finds each device due: nothing says when a device was checked."""
    os.remove(CHECKED)
    run("systemctl", "restart", "corral-device-checks.timer")
    wait("a pass has checked the devices", lambda: os.path.exists(CHECKED), seconds)


def asked() -> list[str]:
    """What each run of the check has logged."""
    return run("journalctl", "--boot", "--output=cat", f"--identifier={ASKED}").splitlines()


def changeable() -> None:
    """A check that others than root can change after the rollout is not run: its devices are unhealthy until that is mended."""
    others, link = "/srv/others", f"{CHECKS}-moved"
    os.makedirs(others, exist_ok=True)
    shutil.copy(CHECKS, f"{others}/tty-ok")
    os.chown(others, 65534, -1)
    for change, mend, command in (
        (lambda: os.chmod(CHECKS, 0o777), lambda: os.chmod(CHECKS, 0o755), f"chmod go-w {CHECKS}"),
        (
            lambda: (os.rename(CHECKS, link), os.symlink(f"{others}/tty-ok", CHECKS)),
            lambda: os.replace(link, CHECKS),
            f"chown root: {others}",
        ),
    ):
        change()
        before = len(asked())
        rows = json.loads(run("corral", "devices", "--check", "--json", code=None))["resources"][0]["devices"]
        expect("no device is healthy", [one["id"] for one in rows if one["healthy"]], [])
        named(json.dumps(rows), command)
        expect("it was not run", len(asked()), before)
        mend()
        rows = json.loads(run("corral", "devices", "--check", "--json", code=None))["resources"][0]["devices"]
        expect("all are healthy", [one["id"] for one in rows if not one["healthy"]], [])
        wait("it was run again", lambda before=before: len(asked()) > before)
    shutil.rmtree(others)
    wait("the node is in sync", lambda: tick()["in_sync"])


# The most that systemd-analyze(1) may say of each unit of Corral's, as docs/maintenance.md has it.
EXPOSED = {
    "corral-reconcile.service": 3.5,
    "corral-boot.service": 3.5,
    "corral-confirm.service": 3.5,
    "corral-device-checks.service": 3.5,
    "corral-grant@one.service": 3.5,
    "corral-regrant@one.service": 3.5,
}


def exposures() -> None:
    """Corral's units bear what they can: systemd's own measure of each."""
    for unit, most in EXPOSED.items():
        exposed(unit, most)


def driver_of(address: str) -> tuple[str, str]:
    """The driver of a PCI function, and its driver_override."""
    folder = f"/sys/bus/pci/devices/{address}"
    link = os.path.basename(os.readlink(f"{folder}/driver")) if os.path.exists(f"{folder}/driver") else ""
    return link, read(f"{folder}/driver_override").strip()


def drivers() -> None:
    """A network card is VFIO's while a workload has it: refused while its interface is up, bound again, and given back."""
    nic = next(iter(functions(NIC)))
    (interface,) = os.listdir(f"/sys/bus/pci/devices/{nic}/net")
    before = driver_of(nic)
    expect("its driver", before, ("vmxnet3", "(null)"))
    run("ip", "link", "set", interface, "up")
    run("systemctl", "start", "dpdk", code=None)
    said = run("journalctl", "--boot", "--output=cat", "--unit=corral-grant@dpdk.service")
    named(said, "lab.example/nic", f"{interface} is up")
    expect("its driver, which it keeps", driver_of(nic), before)
    run("ip", "link", "set", interface, "down")
    start("dpdk")
    expect("its driver while it runs", driver_of(nic), ("vfio-pci", "vfio-pci"))
    expect("its interface", os.path.exists(f"/sys/class/net/{interface}"), False)
    group = os.path.basename(os.readlink(f"/sys/bus/pci/devices/{nic}/iommu_group"))
    expect("what it may use", json.loads(read("/run/opens-dpdk")), [{group: 1}, nic])
    in_sync()
    write("/sys/bus/pci/drivers/vfio-pci/unbind", nic)
    tick()
    expect("its driver after a tick", driver_of(nic), ("vfio-pci", "vfio-pci"))
    run("systemctl", "stop", "dpdk")
    # The kernel shows a driver before it is done with the device; the record goes last.
    wait("it is given back", lambda: not os.path.exists(f"/run/corral/devices/{nic}.driver"))
    expect("its driver", driver_of(nic), before)
    expect("its interface", os.listdir(f"/sys/bus/pci/devices/{nic}/net"), [interface])
    in_sync()


def lost_files() -> None:
    """What was removed below /run by hand is there again after a tick."""
    path = "/run/cdi/corral.node-grant.json"
    before = read(path)
    os.remove(path)
    expect("in sync after the tick", tick()["in_sync"], True)
    expect("the CDI spec", read(path), before)
    # The second copy of the checkpoint is left to tell who has what.
    run("systemctl", "stop", "two", "three")
    start("two")
    mine, others = opens_now("one"), opens_now("two")
    for path in (*glob.glob("/run/corral/devices/*.service.env"), CHECKPOINT):
        os.remove(path)
    wait("in sync after the loss", lambda: tick()["in_sync"])
    expect("what one and two open", (opens_now("one"), opens_now("two")), (mine, others))
    run("systemctl", "stop", "two")
    # What held its devices stops after it.
    listed = "/run/systemd/system.control/two.service.d/50-DeviceAllow.conf"
    wait("the list of two is taken back", lambda: not os.path.exists(listed))
    start("two")
    expect("what two opens", opened("two")[0] & mine, set())
    in_sync()


def tenants() -> None:
    """A fork bomb and a hog end at their own limits, and another bomb at their tenant's, and the other tenant's service runs on untouched."""
    run("systemctl", "start", "globex-db")
    pid = run("systemctl", "show", "-p", "MainPID", "--value", "globex-db")
    expect("acme's limits", [read(f"{ACME}/{name}") for name in ("memory.max", "pids.max")], [str(192 << 20), "96"])
    run("systemctl", "start", "acme-bomb")
    wait("the bomb has no more", lambda: os.path.exists("/run/bomb"))
    expect("processes of the bomb", int(read("/run/bomb")), 31)
    os.remove("/run/bomb")
    # Nobody's unit, with no limit of its own: what ends it is its tenant's.
    run("systemd-run", "--quiet", "--collect", "--unit=loose-bomb", "--slice=corral-acme.slice", BOMB)
    wait("the other one has no more", lambda: os.path.exists("/run/bomb"))
    expect("processes of acme", int(read(f"{ACME}/pids.current")), 96)
    expect("processes of both bombs", 32 + int(read("/run/bomb")) + 1, 96)
    run("systemctl", "stop", "loose-bomb")
    run("systemctl", "start", "acme-hog")

    def killed() -> int:
        rows = dict(line.split() for line in read(f"{ACME}/memory.events").splitlines())
        return int(rows["oom_kill"])

    wait("the hog was killed", lambda: killed() > 0)
    more = run("systemctl", "start", "acme-more", code=None)
    said = run("journalctl", "--boot", "--output=cat", "--unit=corral-grant@more.service")
    named(said + more, "acme", "limits.memory", "compute")
    expect(
        "more did not start",
        run("systemctl", "is-active", "acme-more", code=None).strip() in ("inactive", "failed"),
        True,
    )
    expect("the other tenant runs on", run("systemctl", "show", "-p", "MainPID", "--value", "globex-db"), pid)
    events = dict(line.split() for line in read(f"{GLOBEX}/memory.events").splitlines())
    expect(
        "what happened to it", (events["oom_kill"], events["max"], read(f"{GLOBEX}/pids.events")), ("0", "0", "max 0")
    )
    table = run("corral", "status", "--tenants")
    named(table, "acme", "globex", "limits.memory")
    run("systemctl", "stop", "acme-bomb", "acme-hog")
    os.remove("/run/bomb")
    in_sync()


# A container's first process: which terminals its /dev has, which of them it opens, and how each is named to it.
LISTS = """for one in /dev/tty4*; do [ -c $one ] && echo $one && : <$one && echo opened; done >/out/new
echo $CORRAL_FILES_LAB_EXAMPLE_TTY >>/out/new
mv /out/new /out/found
sleep 1000
"""
GENERATOR = "/usr/lib/systemd/system-generators/podman-system-generator"


def quadlet() -> None:
    """A container that is a unit, by Quadlet where there is one, finds what the unit was granted."""
    os.makedirs("/run/quad", exist_ok=True)
    write("/run/quad/lists", LISTS)
    path = "/etc/containers/systemd/quad.container"
    if os.path.exists(GENERATOR):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        text = "Image=localhost/busybox:latest\nExec=sh /out/lists\nNetwork=none\nVolume=/run/quad:/out\n"
        write(path, f"[Container]\n{text}AddDevice=corral.node/grant=quad\n")
    else:
        path = f"{ETC}/quad.service"
        words = "/usr/bin/podman run --rm --network=none --cgroups=split --name=quad --device=corral.node/grant=quad"
        words += " --volume=/run/quad:/out busybox sh /out/lists"
        write(path, f"[Service]\nDelegate=yes\nTimeoutStopSec=2\nExecStart={words}\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "quad")
    wait("its container has looked", lambda: os.path.exists("/run/quad/found"))
    shown = json.loads(run("corral", "devices", "--json"))["resources"]
    (device,) = [row["id"] for one in shown for row in one["devices"] if row["workload"] == "quad"]
    expect("its device, opened, and its variable", read("/run/quad/found").split(), [device, "opened", device])
    in_sync()
    run("systemctl", "stop", "quad")
    wait("its grant has ended", lambda: "quad" not in grants())
    os.remove(path)
    run("systemctl", "daemon-reload")
    in_sync()


def out_of_the_machine() -> None:
    """A device that the machine lost is drift that names its holder, which runs on."""
    mine = opened("one")[2]["PCIDEVICE_LAB_EXAMPLE_RNG"].split(",")
    gone = [one for one in mine if one not in rngs()]
    expect("one of its devices is gone", len(gone), 1)
    items = tick()["items"]
    named(json.dumps([item for item in items if item["subject"] == f"one {gone[0]}"]), "one", gone[0])
    expect("one runs on", run("systemctl", "is-active", "one").strip(), "active")
    said = run("corral", "drift", code=2)
    named(said, gone[0])


def back_in_the_machine() -> None:
    """The device is the same one by its address: its holder has it again, and all is as declared. Then the node reboots."""
    mine = opened("one")[2]["PCIDEVICE_LAB_EXAMPLE_RNG"].split(",")
    wait("its devices are back", lambda: set(mine) <= set(rngs()))
    in_sync()
    write("/root/had", json.dumps(sorted(mine)))
    run("systemctl", "enable", "--quiet", "one")


def after_reboot() -> None:
    """A unit that starts at boot has devices of its grant from its first instruction on, and no others."""
    wait("one has tried", lambda: os.path.exists("/run/opens-one"))
    mine, errors, own, mask = opened("one")
    expect("its devices", (len(mine), errors), (2, {errno.EPERM}))
    expect("its functions", sorted(own["PCIDEVICE_LAB_EXAMPLE_RNG"].split(",")), json.loads(read("/root/had")))
    expect("its CPUs", set(mask) <= {4, 5, 6, 7} and len(mask) == 2, True)
    start("two")
    expect("what two has is not one's", mine & opened("two")[0], set())
    in_sync()
    run("systemctl", "disable", "--quiet", "one")
    os.remove("/root/had")


STEPS = (
    given,
    refused,
    container,
    pod,
    quadlet_pod,
    unplugged,
    checked,
    changeable,
    exposures,
    drivers,
    lost_files,
    tenants,
    pod_has_ended,
)
# Not in make test; the machine's own steps come between them (molecule/devices/converge.yml).
LATER = (quadlet, out_of_the_machine, back_in_the_machine, after_reboot)


if __name__ == "__main__":
    sys.exit(run_named(sys.argv[1:] or [step.__name__ for step in STEPS], (*STEPS, *LATER), prepare))
