# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with Corral's agent and Podman: garbage collection with real images, containers and a small disk.

`collect.py before` makes images and uses some of them; after a reboot `collect.py after` fills the disk and looks at what
goes; names of steps instead of "after" take those alone. Passes are made with `corral gc`, except in
the_timer_collects and dropped_during_a_pass; the timer is too slow to come between. What is there is read from the
storage's own lists: under emulation each process of Podman takes a second.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import typing as t

from on_node import PATIENCE, expect, run, run_step, select_steps, wait

STORAGE = "/var/lib/containers/storage"
DISK = "/var/containers.ext4"
DISK_MIB = 120
FILL = f"{STORAGE}/fill"
STATUS = "/run/corral/gc.json"
RECORDS = "/var/lib/corral/gc.json"
PROFILE = "/etc/corral/profile.json"
MIB = 1 << 20


def podman(*words: str, code: t.Optional[int] = 0) -> str:
    return run("podman", *words, code=code).strip()


def read(path: str) -> t.Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def available() -> int:
    held = os.statvfs(STORAGE)
    return held.f_bavail * held.f_frsize


def used_percent() -> int:
    held = os.statvfs(STORAGE)
    return 100 - held.f_bavail * 100 // held.f_blocks


def images() -> set[str]:
    """Names of the images, without the registry that Podman gives local ones."""
    rows = read(f"{STORAGE}/overlay-images/images.json")
    return {name[len("localhost/") :] for row in rows for name in row.get("names") or [row["id"]]}


def containers() -> set[str]:
    return {row["names"][0] for row in read(f"{STORAGE}/overlay-containers/containers.json") or []}


def gc(*words: str, code: t.Optional[int] = None) -> dict[str, t.Any]:
    """One pass, and what it says."""
    return json.loads(run("corral", "gc", "--json", *words, code=code))


def collect() -> dict[str, t.Any]:
    """A pass that may remove something. It exits with 2 where something is left that had to go, else with 0."""
    done = subprocess.run(
        ["corral", "gc", "--json"], capture_output=True, text=True, check=False, timeout=600 * PATIENCE
    )
    result = json.loads(done.stdout)
    disks = result["images"]["file_systems"] if result["images"] else []
    left = [*disks, *filter(None, [result["containers"]])]
    left = [one for one in left if one.get("short") or one["refused"]] or result["dry"]
    expect("the exit code of a pass", done.returncode, 2 if left else 0)
    return t.cast("dict[str, t.Any]", result)


def removed(result: dict[str, t.Any]) -> list[str]:
    """The images of a pass, in the order in which they went, each by its first name."""
    rows = [one for held in result["images"]["file_systems"] for one in held["removed"]]
    return [min(one["names"]).rpartition("localhost/")[2] for one in rows]


def declare(**changes: t.Any) -> None:
    """Declare another profile, as somebody who edits the file would; the tick applies it."""
    profile = read(PROFILE)
    for section, values in changes.items():
        profile[section] = values
    with open(f"{PROFILE}.new", "w", encoding="utf-8") as file:
        json.dump(profile, file)
    os.rename(f"{PROFILE}.new", PROFILE)


def image_gc(**values: t.Any) -> dict[str, t.Any]:
    """The gc of a profile that looks at images and containers once a day."""
    return {
        "images": {"high": 75, "low": 65, "min_age": "0s", "interval": "1d", "keep": ["keep/*"], **values},
        "containers": {"interval": "1d"},
    }


# Images


class New(t.NamedTuple):
    """An image to be made: busybox and some MiB of random bytes, or ``parent``'s layers and one of these bytes."""

    mib: int
    names: tuple[str, ...]
    parent: str = ""


