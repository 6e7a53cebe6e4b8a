# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node whose profile gives a, b and instances of batch@ CPUs of their own: who else gets onto those?

Each step does what a user does to a node, and looks at the masks of threads, at once and again after a tick, at the
kernel's files, and at what ``corral drift`` names. With names of steps as arguments it takes those alone; the first that
fails ends it. Some depend on those before them: leaves, stopped_slice, instances, file_removed, in_audit and run_goes_on go in this
order. "prepare" makes the units.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import typing as t

from on_node import (
    PATIENCE,
    expect,
    in_sync,
    read,
    run,
    run_steps,
    select_steps,
    systemd_version,
    tick,
    wait,
    write,
)
from workloads import CGROUP, ETC, SHARED, SPIN, SPIN_TEXT, cpus, grants, image, journal_of, main_pid, sets

PROFILE = "/etc/corral/profile.json"
PIDS = "/root/pids.json"
OWN_FILE = f"{ETC}/corral.slice.d/10-corral-cpu.conf"
REMARK = "# somebody wrote this"
EARLY = ("a.service", "batch@early.service")  # run before the profile comes
RESERVED = frozenset({0, 1})
UNITS = {
    "a.service": "[Service]\nExecStart=/usr/local/bin/spin a\n",
    "b.service": "[Service]\nExecStart=/usr/local/bin/spin b\n",
    "batch@.service": "[Service]\nExecStart=/usr/local/bin/spin batch-%i\n",
}
FALSE_NAMES = ("kubelet", "kubelet", "k3s-server", "conmon", "conmon", "kubelite")
FORGED = "\x1b[2J\n<0>f0rged"  # a process has at most 15 characters
NOBODY = 65534
BATCH = "batch@a\\x2db"
BATCH_SLICE = "corral_batch:batch\\x40a\\x2db.slice"
NIGHT_SLICE = "corral_night:batch\\x40a\\x2db.slice"


def prepare() -> None:
    """The units, before any profile."""
    write(SPIN, SPIN_TEXT)
    os.chmod(SPIN, 0o755)
    for unit, text in UNITS.items():
        write(f"{ETC}/{unit}", text)
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--quiet", *EARLY)
    run("systemctl", "start", *EARLY)
    write(PIDS, json.dumps({unit: main_pid(unit) for unit in EARLY}))


def ran_before() -> None:
    """What ran before the profile came runs on where it was, is named, and goes into its slice with a restart."""
    expect("their processes", {unit: main_pid(unit) for unit in EARLY}, json.loads(read(PIDS)))
    expect("what is named", named(), {"a.service", "batch@early.service"})
    for unit in EARLY:
        kept_out(f"system.slice/{unit}" if unit == "a.service" else f"system.slice/system-batch.slice/{unit}")
    text = read(PROFILE)
    for left in ("a", "batch"):
        leave(left)
    for again in (read(PROFILE), text):
        write(PROFILE, f"{again}\n")
        tick()
        expect("their processes after a tick", {unit: main_pid(unit) for unit in EARLY}, json.loads(read(PIDS)))
    run("systemctl", "disable", "--quiet", *EARLY)
    run("systemctl", "stop", "batch@early")


def masks(group: str) -> frozenset[int]:
    """All CPUs that threads in a control group and below it may run on."""
    found: frozenset[int] = frozenset()
    for folder, _folders, names in os.walk(f"{CGROUP}/{group}"):
        if "cgroup.threads" not in names:
            continue
        with contextlib.suppress(OSError):  # A group that is removed meanwhile has no threads.
            for thread in read(f"{folder}/cgroup.threads").split():
                with contextlib.suppress(ProcessLookupError):
                    found |= frozenset(os.sched_getaffinity(int(thread)))
    return found


def partition(unit: str) -> str:
    return read(f"{CGROUP}/{unit}/cpuset.cpus.partition")


def exclusive() -> frozenset[int]:
    """The CPUs of all slices with CPUs of their own, by the kernel's files."""
    names = [name for name in os.listdir(CGROUP) if name.startswith("corral_") and name.endswith(".slice")]
    return frozenset().union(*(sets(f"{CGROUP}/{name}") for name in names if partition(name) != "member"))


