# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes: start, restore, save, reach and end them; nothing of a node is left when it is gone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import typing as t
import uuid

import lab_base
import lab_compiled
import lab_image
import lab_machine
import lab_qemu
import lab_qmp
from lab_base import LabError
from lab_image import Image
from lab_machine import Topology

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
# The user's own configuration and keys are for other hosts; a node's host key is every clone's, so it is not kept.
SSH_OPTIONS = (
    "-F", "/dev/null", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
    "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
)  # fmt: skip
BOOT_SECONDS = 300.0
LAUNCH_SECONDS = 20.0
CONNECT_SECONDS = 10.0
KVM_SECONDS = 20.0
UNPLUG_SECONDS = 60.0  # A node has five seconds to think it over, by PCI Express.
CONFIRM_SECONDS = 1800  # An emulated node beside other work takes minutes for what a node does in seconds.
PORT_TRIES = 3
# A node that is gone sends no farewell.
NOTICE_THE_END = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")
GREETING_SECONDS = 1.0  # of the first try, of many
BOOTED = "lab: booted"  # on the console, by a unit of the image


class Node(t.NamedTuple):
    """A node's folder. It runs while QEMU does; it is ready once it answered."""

    name: str
    folder: pathlib.Path

    def pid(self) -> int:
        """QEMU's process, 0 when it does not run. Another process that has got the number is not taken for it."""
        try:
            pid = int((self.folder / "pid").read_text())
        except (OSError, ValueError):
            return 0
        return pid if self.owns(pid) else 0

    def owns(self, pid: int) -> bool:
        """Whether a process is this node's QEMU, by its command line."""
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return lab_qemu.SYSTEM.encode() in words and str(self.folder / "pid").encode() in words

    def processes(self) -> list[int]:
        """Its QEMU, even one that has not written its process id yet."""
        return [int(path.name) for path in pathlib.Path("/proc").glob("[1-9]*") if self.owns(int(path.name))]

    def port(self) -> int:
        return int((self.folder / "port").read_text())

    def ready(self) -> bool:
        return self.pid() != 0 and (self.folder / "ready").exists()

    def kind(self) -> str:
        return (self.folder / "kind").read_text()

    def release(self) -> str:
        """Of Debian, as its kind has it."""
        return self.kind().rsplit("-", 2)[1]

    def lock(self) -> pathlib.Path:
        """The lock that a process holds while it starts or ends the node."""
        return self.folder.with_suffix(".lock")


def kind(topology: Topology, release: str, cgroup: str) -> str:
    """The name of this kind of machine."""
    return f"{topology.name}-{release}-{cgroup}"


class Machine(t.NamedTuple):
    """What a node is made of."""

    image: Image
    topology: Topology
    release: str
    cgroup: str
    accelerator: str

    @property
    def kind(self) -> str:
        return kind(self.topology, self.release, self.cgroup)

    def command(self, folder: pathlib.Path, port: int) -> list[str]:
        """QEMU's command line for a node in this folder."""
        return lab_machine.command(
            self.topology, qemu=lab_qemu.system(), accelerator=self.accelerator, cgroup=self.cgroup, kernel=self.image.kernel,
            initrd=self.image.initrd, overlay=folder / "overlay", compiled=folder / "compiled", folder=folder, port=port,
        )  # fmt: skip

    def launched(self, folder: pathlib.Path, *more: str) -> t.Callable[[int], list[str]]:
        """The same by its port, with more words."""
        return lambda port: [*self.command(folder, port), *more]


def node(name: str) -> Node:
    """A node by its name."""
    if not NAME.fullmatch(name):
        raise LabError(f"{name!r}: a node's name has lower-case letters, digits and dashes, at most 40")
    return Node(name, lab_base.running() / name)


def nodes() -> list[Node]:
    """All nodes that run. What a dead QEMU or a killed launcher left is removed on the way: not ready, and its
    lock is free."""
    found = []
    for one in known():
        if not one.ready():
            with lab_base.locked(one.lock(), wait=False) as mine:
                if mine and not one.ready():
                    end(one)
        if one.ready():
            found.append(one)
    for lock in lab_base.place().glob("*.lock"):
        with lab_base.locked(lock, wait=False):
            pass  # left by a killed launcher: the lock is free, and its release removes it
    for unfinished in (lab_base.cache() / "states").glob("*.making"):
        with lab_base.locked(unfinished.with_suffix(".lock"), wait=False) as mine:
            if mine:
                shutil.rmtree(unfinished, ignore_errors=True)
    return found