def make_images(*wanted: New) -> None:
    """Make images, with one process of Podman: it loads an archive of docker's kind."""
    files: dict[str, bytes] = {}
    layers: dict[str, list[str]] = {}
    rows = []
    for one in wanted:
        own = layer(one.mib, programs=not one.parent)
        layers[one.names[0]] = chain = [*layers.get(one.parent, []), name_of(own)]
        files[f"{chain[-1]}.tar"] = own
        config = json.dumps({
            "architecture": "amd64", "os": "linux", "config": {}, "created": "2026-01-01T00:00:00Z",
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{name}" for name in chain]},
            "history": [{"created": "2026-01-01T00:00:00Z", "created_by": name} for name in chain],
        }).encode()  # fmt: skip
        files[f"{name_of(config)}.json"] = config
        tags = [f"localhost/{name}" for name in one.names]
        rows.append(
            {"Config": f"{name_of(config)}.json", "RepoTags": tags, "Layers": [f"{name}.tar" for name in chain]}
        )
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as archive:
        archive.write(packed({**files, "manifest.json": json.dumps(rows).encode()}))
        archive.flush()
        podman("load", "--quiet", "--input", archive.name)


def make_image(name: str, mib: int) -> None:
    """Make one image of its own."""
    make_images(New(mib, (name,)))


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def layer(mib: int, *, programs: bool) -> bytes:
    """Some MiB of random bytes as a layer, with busybox or without."""
    found = {f"data-{os.urandom(4).hex()}": os.urandom(mib * MIB)}
    if not programs:
        return packed(found)
    with open("/bin/busybox", "rb") as file:
        return packed({**found, "bin/busybox": file.read()}, ("bin/sh", "bin/sleep", "bin/true"))


def packed(files: t.Mapping[str, bytes], links: t.Sequence[str] = ()) -> bytes:
    """Files, and links to busybox, as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        for name in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return out.getvalue()


def small_disk() -> None:
    """Podman's storage on a file system of its own."""
    with open(DISK, "wb") as file:
        file.truncate(DISK_MIB * MIB)
    run("mkfs.ext4", "-q", "-m", "0", DISK)
    os.makedirs(STORAGE, exist_ok=True)
    with open("/etc/fstab", "a", encoding="utf-8") as file:
        file.write(f"{DISK} {STORAGE} ext4 loop 0 0\n")
    run("mount", STORAGE)


def before() -> None:
    """Images, of which some are used, some kept and two share what they have; a first pass sees them."""
    small_disk()
    make_images(
        New(6, ("never:1", "never:again")),
        *(New(6, (name,)) for name in ("early:1", "late:1", "keep/tools:1")),
        New(1, ("busy:1",)),
    )
    podman("run", "--detach", "--network=none", "--name=busy", "localhost/busy:1", "/bin/sleep", "1000000")
    result = gc(code=0)
    expect("what goes from an empty disk", (removed(result), result["containers"]["removed"]), ([], []))
    podman("run", "--network=none", "--name=use-early", "localhost/early:1", "/bin/true")
    gc(code=0)
    podman("rm", "use-early")
    time.sleep(1.1)
    podman("run", "--rm", "--network=none", "localhost/late:1", "/bin/true")  # Only Podman's events tell of it.
    run("journalctl", "--sync")
    gc(code=0)
    uses = read(RECORDS)["data"]["images"]["root"]
    expect("images that were seen in use", sorted(last is not None for first, last in uses.values()), [False, False, True, True, True])  # fmt: skip
    print(f"storage of {DISK_MIB} MiB is {used_percent()} % full")


# After the reboot


