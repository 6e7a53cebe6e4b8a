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
RELEASES = ("bookworm",)


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


def ensure(release: str) -> Image:
    """The image of a release; made when its recipe is new (about a minute)."""
    if release not in RELEASES:
        raise LabError(f"{release}: the lab knows {', '.join(RELEASES)}")
    public = key().with_suffix(".pub").read_text()
    mark = hashlib.sha256(RECIPE.read_bytes() + public.encode() + release.encode()).hexdigest()[:12]
    image = Image(f"{release}-{mark}", lab_base.cache() / "images" / f"{release}-{mark}")
    with lab_base.locked(lab_base.cache() / f"{release}.lock"):
        if not image.folder.exists():
            make(image, release, public)
            for old in image.folder.parent.glob(f"{release}-*"):
                if old != image.folder:
                    shutil.rmtree(old, ignore_errors=True)
    return image


def as_root() -> list[str]:
    """What to put before a command that needs root."""
    return [] if os.geteuid() == 0 else ["sudo", "-n"]


def make(image: Image, release: str, public: str) -> None:
    """Make an image beside its place and move it there as a whole."""
    image.folder.parent.mkdir(parents=True, exist_ok=True)
    for left in image.folder.parent.glob("*.making-*"):  # a killed maker's
        lab_base.run(*as_root(), "rm", "--recursive", "--force", "--one-file-system", str(left))
    work = image.folder.with_suffix(f".making-{os.getpid()}")
    work.mkdir()
    (work / "key.pub").write_text(public)
    root = as_root()
    mirror = os.environ.get("CORRAL_LAB_MIRROR", "")
    try:
        with lab_base.timed(f"making the image {image.name} from Debian's packages (about a minute)"):
            lab_base.run(*root, "env", f"WORK={work}", f"MIRROR={mirror}", str(RECIPE), release, timeout=1800)
            if root:
                lab_base.run(*root, "chown", "--recursive", str(os.getuid()), str(work))
        work.rename(image.folder)
    except LabError as error:
        raise LabError(f"{error}\nAn image is made by root, or by sudo without a password.") from None
    finally:
        with contextlib.suppress(LabError):
            lab_base.run(*root, "rm", "--recursive", "--force", "--one-file-system", str(work))
