# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make rollout` and `make drift`: the collection's playbooks on an embedded node, on an inventory or right here."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys

import setup

DEMO = "corral-demo"
LAB = setup.CHECKOUT / "lab" / "lab"


def run(*command: str, check: bool = True) -> int:
    """Run a command with its output in sight; when it fails, end here with its exit status."""
    code = subprocess.run(command, cwd=setup.CHECKOUT, env=setup.environment(), check=False).returncode
    if check and code != 0:
        print(f"corral: this ended with {code}; its reason is above:\n  {shlex.join(command)}", file=sys.stderr)
        raise SystemExit(code)
    return code


def playbook(name: str, profile: pathlib.Path | None, inventory: list[str], *options: str) -> None:
    command = [str(setup.VENV / "bin" / "ansible-playbook"), f"corral.node.{name}", *inventory, *options]
    run(*command, *(["--extra-vars", json.dumps({"corral_profile_file": str(profile)})] if profile else []))


def embedded_node() -> pathlib.Path:
    """Start the lab's node, or find it running; its inventory file."""
    if not LAB.is_file():
        raise SystemExit("corral: this checkout has no lab/: give your own nodes with INVENTORY=hosts.yml")
    setup.lab_packages()
    setup.say(f"starting the node {DEMO} (a VM; the first time its image is made)")
    run(str(LAB), "up", DEMO)
    inventory = subprocess.run([str(LAB), "inventory", DEMO], cwd=setup.CHECKOUT, stdout=subprocess.PIPE, check=True)
    file = setup.CHECKOUT / ".cache" / f"{DEMO}.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(inventory.stdout)
    return file


def rollout(profile: pathlib.Path | None, inventory: pathlib.Path | None) -> None:
    profile = profile or setup.CHECKOUT / "examples" / "edge.yml"
    nodes = inventory or embedded_node()
    setup.say(f"rolling {profile.name} out")
    playbook("rollout", profile, ["--inventory", str(nodes)], "--diff")
    setup.say("what differs now (check mode)")
    playbook("drift", profile, ["--inventory", str(nodes)], "--check")
    if inventory is None:
        setup.say("the node's CPUs")
        run(str(LAB), "ssh", DEMO, "corral pools && corral status")
        setup.say(f"to reach the node: make lab-ssh NAME={DEMO}; to remove it: make lab-down NAME={DEMO}")


def drift(profile: pathlib.Path | None, inventory: pathlib.Path | None) -> None:
    """Against PROFILE, else against what each node has declared; this machine, if it has not, against a first look."""
    if inventory:
        return playbook("drift", profile, ["--inventory", str(inventory)], "--check")
    if profile is None and not pathlib.Path("/etc/corral/profile.json").exists():
        profile = setup.CHECKOUT / "examples" / "audit.yml"
        setup.say(f"this machine has no declared profile: compared with {profile.relative_to(setup.CHECKOUT)}")
    here: dict[str, object] = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    if os.geteuid() != 0:
        here["ansible_become"] = False  # what only root can see is reported as unknown
    return playbook("drift", profile, ["--inventory", "localhost,"], "--check", "--extra-vars", json.dumps(here))


def existing(text: str) -> pathlib.Path | None:
    """A file or folder that the user named, or None for an empty make variable."""
    if not text:
        return None
    path = pathlib.Path(text).expanduser().absolute()
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text}: there is no such file")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["rollout", "drift"])
    parser.add_argument(
        "--inventory", type=existing, help="your own nodes; without it the embedded node, or this machine"
    )
    parser.add_argument("--profile", type=existing, help="the profile (rollout: default examples/edge.yml)")
    arguments = parser.parse_args()
    {"rollout": rollout, "drift": drift}[arguments.action](arguments.profile, arguments.inventory)


if __name__ == "__main__":
    main()
