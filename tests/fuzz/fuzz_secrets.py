# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a snapshot keeps of files with a secret in them, wherever docs/snapshots.md says that nothing of it is kept."""

from __future__ import annotations

import json
import random
import typing as t

import mutation
from _core.host import state
from _core.host.snapshot import kept_in_snapshot
from fuzz_target import Outcome, Target

SECRET = "opensesame"
# What stands there honestly is changed as bytes, what has the secret only around it: no change may give it another key.
UNIT = (
    "[Service]", "Slice=corral.slice", "AllowedCPUs=0-3", "ExecStart=/usr/bin/podman run --name=web -d image", "User=web", "[Install]", "",
    *(f"{key}={SECRET}" for key in ("X-Token", "Password", "ListenStream", "LoadCredential", "SetCredentialEncrypted", "Description", "PAMName")),
    f"Environment=TOKEN={SECRET}", f'Environment="A=b" "PASSWORD={SECRET}"', f"Environment=A=b \\\n  TOKEN={SECRET}", f"# {SECRET}", f"; {SECRET}",
    f"SetCredential=key:{SECRET}", SECRET, f"ExecStart=/usr/bin/app --password={SECRET}", f"ExecStartPre=-/usr/bin/app --token {SECRET} -p{SECRET}",
    f"ExecStart=/usr/bin/podman run -e TOKEN={SECRET} --env=A={SECRET} --creds me:{SECRET}", f"ExecReload=/bin/sh -c 'curl -H {SECRET}'",
    f"ExecStart=/usr/bin/kubelet --x={SECRET} --kubeconfig=/etc/k.conf {SECRET}", f"ExecStartPost=@/usr/bin/podman {SECRET} run",
)  # fmt: skip
CMDLINE = (
    ("/usr/bin/kubelet", "--config=/etc/k.yaml", "--token", SECRET, f"--bearer={SECRET}", "--max-pods=7", SECRET),
    ("/usr/bin/podman", "run", "-e", f"A={SECRET}", f"--env=A={SECRET}", f"-p{SECRET}", "--name", "web", SECRET),
    ("/usr/bin/conmon", "-n", "web", "-c", "0123456789ab", "--exit-command-arg", SECRET, f"-u{SECRET}"),
    ("/usr/bin/app", f"--password={SECRET}", "-p", SECRET, f"me:{SECRET}@host"),
)  # fmt: skip
CONFIG = (
    "apiVersion: kubelet.config.k8s.io/v1beta1", "kind: KubeletConfiguration", "maxPods: 110", "kubeReserved:", "  cpu: 500m", "---",
    f"tlsPrivateKey: {SECRET}", f"token: |\n  {SECRET}\n  {SECRET}", f"# {SECRET}", f"nested:\n  a: {SECRET}\n  b: [{SECRET}]", f"maxPods: 7 # {SECRET}",
    f"x: {{a: {SECRET}}}", f"'quoted': {SECRET}", f"? {SECRET}", f"xy: >-\n\n  {SECRET}", f"list:\n- {SECRET}", f"a-b: {SECRET}", f"a.b: {SECRET}",
)  # fmt: skip
VARIABLES = ("IRQBALANCE_BANNED_CPUS=f", "KUBELET_ARGS=--max-pods=7", f"TOKEN={SECRET}", f'ARGS="--token={SECRET} {SECRET} -x {SECRET}"', f"# {SECRET}",
             f"export TOKEN={SECRET}")  # fmt: skip
SYSCTL = (
    "kernel.pid_max = 4096",
    "vm.nr_hugepages = 2",
    f"net.x = {SECRET}",
    f"# {SECRET}",
    f"kernel.domainname = {SECRET}",
    f"; {SECRET}",
    SECRET,
)
CRON = ("* * * * * root podman image prune", f"PASSWORD={SECRET}", f"* * * * * TOKEN={SECRET} podman run -e A={SECRET} {SECRET}", f"# podman {SECRET}",
        f"* * * * * podman login -p {SECRET}")  # fmt: skip
PASSWD = ("root:x:0:0::/root:/bin/sh", f"alice:{SECRET}:1000:1000:{SECRET}:/home/{SECRET}:/bin/{SECRET}")
MOUNTS = ("30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", f"31 1 0:27 / /mnt rw - cifs //me:{SECRET}@server rw,password={SECRET}",
          f"32 1 0:28 / /mnt rw shared:1 - fuse.sshfs {SECRET} ro,{SECRET}")  # fmt: skip