def kept_out(group: str) -> None:
    """Threads run in a control group, and on no exclusive CPU."""
    wait(f"a process runs in {group}", lambda: bool(masks(group)))
    held, own = masks(group), exclusive()
    if held & own or not own:
        raise AssertionError(f"{group} runs on {sorted(held)}, of which {sorted(held & own)} are exclusive")


def named() -> set[str]:
    """What ``corral drift`` names."""
    return set(found())


def found() -> dict[str, str]:
    """What ``corral drift`` names, and what it says of it."""
    changes = json.loads(run("corral", "drift", "--json", code=None))["changes"]
    return {item["subject"]: json.dumps(item) for item in changes}


def wait_for_end(*slices: str) -> None:
    """Slices end a moment after what was in them."""
    wait(f"{slices} are gone", lambda: not any(os.path.exists(f"{CGROUP}/{unit}") for unit in slices))


@contextlib.contextmanager
def profile() -> t.Iterator[dict[str, t.Any]]:
    """The node's declared profile, to be changed; the next tick applies it."""
    data = json.loads(read(PROFILE))
    yield data
    write(PROFILE, json.dumps(data, indent=2, sort_keys=True) + "\n")


def leave(name: str) -> None:
    """A workload leaves the profile."""
    with profile() as data:
        data["workloads"] = [one for one in data["workloads"] if one["name"] != name]


# Steps


def two_of_them() -> None:
    """a and b run on CPUs of their own, and the kernel keeps everybody else off them."""
    run("systemctl", "restart", "a", "b")
    in_sync()
    for unit in ("corral_a.slice", "corral_b.slice"):
        expect(unit, partition(unit), "root")
        expect(f"{unit}'s threads", masks(unit), sets(f"{CGROUP}/{unit}"))
    expect("their CPUs", sorted(sets(f"{CGROUP}/corral_a.slice") | sets(f"{CGROUP}/corral_b.slice")), [2, 3, 4, 5])
    expect("what is left", cpus(read(f"{CGROUP}/cpuset.cpus.effective")), frozenset({0, 1, 6, 7}))


def unmanaged_units() -> None:
    """Services in no slice, in unknown slices, control groups made by hand: none of them on exclusive CPUs."""
    units = {"-.slice": "rogue.service", "rogue.slice": "", "corral_rogue.slice": "", "corral-mine.slice": ""}
    for number, outer in enumerate(units):
        run("systemd-run", "--quiet", f"--unit=unmanaged{number}", f"--slice={outer}", "sleep", "100000")
    os.makedirs(f"{CGROUP}/by-hand", exist_ok=True)
    process = subprocess.Popen(["sleep", "100000"])
    write(f"{CGROUP}/by-hand/cgroup.procs", str(process.pid))
    groups = ["unmanaged0.service", "rogue.slice", "corral_rogue.slice", "corral.slice/corral-mine.slice", "by-hand"]
    for group in groups:
        kept_out(group)
    said = found()
    expect("not named", {"unmanaged0.service", "rogue.slice", "corral_rogue.slice", "by-hand"} - set(said), set())
    expect("its process is named", f"{process.pid} sleep" in said["by-hand"], True)
    expect("those of a slice of Corral's name as well", " sleep)" in said["corral_rogue.slice"], True)
    tick()
    for group in groups:
        kept_out(group)
    process.kill()
    process.wait()
    run("systemctl", "stop", *(f"unmanaged{number}" for number in range(len(units))))
    wait("by-hand can go", by_hand_is_gone)
    run("systemctl", "stop", "rogue.slice")
    in_sync()