def known() -> list[Node]:
    """All nodes that have a folder."""
    return [Node(path.name, path) for path in sorted(lab_base.running().glob("*")) if path.is_dir()]


# Reaching a node


def ssh_words() -> list[str]:
    """The options by which any node is reached."""
    return [
        "-i",
        str(lab_image.key()),
        "-o",
        f"ConnectTimeout={CONNECT_SECONDS * lab_base.patience():.0f}",
        "-o",
        "BatchMode=yes",
        *SSH_OPTIONS,
    ]


def ssh_command(one: Node) -> list[str]:
    """The words to put before a command for a node."""
    return ["ssh", *ssh_words(), *NOTICE_THE_END, "-p", str(one.port()), "root@127.0.0.1"]


def ssh(one: Node, command: str, timeout: float = 60.0) -> str:
    """Run a command on a node."""
    return lab_base.run(*ssh_command(one), command, timeout=timeout)


def wait_for_ssh(one: Node, limit: float) -> None:
    """Wait until a node answers."""
    begin = time.monotonic()
    deadline = begin + limit * lab_base.patience()
    while True:
        raise_if_ended(one)
        with contextlib.suppress(LabError):
            # sshd starts a program for each connection, from Debian 13 on: on a loaded host it needs longer than a second,
            # and each try that is given up makes the next one slower. So a try takes half of the time that went by.
            if greets(one, max(GREETING_SECONDS, (time.monotonic() - begin) / 2)):
                ssh(one, "true", timeout=15)
                return
        if time.monotonic() > deadline:
            raise LabError(f"{one.name}: no answer within {limit:.0f} s: {tail(one.folder / 'console.log')}")
        time.sleep(0.2)


