# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs on a node with Corral's agent and Podman: garbage collection with real images, containers and a small disk.

`collect.py before` makes images and uses some of them; after a reboot `collect.py after` fills the disk and looks at what
goes; names of steps instead of "after" take those alone. Passes are made with `corral gc`, except in
the_timer_collects and dropped_during_a_pass; the timer is too slow to come between, and no tick comes at all but those
that a step makes. What is there is read from the storage's own lists, and containers are made through one process that
answers requests: under emulation each process of Podman takes a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import http.client
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import typing as t

from on_node import PATIENCE, expect, exposed, run, run_step, run_steps, select_steps, wait

STORAGE = "/var/lib/containers/storage"
DISK = "/var/containers.ext4"
DISK_MIB = 120
FILL = f"{STORAGE}/fill"
STATUS = "/run/corral/gc.json"
RECORDS = "/var/lib/corral/gc.json"
DRIFT = "/run/corral/gc-drift.json"
IDLE = "/run/corral/gc-idle.json"
PROFILE = "/etc/corral/profile.json"
PODMAN, AWAY = "/usr/bin/podman", "/usr/bin/podman.away"
SOCKET = "/run/lab-podman.sock"
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
    """Declare another profile, as an editor of the file would; None: without that section."""
    profile = {**read(PROFILE), **changes}
    profile = {section: values for section, values in profile.items() if values is not None}
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
    with answering_podman() as made:
        made.run(Container("busy", runs=True), Container("use-early", image="early:1"))
        result = gc(code=0)
        expect("what goes from an empty disk", (removed(result), result["containers"]["removed"]), ([], []))
        made.remove("use-early")
        time.sleep(1.1)  # Podman tells seconds.
        made.run(Container("use-late", image="late:1"))
        made.remove("use-late")  # Only Podman's events tell of it.
    run("journalctl", "--sync")
    gc(code=0)
    uses = read(RECORDS)["data"]["images"]["root"]
    expect("images that were seen in use", sorted(last is not None for first, last in uses.values()), [False, False, True, True, True])  # fmt: skip
    print(f"storage of {DISK_MIB} MiB is {used_percent()} % full")


# Containers


class Container(t.NamedTuple):
    """A container to be made, which ends at once or runs on."""

    name: str
    image: str = "busy:1"
    pod: str = ""
    labels: tuple[str, ...] = ()
    runs: bool = False


class Made(http.client.HTTPConnection):
    """Requests to a process of Podman."""

    def __init__(self) -> None:
        super().__init__("podman", timeout=120 * PATIENCE)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(SOCKET)

    def reached(self) -> bool:
        with contextlib.suppress(OSError):
            self.connect()
            return True
        return False

    def ask(self, method: str, path: str, body: t.Optional[dict[str, t.Any]] = None) -> None:
        text = json.dumps(body or {})
        self.request(method, f"/v4.0.0/libpod{path}", text, {"Content-Type": "application/json"})
        answer = self.getresponse()
        said = answer.read().decode()
        if answer.status >= 300:
            raise AssertionError(f"{method} {path} {text}: {answer.status} {said}")

    def pods(self, *names: str) -> None:
        for name in names:
            self.ask("POST", "/pods/create", {"name": name, "no_infra": True})

    def run(self, *wanted: Container) -> None:
        """Make containers and start them, one after the other: what Podman does at each one's end costs thrice at once."""
        for one in wanted:
            body = {"name": one.name, "image": f"localhost/{one.image}", "netns": {"nsmode": "none"}}
            body["command"] = ["/bin/sleep", "1000000"] if one.runs else ["/bin/true"]
            body["labels"] = dict(label.split("=") for label in one.labels)
            self.ask("POST", "/containers/create", {**body, **({"pod": one.pod} if one.pod else {})})
            self.ask("POST", f"/containers/{one.name}/start")
            if not one.runs:
                self.ask("POST", f"/containers/{one.name}/wait?condition=exited")

    def remove(self, *names: str) -> None:
        for name in names:
            self.ask("DELETE", f"/containers/{name}?force=true&timeout=0")