# Of which file: its lines, and what is between them.
FILES: dict[str, tuple[str, ...]] = {
    "/etc/systemd/system/web.service": UNIT, "/usr/lib/systemd/system/x.slice.d/50-x.conf": UNIT, "/run/systemd/system.control/x.slice.d/50-y.conf": UNIT,
    "/var/lib/kubelet/config.yaml": CONFIG, "/etc/kubernetes/kubelet.conf.d/10-x.conf": CONFIG, "/etc/default/kubelet": VARIABLES,
    "/etc/sysconfig/irqbalance": VARIABLES, "/var/lib/kubelet/kubeadm-flags.env": VARIABLES, "/etc/sysctl.d/9-x.conf": SYSCTL, "/etc/sysctl.conf": SYSCTL,
    "/etc/tuned/profile/tuned.conf": SYSCTL, "/etc/cron.d/x": CRON, "/var/spool/cron/root": CRON, "/etc/passwd": PASSWD, "/proc/7/mountinfo": MOUNTS,
    "/etc/shadow": UNIT, "/proc/7/environ": VARIABLES, "/root/.docker/config.json": CONFIG[2:], "/etc/kubernetes/token": (SECRET,),
}  # fmt: skip
SPEC = {"cdiVersion": "0.6.0", "kind": "vendor.example/gpu", "annotations": {"a": SECRET}, "containerEdits": {"env": [f"TOKEN={SECRET}"]},
        "devices": [{"name": "0", "annotations": {SECRET: SECRET}, "containerEdits": {"env": [SECRET]}}]}  # fmt: skip
JSON_FILES: dict[str, t.Any] = {
    "/etc/cdi/vendor.json": SPEC,
    "/var/lib/containers/storage/overlay-containers/containers.json": [{"id": "ab", "names": ["web"], "metadata": SECRET, "flags": {"a": SECRET}}],
    "/var/lib/kubelet/config.json": {"kind": "KubeletConfiguration", "maxPods": 7, "token": SECRET, "nested": {"maxPods": SECRET}},
}  # fmt: skip


class Secrets(Target):
    """Files with a secret, as bytes."""

    def make(self, chance: random.Random) -> t.Any:
        what = chance.randrange(5)
        if what == 0:
            words = list(chance.choice(CMDLINE))
            return "/proc/7/cmdline", "\0".join(self.around(chance, word) if SECRET in word else word for word in words)
        if what == 1:
            path = chance.choice(sorted(JSON_FILES))
            return path, self.around(chance, json.dumps(JSON_FILES[path], indent=chance.choice((None, 1))))
        path = chance.choice(sorted(FILES))
        text = self.lines(chance, FILES[path])
        if what > 2:
            return path, text
        kind = chance.choice(("file", "link", "property"))
        before = {"kind": kind, "target": path, "value": text, "link": None, "runtime": None}
        if kind == "property":
            before.update(target="x.slice", name="TasksMax", value="7", runtime=self.lines(chance, UNIT))
        return state.BEFORE, state.checked_text([{"manager": "cpu", "subject": "x", "before": before}])

    def lines(self, chance: random.Random, lines: tuple[str, ...]) -> str:
        found = []
        for line in chance.choices(lines, k=chance.choice((1, 3, 10))):
            if SECRET in line:
                found.append(self.around(chance, line))
            else:
                found.append(
                    mutation.mutated_text(chance, line)[:10000].rstrip("\\") if chance.random() < 0.2 else line
                )
        return chance.choice(("\n", "\n", "\n", "\r\n")).join(found) + chance.choice(("\n", ""))

    def around(self, chance: random.Random, text: str) -> str:
        """The text with something hostile in front of the secret or after it."""
        if chance.random() < 0.4:
            return text
        place = text.index(SECRET) + chance.choice((0, len(SECRET)))
        word = mutation.word(chance).replace("--now", "-n")  # the names of options are kept
        if text in PASSWD:
            word = "".join(word.split())  # so are the names of accounts, which lines begin with
        return text[:place] + word + text[place:]

    def run(self, data: t.Any) -> Outcome:
        path, text = data
        found = kept_in_snapshot.kept(path, mutation.encoded(text)).decode("utf-8", "surrogateescape")
        wrong = next((f"kept of {path}: {line[-150:]!r}" for line in found.split("\n") if SECRET in line), "")
        depth = "left out" if found == f"{kept_in_snapshot.MARK}\n" else path.rpartition("/")[2]
        return Outcome(depth, (), wrong)


TARGETS = {"secrets": Secrets}