def greets(one: Node, seconds: float) -> bool:
    """Whether a node's sshd sends its first words. QEMU takes connections before the node does: ssh would wait for long."""
    try:
        with socket.create_connection(("127.0.0.1", one.port()), timeout=seconds) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def tail(path: pathlib.Path, lines: int = 5) -> str:
    """The end of a log."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) or "(an empty log)"
    except OSError:
        return "(no log)"


def host_variables(chosen: t.Sequence[Node]) -> dict[str, dict[str, t.Any]]:
    """How Ansible reaches nodes: name to variables."""
    return {
        one.name: {
            "ansible_host": "127.0.0.1",
            "ansible_port": one.port(),
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(lab_image.key()),
            "ansible_ssh_common_args": " ".join(SSH_OPTIONS),
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_use_tty": False,  # what a command prints comes as it is, and stderr apart
            "corral_confirm_timeout": CONFIRM_SECONDS,
        }
        for one in chosen
    }


# Starting


def up(name: str, topology_name: str, release: str, cgroup: str, *, fresh: bool) -> Node:
    """Start a node, from its saved state where there is one, and wait until it answers."""
    one = node(name)
    topology = lab_machine.load(topology_name)
    if cgroup == "v1" and release not in lab_image.WITH_V1:
        raise LabError(f"{release}: its kernel has no cpuset in cgroup v1: take {' or '.join(lab_image.WITH_V1)}")
    nodes()
    with lab_base.locked(one.lock()):
        if one.ready():
            if one.kind() != kind(topology, release, cgroup):
                raise LabError(f"{name} runs already, as {one.kind()}: end it first: lab/lab down {name}")
            wait_for_ssh(one, 30)
            lab_base.say(f"{name} runs already (127.0.0.1 port {one.port()})")
            return one
        end(one)
        image = lab_image.ensure(release)
        machine = Machine(image, topology, release, cgroup, chosen_accelerator(image))
        with lab_base.run_if_killed(str(lab_base.HERE / "lab"), "list"):  # it removes what was begun
            try:
                one.folder.mkdir(mode=0o700)
                (one.folder / "kind").write_text(machine.kind)
                lab_compiled.make_disk(release, one.folder / "compiled")
                if fresh:
                    boot(one, machine)
                else:
                    start(one, machine)
                personalise(one)
                (one.folder / "ready").touch()
            except BaseException:
                lab_base.ignore_signals()
                end(one)
                raise
    return one


def start(one: Node, machine: Machine) -> None:
    """Restore the saved state. Where there is none, or it is of no use, boot and save: one does, others wait for it."""
    state = saved_state(machine)
    with lab_base.locked(state.with_suffix(".lock")):
        if not state.exists():
            boot(one, machine)
            save(one, state)
            return
    try:
        restore(one, machine, state)
    except LabError as error:
        lab_base.say(f"the saved state is of no use, booting instead: {error}")
        halt(one)
        with lab_base.locked(state.with_suffix(".lock")):
            shutil.rmtree(state, ignore_errors=True)
            boot(one, machine)
            save(one, state)


def saved_state(machine: Machine) -> pathlib.Path:
    """Where the booted state of such a machine is kept: its name changes with all that it depends on."""
    nowhere = pathlib.Path("/")
    words = machine.command(nowhere, 0)
    # Its overlay lies on this very disk, not on one that the same recipe made later; with KVM the CPU is the host's.
    disk = str(machine.image.disk.stat().st_mtime_ns)
    cpu = lab_machine.host_cpu_marks() if machine.accelerator == "kvm" else ""
    mark = hashlib.sha256("\0".join([machine.image.name, disk, cpu, lab_qemu.version(), *words]).encode()).hexdigest()[
        :12
    ]
    return lab_base.cache() / "states" / f"{machine.kind}-{mark}"


def launch(one: Node, command: t.Callable[[int], list[str]], ports: t.Iterable[int]) -> None:
    """Start QEMU by its command line for a port, detached from us: a terminal or a pipe of ours must not keep it or be
    kept by it."""
    for port in ports:
        (one.folder / "port").write_text(str(port))
        # QEMU writes its process id before it opens the console: what an earlier one said there is not this one's.
        (one.folder / "pid").unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (one.folder / "console.log").replace(one.folder / "console-before.log")
        with (one.folder / "qemu.log").open("w") as log:
            process = subprocess.Popen(
                command(port), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + LAUNCH_SECONDS * lab_base.patience()
        while process.poll() is None and not one.pid() and time.monotonic() < deadline:
            time.sleep(0.02)
        if one.pid():
            return
        process.kill()
        process.wait()
        if "hostfwd" not in tail(one.folder / "qemu.log"):
            break
        time.sleep(0.2)
    raise LabError(f"{one.name}: QEMU did not start: {tail(one.folder / 'qemu.log')}")


def free_ports() -> t.Iterator[int]:
    """Ports on 127.0.0.1 that are free now; another process may take one first."""
    for dummy in range(PORT_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        yield port


def boot(one: Node, machine: Machine) -> None:
    """Boot from the image, on an overlay of its own."""
    with lab_base.timed(f"booting {one.name} ({machine.kind}, {machine.accelerator.partition(',')[0]})"):
        overlay(machine.image.disk, "raw", one.folder / "overlay")
        launch(one, machine.launched(one.folder), free_ports())
        booted(one)


def overlay(backing: pathlib.Path, form: str, file: pathlib.Path) -> None:
    """A disk that holds only what differs from another."""
    lab_base.run(
        *lab_qemu.program("qemu-img"), "create", "-q", "-f", "qcow2", "-b", str(backing), "-F", form, str(file)
    )


def save(one: Node, state: pathlib.Path) -> None:
    """Keep the booted state, so that the next node like it is there in seconds; the node goes on."""
    work = state.with_suffix(".making")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        with lab_base.timed("saving the booted state"):
            ssh(one, "sync; echo 3 >/proc/sys/vm/drop_caches")
            monitor = lab_qmp.Monitor(one.folder / "qmp")
            monitor.ask("stop")
            monitor.ask("migrate", uri=f"exec:cat > '{work / 'memory'}'")
            monitor.migrated()
            shutil.copyfile(one.folder / "overlay", work / "overlay")
            monitor.ask("cont")
            monitor.close()
            work.rename(state)
            lab_base.keep_latest(state.parent, state.name.rpartition("-")[0])
    finally:
        shutil.rmtree(work, ignore_errors=True)


def prune() -> None:
    """Remove all saved states, once no process makes one."""
    states = lab_base.cache() / "states"
    for name in {path.stem for path in states.glob("*-*")}:
        with lab_base.locked(states / f"{name}.lock"):
            for path in (states / name, states / f"{name}.making"):
                shutil.rmtree(path, ignore_errors=True)


def restore(one: Node, machine: Machine, state: pathlib.Path) -> None:
    """Go on from a saved state."""
    with lab_base.timed(f"restoring {one.name} ({machine.kind})"):
        overlay(own_copy(state / "overlay", one.folder / "base"), "qcow2", one.folder / "overlay")
        os.utime(state)
        launch(one, machine.launched(one.folder, "-incoming", f"exec:cat '{state / 'memory'}'"), free_ports())
        monitor = lab_qmp.Monitor(one.folder / "qmp")
        monitor.migrated()
        monitor.ask("cont")
        monitor.close()
        wait_for_ssh(one, 60)


def own_copy(file: pathlib.Path, place: pathlib.Path) -> pathlib.Path:
    """A name of the node's own for a file that others may remove while its disk needs it.

    Raises LabError where the file is gone already.
    """
    try:
        os.link(file, place)
    except FileNotFoundError as error:
        raise LabError(f"{file}: {error.strerror}") from None
    except OSError:  # on another file system, or one without hard links
        shutil.copyfile(file, place)
    return place


def reboot(one: Node, more: str = "") -> None:
    """Reboot a node by its own systemd, and wait until it has booted and answers again.

    ``more`` are kernel arguments, which it has from then on.
    """
    with (
        lab_base.timed(f"rebooting {one.name}"),
        lab_base.locked(one.lock()),
        lab_base.run_if_killed(str(lab_base.HERE / "lab"), "list"),  # it removes a node whose QEMU has ended
    ):
        words = command_line(one)
        words[words.index("-append") + 1] += f" {more}" if more else ""
        tell_to_end(one)
        # Not under this connection: its end would be lost with it, and waited for.
        ssh(one, "systemd-run --quiet --on-active=500ms --timer-property=AccuracySec=1ms systemctl reboot")
        start_again(one, words)
        booted(one)
        ssh(one, lab_compiled.MOUNT)


def cut_power(one: Node) -> None:
    """Reset a node's machine with QEMU's system_reset; it boots again. See ``booted``.

    What its kernel had not handed to the disk by then is lost.
    """
    with lab_base.locked(one.lock()):
        words = command_line(one)
        tell_to_end(one, "system_reset")
        start_again(one, words)


def unplug(one: Node, number: int) -> None:
    """Take the PCI device of this number in the node's topology out of the machine, as soon as the node lets it go."""
    monitor = lab_qmp.Monitor(one.folder / "qmp")
    deadline = time.monotonic() + UNPLUG_SECONDS * lab_base.patience()
    monitor.ask("device_del", id=f"device{number}")
    while any(row["name"] == f"device{number}" for row in monitor.ask("qom-list", path="/machine/peripheral")):
        if time.monotonic() > deadline:
            raise LabError(f"{one.name}: does not let its device {number} go")
        time.sleep(0.1)
    monitor.close()