def false_names() -> None:
    """A user's processes have the names of a kubelet, of k3s, of a monitor, and one of control characters: the plan is as before, and
    no line is forged.
    """
    questions = (("drift", "--json"), ("kubelet",))
    before = [run("corral", *words, code=None) for words in questions]
    for number, name in enumerate(FALSE_NAMES):
        call_process(f"false{number}", f"user-{NOBODY}.slice" if number % 2 else "system.slice", name)
    tick()
    expect("the plan and the kubelet", [run("corral", *words, code=None) for words in questions], before)
    call_process("forger", "-.slice", FORGED)
    tick()
    for words in (("status",), ("drift",), ("plan",), ("drift", "--json")):
        said = run("corral", *words, code=None)
        expect(f"corral {words[0]} names it", "f0rged" in said, True)
        expect("lines with control characters", [line for line in said.split("\n") if not line.isprintable()], [])
    entries = run("journalctl", "-b", "-u", "corral-reconcile.service", "-o", "json", "--no-pager").splitlines()
    rows = [row for row in map(json.loads, entries) if "f0rged" in str(row["MESSAGE"])]
    expect("the journal names it", bool(rows), True)
    expect(
        "its lines of highest priority, and those that are bytes",
        [row for row in rows if row["PRIORITY"] < "4" or not isinstance(row["MESSAGE"], str)],
        [],
    )
    run("systemctl", "stop", "forger", *(f"false{number}" for number in range(len(FALSE_NAMES))))
    in_sync()


def call_process(unit: str, slice_name: str, name: str) -> None:
    """A process of the user nobody that calls itself so, in a service of its own (prctl(2), PR_SET_NAME)."""
    script = f"import ctypes, time; ctypes.CDLL(None).prctl(15, {name.encode()!r}); time.sleep(100000)"
    words = ("-c", "ab" * 32, "-n", "held", "-p", "/etc/passwd")  # as conmon has them
    run(
        "systemd-run",
        "--quiet",
        f"--unit={unit}",
        f"--slice={slice_name}",
        "--uid=nobody",
        "python3",
        "-c",
        script,
        *words,
    )
    wait(f"{unit} has its name", lambda: read(f"/proc/{main_pid(f'{unit}.service')}/comm") == name.strip())


def by_hand_is_gone() -> bool:
    """Remove the control group, which is empty in a moment."""
    with contextlib.suppress(OSError):
        os.rmdir(f"{CGROUP}/by-hand")
    return not os.path.exists(f"{CGROUP}/by-hand")


def confined() -> None:
    """Told to, Corral gives the shared CPUs to what it does not know, and takes them back when it is told no longer."""
    run("systemd-run", "--quiet", "--unit=stray", "--slice=-.slice", "sleep", "100000")
    run("systemd-run", "--quiet", "--unit=roamer", "--slice=rogue.slice", "sleep", "100000")
    for unmanaged, wanted in (("confine", sets(SHARED)), ("report", cpus(read(f"{CGROUP}/cpuset.cpus.effective")))):
        with profile() as data:
            data["cpu"]["unmanaged"] = unmanaged
        tick()
        for group in ("stray.service", "rogue.slice"):
            expect(f"{group} with {unmanaged}", masks(group), wanted)
        expect("named", {"stray.service", "rogue.slice"} & named() == set(), unmanaged == "confine")
    run("systemctl", "stop", "stray", "roamer", "rogue.slice")
    in_sync()


def on_demand() -> None:
    """A slice that was stopped and starts with its first service, while workloads run: that service shares no exclusive CPU."""
    run("systemctl", "stop", "machine.slice")
    run("systemd-run", "--quiet", "--unit=late", "--slice=machine.slice", "sleep", "100000")
    kept_out("machine.slice")
    for unit in ("corral_a.slice", "corral_b.slice"):
        expect(unit, partition(unit), "root")
    in_sync()
    kept_out("machine.slice")
    run("systemctl", "stop", "late")


def in_audit() -> None:
    """The same beside batch on a node on which no tick changes anything: one in audit, and a paused one."""
    with profile() as data:
        data["mode"] = "audit"
    tick()
    first_of_machine_slice()
    with profile() as data:
        data["mode"] = "enforce"
    tick()
    run("corral", "pause", "--for", "1h")
    first_of_machine_slice()
    run("corral", "resume")
    tick()
    expect("the file is mended", REMARK in read(OWN_FILE), False)