def fill(percent: int) -> None:
    """Fill the storage's file system to a little more than so many percent."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(FILL)
    held = os.statvfs(STORAGE)
    size = held.f_blocks * held.f_frsize
    want = available() - size * (100 - percent) // 100 + size // 200
    run("fallocate", "-l", str(want), FILL)
    os.sync()  # What was written before is not to change how full the disk is later on.


def about(what: str, got: int, wanted: int, most: int) -> None:
    """Bytes are as wanted, but for what Podman itself has written meanwhile."""
    if abs(got - wanted) > most:
        raise AssertionError(f"{what}: got {got}, wanted {wanted}")


def exactly_the_right_images_go() -> None:
    """Least recently used first, as it was known before the reboot; no more than needed; kept and used ones stay."""
    uses = read(RECORDS)["data"]["images"]["root"]
    expect("records after the reboot", len(uses), 5)
    fill(77)
    full = used_percent()
    dry = gc("--dry-run", code=2)
    everything, space = images(), available()
    real = collect()
    gained = available() - space
    expect("what a dry run names", removed(dry), removed(real))
    # From 77 % to 65 % of about 110 MiB it is more than one image of 8 MiB, and less than two.
    expect("the images that went, in order", removed(real), ["never:1", "early:1"])
    (held,) = real["images"]["file_systems"]
    expect("all names of those that went", everything - images(), {"never:1", "never:again", "early:1"})
    about("freed, as the file system says", real["images"]["freed"], gained, MIB // 4)
    print(f"{full} % -> {used_percent()} %, {removed(real)} went, {gained / MIB:.1f} MiB gained, "
          f"{dry['images']['freed'] / MIB:.1f} MiB foretold")  # fmt: skip
    if abs(dry["images"]["freed"] - gained) > MIB:
        raise AssertionError(f"foretold {dry['images']['freed']}, gained {gained}")
    if {"keep/tools:1", "busy:1"} - images():
        raise AssertionError("a kept or used image went")
    wanted = held["capacity"] * (100 - 65) // 100
    last = held["removed"][-1]["bytes"]
    if held["available"] < wanted and not held["why"]:
        raise AssertionError("it stopped early without a reason")
    if held["available"] - last >= wanted:
        raise AssertionError(f"more than needed by one image: {held}")


def shared_layers_count_once() -> None:
    """Of an image and one made from it, the first to go gains nothing: what both have goes with the second."""
    os.remove(FILL)
    make_images(New(7, ("parent:1",)), New(1, ("child:1",), parent="parent:1"))
    gc()
    fill(79)
    dry, space = gc("--dry-run", code=2), available()
    real = collect()
    both = {"parent:1", "child:1"} & set(removed(real))
    expect("both go, whichever is first", both, {"parent:1", "child:1"})
    sizes = {one["names"][0].rpartition("/")[2]: one["bytes"] for held in real["images"]["file_systems"] for one in held["removed"]}  # fmt: skip
    about("freed, as the file system says", real["images"]["freed"], available() - space, MIB // 4)
    together = sizes["parent:1"] + sizes["child:1"]
    if not 8 * MIB < together < 11 * MIB or abs(dry["images"]["freed"] - real["images"]["freed"]) > MIB:
        raise AssertionError(f"parent and child gained {sizes}, a dry run said {dry['images']}")
    print(f"parent gained {sizes['parent:1'] / MIB:.1f} MiB, child {sizes['child:1'] / MIB:.1f} MiB")


def what_is_short_is_drift() -> None:
    """A pass that frees less than asked says why, and so does the tick."""
    fill(90)
    result = gc(code=None)
    (held,) = result["images"]["file_systems"]
    if not held["short"] or "in use" not in held["why"] or "kept" not in held["why"]:
        raise AssertionError(f"not short, or no reason: {held}")
    expect("images that are left", images(), {"keep/tools:1", "busy:1"})
    said = run("corral", "drift", code=2)
    if "disk use" not in said or held["why"] not in said:
        raise AssertionError(f"drift says {said}")
    os.remove(FILL)
    gc(code=0)
    run("corral", "drift", code=0)


def young_ones_stay() -> None:
    """An image that was first seen a moment ago outlives a full disk."""
    declare(gc=image_gc(min_age="1h"))
    make_image("young:1", 4)
    fill(85)
    expect("what goes", removed(gc(code=None)), [])
    declare(gc=image_gc())
    expect("what goes without an age", removed(gc(code=None)), ["young:1"])
    os.remove(FILL)


def killed_in_the_middle() -> None:
    """A pass that is killed after its first removal: the next one ends what it began, and nothing else goes.

    Podman itself is let alone: what it is killed in the middle of is for Podman to mend.
    """
    doomed = {f"doomed:{number}" for number in range(8)}
    make_images(*(New(1, (name,)) for name in sorted(doomed)))
    gc()
    fill(95)
    # Podman keeps a folder for each image, and a look at those does not cost seconds, in which all of them could go.
    folders = f"{STORAGE}/overlay-images"
    count = sum(os.path.isdir(f"{folders}/{name}") for name in os.listdir(folders))
    one = subprocess.Popen(["corral", "gc"], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120 * PATIENCE
    while sum(os.path.isdir(f"{folders}/{name}") for name in os.listdir(folders)) == count and one.poll() is None:
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    one.kill()
    one.wait()
    wait("the Podman that answered it ends by itself", lambda: not answering())
    left = doomed & images()
    print(f"killed with {len(left)} of {len(doomed)} left")
    if not 0 < len(left) < len(doomed):
        raise AssertionError(f"not killed in the middle: {left}")
    gc()
    expect("after the next pass", images(), {"keep/tools:1", "busy:1"})
    read(RECORDS)
    os.remove(FILL)


def answering() -> list[str]:
    """The processes of Podman that answer requests; none outlives a pass."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            if "\0".join(("podman", "system", "service")) in file.read():
                found.append(pid)
    return found


