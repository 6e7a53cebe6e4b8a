# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for the kubelet, installed as /usr/local/bin/kubelet where no real one can be had. It runs no pods.

It reads --config and the drop-ins of --config-dir, ends with the kubelet's words where a real one of 1.36 would refuse its CPU manager's
state, writes that file where there is none, and answers /healthz. As a real one it is healthy for a moment before it ends.
It loads what only that needs when it starts: its version is asked for on nodes that are so slow that seconds matter.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import typing as t

VERSION = "Kubernetes v1.36.2"
BROKEN = "/root/kubelet-broken"  # while it is there, a kubelet with maxPods 13 ends
# A real kubelet reads its state files some seconds after it answers.
BEFORE_CHECKS = 2.0


def flag(name: str, default: str = "") -> str:
    """A flag of the command line."""
    found = [word.partition("=")[2] for word in sys.argv[1:] if word.startswith(f"--{name}=")]
    return found[-1] if found else default


def merged(target: t.Any, patch: t.Any) -> t.Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


def configuration() -> dict[str, t.Any]:
    """The configuration of the files."""
    import yaml

    with open(flag("config"), encoding="utf-8") as file:
        config: dict[str, t.Any] = yaml.safe_load(file)
    folder = flag("config-dir")
    for name in sorted(os.listdir(folder)) if folder else ():
        if name.endswith(".conf"):
            with open(f"{folder}/{name}", encoding="utf-8") as file:
                patch = yaml.safe_load(file)
            if patch.get("kind") != "KubeletConfiguration":
                raise ValueError(f"{name}: no kind is registered")
            config = merged(config, patch)
    return config


def cpus(text: str) -> set[int]:
    """A list of CPUs."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dummy, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def shown(found: set[int]) -> str:
    """The same as text."""
    return ",".join(map(str, sorted(found)))


def check_state(config: dict[str, t.Any], path: str) -> None:
    """Raise ValueError where the CPU manager would not start; make its file where there is none."""
    policy = config.get("cpuManagerPolicy") or "none"
    reserved = cpus(config.get("reservedSystemCPUs") or "")
    with open("/sys/devices/system/cpu/online", encoding="utf-8") as file:
        online = cpus(file.read().strip())
    strict = str((config.get("cpuManagerPolicyOptions") or {}).get("strict-cpu-reservation")) == "true"
    usable = online - reserved if strict else online
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except FileNotFoundError:
        default = shown(usable) if policy == "static" else ""
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"policyName": policy, "defaultCpuSet": default, "checksum": 0}, file)
        os.rename(f"{path}.new", path)
        return
    if state["policyName"] != policy:
        raise ValueError(
            f'could not restore state from checkpoint: configured policy "{policy}" differs from state checkpoint policy '
            f'"{state["policyName"]}", please drain this node and delete the CPU manager checkpoint file "{path}" before restarting Kubelet'
        )
    if policy != "static":
        return
    default = cpus(state["defaultCpuSet"])
    if strict and reserved & default:
        raise ValueError(
            f'some of strictly reserved cpus: "{shown(reserved & default)}" are present in defaultCpuSet: "{shown(default)}"'
        )
    if not strict and not reserved <= default:
        raise ValueError(f'not all reserved cpus: "{shown(reserved)}" are present in defaultCpuSet: "{shown(default)}"')
    taken = {cpu for pod in state.get("entries", {}).values() for own in pod.values() for cpu in cpus(own)}
    if default | taken != usable:
        raise ValueError(
            f'current set of available CPUs "{shown(usable)}" doesn\'t match with CPUs in state "{shown(default | taken)}"'
        )


def serve() -> None:
    """Say that it is healthy, as long as it runs."""
    import http.server

    class Health(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *dummy: t.Any) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 10248), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main() -> int:
    if "--version" in sys.argv:
        print(VERSION)
        return 0
    config = configuration()
    serve()
    time.sleep(BEFORE_CHECKS)
    try:
        if os.path.exists(BROKEN) and config.get("maxPods") == 13:
            raise ValueError("made to fail")
        check_state(config, f"{flag('root-dir', '/var/lib/kubelet')}/cpu_manager_state")
    except ValueError as error:
        print(f'E1125 "Failed to start ContainerManager" err="{error}"', file=sys.stderr, flush=True)
        return 1
    print(f"started: {json.dumps(config, sort_keys=True)}", flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
