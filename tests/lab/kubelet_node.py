# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's kubelet, as its steps need it: a real one with containerd and static pods, or a stand-in that runs no pods.

As a script it makes the kubelet's unit, whose files are those of kubeadm's package, and starts it: the program
/usr/local/bin/kubelet where it is there already, else the stand-in. With the argument cgroupfs kubelet and containerd make control
groups by themselves instead of by systemd.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import ssl
import subprocess
import sys
import tarfile
import typing as t
import urllib.error
import urllib.request

from on_node import read, run, wait, write

PROGRAM = "/usr/local/bin/kubelet"
ROOT, DROPINS = "/var/lib/kubelet", "/etc/kubernetes/kubelet.conf.d"
CONFIG, STATE, DROPIN = f"{ROOT}/config.yaml", f"{ROOT}/cpu_manager_state", f"{DROPINS}/20-corral.conf"
UNIT = "kubelet.service"
UNIT_FILE = "/etc/systemd/system/kubelet.service"
ENVIRONMENT = "/etc/default/kubelet"
# While it is there, a kubelet with maxPods 13 does not start: it says "made to fail".
BROKEN = "/root/kubelet-broken"
MAY_START = "/usr/local/sbin/kubelet-may-start"
HOOK, HOOK_LOG = "/usr/local/sbin/drainer", "/root/hook"
MANIFESTS, AWAY = "/etc/kubernetes/manifests", "/root/manifests"
CGROUPFS = "/root/cgroupfs"  # there where the cgroup driver is not systemd
BY_SYSTEMD = not os.path.exists(CGROUPFS) and sys.argv[1:] != ["cgroupfs"]
CGROUPS = "/sys/fs/cgroup"
IS_V1 = not os.path.exists(f"{CGROUPS}/cgroup.controllers")
CPUSETS = f"{CGROUPS}/cpuset" if IS_V1 else CGROUPS
EFFECTIVE = "cpuset.effective_cpus" if IS_V1 else "cpuset.cpus.effective"
PODS = f"{CPUSETS}/kubepods{'.slice' if BY_SYSTEMD else ''}"
IMAGE = "lab/busybox:1"
SOCKET = "/run/containerd/containerd.sock"
BASE = """\
# made by hand
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration

# so many
maxPods: 110
"""
# A kubelet without an API server: it runs the pods of its manifests.
ALONE = f"""\
staticPodPath: {MANIFESTS}
containerRuntimeEndpoint: unix://{SOCKET}
cgroupDriver: {"systemd" if BY_SYSTEMD else "cgroupfs"}
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
{"failCgroupV1: false" if IS_V1 else ""}
"""
# This version is containerd 1's; 2 reads it as well.
CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/{IMAGE}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = {"true" if BY_SYSTEMD else "false"}
"""


def container_group(container: str) -> str:
    """The path of a container's control group in that of its pod, with wildcards."""
    return f"{PODS}/**/pod*/{container}" if not BY_SYSTEMD else f"{PODS}/**/cri-containerd-{container}.scope"


# Drains the node of its static pods, and brings them back.
DRAINER = f"""#!/usr/bin/python3
import glob, os, sys, time
with open("{HOOK_LOG}", "a") as file:
    print(sys.argv[1], file=file)
here, there = ("{MANIFESTS}", "{AWAY}")[:: 1 if sys.argv[1] == "drain" else -1]
for name in os.listdir(here) if os.path.isdir(here) else ():
    os.rename(f"{{here}}/{{name}}", f"{{there}}/{{name}}")
while sys.argv[1] == "drain" and glob.glob("{container_group("*")}", recursive=True) and os.listdir(there):
    time.sleep(1)
"""


def is_real() -> bool:
    """Whether the kubelet of this node is a real one; not where it has none yet."""
    if not os.path.exists(PROGRAM):
        return False
    with open(PROGRAM, "rb") as file:
        return file.read(4) == b"\x7fELF"


def base() -> str:
    """The configuration that others made."""
    return BASE + (ALONE if is_real() else "")


def prepare() -> None:
    """The kubelet and its unit; it runs."""
    if not BY_SYSTEMD:
        write(CGROUPFS, "")
    if not os.path.exists(PROGRAM):
        with open("/root/lab/kubelet_standin.py", encoding="utf-8") as file:
            write(PROGRAM, f"#!/usr/bin/python3\n{file.read()}")
    os.chmod(PROGRAM, 0o755)
    for folder in (ROOT, DROPINS, MANIFESTS, AWAY):
        os.makedirs(folder, exist_ok=True)
    if is_real():
        write("/etc/containerd/config.toml", CONTAINERD)
        run("systemctl", "restart", "containerd.service")
        bring_image()
    write(CONFIG, base())
    write(ENVIRONMENT, "KUBELET_EXTRA_ARGS=\n")
    refuse = f"import glob, os, sys\nfound = [open(path).read() for path in glob.glob({DROPIN!r})]\n"
    refuse += f"if os.path.exists({BROKEN!r}) and any('maxPods: 13' in text for text in found):\n"
    write(MAY_START, f"#!/usr/bin/python3\n{refuse}    sys.exit('made to fail')\n")
    write(HOOK, DRAINER)
    for program in (MAY_START, HOOK):
        os.chmod(program, 0o755)
    words = f"--config={CONFIG} --config-dir={DROPINS} $KUBELET_EXTRA_ARGS"
    # The stand-in fails by itself, after it was healthy for a moment.
    before = f"ExecStartPre={MAY_START}\n" if is_real() else ""
    after = (
        "[Unit]\nAfter=containerd.service\n" if is_real() else ""
    )  # Without that its first start after a boot may fail.
    write(
        UNIT_FILE,
        f"{after}[Service]\nEnvironmentFile=-{ENVIRONMENT}\n{before}ExecStart={PROGRAM} {words}\nRestart=always\nRestartSec=10\n"
        "[Install]\nWantedBy=multi-user.target\n",
    )
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--now", UNIT)
    wait("it has started", has_started, 180)