def audit_removes_nothing() -> None:
    """In mode audit a pass says what it would do, and the tick shows it."""
    make_image("doomed:1", 5)
    gc()
    fill(85)
    declare(mode="audit")
    result = collect()
    expect("what would go", (removed(result), result["dry"]), (["doomed:1"], "mode audit"))
    if "doomed:1" not in images() or "would free" not in run("corral", "drift", code=2):
        raise AssertionError("it went, or nobody says that it would")
    declare(mode="enforce")
    expect("what goes then", removed(gc(code=None)), ["doomed:1"])
    os.remove(FILL)


# Containers


def dead(name: str, *words: str) -> None:
    podman("run", "--network=none", f"--name={name}", *words, "localhost/busy:1", "/bin/true")


def dead_containers_go_as_declared() -> None:
    """The oldest of a workload go, pods as units; what runs, what is kept and what is nobody's stays."""
    declare(workloads=[
        {"name": "batch", "match": {"container": "batch-*"}},
        {"name": "web", "match": {"pod": "web-*"}},
        {"name": "tagged", "match": {"label": "app=tagged"}},
    ])  # fmt: skip
    for name in ("batch-1", "batch-2", "mine"):
        dead(name)
    dead("other-1", "--label=app=tagged")
    dead("other-2", "--label=app=tagged", "--label=keep=yes")
    dead("other-3", "--label=app=tagged")
    podman("run", "--detach", "--network=none", "--name=batch-run", "localhost/busy:1", "/bin/sleep", "1000000")
    for pod in ("web-1", "web-2"):
        podman("pod", "create", "--infra=false", f"--name={pod}")
        for name in ("a", "b") if pod == "web-1" else ("a",):
            podman("run", f"--pod={pod}", "--network=none", f"--name={pod}-{name}", "localhost/busy:1", "/bin/true")
    policy = image_gc()
    policy["containers"] = {"interval": "1d", "keep_labels": ["keep=yes"]}
    declare(gc=policy)
    dry = gc("--dry-run", code=2)
    everything = containers()
    real = collect()
    names = [one["names"][0] for one in real["containers"]["removed"]]
    expect("dry run and pass", [one["names"][0] for one in dry["containers"]["removed"]], names)
    expect("what went", set(names), {"container batch-1", "container other-1", "pod web-1"})
    expect("of the containers", everything - containers(), {"batch-1", "other-1", "web-1-a", "web-1-b"})
    podman("pod", "exists", "web-2")
    expect("a second pass", gc(code=0)["containers"]["removed"], [])


