# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's parts that need no virtual node: machines, locks, left-overs, the monitor."""

from __future__ import annotations

import contextlib
import json
import marshal
import multiprocessing
import signal
import socket
import subprocess
import sys
import threading
import time
import typing as t
import zipfile
from pathlib import Path

import lab_base
import lab_cli
import lab_compiled
import lab_image
import lab_machine
import lab_nodes
import lab_packages
import lab_qmp
import pytest
from lab_base import LabError


def command(folder: str = "/f", port: int = 1, topology: str = "two-nodes-smt", accelerator: str = "tcg") -> list[str]:
    return lab_machine.command(
        lab_machine.load(topology), qemu=["qemu"], accelerator=accelerator, kernel=Path("/k"), initrd=Path("/i"),
        overlay=Path(folder, "overlay"), compiled=Path(folder, "compiled"), folder=Path(folder), port=port,
    )  # fmt: skip


# Machines


@pytest.mark.parametrize("name", lab_machine.names())
def test_a_topology_is_one_whole(name: str) -> None:
    topology = lab_machine.load(name)
    count = len(topology.nodes)
    spans = [[int(end) for end in node.cpus.split("-")] for node in topology.nodes]
    assert sorted(cpu for first, last in spans for cpu in range(first, last + 1)) == list(range(topology.cpus))
    assert [len(row) for row in topology.distances] == [count] * count
    for here in range(count):
        assert topology.distances[here][here] == 10
        assert [row[here] for row in topology.distances] == list(topology.distances[here])
    assert all(device.node < count for device in topology.devices)


def test_a_restored_machine_has_the_command_line_of_the_saved_one() -> None:
    here, there = command("/a", 1), command("/b", 2)
    assert [word.replace("/a", "/b").replace(":1-:22", ":2-:22") for word in here] == there


def test_a_device_hangs_on_a_bridge_of_its_node() -> None:
    words = command(topology="four-nodes-smt")
    assert any(word.startswith("pxb-pcie") and word.endswith("numa_node=1") for word in words)
    assert "dist,src=0,dst=1,val=12" in words
    assert "dist,src=1,dst=0,val=12" not in words  # QEMU mirrors it


def test_a_node_reaches_no_network_and_listens_on_loopback_only() -> None:
    network = next(word for word in command() if word.startswith("user,"))
    assert network == "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:1-:22"


def test_kvm_shows_the_hosts_cpu() -> None:
    words = command(accelerator="kvm")
    assert words[words.index("-cpu") + 1].startswith("host")


def test_an_unknown_topology_names_the_known_ones() -> None:
    with pytest.raises(LabError, match="two-nodes-smt"):
        lab_machine.load("../etc")


# Names, places


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a b", "../a", "a/b", "a\n", "a" * 41, "a;b"])
def test_a_name_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="lower-case"):
        lab_nodes.node(name)


def test_a_folder_open_to_others_is_refused() -> None:
    lab_base.running().chmod(0o755)
    with pytest.raises(LabError, match="CORRAL_RUN"):
        lab_base.running()


# Locks


def test_a_lock_is_held_by_one_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.lock"
    with lab_base.locked(path) as mine:
        assert mine
        with lab_base.locked(path, wait=False) as other:
            assert not other
        assert path.exists()
    assert not path.exists()


def count_up(lock: Path, number: Path) -> None:
    for dummy in range(50):
        with lab_base.locked(lock):
            value = int(number.read_text())
            number.write_text(str(value + 1))


