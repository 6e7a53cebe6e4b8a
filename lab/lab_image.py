# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disk, kernel and initrd of a node: made once for each recipe."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import shutil
import typing as t

import lab_base
from lab_base import LabError

RECIPE = lab_base.HERE / "make-image.sh"
ON_NODE = lab_base.HERE / "node_compiled.py"
# The releases, and the Python of each.
RELEASES = {"bullseye": "python3.9", "bookworm": "python3.11", "trixie": "python3.13", "forky": "python3.14"}
# Releases with more packages than each node has.
CONTAINERD = "containerd,runc"
LARGER = {"forky_containerd": ("forky", CONTAINERD), "bookworm_containerd": ("bookworm", CONTAINERD)}
NAMES = (*RELEASES, *LARGER)
WITH_V1 = ("bookworm", "bookworm_containerd")
KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The maker's process group is ended, then its folder ($0) removed.
ORPHANED = 'kill -TERM "-$1"; sleep 3; kill -KILL "-$1"; exec rm --recursive --force --one-file-system "$0"'


class Image(t.NamedTuple):
    """The parts of a node's image, and a name that changes with its recipe."""

    name: str
    folder: pathlib.Path

    @property
    def disk(self) -> pathlib.Path:
        return self.folder / "disk"

    @property
    def kernel(self) -> pathlib.Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> pathlib.Path:
        return self.folder / "initrd.gz"


def key() -> pathlib.Path:
    """The private key that opens every node of this user's lab."""
    file = lab_base.cache() / "key"
    with lab_base.locked(lab_base.cache() / "key.lock"):
        if not file.exists():
            lab_base.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "corral-lab", "-f", str(file))
    return file


def python(name: str) -> str:
    """The Python of one of NAMES; "" for another name."""
    return RELEASES.get(LARGER.get(name, (name, ""))[0], "")


def ensure(release: str) -> Image:
    """The image of one of NAMES; made when its recipe is new (about a minute)."""
    if release not in NAMES:
        raise LabError(f"{release}: the lab knows {', '.join(NAMES)}")
    debian, packages = LARGER.get(release, (release, ""))
    files = {"key.pub": key().with_suffix(".pub").read_text(), ON_NODE.name: ON_NODE.read_text()}
    if packages:
        files["packages"] = packages
    folder = made(release, debian, RECIPE, files)
    return Image(folder.name, folder)


def made(name: str, release: str, recipe: pathlib.Path, files: t.Mapping[str, str]) -> pathlib.Path:
    """The folder that a recipe makes from these files and a release's packages; its name changes with all of them."""
    mark = hashlib.sha256("\0".join([recipe.read_text(), release, *files.values()]).encode()).hexdigest()[:12]
    folder = lab_base.cache() / "images" / f"{name}-{mark}"
    with lab_base.locked(lab_base.cache() / f"{name}.lock"):
        if not folder.exists():
            make(folder, name, release, recipe, files)
            lab_base.keep_latest(folder.parent, name)
        os.utime(folder)
    return folder


def prune(*more: str) -> None:
    """Remove all images, and what else was made by these names, once no process makes one."""
    for name in (*NAMES, *more):
        with lab_base.locked(lab_base.cache() / f"{name}.lock"):
            remove_unfinished(name)
            for folder in (lab_base.cache() / "images").glob(f"{name}-*"):
                shutil.rmtree(folder)


def remove_unfinished(name: str) -> None:
    """What a killed maker left is root's. The caller has the name's lock: another may be in the making."""
    for left in (lab_base.cache() / "images").glob(f"{name}-*.making-*"):
        lab_base.run(*as_root(), "rm", "--recursive", "--force", "--one-file-system", str(left))


def sources(release: str) -> str:
    """Where this machine's own apt finds the release, as lines of a sources.list; none: mmdebstrap's default."""
    wanted = [release, f"{release}-updates", f"{release}-security"]
    form = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)"
    try:
        targets = lab_base.run("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines()
    except (LabError, OSError):
        return ""
    found: dict[str, str] = {}
    for uri, suite, component, origin in (line.split() for line in targets if line.count(" ") == 3):
        if uri.startswith(("http:", "https:")) and suite in wanted and (component, origin) == ("main", "Debian"):
            found.setdefault(suite, uri)
    signed = f" [signed-by={KEYRING}]" if KEYRING.exists() else ""
    return "".join(f"deb{signed} {found[suite]} {suite} main\n" for suite in wanted if suite in found) * (
        release in found
    )


def as_root() -> list[str]:
    """What to put before a command that needs root."""
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        raise LabError("An image is made by root, or by sudo without a password: there is no sudo here.")
    return [] if os.geteuid() == 0 else ["sudo", "-n"]


def make(folder: pathlib.Path, name: str, release: str, recipe: pathlib.Path, files: t.Mapping[str, str]) -> None:
    """Make a folder beside its place and move it there as a whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(name)
    root = as_root()
    work = folder.with_suffix(f".making-{os.getpid()}")
    work.mkdir()
    (work / "tmp").mkdir()  # mmdebstrap's, so that it goes with the rest
    for file, text in files.items():
        (work / file).write_text(text)
    mirror = os.environ.get("CORRAL_LAB_MIRROR", "")
    if not mirror and (lines := sources(release)):
        mirror = "sources.list"
        (work / mirror).write_text(lines)
    try:
        with lab_base.timed(f"making {folder.name} from Debian's packages (a node's image: about a minute)"):
            settings = [f"WORK={work}", f"TMPDIR={work / 'tmp'}", f"MIRROR={mirror}"]
            orphaned = [*root, "sh", "-c", ORPHANED, str(work)]
            lab_base.run(*root, "env", *settings, str(recipe), release, timeout=1800, orphaned=orphaned)
            if root:
                lab_base.run(*root, "chown", "--recursive", str(os.getuid()), str(work))
        work.rename(folder)
    except LabError as error:
        raise LabError(f"{error}\nIt is made by root, or by sudo without a password.") from None
    finally:
        with contextlib.suppress(LabError):
            lab_base.run(*root, "rm", "--recursive", "--force", "--one-file-system", str(work))
