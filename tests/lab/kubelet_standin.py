# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for the kubelet, installed as /usr/local/bin/kubelet where no real one can be had. It runs no pods.

It reads --config, the drop-ins of --config-dir and --max-pods, ends with the kubelet's words where a real one of 1.36 would refuse its CPU manager's
policy or state, writes that file where there is none, and answers /healthz. As a real one it is healthy for a moment before it ends.
What else a real one would refuse it takes: other keys, and the memory manager's state, which it does not have.
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
    if config.get("kind") != "KubeletConfiguration":
        raise ValueError(f"{flag('config')}: no kind is registered")
    folder = flag("config-dir")
    for name in sorted(os.listdir(folder)) if folder else ():
        if name.endswith(".conf"):
            with open(f"{folder}/{name}", encoding="utf-8") as file:
                patch = yaml.safe_load(file)
            if patch.get("kind") != "KubeletConfiguration":
                raise ValueError(f"{name}: no kind is registered")
            config = merged(config, patch)
    if flag("max-pods"):
        config["maxPods"] = int(flag("max-pods"))
    return config


def cpus(text: str) -> set[int]:
    """A list of CPUs. Raises ValueError in Go's words."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dummy, last = part.partition("-")
        for word in (first, last or first):
            if not word.isdecimal():
                raise ValueError(f'strconv.Atoi: parsing "{word}": invalid syntax')
        found |= set(range(int(first), int(last or first) + 1))
    return found


def shown(found: set[int]) -> str:
    """The same as text."""
    firsts = [cpu for cpu in sorted(found) if cpu - 1 not in found]
    lasts = [cpu for cpu in sorted(found) if cpu + 1 not in found]
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in zip(firsts, lasts))


def checksum(policy: str, default: str, entries: dict[str, dict[str, str]]) -> int:
    """That of a state file: FNV-1a of the struct as Go prints it."""
    pods = " ".join(
        f"{uid}:map[{' '.join(f'{name}:{own[name]}' for name in sorted(own))}]" for uid, own in sorted(entries.items())
    )
    text = f"(*state.CPUManagerCheckpoint){{PolicyName:(string){policy} DefaultCPUSet:(string){default} "
    text += f"Entries:(map[string]map[string]string)map[{pods}] Checksum:(checksum.Checksum)0}}"
    found = 0x811C9DC5
    for byte in text.encode():
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found


def check_policy(config: dict[str, t.Any]) -> None:
    """Raise ValueError where there would be no CPU manager of this policy."""
    policy, options = config.get("cpuManagerPolicy") or "none", config.get("cpuManagerPolicyOptions") or {}
    if policy == "none" and options:
        named = " ".join(f"{name}:{options[name]}" for name in sorted(options))
        raise ValueError(f"None policy: received unsupported options=map[{named}]")
    kept = [config.get("reservedSystemCPUs"), *((config.get(key) or {}).get("cpu") for key in ("kubeReserved", "systemReserved"))]  # fmt: skip
    if policy == "static" and not any(kept):
        raise ValueError(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
        )


def restored(text: str, policy: str) -> tuple[set[int], dict[str, dict[str, set[int]]]]:
    """The shared CPUs of a state file (v2), and those of each container. Raises ValueError where the CPU manager does not read it."""
    try:
        state = {key.lower(): value for key, value in json.loads(text).items()}
    except ValueError:
        raise ValueError("unexpected end of JSON input") from None  # It is torn.
    own, default, entries = state["policyname"], state.get("defaultcpuset", ""), state.get("entries") or {}
    if state.get("checksum") not in (0, checksum(own, default, entries)):
        raise ValueError("checkpoint is corrupted")
    if own != policy:
        raise ValueError(f'configured policy "{policy}" differs from state checkpoint policy "{own}"')
    what = f'default cpu set "{default}"'
    try:
        shared = cpus(default)
        taken: dict[str, dict[str, set[int]]] = {}
        for uid, containers in entries.items():
            for name, listed in containers.items():
                what = f'cpuset "{listed}" for container "{name}" in pod "{uid}"'
                taken.setdefault(uid, {})[name] = cpus(listed)
    except ValueError as error:
        raise ValueError(f"could not parse {what}: {error}") from None
    return shared, taken


def check_state(config: dict[str, t.Any], path: str, online: set[int]) -> None:
    """Raise ValueError where the CPU manager would not start; make its file where there is none."""
    policy = config.get("cpuManagerPolicy") or "none"
    reserved = cpus(config.get("reservedSystemCPUs") or "")
    strict = str((config.get("cpuManagerPolicyOptions") or {}).get("strict-cpu-reservation")) == "true"
    usable = online - reserved if strict else online
    try:
        with open(path, encoding="utf-8") as file:
            default, taken = restored(file.read(), policy)
    except FileNotFoundError:
        made = shown(usable) if policy == "static" else ""
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"policyName": policy, "defaultCpuSet": made, "checksum": checksum(policy, made, {})}, file)
        os.rename(f"{path}.new", path)
        return
    except ValueError as error:
        raise ValueError(
            f"could not restore state from checkpoint: {error}, please drain this node and delete the CPU manager checkpoint "
            f'file "{path}" before restarting Kubelet'
        ) from None
    if policy != "static":
        return
    if not default:
        if taken:
            raise ValueError("default cpuset cannot be empty")
        return
    if strict and reserved & default:
        raise ValueError(
            f'some of strictly reserved cpus: "{shown(reserved & default)}" are present in defaultCpuSet: "{shown(default)}"'
        )
    if not strict and not reserved <= default:
        raise ValueError(f'not all reserved cpus: "{shown(reserved)}" are present in defaultCpuSet: "{shown(default)}"')
    for uid, containers in taken.items():
        for name, own in containers.items():
            if own & default:
                raise ValueError(
                    f'pod: {uid}, container: {name} cpuset: "{shown(own)}" overlaps with default cpuset "{shown(default)}"'
                )
    known = default.union(*(own for containers in taken.values() for own in containers.values()))
    if known != usable:
        raise ValueError(
            f'current set of available CPUs "{shown(usable)}" doesn\'t match with CPUs in state "{shown(known)}"'
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
    try:
        check_policy(config)
    except ValueError as error:
        print(f'E1125 "command failed" err="failed to run Kubelet: {error}"', file=sys.stderr, flush=True)
        return 1
    serve()
    time.sleep(BEFORE_CHECKS)
    with open("/sys/devices/system/cpu/online", encoding="utf-8") as file:
        online = cpus(file.read().strip())
    try:
        if os.path.exists(BROKEN) and config.get("maxPods") == 13:
            raise ValueError("made to fail")
        check_state(config, f"{flag('root-dir', '/var/lib/kubelet')}/cpu_manager_state", online)
    except ValueError as error:
        said = f"start cpu manager error: {error}"
        print(f'E1125 "Failed to start ContainerManager" err="{said}"', file=sys.stderr, flush=True)
        return 1
    print(f"started: {json.dumps(config, sort_keys=True)}", flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