def a_workload_that_left() -> None:
    """Its dead containers all go, once the profile is right; those that run do not."""
    with open(PROFILE, encoding="utf-8") as file:
        text = file.read()
    with open(PROFILE, "w", encoding="utf-8") as file:
        file.write(text[: len(text) // 2])
    run("systemctl", "start", "corral-gc.service", code=None)
    held = containers()
    run("corral", "gc", code=1)
    expect("with half a profile", containers(), held)
    with open(PROFILE, "w", encoding="utf-8") as file:
        file.write(text)
    declare(workloads=[])
    went = {one["names"][0] for one in collect()["containers"]["removed"]}
    expect("once it left", went, {"container batch-2", "container other-3", "pod web-2"})
    if {"batch-run", "mine", "other-2"} - containers():
        raise AssertionError(f"too much went: {containers()}")
    podman("rm", "--force", "--time=0", "batch-run")
    podman("rm", "mine", "other-2")


def anonymous_volumes_only_when_asked() -> None:
    """A dead container's anonymous volume goes where the profile says so."""
    for volumes, left in ((False, 1), (True, 0)):
        declare(workloads=[{"name": "vol", "match": {"container": "vol-*"}}],
                gc={"containers": {"interval": "1d", "max_per_workload": 0, "volumes": volumes}})  # fmt: skip
        dead("vol-1", "--volume=/scratch")
        collect()
        expect(f"volumes with {volumes}", len(podman("volume", "ls", "--quiet").split()), left)
        podman("volume", "prune", "--force")
    declare(workloads=[], gc=image_gc())


# Users, trouble


def a_user_of_its_own() -> None:
    """Storage of a user without a session is looked after as well, and no Podman of that user's is left."""
    run("useradd", "--create-home", "alice")
    uid = run("id", "-u", "alice").strip()
    run("loginctl", "enable-linger", "alice")
    as_alice = ["runuser", "-u", "alice", "--", "env", "-C", "/", "HOME=/home/alice", f"XDG_RUNTIME_DIR=/run/user/{uid}", "podman"]  # fmt: skip
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        podman("save", "--quiet", "--output", f"{folder}/busy.tar", "localhost/busy:1")
        os.chmod(f"{folder}/busy.tar", 0o644)
        run(*as_alice, "load", "--quiet", "--input", f"{folder}/busy.tar")
    for name in ("job-1", "job-2"):
        run(*as_alice, "run", "--network=none", f"--name={name}", "localhost/busy:1", "/bin/true")
    policy = image_gc()
    declare(gc={**policy, "users": ["alice"]}, workloads=[{"name": "job", "match": {"container": "job-*"}}])
    result = collect()
    went = [(one["user"], one["names"][0]) for one in result["containers"]["removed"]]
    expect("what went", went, [("alice", "container job-1")])
    users = sorted(user for held in result["images"]["file_systems"] for user in held["users"])
    expect("whose images were looked at", users, ["alice", "root"])
    expect("Podmans that answer after the pass", answering(), [])
    declare(gc=policy, workloads=[])
    gc()


def podman_is_in_trouble() -> None:
    """No Podman, or a storage that is broken: a verdict, and nothing goes."""
    os.rename("/usr/bin/podman", "/usr/bin/podman.away")
    try:
        said = gc(code=1)
        run("corral", "drift", code=2)
    finally:
        os.rename("/usr/bin/podman.away", "/usr/bin/podman")
    if "not installed" not in said["images"]["errors"][0]:
        raise AssertionError(f"without podman: {said}")
    path = f"{STORAGE}/overlay-images/images.json"
    with open(path, "rb") as file:
        whole = file.read()
    fill(85)
    try:
        with open(path, "wb") as file:
            file.write(whole[: len(whole) // 2])
        said = gc(code=1)
    finally:
        with open(path, "wb") as file:
            file.write(whole)
    expect("what went from a broken storage", (removed(said), len(said["images"]["errors"])), ([], 1))
    print(f"  a broken storage: {said['images']['errors'][0][:200]}")
    os.remove(FILL)
    gc(code=0)


def the_timer_collects() -> None:
    """The timer's own pass does what is due, at the lowest priority, and the tick reads its result."""
    make_image("last:1", 5)
    gc()
    fill(85)
    policy = image_gc(interval="10s")
    policy["containers"]["interval"] = "10s"
    declare(gc=policy)
    run("systemctl", "start", "corral-reconcile.service", code=None)
    wait("the timer's pass removes it", lambda: "last:1" not in images(), 180, pause=1)
    expect("after the timer's pass", images(), {"keep/tools:1", "busy:1"})
    shown = run("systemctl", "show", "corral-gc.service", "--property=CPUSchedulingPolicy,IOSchedulingClass")
    expect("its priority", sorted(shown.split()), ["CPUSchedulingPolicy=5", "IOSchedulingClass=3"])
    # The pass logs what it has removed when it ends.
    wait("the journal says so", lambda: "removed localhost/last:1" in journal_of_passes(), pause=1)
    os.remove(FILL)


def journal_of_passes() -> str:
    return run("journalctl", "--unit=corral-gc.service", "--boot", "--quiet", "--output=cat", "--no-pager")


def dropped_during_a_pass() -> None:
    """A pass is stopped between two commands, gc leaves the profile, the pass goes on: nothing of it comes back."""
    make_image("in-flight:1", 2)
    declare(gc=image_gc(interval="10s"))
    run("corral", "reconcile", code=None)
    pid = stopped_pass()
    try:
        with open(PROFILE, encoding="utf-8") as file:
            profile = json.load(file)
        del profile["gc"]
        with open(f"{PROFILE}.new", "w", encoding="utf-8") as file:
            json.dump(profile, file)
        os.rename(f"{PROFILE}.new", PROFILE)
        said = run("corral", "reconcile", code=None)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait("the pass ends", lambda: not os.path.exists(f"/proc/{pid}"))
    files = ("/run/corral/gc.json", "/run/corral/gc-drift.json", RECORDS, f"{RECORDS}.previous")
    expect(f"left by a pass that ended later ({said})", [path for path in files if os.path.exists(path)], [])
    expect("removed after gc had left", "in-flight:1" in images(), True)
    run("corral", "drift", code=0)
    declare(gc=image_gc())
    run("corral", "reconcile", code=None)
    gc()
    run("corral", "drift", code=0)


def stopped_pass() -> int:
    """A pass of the timer's unit, stopped while it waits for Podman; its process id."""
    deadline = time.monotonic() + 120 * PATIENCE
    while time.monotonic() < deadline:
        run("systemctl", "start", "--no-block", "corral-gc.service")
        pid = "0"
        while pid == "0" and time.monotonic() < deadline:
            pid = run("systemctl", "show", "--property=MainPID", "--value", "corral-gc.service").strip()
        while os.path.exists(f"/proc/{pid}"):
            if asks_podman(pid):
                os.kill(int(pid), signal.SIGSTOP)
                return int(pid)
            time.sleep(0.01)
        time.sleep(1)  # Nothing was due.
    raise AssertionError("no pass of the timer's unit asked Podman")


def asks_podman(pid: str) -> bool:
    """Whether a process has a child that is Podman."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/comm", encoding="ascii") as file:
                if file.read().strip() == "podman":
                    return True
    return False


AFTER = (
    exactly_the_right_images_go,
    shared_layers_count_once,
    what_is_short_is_drift,
    young_ones_stay,
    killed_in_the_middle,
    audit_removes_nothing,
    dead_containers_go_as_declared,
    a_workload_that_left,
    anonymous_volumes_only_when_asked,
    a_user_of_its_own,
    podman_is_in_trouble,
    the_timer_collects,
    dropped_during_a_pass,
)


def main(names: t.Sequence[str]) -> int:
    if not names:
        raise SystemExit("which steps? before, after, or names of those after the reboot")
    # What comes later stands on what came before: the first failure ends it.
    steps = (before,) if list(names) == ["before"] else select_steps(AFTER, [] if list(names) == ["after"] else names)
    return 0 if all(run_step(step) for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