def test_a_lock_whose_file_comes_and_goes_still_excludes(tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    makers = multiprocessing.get_context("fork")
    workers = [makers.Process(target=count_up, args=(tmp_path / "l", number)) for dummy in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert number.read_text() == "200"


# Resets


@pytest.mark.parametrize("cut", [False, True])
def test_a_node_that_resets_goes_on_from_the_same_disk(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    one, asked, launched = lab_nodes.node("n"), [], []
    one.folder.mkdir()
    (one.folder / "port").write_text("4711")
    (one.folder / "console.log").write_text("hand-over 3 begins")
    words = ["qemu-system-x86_64", "-append", "root=/dev/vda", "-drive", "file=overlay"]

    class Monitor:
        def __init__(self, path: Path) -> None:
            assert path == one.folder / "qmp"

        def ask(self, command: str, **arguments: str) -> None:
            asked.append((command, *arguments.values()))

        def close(self) -> None:
            pass

    monkeypatch.setattr(lab_qmp, "Monitor", Monitor)
    monkeypatch.setattr(lab_nodes, "command_line", lambda one: list(words))
    monkeypatch.setattr(lab_nodes, "ssh", lambda one, command: asked.append((command.split()[0],)))
    monkeypatch.setattr(lab_nodes, "launch", lambda one, command, ports: launched.append((command(1), ports[0])))
    monkeypatch.setattr(lab_nodes, "booted", lambda one: launched.append("booted"))
    if cut:
        lab_nodes.cut_power(one)
    else:
        lab_nodes.reboot(one, "isolcpus=2-3")
        words[2] += " isolcpus=2-3"
    assert asked == [("set-action", "shutdown"), *([("system_reset",)] if cut else [("systemd-run",), ("blockdev",)])]
    assert launched == [(words, 4711), *([] if cut else ["booted"])]


# Devices


class Slots:
    """A monitor of a machine that lets a device go when it is asked a second time whether it has."""

    def __init__(self, dummy: Path) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.there = ["device1", "device1"]

    def ask(self, command: str, **arguments: str) -> t.Any:
        self.asked.append((command, arguments))
        return [{"name": self.there.pop()}] if command == "qom-list" and self.there else []

    def close(self) -> None:
        self.asked.append(("closed", {}))


def test_a_device_is_taken_out_and_put_back_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(Path())
    monkeypatch.setattr(lab_qmp, "Monitor", lambda dummy: slots)
    monkeypatch.setattr(lab_nodes, "command_line", lambda dummy: command(topology="two-nodes-devices"))
    lab_nodes.unplug(lab_nodes.node("n"), 1)
    assert [name for name, dummy in slots.asked] == ["device_del", *["qom-list"] * 3, "closed"]
    assert slots.asked[0][1] == {"id": "device1"}
    slots.asked.clear()
    lab_nodes.plug(lab_nodes.node("n"), 3)
    wanted = {"driver": "vmxnet3", "romfile": "", "bus": "port3", "id": "device3"}
    assert slots.asked == [("device_add", wanted), ("closed", {})]
    with pytest.raises(LabError, match="n: its topology has no device 4"):
        lab_nodes.plug(lab_nodes.node("n"), 4)


def test_a_node_that_keeps_its_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(Path())
    slots.there = ["device1"] * 9999
    monkeypatch.setattr(lab_qmp, "Monitor", lambda dummy: slots)
    monkeypatch.setattr(lab_nodes, "UNPLUG_SECONDS", 0.2)
    with pytest.raises(LabError, match="n: does not let its device 1 go"):
        lab_nodes.unplug(lab_nodes.node("n"), 1)


# Left-overs


@pytest.fixture
def qemu(tmp_path: Path) -> t.Iterator[t.Callable[[lab_nodes.Node], subprocess.Popen[bytes]]]:
    """Starts what looks like a node's QEMU by its command line."""
    started = []

    def start(one: lab_nodes.Node) -> subprocess.Popen[bytes]:
        one.folder.mkdir(exist_ok=True)
        words = ["qemu-system-x86_64", "-c", "import time; time.sleep(60)", "-pidfile", str(one.folder / "pid")]
        process = subprocess.Popen(words, executable=sys.executable)
        started.append(process)
        while not one.owns(process.pid):  # its command line shows a moment after it was started
            time.sleep(0.01)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_dead_nodes_rest_is_removed_and_a_living_one_is_not(qemu: t.Any) -> None:
    dead, lives = lab_nodes.node("dead"), lab_nodes.node("lives")
    dead.folder.mkdir()
    (dead.folder / "ready").touch()
    (dead.folder / "pid").write_text("1")  # a number that another process has now
    (lives.folder).mkdir()
    (lives.folder / "pid").write_text(str(qemu(lives).pid))
    (lives.folder / "ready").touch()
    assert [one.name for one in lab_nodes.nodes()] == ["lives"]
    assert not dead.folder.exists()


def test_a_node_that_is_being_started_is_left_alone() -> None:
    one = lab_nodes.node("n")
    one.folder.mkdir()
    with lab_base.locked(one.lock()):
        assert lab_nodes.nodes() == []
        assert one.folder.exists()
    assert lab_nodes.nodes() == []
    assert not one.folder.exists()


def test_a_qemu_without_a_pid_file_is_ended_too(qemu: t.Any) -> None:
    one = lab_nodes.node("n")
    process = qemu(one)
    begin = time.monotonic()
    assert lab_nodes.locked_end(one)
    assert process.wait(timeout=10) == -signal.SIGTERM
    assert time.monotonic() - begin < 10
    assert not one.folder.exists()
    assert not lab_nodes.locked_end(one)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), LabError("no answer"), SystemExit(143)])
