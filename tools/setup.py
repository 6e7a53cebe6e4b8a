# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the checkout ready: .venv with the pinned tools, the link that makes Ansible find the collection here.

Run by any Python >= 3.9; quick when nothing changed. With --packages also Debian's packages for the lab.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
REQUIREMENTS = CHECKOUT / "tools" / "requirements.txt"
STAMP = VENV / "corral-stamp"
CONTROLLER = (11, 12, 13, 14)  # the minor versions that ansible-core >= 2.19 runs on

# Where version managers keep their interpreters. Their shims on PATH are no help: one exists for each version
# known to the manager, and most of them answer "command not found".
MANAGED = ("~/.pyenv", "~/.local/share/uv/python", "~/.asdf/installs/python", "~/.local/share/mise/installs/python")


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def search_path() -> list[str]:
    """PATH without shims, then the bin directories of the version managers, whose shims put them on PATH as well.

    The distribution's Python comes first: it is built with profile-guided optimization, a version manager's is not unless
    somebody asked for that, and takes a quarter or a third more CPU time for the unit tests and for Ansible.
    """
    roots = [os.path.expanduser(root) for root in (os.environ.get("PYENV_ROOT", ""), *MANAGED) if root]
    elsewhere = (f"{VENV}/", *(f"{root}/" for root in roots))
    found = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry]
    found = [entry for entry in found if os.path.basename(entry) != "shims" and not entry.startswith(elsewhere)]
    for root in roots:
        found += sorted(glob.glob(f"{root}/versions/*/bin") + glob.glob(f"{root}/*/bin"))
    return list(dict.fromkeys(found))


def interpreter(minor: int) -> str | None:
    """A Python 3.minor that really runs and can make virtual environments; None if there is none."""
    for directory in search_path():
        candidate = os.path.join(directory, f"python3.{minor}")
        if not os.access(candidate, os.X_OK):
            continue
        test = f"import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
        if subprocess.run([candidate, "-c", test], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def install(packages: list[str]) -> None:
    """Install Debian packages as root or through sudo, else end with the line to run."""
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if shutil.which("apt-get") is None:
        raise SystemExit(f"corral: please install what Debian calls {' '.join(packages)}, then run this again")
    prefix: list[str] = []
    if os.geteuid() != 0:
        if (
            not shutil.which("sudo")
            or subprocess.run(["sudo", "-n", "true"], check=False, stderr=subprocess.DEVNULL).returncode
        ):
            raise SystemExit(f"corral: missing Debian packages; run this and try again:\n  sudo {' '.join(command)}")
        prefix = ["sudo", "-n"]
    say(f"installing Debian packages: {' '.join(packages)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*prefix, "apt-get", "update", "-qq"], env=quiet, check=False)
    if subprocess.run([*prefix, *command, "-qq"], env=quiet, stdout=subprocess.DEVNULL, check=False).returncode != 0:
        raise SystemExit(f"corral: this failed; its reason is above:\n  {' '.join([*prefix, *command])}")


def environment() -> dict[str, str]:
    """The tools of .venv first, and the collection from this checkout whatever the user's own settings are."""
    own = dict(os.environ)
    own["PATH"] = os.pathsep.join([str(VENV / "bin"), own.get("PATH", os.defpath)])
    own["ANSIBLE_CONFIG"] = str(CHECKOUT / "ansible.cfg")
    own["ANSIBLE_COLLECTIONS_PATH"] = str(CHECKOUT / ".ansible" / "collections")
    own["MOLECULE_COMMAND_BORDERS"] = "false"  # they would wrap every line of a log at 80 columns
    if not sys.stdout.isatty():
        own.update(NO_COLOR="1", PY_COLORS="0", ANSIBLE_NOCOLOR="1")
    own.pop("PYTHONPATH", None)
    return own


def number(variable: str) -> int:
    """The whole number that a variable of the environment has; 0 where it has none."""
    text = os.environ.get(variable) or "0"
    if not text.isdecimal():
        raise SystemExit(f"{variable} is {text!r}: write a whole number such as 10")
    return int(text)


def controller() -> str:
    """The Python of .venv: CORRAL_PYTHON, else the oldest that will do, which is the one with the oldest ansible-core."""
    if os.environ.get("CORRAL_PYTHON"):
        return os.environ["CORRAL_PYTHON"]
    found = next(filter(None, map(interpreter, CONTROLLER)), None)
    if found is None:
        install(["python3", "python3-venv"])
        found = next(filter(None, map(interpreter, CONTROLLER)), None)
    if found is None:
        raise SystemExit("corral: Python 3.11 or newer with venv is needed; name one in CORRAL_PYTHON")
    return found


def virtualenv() -> None:
    """Make .venv new when the pins, or the interpreter, are not those it was made from."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    python = VENV / "bin" / "python"
    if STAMP.is_file() and STAMP.read_text().strip() == f"{wanted} {CHECKOUT}":
        if subprocess.run([str(python), "-c", ""], capture_output=True, check=False).returncode == 0:
            return
    if VENV.is_symlink():  # venv would empty the folder that it leads to, and fail afterwards
        raise SystemExit(f"corral: .venv is a link to {os.readlink(VENV)}, which was not made here: remove the link")
    base = controller()
    say(f"making .venv with {base} (about a minute)")
    subprocess.run([base, "-m", "venv", "--clear", str(VENV)], check=True)
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--progress-bar", "off"]
    if subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=False).returncode != 0:
        raise SystemExit("corral: pip could not install tools/requirements.txt; its reason is above")
    STAMP.write_text(f"{wanted} {CHECKOUT}\n")


def link() -> None:
    """Let Ansible find the collection corral.node in the checkout, wherever that lies."""
    place = CHECKOUT / ".ansible" / "collections" / "ansible_collections" / "corral" / "node"
    place.parent.mkdir(parents=True, exist_ok=True)
    if not (place.is_symlink() and os.readlink(place) == str(CHECKOUT)):
        if place.is_symlink():
            place.unlink()
        place.symlink_to(CHECKOUT, target_is_directory=True)


def lab_packages() -> None:
    """What the VMs need from Debian; the lab itself knows the names."""
    lab = CHECKOUT / "lab" / "lab"
    if not lab.is_file():
        say("no lab in this checkout: nothing installed for VMs")
    elif subprocess.run([str(lab), "packages"], check=False).returncode != 0:
        raise SystemExit("corral: the lab cannot run VMs yet; what is missing is said above")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", action="store_true", help="also Debian's packages that the lab needs")
    arguments = parser.parse_args()
    virtualenv()
    link()
    if arguments.packages:
        lab_packages()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