def first_of_machine_slice() -> None:
    """batch starts while there is no machine.slice, then the first service of that: a and batch have their CPUs for themselves.

    No tick changes anything meanwhile: a file of Corral's stays as it is left here.
    """
    write(OWN_FILE, f"{read(OWN_FILE)}\n{REMARK}\n")
    run("systemctl", "stop", BATCH, "machine.slice")
    run("systemctl", "start", BATCH)
    run("systemd-run", "--quiet", "--unit=late", "--slice=machine.slice", "sleep", "100000")
    kept_out("machine.slice")
    tick()
    kept_out("machine.slice")
    for unit in ("corral_a.slice", BATCH_SLICE):
        expect(unit, (partition(unit), masks(unit)), ("root", sets(f"{CGROUP}/{unit}")))
    expect("the file is left alone", REMARK in read(OWN_FILE), True)
    run("systemctl", "stop", "late")


def confined_and_stopped() -> None:
    """A unit that was confined while batch did not run stops, and starts again on CPUs that batch has not got meanwhile.

    No tick takes back what was set of it: the node is paused.
    """
    run("systemctl", "stop", BATCH)
    wait_for_end(BATCH_SLICE)
    write(f"{ETC}/rover.service", "[Service]\nSlice=-.slice\nExecStart=/usr/local/bin/spin rover\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "rover")
    with profile() as data:
        data["cpu"]["unmanaged"] = "confine"
    tick()
    before = masks("rover.service")
    expect("rover is confined", before, sets(SHARED))
    run("corral", "pause", "--for", "1h")
    run("systemctl", "stop", "rover")
    run("systemctl", "start", BATCH)
    expect("batch has CPUs that rover had", bool(sets(f"{CGROUP}/{BATCH_SLICE}") & before), True)
    run("systemctl", "start", "rover")
    kept_out("rover.service")
    expect("batch", (partition(BATCH_SLICE), masks(BATCH_SLICE)), ("root", sets(f"{CGROUP}/{BATCH_SLICE}")))
    run("corral", "resume")
    with profile() as data:
        data["cpu"]["unmanaged"] = "report"
    tick()
    run("systemctl", "stop", "rover")
    os.remove(f"{ETC}/rover.service")
    run("systemctl", "daemon-reload")
    tick()
    expect("rover is named", "rover.service" in named(), False)


def leaves() -> None:
    """b leaves the profile while it runs: it shares CPUs from then on, and none of a workload with exclusive ones."""
    leave("b")
    for _turn in range(2):
        tick()
        expect("a", (partition("corral_a.slice"), sets(f"{CGROUP}/corral_a.slice")), ("root", frozenset({2, 3})))
        expect("b", (partition("corral_b.slice"), masks("corral_b.slice")), ("member", frozenset({4, 5, 6, 7})))
    expect("what is named", named(), {"corral_b.slice"})


def instances() -> None:
    """An instance with a dash is refused, one in its escaped form keeps what it has, beside a workload that left."""
    done = subprocess.run(
        ["systemctl", "start", "batch@var-lib"], capture_output=True, check=False, timeout=180 * PATIENCE
    )
    expect("batch@var-lib is refused", done.returncode, 1)
    # The journal has a line a moment after it was said.
    wait("and says why", lambda: "has a dash" in journal_of("corral-grant@*"))
    run("systemctl", "start", BATCH)
    for turn in range(2):
        if turn:
            tick()
        expect("batch", (partition(BATCH_SLICE), masks(BATCH_SLICE)), ("root", frozenset({4, 5})))
        expect("its memory", read(f"{CGROUP}/{BATCH_SLICE}/memory.max"), str(64 << 20))
        expect("b", masks("corral_b.slice"), frozenset({6, 7}))


def file_removed() -> None:
    """The drop-in that requires batch's grant is removed by hand while batch runs: it keeps what it has, and the file comes back."""
    file = f"{ETC}/batch@.service.d/10-corral-workloads.conf"
    text = read(file)
    holders = ("systemctl", "list-units", "--plain", "--no-legend", "corral-grant@*")
    expect("the unit that holds it is active", " active " in run(*holders), True)
    os.remove(file)
    run("systemctl", "daemon-reload")
    if systemd_version() >= 252:
        wait("systemd stops what nothing requires any more", lambda: " active " not in run(*holders))
    else:  # It stops no such unit after a daemon-reload.
        tick()
    expect_own_cpus(BATCH_SLICE, frozenset({4, 5}))
    expect("the file", read(file), text)
    expect("who holds CPUs", sum("batch" in name for name in grants()), 1)


def stopped_slice() -> None:
    """A slice that does not run, and would start with CPUs that it had: another run that gets them has them alone."""
    run("systemctl", "start", "batch@one")
    one, other = (f"corral_batch:batch\\x40{name}.slice" for name in ("one", "two"))
    own = masks(one)
    run("systemctl", "stop", "batch@one")
    file = f"/run/systemd/system.control/{one}.d/50-AllowedCPUs.conf"
    write(file, f"[Slice]\nAllowedCPUs=\nAllowedCPUs={','.join(map(str, sorted(own)))}\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "batch@two")
    expect("it has the CPUs that the first one had", masks(other), own)
    run("systemctl", "start", one)
    expect("alone", (partition(other), masks(other)), ("root", own))
    expect("what the slice has of these", sets(f"{CGROUP}/{one}") & own, frozenset())
    run("systemctl", "stop", one, "batch@two")
    tick()
    tick()
    expect("what was set live", os.path.exists(file), False)
    wait_for_end(one, other)


def early_container() -> None:
    """A container that is started in a slice before it was admitted runs with the others."""
    image()
    words = ("podman", "run", "-d", "--network=none", "--name", "early", "--cgroup-parent=corral_early.slice")
    run(*words, "busybox", "sleep", "1000")
    kept_out("corral_early.slice")
    tick()
    kept_out("corral_early.slice")
    run("podman", "stop", "-t", "0", "early")
    run("podman", "rm", "early")  # Podman 3 knows no -t of it.


def run_goes_on() -> None:
    """batch gets another name while it runs, then leaves the profile: it keeps what it holds until it stops, and not longer."""
    with profile() as data:
        next(one for one in data["workloads"] if one["name"] == "batch")["name"] = "night"
    expect_own_cpus(BATCH_SLICE, frozenset({4, 5}))
    run("systemctl", "restart", BATCH)
    expect("night", (partition(NIGHT_SLICE), masks(NIGHT_SLICE)), ("root", frozenset({4, 5})))
    expect("its grants", [name.partition(":")[0] for name in grants() if "batch" in name], ["night"])
    leave("night")
    expect_own_cpus(NIGHT_SLICE, frozenset({4, 5}))
    text = read(PROFILE)
    with profile() as data:
        del data["cpu"], data["workloads"]
    expect_own_cpus(NIGHT_SLICE, frozenset({4, 5}))
    expect("why the pools stay", "keeps its CPUs until it stops" in tick()["error"], True)
    write(PROFILE, f"{text}\n")
    run("systemctl", "stop", BATCH)
    wait("its grant is gone", lambda: not any("batch" in name for name in grants()))
    run("systemctl", "stop", "b")
    tick()
    wait_for_end(BATCH_SLICE, NIGHT_SLICE, "corral_b.slice")
    in_sync()


def expect_own_cpus(unit: str, cpus: frozenset[int]) -> None:
    """A slice keeps its CPUs over ticks."""
    for _turn in range(2 if os.environ.get("CORRAL_LONG") else 1):
        tick()
        expect(unit, (partition(unit), masks(unit)), ("root", cpus))


def kernel() -> int:
    """The first number of the kernel's version."""
    return int(os.uname().release.split(".")[0])


def rival() -> None:
    """A slice that asks for a's CPUs: the partition wins, or the slice is named and the partition mended once it is gone."""
    run("systemctl", "start", "rival.slice")
    run("systemctl", "set-property", "--runtime", "rival.slice", "AllowedCPUs=2-3")
    wins = kernel() >= 7 or kernel() < 6  # kernel 5.10 refuses the request
    expect("a", partition("corral_a.slice").startswith("root invalid"), not wins)
    tick()
    if not wins:
        expect("who is named", "rival.slice" in run("corral", "drift", code=2), True)
        expect(
            "and in the status", "but not corral_a.slice: rival.slice (2-3)" in run("corral", "status", code=2), True
        )
    run("systemctl", "stop", "rival.slice")
    tick()
    in_sync()
    expect("a", (partition("corral_a.slice"), masks("corral_a.slice")), ("root", frozenset({2, 3})))


def foreign_partition() -> None:
    """A slice that becomes a partition of a shared CPU. From kernel 7.0 on it takes the CPU from all pools, and is named."""
    run("systemctl", "start", "rival.slice")
    run("systemctl", "set-property", "--runtime", "rival.slice", "AllowedCPUs=4")
    wins = kernel() >= 7
    if kernel() < 6:  # It refuses what later ones take, and then call invalid.
        with contextlib.suppress(OSError):
            write(f"{CGROUP}/rival.slice/cpuset.cpus.partition", "root")
        expect("the slice", partition("rival.slice"), "member")
    else:
        write(f"{CGROUP}/rival.slice/cpuset.cpus.partition", "root")
        expect("the slice", partition("rival.slice").partition(" ")[2].startswith("invalid"), not wins)
    tick()
    tick()
    said = found().get("rival.slice", "")
    expect("it is named as a partition", "a partition of its own, so no pool has CPUs 4" in said, wins)
    expect("a", (partition("corral_a.slice"), masks("corral_a.slice")), ("root", frozenset({2, 3})))
    expect("the shared CPUs that are requested", 4 in cpus(read(f"{CGROUP}/corral.slice/cpuset.cpus")), not wins)
    # Its CPU is the first of those that are free. A grant gets others.
    run("corral", "admit", "guest", "--unit", "b.service", "--limits", "cpu=2,memory=64Mi")
    run("systemctl", "restart", "b")
    own = masks("corral_guest.slice")
    expect("guest", (partition("corral_guest.slice"), len(own), 4 in own), ("root", 2, False))
    run("systemctl", "stop", "b")
    run("corral", "release", "guest")
    run("systemctl", "stop", "rival.slice")
    tick()
    in_sync()


def foreign_setting() -> None:
    """A drop-in that has systemd (262 and later) end a's partition is named, and the partition is back without it."""
    folder = f"{ETC}/corral_a.slice.d"
    write(f"{folder}/90-foreign.conf", "[Slice]\nCPUSetPartition=member\n")
    run("systemctl", "daemon-reload")
    # Versions that know the property put it in force with the next property that is set.
    run("systemctl", "set-property", "--runtime", "corral_a.slice", "MemoryMax=64M")
    knows = int(run("systemctl", "--version").split()[1].partition("~")[0]) >= 262
    expect("a with CPUSetPartition=member", partition("corral_a.slice"), "member" if knows else "root")
    tick()
    expect("a after a tick", partition("corral_a.slice"), "root")
    expect("the file is named", f"{folder}/90-foreign.conf" in run("corral", "drift", code=2), True)
    os.remove(f"{folder}/90-foreign.conf")
    run("systemctl", "daemon-reload")
    run("systemctl", "set-property", "--runtime", "corral_a.slice", "MemoryMax=64M")
    tick()
    in_sync()
    run("systemctl", "daemon-reexec")
    expect("a after systemd has re-executed itself", partition("corral_a.slice"), "root")


STATE = "/var/lib/corral"
CHECKPOINT, ORIGINALS = f"{STATE}/checkpoint.json", f"{STATE}/journal/before.json"
# Corral's own files and how they are lost: some at once, with CORRAL_LONG each in each way by itself. The table is a fake node's as
# well (test_lost_files.py).
HOW = ("deleted", "emptied", "torn", "link loop", "FIFO", "folder")
LOST = (
    ((PROFILE, "deleted"),),
    ((PROFILE, "folder"),),
    (
        (CHECKPOINT, "torn"),
        (f"{STATE}/applied.json", "link loop"),
        (f"{STATE}/admitted.json", "emptied"),
        (ORIGINALS, "deleted"),
    ),
    ((CHECKPOINT, "older"), (f"{STATE}/journal/profiles.json", "FIFO")),
)
OTHERS = ("/etc/corral/agent.json", "/etc/corral/origins.json", f"{STATE}/program.json")
WORKLOADS = {"corral_a.slice": "a", "corral_guest.slice": "b"}


def damage(path: str, how: str, older: dict[str, str]) -> None:
    """Replace one of Corral's own files; an older one comes with its copy, as from a backup."""
    text = read(path)
    for one in (path, f"{path}.previous") if how == "older" else (path,):
        os.remove(one)
    if how == "folder":
        os.mkdir(path)
    elif how == "link loop":
        os.symlink(path, path)
    elif how == "FIFO":
        os.mkfifo(path)
    elif how == "older":
        for one in (path, f"{path}.previous"):
            write(one, older[path])
    elif how != "deleted":
        write(path, text[: len(text) // 2] if how == "torn" else "")


def lost_files() -> None:
    """Whichever of Corral's own files is lost, in whatever way: what runs keeps its CPUs, and a partition that ends is back."""
    older = {path: read(path) for path in (CHECKPOINT, *OTHERS) if os.path.exists(path)}
    run("corral", "admit", "guest", "--unit", "b.service", "--limits", "cpu=2,memory=64Mi")
    run("systemctl", "restart", *WORKLOADS.values())
    tick()
    own = {unit: masks(unit) for unit in WORKLOADS}
    expect("CPUs of both", (sorted(map(len, own.values())), len(frozenset.union(*own.values()))), ([2, 2], 4))
    files = [*dict(sum(LOST, ())), *filter(os.path.exists, OTHERS)] if os.environ.get("CORRAL_LONG") else []
    for lost in (*LOST, *(((path, how),) for path in files for how in HOW)):
        lose(dict(lost), older, own)
    run("systemctl", "stop", "b")
    run("corral", "release", "guest")
    in_sync()


def lose(lost: dict[str, str], older: dict[str, str], own: dict[str, frozenset[int]]) -> None:
    """Damage files; then a tick, a start, and what mends them. A partition was ended meanwhile."""
    here = f"with {lost}"
    for path, how in lost.items():
        damage(path, how, older)
    write(f"{CGROUP}/corral_a.slice/cpuset.cpus.partition", "member")
    run("systemctl", "start", "corral-reconcile.service", code=None)
    kept(here, own)
    expect(f"a's partition {here}", partition("corral_a.slice"), "root")
    if PROFILE in lost:
        expect(f"the item {here}", PROFILE in run("corral", "drift", code=2), True)
    run("systemctl", "restart", "b")
    kept(f"{here}, after a start", own)
    if PROFILE in lost:
        run("corral", "reconcile", code=None)
    for path in set(OTHERS).intersection(lost):
        restore(path, older[path])
    tick()
    kept(f"{here}, after it was mended", own)
    expect(f"a's partition after it, {here}", partition("corral_a.slice"), "root")
    expect(f"both copies of the originals {here}", read(ORIGINALS), read(f"{ORIGINALS}.previous"))


def restore(path: str, text: str) -> None:
    """What an installation or a rollout writes again."""
    if os.path.isdir(path):
        os.rmdir(path)
    elif os.path.lexists(path):
        os.remove(path)
    write(path, text)


def kept(here: str, own: dict[str, frozenset[int]]) -> None:
    """The threads of workloads run where they ran, and those of the rest of the node elsewhere, where the partitions are in force."""
    for unit, cpus_before in own.items():
        expect(f"{unit} {here}", (masks(unit), sets(f"{CGROUP}/{unit}")), (cpus_before, cpus_before))
    if all(partition(unit) == "root" for unit in own):
        expect(
            f"CPUs of the rest {here}",
            cpus(read(f"{CGROUP}/cpuset.cpus.effective")) & frozenset.union(*own.values()),
            frozenset(),
        )


STEPS = (
    ran_before,
    two_of_them,
    unmanaged_units,
    false_names,
    confined,
    on_demand,
    leaves,
    stopped_slice,
    instances,
    file_removed,
    in_audit,
    confined_and_stopped,
    early_container,
    run_goes_on,
)
# The watcher does not run meanwhile: in each of them a partition ends.
UNWATCHED = (lost_files, rival, foreign_partition, foreign_setting)


def main(names: list[str]) -> int:
    if names == ["prepare"]:
        prepare()
        return 0
    steps = UNWATCHED if names == ["unwatched"] else select_steps((*STEPS, *UNWATCHED), names) if names else STEPS
    return run_steps(steps)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
