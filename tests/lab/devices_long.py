# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node after the steps of devices.py, in make test-long: what needs a profile of its own, or an agent that is killed.

With names of steps it takes those alone; with the words of a grant's unit after --grant it is that unit's program (see killed()).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import typing as t

import kill_at_act
from devices import (
    ETC,
    NIC,
    OPENS,
    driver_of,
    functions,
    image,
    named,
    opened,
    opens_now,
    start,
)
from on_node import expect, in_sync, read, run, run_named, tick, wait, write
from vendors_spec import PATH as VENDORS_SPEC
from vendors_spec import stamp
from workloads import CGROUP, cpus, grants

DECLARED = "/etc/corral/profile.json"
TTY, NICS, WIDGET = "lab.example/tty", "lab.example/nic", "vendor.example/widget"
OFTEN = "[Unit]\nStartLimitIntervalSec=0\n"


@contextlib.contextmanager
def declared(units: t.Mapping[str, str], workloads: t.Sequence[dict[str, t.Any]], **more: t.Any) -> t.Iterator[None]:
    """The profile with further units, workloads and sections, and without checks of devices, which take much of an emulated node.

    In the end all is as it was before.
    """
    before = read(DECLARED)
    data = json.loads(before)
    for one in data["devices"]:
        one.pop("check", None)
    data["workloads"] += workloads
    data["devices"] += more.pop("devices", [])
    try:
        for unit, text in units.items():
            write(f"{ETC}/{unit}", text)
        run("systemctl", "daemon-reload")
        write(DECLARED, json.dumps({**data, **more}))
        in_sync()
        yield
    finally:
        run("systemctl", "stop", *units, code=None)
        write(DECLARED, before + "\n")
        tick()
        for unit in units:
            os.remove(f"{ETC}/{unit}")
        run("systemctl", "daemon-reload")
    in_sync()


def workload(name: str, limits: dict[str, t.Any]) -> dict[str, t.Any]:
    return {"name": name, "match": {"unit": f"{name}.service"}, "hold": "running", "limits": limits}


def ids(name: str) -> list[str]:
    """The ids of the devices that a workload holds, by Corral's checkpoint."""
    return [row[2] for row in grants()[name]["devices"]]


def refusal(name: str) -> str:
    """What the journal has of a start that is refused."""
    run("systemctl", "start", name, code=None)
    expect(f"{name} after its start", run("systemctl", "is-active", name, code=None).strip() in REFUSED, True)
    said = run("journalctl", "--boot", "--output=cat", f"--unit=corral-grant@{name}.service")
    (line,) = [line for line in said.splitlines() if line.startswith("corral: ")][-1:]
    print(f"  {line}", flush=True)
    return line


REFUSED = ("inactive", "failed")


def one_node() -> None:
    """CPUs, memory and a device that are free on different NUMA nodes are no start, with the nodes of each; on one node they are."""
    nic = next(iter(functions(NIC)))
    expect("the NUMA node of the network card", functions(NIC)[nic], 1)
    run("systemctl", "stop", "one", "two")
    units = {
        **{f"{name}.service": f"{OFTEN}[Service]\nExecStart=/usr/bin/sleep infinity\n" for name in ("fill", "heavy")},
        "apart.service": f"{OFTEN}[Service]\nExecStart={OPENS} apart\n",
    }
    workloads = [
        workload("fill", {"cpu": 3, "memory": "400Mi"}),  # NUMA node 0 has two CPUs that are not reserved.
        workload("apart", {"cpu": 2, "memory": "64Mi", NICS: 1}),
        workload("heavy", {"cpu": 1, "memory": "450Mi", NICS: 1}),
    ]
    memory = {"policy": "static", "reserved": {"0": "256Mi", "1": "256Mi"}}
    with declared(units, workloads, memory=memory):
        run("systemctl", "start", "fill")
        expect("the CPUs of fill", cpus(grants()["fill"]["cpus"]) < {4, 5, 6, 7}, True)
        said = refusal("apart")
        named(
            said,
            "single-numa-node",
            "cpu (node 0)",
            "memory (nodes 0-1)",
            f"{NICS} (node 1)",
            "none for all",
            "fill has",
        )
        said = refusal("heavy")
        named(said, "single-numa-node", "cpu (nodes 0-1)", "memory (node 0)", f"{NICS} (node 1)", "none for all")
        named(run("corral", "explain", "apart", code=None), "none for all")
        expect("the driver of the card", driver_of(nic)[0], "vmxnet3")
        expect("who has something", {"fill", "apart", "heavy"} & grants().keys(), {"fill"})
        in_sync()
        run("systemctl", "stop", "fill")
        start("apart")
        slice_folder = f"{CGROUP}/corral_apart.slice"
        expect("its CPUs, by the kernel", cpus(read(f"{slice_folder}/cpuset.cpus.effective")) < {4, 5, 6, 7}, True)
        expect("the NUMA nodes of its memory, by the kernel", read(f"{slice_folder}/cpuset.mems.effective"), "1")
        mine, dummy, own, mask = opened("apart")
        group = os.path.basename(os.readlink(f"/sys/bus/pci/devices/{nic}/iommu_group"))
        expect("what it opens", mine, {f"/dev/vfio/{group}"})
        expect("its device and its own CPUs", (own["PCIDEVICE_LAB_EXAMPLE_NIC"], set(mask) < {4, 5, 6, 7}), (nic, True))
        in_sync()
    expect("the driver of the card", driver_of(nic)[0], "vmxnet3")
    start("one")
    in_sync()