def bring_image() -> None:
    """An image for containerd that has nothing but busybox; pods' own first process is one of it as well."""
    with open("/bin/busybox", "rb") as file:
        layer = archive({"bin/busybox": file.read()})
    config = {
        "architecture": "amd64",
        "os": "linux",
        # The first process of a container has no handler for SIGTERM, so that the kernel does not end it by that.
        "config": {"Cmd": ["/bin/busybox", "sleep", "1000000"], "StopSignal": "SIGKILL"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}"]},
    }
    about = json.dumps(config).encode()
    index = [{"Config": f"{digest(about)}.json", "RepoTags": [f"docker.io/{IMAGE}"], "Layers": ["layer.tar"]}]
    files = {f"{digest(about)}.json": about, "layer.tar": layer, "manifest.json": json.dumps(index).encode()}
    with open("/root/image.tar", "wb") as file:
        file.write(archive(files))
    run("ctr", "--namespace", "k8s.io", "images", "import", "/root/image.tar")


def archive(files: dict[str, bytes]) -> bytes:
    """A tar archive of programs."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(data), 0o755
            tar.addfile(about, io.BytesIO(data))
    return made.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pid() -> int:
    """The kubelet's process."""
    return int(run("systemctl", "show", "--value", "--property=MainPID", UNIT))


def log() -> list[str]:
    """What the kubelet that runs now has written."""
    return run("journalctl", "--output=cat", f"_PID={pid()}", f"--unit={UNIT}").splitlines()


def has_started() -> bool:
    """Whether the kubelet that runs now has read its files, states included."""
    said = "Started kubelet" if is_real() else "started: "
    return bool(pid()) and any(said in line for line in log()) and os.path.exists(STATE)


def running_with() -> dict[str, t.Any]:
    """The configuration with which the kubelet that runs now started: by its API, or by the stand-in's log."""
    if not is_real():
        found = [line.partition("started: ")[2] for line in log() if line.startswith("started: ")]
        return t.cast("dict[str, t.Any]", json.loads(found[-1]))
    return t.cast("dict[str, t.Any]", asked("configz")["kubeletconfig"])


def asked(path: str) -> t.Any:
    """An answer of the kubelet's API, which begins to listen some seconds after the kubelet's first words."""
    wait("the kubelet listens", lambda: run("ss", "--no-header", "--listening", "--tcp", "sport = 10250") != "", 120)
    context = ssl._create_unverified_context()
    with urllib.request.urlopen(f"https://127.0.0.1:10250/{path}", timeout=60, context=context) as answer:
        return json.load(answer)


def aside() -> list[str]:
    """What was set aside."""
    return sorted(name for name in os.listdir(ROOT) if ".corral-" in name)


# Pods


def put_pod(name: str, cpus: t.Optional[int], hugepages: str = "") -> None:
    """A static pod: with so many CPUs of its own (under the policy static) and so much in pages of 2 MiB, or on shared CPUs."""
    pages = {"hugepages-2Mi": hugepages} if hugepages else {}
    resources = {"limits": {"cpu": cpus, "memory": "32Mi", **pages}} if cpus else {}
    container = {
        "name": "main",
        "image": f"docker.io/{IMAGE}",
        "imagePullPolicy": "Never",
        "command": ["/bin/busybox", "sleep", "1000000"],
        "resources": resources,
    }
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
    write(f"{MANIFESTS}/.{name}", json.dumps(pod))
    os.rename(f"{MANIFESTS}/.{name}", f"{MANIFESTS}/{name}.json")


def pods() -> dict[str, t.Any]:
    """The pods that the kubelet knows, by name."""
    node = f"-{os.uname().nodename}"  # ends the name of a static pod
    return {pod["metadata"]["name"][: -len(node)]: pod for pod in asked("pods")["items"] or ()}


def cpus_of(name: str) -> str:
    """The CPUs of the control group of a static pod's container, as the kernel has them; "" where it does not run."""
    try:
        (status,) = pods()[name]["status"]["containerStatuses"]
        digits = status["containerID"].rpartition("/")[2]
        assert status["state"]["running"]
    except (KeyError, ValueError, AssertionError, urllib.error.URLError):
        return ""
    uid = pods()[name]["metadata"]["annotations"]["kubernetes.io/config.hash"]
    found = [folder for folder in groups_of(digits) if f"pod{uid.replace('-', '_') if BY_SYSTEMD else uid}" in folder]
    return read(f"{found[0]}/{EFFECTIVE}") if found else ""


def groups_of(container: str) -> list[str]:
    """The control group of a container, by its number, where it has one."""
    return glob.glob(container_group(container), recursive=True)


def entries() -> dict[str, str]:
    """The CPUs that the kubelet's state file gives to each pod's only container, by the pod's uid."""
    return {uid: own["main"] for uid, own in (json.loads(read(STATE)).get("entries") or {}).items()}


if __name__ == "__main__":
    prepare()
    subprocess.run(["systemctl", "status", "--no-pager", UNIT], check=False)
    sys.exit(0)