def test_whatever_comes_of_keeping_what_was_compiled_each_node_is_ended(
    error: BaseException, qemu: t.Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(release: str, ssh: t.Sequence[str]) -> None:
        raise error

    monkeypatch.setattr(lab_compiled, "collect", fail)
    monkeypatch.setattr(lab_nodes, "greets", lambda one, seconds: True)
    monkeypatch.setattr(lab_nodes, "ssh_command", lambda one: ["ssh"])
    both = [lab_nodes.node("a"), lab_nodes.node("b")]
    processes = [qemu(one) for one in both]
    for one, process in zip(both, processes):
        for file, text in (("pid", str(process.pid)), ("ready", ""), ("kind", "two-nodes-smt-bookworm-v2")):
            (one.folder / file).write_text(text)
    with pytest.raises(SystemExit) if isinstance(error, SystemExit) else contextlib.nullcontext():
        lab_nodes.down(both)
    assert [process.wait(timeout=10) for process in processes] == [-signal.SIGTERM] * 2
    assert [one.folder.exists() for one in both] == [False, False]
    assert isinstance(error, SystemExit) or f"a: what it compiled is not kept: {error}" in capsys.readouterr().err


def test_a_node_keeps_the_disk_that_it_began_with(tmp_path: Path) -> None:
    saved, own = tmp_path / "saved", tmp_path / "own"
    saved.write_text("booted")
    lab_nodes.own_copy(saved, own)
    saved.unlink()
    assert own.read_text() == "booted"
    with pytest.raises(LabError, match="saved: No such file"):
        lab_nodes.own_copy(saved, tmp_path / "another")


def test_what_a_killed_lab_left_of_a_state_goes_and_one_in_the_making_stays() -> None:
    left, making = (lab_base.cache() / "states" / f"{name}.making" for name in ("left", "made"))
    for folder in (left, making):
        folder.mkdir(parents=True)
    with lab_base.locked(making.with_suffix(".lock")):
        assert lab_nodes.nodes() == []
        assert (left.exists(), making.exists()) == (False, True)
    assert lab_nodes.nodes() == [] and not making.exists()


def test_children_of_children_end_with_a_command(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="did not end within"):
        lab_base.run("sh", "-c", f"sleep 61.5 & echo $! >{tmp_path}/child; wait", timeout=0.5)
    state = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    # It was killed; until the kernel is done with it, it may still be seen.
    deadline = time.monotonic() + 10
    while state.exists() and ") Z " not in state.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not state.exists() or ") Z " in state.read_text()


def test_an_error_has_the_commands_own_words() -> None:
    with pytest.raises(LabError, match=r"ended with 3:\nbecause"):
        lab_base.run("sh", "-c", "echo because >&2; exit 3")


# Inventory, command line


def test_in_the_inventory_script_a_node_that_does_not_run_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert lab_cli.do(lab_cli.parser().parse_args(["inventory", "--script", "corral-none"])) == 0
    nobody = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    assert json.loads(capsys.readouterr().out) == {
        "all": {"hosts": ["corral-none"]},
        "_meta": {"hostvars": {"corral-none": nobody}},
    }


def test_a_node_that_does_not_run_is_said_with_the_way_out() -> None:
    with pytest.raises(LabError, match="lab up n1"):
        lab_cli.do(lab_cli.parser().parse_args(["inventory", "n1"]))


def test_down_without_names_ends_nothing() -> None:
    with pytest.raises(LabError, match="--all"):
        lab_cli.do(lab_cli.parser().parse_args(["down"]))


def test_inventory_of_a_node(qemu: t.Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_image, "key", lambda: Path("/k/key"))
    one = lab_nodes.node("n1")
    process = qemu(one)
    for name, text in (("pid", str(process.pid)), ("port", "2201"), ("ready", "")):
        (one.folder / name).write_text(text)
    file = tmp_path / "hosts.yml"
    lab_cli.do(lab_cli.parser().parse_args(["inventory", "n1", "--output", str(file)]))
    host = json.loads(file.read_text())["all"]["hosts"]["n1"]
    assert (host["ansible_host"], host["ansible_port"]) == ("127.0.0.1", 2201)
    assert "UserKnownHostsFile=/dev/null" in host["ansible_ssh_common_args"]


# Reaching a node


def test_a_node_that_greets_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one = lab_nodes.node("n1")
    one.folder.mkdir()
    server = socket.create_server(("127.0.0.1", 0))
    (one.folder / "port").write_text(str(server.getsockname()[1]))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, dummy_address = server.accept()
                time.sleep(0.5)
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b"SSH-2.0-late")

    asked: list[str] = []
    monkeypatch.setattr(lab_nodes, "GREETING_SECONDS", 0.1)
    monkeypatch.setattr(lab_nodes, "raise_if_ended", lambda dummy: None)
    monkeypatch.setattr(lab_nodes, "ssh", lambda dummy, command, timeout: asked.append(command))
    threading.Thread(target=serve, daemon=True).start()
    with server:
        lab_nodes.wait_for_ssh(one, 30)
    assert asked == ["true"]