@contextlib.contextmanager
def answering_podman() -> t.Iterator[Made]:
    """A process of Podman that answers: a container through it costs two thirds of ``podman run``, its removal a tenth."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(SOCKET)
    with subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{SOCKET}"]) as process:
        try:
            made = Made()
            wait("Podman answers", made.reached)
            yield made
        finally:
            process.terminate()


# After the reboot


def fill(percent: int) -> None:
    """Fill the storage's file system to a little more than so many percent."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(FILL)
    held = os.statvfs(STORAGE)
    size = held.f_blocks * held.f_frsize
    want = available() - size * (100 - percent) // 100 + size // 200
    with open(FILL, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, want)
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
    everything, space = images(), available()
    real = collect()
    gained = available() - space
    # From 77 % to 65 % of about 110 MiB it is more than one image of 8 MiB, and less than two.
    expect("the images that went, in order", removed(real), ["never:1", "early:1"])
    (held,) = real["images"]["file_systems"]
    expect("all names of those that went", everything - images(), {"never:1", "never:again", "early:1"})
    about("freed, as the file system says", real["images"]["freed"], gained, MIB // 4)
    print(f"{full} % -> {used_percent()} %, {removed(real)} went, {gained / MIB:.1f} MiB gained")
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
    fill(79)
    dry, space = gc("--dry-run", code=2), available()
    real = collect()
    expect("what a dry run names", removed(dry), removed(real))
    both = {"parent:1", "child:1"} & set(removed(real))
    expect("both go, whichever is first", both, {"parent:1", "child:1"})
    sizes = {one["names"][0].rpartition("/")[2]: one["bytes"] for held in real["images"]["file_systems"] for one in held["removed"]}  # fmt: skip
    about("freed, as the file system says", real["images"]["freed"], available() - space, MIB // 4)
    about("freed, as a dry run foretold it", real["images"]["freed"], dry["images"]["freed"], MIB)
    together = sizes["parent:1"] + sizes["child:1"]
    if not 8 * MIB < together < 11 * MIB:
        raise AssertionError(f"parent and child gained {sizes}")
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
    """An image that was first seen a moment ago outlives a full disk. In mode audit a pass says what would go, and so does drift."""
    make_image("young:1", 5)
    fill(85)
    declare(gc=image_gc(min_age="1h"))
    expect("what goes", removed(gc(code=None)), [])
    declare(gc=image_gc(), mode="audit")
    result = collect()
    expect("what would go without an age", (removed(result), result["dry"]), (["young:1"], "mode audit"))
    if "young:1" not in images() or "would free" not in run("corral", "drift", code=2):
        raise AssertionError("it was removed, or corral drift does not say that it would be")
    declare(mode="enforce")
    expect("what goes then", removed(gc(code=None)), ["young:1"])
    os.remove(FILL)


def killed_in_the_middle() -> None:
    """A pass that is killed after its first removal: the next one ends what it began, and nothing else goes.

    Podman itself is let alone: what it is killed in the middle of is for Podman to mend.
    """
    doomed = {f"doomed:{number}" for number in range(5)}
    make_images(*(New(1, (name,)) for name in sorted(doomed)))
    fill(95)
    # Podman keeps a folder for each image, and the links of the one around them tell how many there are. A look at that
    # does not cost seconds, in which all of them could go.
    folders = f"{STORAGE}/overlay-images"
    count = os.stat(folders).st_nlink
    expect("folders that are counted", count, 2 + sum(one.is_dir() for one in os.scandir(folders)))
    one = subprocess.Popen(["corral", "gc"], stdout=subprocess.DEVNULL)
    wait("it removes one", lambda: os.stat(folders).st_nlink < count or one.poll() is not None, 120, pause=0.01)
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


# Dead containers


def dead_containers_go_as_declared() -> None:
    """The oldest of a workload go, pods as units; what runs, what is kept and what belongs to no workload stays."""
    declare(workloads=[
        {"name": "batch", "match": {"container": "batch-*"}},
        {"name": "web", "match": {"pod": "web-*"}},
        {"name": "tagged", "match": {"label": "app=tagged"}},
    ])  # fmt: skip
    tagged = "app=tagged"
    with answering_podman() as made:
        made.pods("web-1")
        made.run(
            Container("mine"), Container("batch-1"), Container("batch-run", runs=True),
            Container("other-1", labels=(tagged,)), Container("other-2", labels=(tagged, "keep=yes")),
            Container("web-1-a", pod="web-1"), Container("web-1-b", pod="web-1"),
        )  # fmt: skip
        time.sleep(1.1)  # Podman tells seconds, by which these are the newer ones.
        made.pods("web-2")
        made.run(Container("batch-2"), Container("other-3", labels=(tagged,)), Container("web-2-a", pod="web-2"))
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
    expect("a second pass", gc("--dry-run", code=0)["containers"]["removed"], [])


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
    with answering_podman() as made:
        made.remove("batch-run", "mine", "other-2")


def anonymous_volumes_only_when_asked() -> None:
    """A dead container's anonymous volume goes where the profile says so."""
    for volumes in (False, True):
        declare(workloads=[{"name": "vol", "match": {"container": "vol-*"}}],
                gc={"containers": {"interval": "1d", "max_per_workload": 0, "volumes": volumes}})  # fmt: skip
        podman("run", "--network=none", "--name=vol-1", "--volume=/scratch", "localhost/busy:1", "/bin/true")
        went = [one["names"][0] for one in collect()["containers"]["removed"]]  # and those of workloads that left
        expect(f"whether the container went ({went})", "container vol-1" in went, True)
        # The one that was left the first time.
        expect(f"volumes with {volumes}", len(podman("volume", "ls", "--quiet").split()), 1)
    declare(workloads=[], gc=image_gc())


# Nothing to do

# Each writes to other files of the storage: the list of images; the database alone; the lists of containers and layers.
TRACES = (
    ("tag", "localhost/busy:1", "localhost/other:1"),
    ("start", "idle-1"),
    ("rm", "--force", "idle-1"),
)


def command_lines() -> t.Iterator[str]:
    """Those of all processes."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            yield file.read()


def nothing_to_do_starts_no_podman() -> None:
    """Passes over a storage that did not change start no Podman; after each kind of change the next pass does."""
    declare(gc=image_gc(high=99), workloads=[])
    made = podman("create", "--network=none", "--name=idle-1", "localhost/busy:1", "/bin/true")
    with counted_podman() as starts:
        gc(code=0)  # This one learns where the storage is,
        gc(code=0)  # and this one that nothing is to be done.
        for words in TRACES:
            before = starts()
            gc(code=0)
            expect(f"Podmans that a pass starts before podman {words[0]}", starts() - before, 0)
            subprocess.run([AWAY, *words], check=True, stdout=subprocess.DEVNULL)
            # A container that has ended is cleaned up by a Podman of its own, which writes as well.
            wait("its monitor is done", lambda: not any(made in line for line in command_lines()))
            gc(code=0)
            expect(f"Podmans that a pass starts after podman {words[0]}", starts() - before, 1)
    podman("untag", "localhost/other:1", "localhost/other:1")
    declare(gc=image_gc())


@contextlib.contextmanager
def counted_podman() -> t.Iterator[t.Callable[[], int]]:
    """In place of Podman a program that writes down that it was started, and starts Podman."""
    log = "/run/podman-starts"
    os.rename(PODMAN, AWAY)
    try:
        with open(PODMAN, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho >>{log}\nexec {AWAY} "$@"\n')
        os.chmod(PODMAN, 0o755)
        with open(log, "w", encoding="ascii"):
            pass
        yield lambda: os.stat(log).st_size
    finally:
        os.rename(AWAY, PODMAN)
        os.remove(log)


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


# In Podman's place for every user but root: what a user can do to the process that asks for root, which is the user's own.
# It tells its control group, and answers with a path of root's alone; or it writes for that process, and complains without end.
HOSTILE = r"""
import ctypes, json, os, socket, sys, threading
with open(f"/run/user/{os.getuid()}/hostile", "w") as file:
    file.write(open("/proc/self/cgroup").read())
if os.path.exists("/run/hostile-floods"):
    def complain():
        while True:
            os.write(2, b"x" * 65536)
    threading.Thread(target=complain).start()
    output = ctypes.CDLL(None).syscall(438, os.pidfd_open(os.getppid()), 1, 0)  # pidfd_getfd(2)
    os.write(output, b"[")
    while True:
        os.write(output, b"{}," * 20000)
EVIL = "\x1b[2J\n<0>forged\u202e"
listener = socket.socket(fileno=3)
held = listener.accept()[0]  # open until the end of the pass
while True:
    connection = listener.accept()[0]
    asked = connection.recv(65536).decode().split(" ")[1:2]
    if not asked:
        sys.exit()
    path = asked[0].partition("libpod")[2].partition("?")[0]
    image = "a" * 64
    answer = {
        "/images/json": [{"Id": image, "Names": [EVIL], "Size": 5}],
        "/containers/json": [{"Id": EVIL if os.path.exists("/run/hostile-id") else image, "Names": [EVIL], "State": "exited",
                              "Created": 5, "ImageID": image, "Labels": {EVIL: EVIL}}],
        f"/images/{image}/json": {"GraphDriver": {"Name": "overlay", "Data": {"UpperDir": "/run/lab-trap/overlay/0/diff"}}},
    }.get(path, [])
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(answer).encode())
    connection.close()
"""
TRAP = "/run/lab-trap"


def a_hostile_user() -> None:
    """Root opens no path of a user's, believes no text of it, and keeps its memory; the user's share of it is the user's own."""
    exposed("corral-gc.service", 4.0)
    policy = image_gc()
    declare(gc={**policy, "users": ["alice"]}, workloads=[])
    os.makedirs(f"{TRAP}/overlay-images", 0o700)
    os.chmod(TRAP, 0o700)  # Nobody but root can open what is in it.
    with open(f"{TRAP}/overlay-images/images.json", "w", encoding="ascii") as file:
        file.write("[]")
    libc = ctypes.CDLL(None)
    opened = libc.inotify_init1(os.O_NONBLOCK)
    for folder in (TRAP, f"{TRAP}/overlay-images"):
        libc.inotify_add_watch(opened, folder.encode(), 0x20 | 0x1)  # IN_OPEN, IN_ACCESS
    begun = f"@{int(time.time())}"
    with hostile_podman():
        for flags in ((), ("/run/hostile-id",), ("/run/hostile-floods",)):
            for flag in flags:
                with open(flag, "wb"):
                    pass
            with subprocess.Popen(["corral", "gc", "--json"], stdout=subprocess.PIPE, text=True) as process:
                text = process.stdout.read() if process.stdout else ""
                most = os.wait4(process.pid, 0)[2].ru_maxrss
                process.returncode = 0
            said = json.loads(text)
            wrong = [error for part in ("images", "containers") for error in said[part]["errors"]]
            users = [user for disk in said["images"]["file_systems"] for user in disk["users"]]
            known = [user for user in ("alice",) if not flags]
            expect(f"whose images were looked at with {flags}: {wrong}", users, ["root", *known])
            if bool(wrong) != bool(flags) or not all("alice" in error and error.isprintable() for error in wrong):
                raise AssertionError(f"said with {flags}: {wrong}")
            print(f"  {flags}: {most >> 10} MiB at most; {wrong[:1]}")
            expect(f"whether root's {most} KiB are few", most < 96 << 10, True)
            with open(f"/run/user/{uid_of('alice')}/hostile", encoding="ascii") as file:
                group = file.read().strip()
            wanted = f"0::/user.slice/user-{uid_of('alice')}.slice/corral-podman-"
            expect("where the user's memory counts", group.startswith(wanted), True)
            if flags == ("/run/hostile-id",):
                os.remove(STATUS)  # Whatever was collected a moment ago, all is due.
                run("systemctl", "start", "corral-gc.service", code=None)
    with contextlib.suppress(BlockingIOError):
        raise AssertionError(f"root opened a path of the user's: {os.read(opened, 4096)!r}")
    os.close(opened)
    expect(
        "units that are left", run("systemctl", "list-units", "--all", "--plain", "--no-legend", "corral-podman-*"), ""
    )
    journal = run("journalctl", "--quiet", "--no-pager", f"--since={begun}", "--output=cat", "--all")
    shown = run("corral", "status", code=None) + run("corral", "drift", code=None)
    expect("whether the journal names the error", "not collected: podman ps of alice" in journal, True)
    if "\x1b" in journal + shown or "\u202e" in journal + shown:
        raise AssertionError(f"a terminal would obey {shown!r} or the journal")
    forged = run("journalctl", "--quiet", "--no-pager", f"--since={begun}", "--output=cat", "--priority=0")
    expect("lines of priority emerg", forged, "")
    declare(gc=policy, workloads=[])
    gc()


def uid_of(user: str) -> str:
    return run("id", "-u", user).strip()


@contextlib.contextmanager
def hostile_podman() -> t.Iterator[None]:
    """In place of Podman a program that starts it for root, and another one for a user."""
    os.rename(PODMAN, AWAY)
    try:
        with open("/run/hostile.py", "w", encoding="utf-8") as file:
            file.write(HOSTILE)
        with open(PODMAN, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n[ "$(id -u)" = 0 ] && exec {AWAY} "$@"\nexec python3 -IS /run/hostile.py\n')
        os.chmod(PODMAN, 0o755)
        yield
    finally:
        os.rename(AWAY, PODMAN)
        for path in ("/run/hostile.py", "/run/hostile-id", "/run/hostile-floods"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def podman_is_in_trouble() -> None:
    """No Podman, or a storage that is broken: a verdict, and nothing goes."""
    with contextlib.suppress(FileNotFoundError):
        os.remove(IDLE)  # Without it a pass does not know that there is nothing to do.
    os.rename(PODMAN, AWAY)
    try:
        said = gc(code=1)
        drift = json.dumps(read(DRIFT))  # what the tick reads
    finally:
        os.rename(AWAY, PODMAN)
    if "not installed" not in said["images"]["errors"][0] or "not installed" not in drift:
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
    fill(85)
    policy = image_gc(interval="10s")
    policy["containers"]["interval"] = "10s"
    declare(gc=policy)
    run("corral", "reconcile", code=None)
    wait("the timer's pass removes it", lambda: "last:1" not in images(), 180, pause=0.5)
    expect("after the timer's pass", images(), {"keep/tools:1", "busy:1"})
    shown = run("systemctl", "show", "corral-gc.service", "--property=CPUSchedulingPolicy,IOSchedulingClass")
    expect("its priority", sorted(shown.split()), ["CPUSchedulingPolicy=5", "IOSchedulingClass=3"])
    # The pass logs what it has removed when it ends.
    wait("the journal says so", lambda: "removed localhost/last:1" in journal_of_passes(), pause=1)


def journal_of_passes() -> str:
    return run("journalctl", "--unit=corral-gc.service", "--boot", "--quiet", "--output=cat", "--no-pager")


def dropped_during_a_pass() -> None:
    """A pass is held while it asks, gc leaves the profile, the pass goes on: nothing of it comes back, and nothing goes."""
    run("systemctl", "stop", "corral-gc.timer", "corral-gc.service")  # The one pass is ours.
    with contextlib.suppress(FileNotFoundError):
        os.remove(STATUS)  # Whatever was collected a moment ago, all is due.
    make_image("in-flight:1", 5)
    fill(85)
    with held_podman() as (asked, go):
        run("systemctl", "start", "--no-block", "corral-gc.service")
        wait("the pass asks Podman", lambda: os.path.exists(asked), 120)
        pid = run("systemctl", "show", "--property=MainPID", "--value", "corral-gc.service").strip()
        declare(gc=None)
        said = run("corral", "reconcile", code=None)
        expect("the pass goes on", os.path.exists(f"/proc/{pid}"), True)
        with open(go, "wb"):
            pass
        wait("the pass ends", lambda: not os.path.exists(f"/proc/{pid}"))
    files = (STATUS, DRIFT, IDLE, RECORDS, f"{RECORDS}.previous")
    expect(f"left by a pass that ended later ({said})", [path for path in files if os.path.exists(path)], [])
    expect("removed after gc had left", "in-flight:1" in images(), True)
    os.remove(FILL)
    run("corral", "drift", code=0)
    declare(gc=image_gc())
    run("corral", "reconcile", code=None)
    gc()
    run("corral", "drift", code=0)


@contextlib.contextmanager
def held_podman() -> t.Iterator[tuple[str, str]]:
    """In place of Podman a program that waits: once it runs there is the first file, and it goes on once there is the second."""
    asked, go = "/run/podman-asked", "/run/podman-go"
    os.rename(PODMAN, AWAY)
    try:
        with open(PODMAN, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n: >{asked}\nuntil [ -e {go} ]; do sleep 0.5; done\nexec {AWAY} "$@"\n')
        os.chmod(PODMAN, 0o755)
        yield asked, go
    finally:
        os.rename(AWAY, PODMAN)


AFTER = (
    exactly_the_right_images_go,
    shared_layers_count_once,
    what_is_short_is_drift,
    young_ones_stay,
    killed_in_the_middle,
    dead_containers_go_as_declared,
    a_workload_that_left,
    anonymous_volumes_only_when_asked,
    nothing_to_do_starts_no_podman,
    a_user_of_its_own,
    a_hostile_user,
    podman_is_in_trouble,
    the_timer_collects,
    dropped_during_a_pass,
)


def main(names: t.Sequence[str]) -> int:
    if not names:
        raise SystemExit("which steps? before, after, or names of those after the reboot")
    if list(names) == ["before"]:
        return 0 if run_step(before) else 1
    # What comes later stands on what came before: the first failure ends it. No tick comes of a profile that is written.
    return run_steps(select_steps(AFTER, [] if list(names) == ["after"] else names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