def plug(one: Node, number: int) -> None:
    """Put that device back, as it was when the node started."""
    words = (word for word in command_line(one) if word.endswith(f",id=device{number}"))
    options = next(words, "").split(",")
    if options == [""]:
        raise LabError(f"{one.name}: its topology has no device {number}")
    monitor = lab_qmp.Monitor(one.folder / "qmp")
    monitor.ask("device_add", driver=options[0], **dict(option.split("=", 1) for option in options[1:]))
    monitor.close()


def tell_to_end(one: Node, command: str = "") -> None:
    """Let QEMU end where its machine would reset, and give its monitor a command.

    Without KVM a reset in place costs twice a boot: QEMU finds each page that firmware and kernel write full of code that it
    had translated. So another QEMU starts from the same disk.
    """
    monitor = lab_qmp.Monitor(one.folder / "qmp")
    monitor.ask("set-action", reboot="shutdown")
    if command:
        monitor.ask(command)
    monitor.close()


def start_again(one: Node, words: list[str]) -> None:
    """Start a node's QEMU once the one before has ended."""
    port = one.port()
    deadline = time.monotonic() + BOOT_SECONDS * lab_base.patience()
    while one.pid():
        if time.monotonic() > deadline:
            raise LabError(f"{one.name}: did not shut down: {tail(one.folder / 'console.log')}")
        time.sleep(0.1)
    launch(one, lambda dummy: words, [port] * PORT_TRIES)


def command_line(one: Node) -> list[str]:
    """What a node's QEMU was started with, but for the state that it was restored from."""
    words = pathlib.Path(f"/proc/{one.pid()}/cmdline").read_text().split("\0")[:-1]
    if "-incoming" in words:
        at = words.index("-incoming")
        del words[at : at + 2]
    return words


