# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots that Corral writes: what was read, and nothing else."""

from __future__ import annotations

import gzip
import json
import os
import stat
from pathlib import Path
from unittest import mock

import pytest
from _core.host import state
from _core.host.files import Host
from _core.host.snapshot import kept_in_snapshot, recorded_tree, snapshot
from _core.host.snapshot.kept_in_snapshot import MARK
from _core.model.systemd.unit_file import HEADER, unit_text


def test_a_snapshot_holds_what_was_read_and_nothing_else(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for path, text in {"sys/a": "1\n", "sys/real/b": "2\n", "proc/secret": "x"}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (tree / "sys/link").symlink_to("real")
    (tree / "sys/round").symlink_to("round")
    host = Host(str(tree), record=True)
    paths = ("/sys/a", "/sys/link/b", "/sys/round", "/none")
    read = [host.read(path) for path in paths]
    snapshot.write(host, str(tmp_path / "s.tar.gz"))
    with recorded_tree.opened(str(tmp_path / "s.tar.gz")) as replayed:
        assert [replayed.read(path) for path in paths] == read
        assert replayed.read("/proc/secret") is None


SECRET = "hunter2"
UNIT = f"""# {SECRET}
[Unit]
Description={SECRET}
After=a.service
[Service]
Environment={SECRET} PASS={SECRET} "{SECRET} x=1" "TWO={SECRET}" OPTS="--name {SECRET}" KUBELET_ARGS="--config=/etc/kubelet.yaml --token={SECRET} --max-pods=7"
SetCredential=token:{SECRET}
SetCredentialEncrypted=token: \\
  {SECRET}
LoadCredential=a:{SECRET}
PassEnvironment=PASS
EnvironmentFile=-/etc/default/web
ExecStartPre=/bin/sh -c 'echo {SECRET}' ; /bin/{SECRET}
ExecStart=/usr/bin/podman --log-level={SECRET} run -e PASS={SECRET} -p{SECRET} --cgroups=split --env={SECRET} --name web img {SECRET} $ARGS ; /{SECRET}/podman
Slice=machine.slice
AllowedCPUs=2-3
MemoryMax=1G
{SECRET}
{SECRET}Key={SECRET}
{SECRET}=
"""
KEPT_OF_UNIT = f"""[Unit]
Description={MARK}
After=a.service
[Service]
Environment={MARK} "PASS={MARK}" {MARK} "TWO={MARK}" "OPTS={MARK}" "KUBELET_ARGS=--config=/etc/kubelet.yaml --token={MARK} --max-pods=7"
SetCredential={MARK}
SetCredentialEncrypted={MARK}
LoadCredential={MARK}
PassEnvironment=PASS
EnvironmentFile=-/etc/default/web
ExecStartPre={MARK} -c {MARK} ';' {MARK}
ExecStart=/usr/bin/podman --log-level={MARK} run -e {MARK} -p{MARK} --cgroups=split --env={MARK} --name web {MARK} {MARK} $ARGS ';' {MARK}
Slice=machine.slice
AllowedCPUs=2-3
MemoryMax=1G
{MARK}
{MARK}={MARK}
{MARK}={MARK}
"""
OWN = unit_text(
    ("Service", ["ExecStart=/usr/libexec/corral/current/corral reconcile --tick", "Slice=corralagent.slice"])
)
MOUNT = "36 35 0:42 / {} rw,relatime shared:1 - {} {} {}\n"
KUBELET = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
FILES: dict[str, tuple[str, str]] = {
    "/etc/systemd/system/web.service": (UNIT, KEPT_OF_UNIT),
    "/run/systemd/transient/web.service": (UNIT, KEPT_OF_UNIT),
    "/etc/systemd/system/web.service.d/50-corral.conf": (UNIT, KEPT_OF_UNIT),
    "/etc/systemd/system/corral-reconcile.service": (
        (
            f"{OWN}Environment=PASS={SECRET}\nExecStartPre=/bin/{SECRET}\n#Environment=PASS={SECRET}\nSetCredential=a:{SECRET}\n"
            f"ExecStart=/usr/libexec/corral/corral --token={SECRET}\n"
        ),
        f'{OWN}Environment="PASS={MARK}"\nExecStartPre={MARK}\n{MARK}={MARK}\nSetCredential={MARK}\nExecStart={MARK} --token={MARK}\n',
    ),
    "/proc/7/cmdline": (f"/usr/bin/db\0-p{SECRET}\0--password={SECRET}\0{SECRET}\0", f"{MARK}\0-p{MARK}\0--password={MARK}\0{MARK}\0"),
    "/proc/8/cmdline": (
        f"/usr/bin/kubelet\0--config=/a\0--hostname-override\0n1\0--token\0{SECRET}\0",
        f"/usr/bin/kubelet\0--config=/a\0--hostname-override\0n1\0--token\0{MARK}\0",
    ),
    "/proc/9/cmdline": (
        f"/usr/bin/conmon\0-c\0abc\0-n\0web\0-s\0-p\0/run/pidfile\0-e\0{SECRET}\0",
        f"/usr/bin/conmon\0-c\0abc\0-n\0web\0-s\0-p\0/run/pidfile\0-e\0{MARK}\0",
    ),
    "/proc/5/cmdline": (f"db\0run\0--name={SECRET}\0--name\0{SECRET}\0", f"{MARK}\0{MARK}\0--name={MARK}\0--name\0{MARK}\0"),
    "/proc/6/cmdline": (
        f"podman\0run\0--name=web\0{SECRET}\0conmon\0-c\0{SECRET}\0;\0db\0--name\0{SECRET}\0",
        f"podman\0run\0--name=web\0{MARK}\0{MARK}\0-c\0{MARK}\0;\0{MARK}\0--name\0{MARK}\0",
    ),
    "/run/containers/a/userdata/pidfile": ("07\n", "7\n"),
    "/run/containers/b/userdata/pidfile": (SECRET, f"{MARK}\n"),
    "/var/lib/corral/drained": (f"/usr/sbin/drainer\n{SECRET}\n", "/usr/sbin/drainer\n"),
    "/proc/7/environ": (f"PASS={SECRET}\0", f"{MARK}\n"),
    "/proc/1/mountinfo": (
        MOUNT.format("/a", "hugetlbfs", "h", "rw,pagesize=2M") + MOUNT.format("/b", "cifs", f"//{SECRET}/x", f"rw,username={SECRET}")
        + MOUNT.format("/c", "fuse.x", SECRET, f"rw{SECRET},a"),
        MOUNT.format("/a", "hugetlbfs", "h", "rw,pagesize=2M") + MOUNT.format("/b", "cifs", MARK, "rw")
        + MOUNT.format("/c", "fuse.x", MARK, MARK),
    ),
    "/etc/passwd": (f"root:{SECRET}:0:0:{SECRET}:/{SECRET}:/bin/sh\na:x:7:{SECRET}:7:/:/\n", "root:x:0:0:::\n"),
    "/etc/group": (f"kvm:{SECRET}:104:a,b\n", "kvm:x:104::::\n"),
    "/var/lib/kubelet/config.yaml": (
        (
            f"# {SECRET}\n{KUBELET}maxPods: 7 # {SECRET}\n'{SECRET}': {SECRET}\nclusterDomain: 'a # {SECRET}'\n"
            f"evictionHard: {{imagefs.available: \"5 # %\"}} # it's \"{SECRET}\"\n"
            f"staticPodURLHeader:\n  Authorization:\n  - {SECRET}\nkubeReserved:\n  cpu: 500m\n"
        ),
        (
            f"{KUBELET}maxPods: 7\n# {MARK}\nclusterDomain: {MARK}\nevictionHard: {{imagefs.available: \"5 # %\"}}\n"
            f"staticPodURLHeader: {MARK}\nkubeReserved:\n  cpu: 500m\n"
        ),
    ),
    "/etc/kubernetes/kubelet.conf.d/20-corral.conf": (
        f"{HEADER}{KUBELET}maxPods: 7\nclusterDomain: {SECRET}\n# {SECRET}\n",
        f"{HEADER}{KUBELET}maxPods: 7\nclusterDomain: {MARK}\n",
    ),
    "/etc/kubernetes/kubelet.json": (
        json.dumps({"kind": "KubeletConfiguration", "maxPods": 7, "staticPodURLHeader": {"a": [SECRET]}}),
        json.dumps({"kind": "KubeletConfiguration", "maxPods": 7, "staticPodURLHeader": MARK}),
    ),
    "/etc/kubernetes/half.json": (f'{{"kind": "KubeletConfiguration", "a": "{SECRET}"', f"{MARK}\n"),
    "/var/lib/kubelet/kubeadm-flags.env": (
        f'KUBELET_KUBEADM_ARGS="--token={SECRET} --cpu-manager-policy=static"\nPASS={SECRET}\n',
        f'KUBELET_KUBEADM_ARGS="--token={MARK} --cpu-manager-policy=static"\nPASS="{MARK}"\n',
    ),
    "/etc/kubernetes/kubelet.conf": (f"token: {SECRET}\n", f"{MARK}\n"),
    "/etc/default/irqbalance": (
        f"IRQBALANCE_BANNED_CPULIST=2-3\nIRQBALANCE_BANNED_CPUS={SECRET}\nPASS={SECRET}\n",
        f'IRQBALANCE_BANNED_CPULIST="2-3"\nIRQBALANCE_BANNED_CPUS="{MARK}"\nPASS="{MARK}"\n',
    ),
    "/etc/sysctl.d/50-x.conf": (
        f"# {SECRET}\nkernel.pid_max = 40000\nnet.ipv6.conf.all.stable_secret = {SECRET}\n",
        f"kernel.pid_max = 40000\n{MARK}={MARK}\n",
    ),
    "/etc/sysctl.d/90-corral.conf": (
        f"{HEADER}kernel.pid_max = 40000\nnet.ipv6.conf.all.stable_secret = {SECRET}\n# kernel.x = {SECRET}\n",
        f"{HEADER}kernel.pid_max = 40000\n{MARK}={MARK}\n",
    ),
    "/run/user/7/containers/overlay-containers/containers.json": (
        json.dumps([{"id": "a", "names": ["web"], "metadata": SECRET, "environment": [SECRET]}, {"id": "b"}]),
        json.dumps([{"id": "a", "names": ["web"]}, {"id": "b", "names": []}]),
    ),
    "/etc/cron.d/x": (
        f"0 3 * * * root podman --url={SECRET} system prune --all\n0 4 * * * root /bin/x {SECRET}\n# podman {SECRET}\n",
        f"{MARK} {MARK} {MARK} {MARK} {MARK} {MARK} podman --url={MARK} system prune --all\n",
    ),
    "/etc/cdi/x.json": (
        json.dumps({
            "cdiVersion": "0.6.0",
            "kind": "a/b",
            "containerEdits": {"env": [SECRET], "deviceNodes": [{"path": "/dev/ctl", "hostPath": SECRET}, {"path": "/dev/ctl"}]},
            "devices": [
                {"name": "d", "x": SECRET},
                {"name": "e", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b", "uid": SECRET}]}},
            ],
        }),
        json.dumps({
            "cdiVersion": "0.6.0",
            "kind": "a/b",
            "devices": [
                {"name": "d", "containerEdits": {"env": [f"SNAPSHOT={MARK}"]}},
                {"name": "e", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}},
            ],
            "containerEdits": {"deviceNodes": [{"path": "/dev/ctl"}]},
        }),
    ),
    "/etc/cdi/x.yaml": (f"kind: a/b\nenv: {SECRET}\n", f"{MARK}\n"),
    "/etc/tuned/own/tuned.conf": (
        f"[main]\ninclude=x\n[variables]\nisolated_cores=2-3\n[script]\nscript={SECRET}\nkernel.x={SECRET}\n",
        f"[main]\ninclude=x\n[variables]\nisolated_cores=2-3\n[script]\n{MARK}={MARK}\n{MARK}={MARK}\n",
    ),
    "/srv/what/a/new/reader/reads": (f"{SECRET}\n", f"{MARK}\n"),
    "/run/corral/inputs": (SECRET, f"{MARK}\n"),
    "/sys/devices/system/cpu/online": ("0-7\n", "0-7\n"),
    "/proc/meminfo": ("MemTotal: 1 kB\n", "MemTotal: 1 kB\n"),
    "/run/corral/status.json": ("{}\n", "{}\n"),
}  # fmt: skip


@pytest.mark.parametrize("path", FILES)
def test_what_is_kept_of_a_file(path: str) -> None:
    text, kept = FILES[path]
    assert kept_in_snapshot.kept(path, text.encode()).decode() == kept
    assert SECRET not in kept
    for wrong in (b"", b"\xff\0\x80", b"[" * 100_000, b"'\"\\", b"=\n:=\n"):
        assert isinstance(kept_in_snapshot.kept(path, wrong), bytes)


def test_the_originals_keep_no_secret_of_the_files_that_they_are_of() -> None:
    dropin = {"kind": "file", "target": "/etc/systemd/system/web.service.d/10-corral-x.conf", "value": UNIT, "name": ""}
    rows = [{"manager": "cpu", "subject": "web.service", "before": dropin}]
    kept = kept_in_snapshot.kept(state.BEFORE, state.checked_text(rows).encode()).decode()
    assert SECRET not in kept
    assert state.checked_data(json.loads(kept))[0]["before"]["value"] == KEPT_OF_UNIT
    # Neither a file in place of a link nor a drop-in of the running system's has to have a second line.
    rows[0]["before"] = {"kind": "link", "target": "/usr/bin/corral", "value": SECRET}
    rows.append(
        {
            **rows[0],
            "before": {"kind": "property", "target": "a.slice", "value": "7", "runtime": f"Environment={SECRET}"},
        }
    )
    assert SECRET not in kept_in_snapshot.kept(state.BEFORE, state.checked_text(rows).encode()).decode()
    assert kept_in_snapshot.kept(state.BEFORE, b"{}") == f"{MARK}\n".encode()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "tree/etc/systemd/system").mkdir(parents=True)
    (tmp_path / "tree/etc/systemd/system/web.service").write_text(UNIT)
    found = Host(str(tmp_path / "tree"), record=True)
    assert found.read("/etc/systemd/system/web.service") == UNIT
    return found


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_a_regular_file_is_replaced(host: Host, tmp_path: Path, kind: str) -> None:
    """A snapshot took the place of /dev/full, and of the link /dev/stdout."""
    target = tmp_path / "s.tar.gz"
    (tmp_path / "precious").write_text("precious")
    {"link": lambda: target.symlink_to("precious"), "fifo": lambda: os.mkfifo(target), "folder": target.mkdir}[kind]()
    before = target.lstat()
    with pytest.raises(OSError, match="what is there is no regular file: name a new file"):
        snapshot.write(host, str(target))
    assert (target.lstat().st_ino, target.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert (tmp_path / "precious").read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["precious", "s.tar.gz", "tree"]


def test_only_its_owner_reads_a_snapshot(host: Host, tmp_path: Path) -> None:
    (tmp_path / "s.tar.gz").write_text("the one before")
    (tmp_path / "s.tar.gz").chmod(0o644)
    before = os.umask(0)
    try:
        snapshot.write(host, str(tmp_path / "s.tar.gz"))
    finally:
        os.umask(before)
    found = (tmp_path / "s.tar.gz").lstat().st_mode
    assert (stat.S_ISREG(found), stat.S_IMODE(found)) == (True, 0o600)
    assert SECRET.encode() not in gzip.decompress((tmp_path / "s.tar.gz").read_bytes())
    assert sorted(os.listdir(tmp_path)) == ["s.tar.gz", "tree"]


def test_an_error_leaves_nothing_of_a_snapshot(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.tar.gz").write_text("the one before")
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        monkeypatch.setattr(kept_in_snapshot, "kept", mock.Mock(side_effect=error))
        host.recorded = {("read_bytes", "/etc/systemd/system/web.service"): b""}
        with pytest.raises(type(error)):
            snapshot.write(host, str(tmp_path / "s.tar.gz"))
        assert sorted(os.listdir(tmp_path)) == ["s.tar.gz", "tree"]
        assert (tmp_path / "s.tar.gz").read_text() == "the one before"


def test_the_environment_that_systemd_gives_to_all_units_is_left_out() -> None:
    text = kept_in_snapshot.kept(
        "/etc/systemd/system.conf", b"[Manager]\nDefaultEnvironment=PASS=hunter2\nDefaultTasksMax=5\n"
    ).decode()
    assert "hunter2" not in text and "DefaultTasksMax=5" in text


def test_a_long_name_that_is_not_ascii(host: Host, tmp_path: Path) -> None:
    """A name has 255 bytes: the temporary one beside it has fewer of them, not of its letters."""
    target = tmp_path / ("\u00e4" * 120 + ".tar.gz")
    snapshot.write(host, str(target))
    assert sorted(os.listdir(tmp_path)) == ["tree", target.name]