# In a container: whether it has the device file and opens it, what the vendor's spec adds, and what Corral does.
FINDS = (
    "for file in /dev/tty5*; do [ -c $file ] && echo $file && : <$file && echo opened; done;"
    " echo $VENDOR_WIDGET $VENDOR_ALL $CORRAL_DEVICES_VENDOR_EXAMPLE_WIDGET; cat /vendor/words"
)


OPENED = "/run/opens-lone"
LONE = f"""{OFTEN}[Service]
ExecStart=/bin/sh -c 'for file in /dev/tty50 /dev/tty51 /dev/tty52; do true <$file && echo $file; done >{OPENED}; exec sleep infinity'
"""


def vendors_spec() -> None:
    """A device of another vendor's CDI spec is a container's with all that the spec adds; the vendor's file stays as it is.

    A unit opens its device, and the files that the spec adds to each device.
    """
    before = stamp()
    image()
    widget = {"name": WIDGET, "match": {"cdi": WIDGET}}
    crate = {"name": "crate", "match": {"container": "crate"}, "hold": "running", "limits": {WIDGET: 1}}
    with declared({"lone.service": LONE}, [crate, workload("lone", {WIDGET: 1})], devices=[widget]):
        run("corral", "admit", "crate")
        expect("its device", ids("crate"), [f"{WIDGET}=w0"])
        words = ("podman", "run", "--rm", "--network=none", "--cgroup-parent=corral.slice/corral-crate.slice")
        said = run(*words, "--name=crate", "--device=corral.node/grant=crate", "busybox", "sh", "-c", FINDS).split()
        expect(
            "what it finds",
            said,
            [
                "/dev/tty50",
                "opened",
                "/dev/tty52",
                "opened",
                "w0",
                "all",
                f"{WIDGET}=w0",
                "words",
                "of",
                "the",
                "vendor",
            ],
        )
        run("systemctl", "start", "lone")
        wait("lone has tried", lambda: os.path.exists(OPENED) and "tty52" in read(OPENED))
        expect("what a unit with the other device opens", read(OPENED).split(), ["/dev/tty51", "/dev/tty52"])
        in_sync()
        run("corral", "release", "crate")
        expect("the vendor's spec after the release", stamp(), before)
    expect(
        "the vendor's spec in the end", (stamp(), os.listdir(os.path.dirname(VENDORS_SPEC))), (before, ["vendor.yaml"])
    )


CTR = "/usr/bin/ctr"


def containerd() -> None:
    """A container that containerd makes finds what its grant has, by the CDI device of that grant. Without containerd: nothing."""
    if not os.path.exists(CTR):
        print("  this node has no containerd")
        return
    import kubelet_node  # It makes an image for containerd.

    kubelet_node.bring_image()
    run("corral", "admit", "box")
    listed = "for one in /dev/tty4*; do [ -c $one ] && echo $one && : <$one && echo opened; done; echo $CORRAL_FILES_LAB_EXAMPLE_TTY"
    words = (CTR, "--namespace=k8s.io", "run", "--rm", "--runc-systemd-cgroup", "--cgroup=corral-box.slice:ctr:box")
    words += (
        "--device=corral.node/grant=box",
        f"docker.io/{kubelet_node.IMAGE}",
        "box",
        "/bin/busybox",
        "sh",
        "-c",
        listed,
    )
    said = run(*words).split()
    (device,) = ids("box")
    expect("its device, opened, and its variable", said, [device, "opened", device])
    run("corral", "release", "box")
    in_sync()


# An agent that is killed

KILL, ACTS = "/run/lab-kill", "/run/lab-acts"
ALL = "all.service"
HELD = ("one", "two")  # They run all the time.


def grant(words: list[str]) -> int:
    """The program of a grant's unit; killed before the act that KILL names for its verb. It tells how many acts there were."""
    kill_at_act.import_program()
    from _core.main import main

    last = 0
    with contextlib.suppress(FileNotFoundError), open(KILL, encoding="ascii") as file:
        last = json.load(file).get(words[0], 0)
    acts = kill_at_act.watch(last)
    code = main(words)
    count = acts()
    write(f"{ACTS}-{words[0]}", str(count))
    return code