# Packages


def test_missing_packages_are_named_with_the_line_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_packages.shutil, "which", lambda program, path: None if program == "mkfs.ext4" else program)
    monkeypatch.setattr(lab_packages.os, "geteuid", lambda: 1000)
    refused = subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(lab_packages.subprocess, "run", lambda *words, **options: refused)
    with pytest.raises(LabError, match=r"sudo apt-get install .* e2fsprogs$"):
        lab_packages.ensure()


# The monitor


def monitor_that_says(path: Path, *lines: t.Any) -> threading.Thread:
    """A monitor that greets, and answers each command with the next lines up to an answer."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        connection, dummy_address = server.accept()
        with server, connection, connection.makefile("rw") as file, contextlib.suppress(OSError):
            for line in ({"QMP": {}}, {"return": {}}, *lines):
                if "return" in line or "error" in line:
                    file.readline()
                file.write(json.dumps(line) + "\n")
                file.flush()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_events_between_answers_are_passed_over(tmp_path: Path) -> None:
    event, active = {"event": "STOP"}, {"return": {"status": "active"}}
    served = monitor_that_says(tmp_path / "q", event, active, event, {"return": {"status": "completed"}})
    lab_qmp.Monitor(tmp_path / "q").migrated()
    served.join()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"error": {"desc": "no such thing"}}, "no such thing"),
        ({"return": {"status": "failed"}}, "could not be moved: failed"),
    ],
)
def test_a_refusal_is_an_error(tmp_path: Path, answer: t.Any, message: str) -> None:
    served = monitor_that_says(tmp_path / "q", answer)
    with pytest.raises(LabError, match=message):
        lab_qmp.Monitor(tmp_path / "q").migrated()
    served.join()


def test_no_monitor_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="does not answer"):
        lab_qmp.Monitor(tmp_path / "q", wait=0.1)


# What nodes compile


def run_zipped(folder: Path, name: str, text: str) -> str:
    """What a module in a zip file prints, in a Python that keeps what it compiled in ``folder``."""
    with zipfile.ZipFile(folder / name, "w") as file:
        file.writestr("of_zip.py", text)
    program = (
        f"import sys; sys.path[:0] = [{str(lab_base.HERE)!r}, {str(folder / name)!r}]; import node_compiled; "
        f"node_compiled.FOLDER = {str(folder / 'kept')!r}; import of_zip"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_a_text_that_was_compiled_is_not_compiled_again_and_another_text_is(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    assert run_zipped(tmp_path, "first.zip", "print(1)") == "1\n"
    (kept,) = (tmp_path / "kept").iterdir()
    assert len(kept.name) == lab_compiled.NAME_LENGTH
    kept.write_bytes(marshal.dumps(compile("print('kept')", "of_zip.py", "exec")))
    assert run_zipped(tmp_path, "second.zip", "print(1)") == "kept\n"
    assert run_zipped(tmp_path, "second.zip", "print(2)") == "2\n"
    kept.write_bytes(b"cut")
    assert run_zipped(tmp_path, "third.zip", "print(1)") == "1\n"


def test_what_was_compiled_elsewhere_names_the_file_that_it_is_from(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    text = "import sys; print(sys._getframe().f_code.co_filename, (lambda: 0).__code__.co_filename)"
    for name in ("first.zip", "second.zip"):
        assert run_zipped(tmp_path, name, text).split() == [f"{tmp_path}/{name}/of_zip.py"] * 2
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_what_this_machine_compiled_is_not_compiled_on_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / Path(sys.executable).name).write_text("#!/bin/sh\necho no such version >&2; exit 127\n")
    (tmp_path / "broken" / Path(sys.executable).name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'broken'}:{Path(sys.executable).parent}")
    monkeypatch.setattr(lab_image, "RELEASES", {"bookworm": Path(sys.executable).name})
    (tmp_path / "text.py").write_text("print(1)")
    monkeypatch.setattr(lab_compiled, "sources", lambda: [tmp_path / "text.py"])
    (tmp_path / "kept").mkdir()
    lab_compiled.compile_here("trixie", tmp_path / "kept")  # of which there is no Python here
    assert not list((tmp_path / "kept").iterdir())
    lab_compiled.compile_here("bookworm", tmp_path / "kept")
    (kept,) = (tmp_path / "kept").iterdir()
    assert run_zipped(tmp_path, "first.zip", "print(1)") == "1\n"
    assert list((tmp_path / "kept").iterdir()) == [kept]


def test_a_node_is_lent_what_ansible_brings_to_it() -> None:
    names = {path.name for path in lab_compiled.sources()}
    assert {"profile.py", "applying.py", "on_node.py", "basic.py"} <= names