def booted(one: Node) -> None:
    """Wait until systemd has started all that belongs to the boot, which the node says on its console, and it answers."""
    deadline = time.monotonic() + BOOT_SECONDS * lab_base.patience()
    while BOOTED not in (said := tail(one.folder / "console.log", 60)):
        raise_if_ended(one)
        if time.monotonic() > deadline:
            raise LabError(f"{one.name}: not booted within {BOOT_SECONDS:.0f} s: {said}")
        time.sleep(0.2)
    wait_for_ssh(one, 30)


def raise_if_ended(one: Node) -> None:
    """Raise LabError when a node that boots has ended."""
    if not one.pid():
        raise LabError(f"{one.name}: the machine ended while it booted: {tail(one.folder / 'qemu.log')}")
    if "Kernel panic" in (said := tail(one.folder / "console.log", 60)):
        raise LabError(f"{one.name}: its kernel panicked: {said}")


def personalise(one: Node) -> None:
    """A clone has its state's clock, name and machine id: give it its own, and what was compiled before."""
    identity = uuid.uuid4().hex
    ssh(
        one,
        f"date --set=@{time.time():.0f} >/dev/null; hostname {one.name}; echo {one.name} >/etc/hostname; "
        f"sed -i 's/^127.0.1.1.*/127.0.1.1 {one.name}/' /etc/hosts; echo {identity} >/etc/machine-id; "
        f"echo {identity} >/dev/urandom; {lab_compiled.MOUNT}",
    )


def chosen_accelerator(image: Image) -> str:
    """KVM where a guest really runs on it, emulation elsewhere. Looked at once for each boot of this machine."""
    # One host thread for all CPUs of a node: with one for each, eight of them fight for two cores over the guest's locks
    # (figures in README.md). Its CPUs take turns.
    emulated = "tcg,thread=single"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return emulated
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    verdict = lab_base.cache() / f"kvm-{boot_id}"
    with lab_base.locked(lab_base.cache() / "kvm.lock"):
        if not verdict.exists():
            for old in lab_base.cache().glob("kvm-*"):
                old.unlink()
            verdict.write_text("yes" if kvm_works(image) else "no")
    return "kvm" if verdict.read_text() == "yes" else emulated


def kvm_works(image: Image) -> bool:
    """Whether a kernel boots on KVM: it panics for want of a disk and QEMU ends, which is the answer hoped for."""
    # fmt: off
    words = [*lab_qemu.system(), "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults", "-display", "none",
             "-no-reboot", "-serial", "stdio", "-kernel", str(image.kernel), "-append", "console=ttyS0 panic=-1"]
    # fmt: on
    try:  # ended by a program of its own, for the case that the lab is killed
        return "Linux version" in lab_base.run("timeout", "--signal=KILL", str(KVM_SECONDS), *words)
    except LabError:
        return False


# Ending


def down(chosen: t.Sequence[Node]) -> None:
    """End nodes once no other lab command works on them; what those that answer compiled is kept for the next ones.

    Whatever comes of keeping it, an error or a signal, each of the nodes is ended.
    """
    try:
        for one in chosen:
            keep_compiled(one)
    finally:
        with lab_base.undisturbed():
            for one in chosen:
                lab_base.say(f"{one.name}: {'gone' if locked_end(one) else 'there is none'}")


def keep_compiled(one: Node) -> None:
    """Keep what a node compiled, where it answers and no other lab command works on it."""
    with lab_base.locked(one.lock(), wait=False) as mine:
        if mine and one.ready() and greets(one, GREETING_SECONDS):
            try:
                lab_compiled.collect(one.release(), ssh_command(one))
            except (LabError, OSError) as error:
                lab_base.say(f"{one.name}: what it compiled is not kept: {error}")


def locked_end(one: Node) -> bool:
    """End a node once no other lab command works on it; False when there was none."""
    with lab_base.locked(one.lock(), wait=False) as mine:
        if mine:
            return end(one)
    lab_base.say(f"{one.name}: waiting for another lab command that works on it")
    with lab_base.locked(one.lock()):
        return end(one)


def end(one: Node) -> bool:
    """End a node and remove all of it; False when there was none."""
    was = one.folder.exists() or bool(one.processes())
    halt(one)
    shutil.rmtree(one.folder, ignore_errors=True)
    return was


def halt(one: Node) -> None:
    """End a node's QEMU: first asked by its monitor, then by its process id."""
    with contextlib.suppress(LabError, OSError):
        if one.pid():
            lab_qmp.Monitor(one.folder / "qmp", wait=0.5, limit=2.0).ask("quit")
    for number in (signal.SIGTERM, signal.SIGKILL, 0):
        deadline = time.monotonic() + 3
        while one.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in one.processes() if number else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