def killed_grants() -> None:
    """The program that admits and releases is killed before each of its acts: no device is had twice, and nothing is lost.

    CORRAL_KILLS says at how many points; none: at three.
    """
    points = int(os.environ.get("CORRAL_KILLS") or 0) or 3
    program = os.path.abspath(__file__)
    dropin = "/run/systemd/system/corral-grant@all.service.d"
    lines = [f"{name}=\n{name}=/usr/bin/python3 -E -s -B {program} --grant {verb} %i\n"
             for name, verb in (("ExecStart", "admit --start"), ("ExecStopPost", "release --stop"))]  # fmt: skip
    unit = f"{OFTEN}[Service]\nExecStart={OPENS} all\n"
    with declared({ALL: unit}, [workload("all", {"cpu": 2, "memory": "64Mi", TTY: 3, NICS: 1})]):
        try:
            os.makedirs(dropin)
            write(f"{dropin}/killed.conf", "[Service]\n" + "".join(lines))
            run("systemctl", "daemon-reload")
            for name in HELD:
                run("systemctl", "stop", name)
                start(name)
            was = {name: opens_now(name) for name in HELD}
            expect("how many devices they have", [len(was[name]) for name in HELD], [2, 1])
            acts = whole(was)
            done = set()
            for number in range(points):
                at = {verb: 1 + (2 * number + 1) * acts[verb] // (2 * points) for verb in acts}
                at = {verb: min(at[verb], acts[verb]) for verb in acts}
                done |= set(at.items())
                killed_start(at["admit"], was)
                killed_stop(at["release"], was)
            print(f"  killed at {len(done)} different acts; there are {acts}")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(KILL)
            shutil.rmtree(dropin, ignore_errors=True)
            run("systemctl", "daemon-reload")
    for verb in ("admit", "release"):
        os.remove(f"{ACTS}-{verb}")
    run("systemctl", "stop", "two")
    in_sync()


def whole(was: t.Mapping[str, set[str]]) -> dict[str, int]:
    """A start and a stop to which nothing happens: how many acts each has."""
    starts(was)
    run("systemctl", "stop", ALL)
    wait("it is released", lambda: "all" not in grants() and os.path.exists(f"{ACTS}-release"))
    is_free(was, "after a stop")
    return {verb: int(read(f"{ACTS}-{verb}")) for verb in ("admit", "release")}


def killed_start(at: int, was: t.Mapping[str, set[str]]) -> None:
    """The admission dies before this act, and the release that systemd starts then before its first one."""
    where = f"killed before act {at} of an admission"
    write(KILL, json.dumps({"admit": at, "release": 1}))
    run("systemctl", "start", ALL, code=None)
    os.remove(KILL)
    expect(
        f"{where}: the result",
        run("systemctl", "show", "-p", "Result", "--value", "corral-grant@all").strip(),
        "signal",
    )
    expect(f"{where}: the unit", run("systemctl", "is-active", ALL, code=None).strip() in REFUSED, True)
    keep_theirs(was, where)
    in_sync()
    is_free(was, where)
    starts(was)


def killed_stop(at: int, was: t.Mapping[str, set[str]]) -> None:
    """The release after a stop dies before this act."""
    where = f"killed before act {at} of a release"
    write(KILL, json.dumps({"release": at}))
    run("systemctl", "stop", ALL)
    wait(f"{where}: it ended", lambda: run("systemctl", "is-active", "corral-grant@all", code=None).strip() in REFUSED)
    os.remove(KILL)
    expect(
        f"{where}: the result",
        run("systemctl", "show", "-p", "Result", "--value", "corral-grant@all").strip(),
        "signal",
    )
    keep_theirs(was, where)
    in_sync()
    is_free(was, where)


def starts(was: t.Mapping[str, set[str]]) -> None:
    """The unit starts with all that it requests, and the others keep what they have."""
    start("all")
    nic = next(iter(functions(NIC)))
    group = os.path.basename(os.readlink(f"/sys/bus/pci/devices/{nic}/iommu_group"))
    mine, errors, dummy, mask = opened("all")
    taken = {path for paths in was.values() for path in paths}
    expect("what it opens", (len(mine), f"/dev/vfio/{group}" in mine, mine & taken), (4, True, set()))
    expect("the errors of others", errors, {errno.EPERM})
    expect("its CPUs", (len(mask), set(mask) < {4, 5, 6, 7}), (2, True))
    expect("what Corral says that it has", set(ids("all")) - {nic}, mine - {f"/dev/vfio/{group}"})
    keep_theirs(was, "while it runs")
    in_sync()


def keep_theirs(was: t.Mapping[str, set[str]], where: str) -> None:
    for name, paths in was.items():
        expect(f"{where}: what {name} opens", opens_now(name), paths)


def is_free(was: t.Mapping[str, set[str]], where: str) -> None:
    """Nothing is left of a grant."""
    nic = next(iter(functions(NIC)))
    expect(f"{where}: grants", {"all", *was} & grants().keys(), set(was))
    expect(f"{where}: the driver of the card", driver_of(nic), ("vmxnet3", "(null)"))
    left = [
        path
        for path in (f"/run/corral/devices/{nic}.driver", "/run/corral/devices/all.service.env")
        if os.path.exists(path)
    ]
    expect(f"{where}: records", left, [])
    expect(f"{where}: its slice", os.path.exists(f"{CGROUP}/corral_all.slice"), False)
    keep_theirs(was, where)


STEPS = (one_node, vendors_spec, containerd, killed_grants)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--grant"]:
        sys.exit(grant(sys.argv[2:]))
    sys.exit(run_named(sys.argv[1:], STEPS, lambda: None))
