# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs as root on a node: a snapshot gives no secret of the node away, and a crafted one changes no file.

The archive is read with tarfile, not with Corral. In the crafted one a link leads out by way of a link to its own folder, and a file
of the same name follows: Python 3.11.2 wrote through it.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
import tempfile

from on_node import expect, read, run, write

SECRET = "PASS=correct-horse-battery"
DROPIN = "/etc/systemd/system/user.slice.d/99-secret.conf"
NAME = DROPIN[1:]


def made(folder: str) -> None:
    """A snapshot of a node with a drop-in that only root can read; none at the place of a link."""
    target, link = f"{folder}/target", f"{folder}/node.tar.gz"
    write(target, "precious")
    os.symlink(target, link)
    os.makedirs(os.path.dirname(DROPIN), exist_ok=True)
    write(DROPIN, f"# {SECRET}\n[Slice]\nEnvironment={SECRET}\nSetCredential={SECRET}\nCPUWeight=100\n")
    os.chmod(DROPIN, 0o600)
    before = os.umask(0)
    try:
        run("corral", "snapshot", "-o", link, code=1)
        expect("the link at the snapshot's place", os.readlink(link), target)
        os.unlink(link)
        run("corral", "snapshot", "-o", link)
    finally:
        os.umask(before)
        os.unlink(DROPIN)
    expect("the file that a link at the snapshot's place leads to", read(target), "precious")
    expect("the snapshot's kind and mode", oct(os.lstat(link).st_mode), oct(stat.S_IFREG | 0o600))
    with tarfile.open(link) as archive:
        texts = {one.name: (archive.extractfile(one) or io.BytesIO()).read() for one in archive if one.isfile()}
    having = [name for name, text in texts.items() if SECRET[len("PASS=") :].encode() in text]
    expect("files with the secret", having, [])
    mark = "left-out-of-this-snapshot"
    wanted = f'[Slice]\nEnvironment="PASS={mark}"\nSetCredential={mark}\nCPUWeight=100\n'
    expect("what is kept of the drop-in", texts[NAME].decode(), wanted)
    run("corral", "topology", "--root", link)


def crafted(folder: str) -> None:
    """An archive that leads to a file of root's."""
    target = f"{folder}/target"
    with tarfile.open(f"{folder}/x.tgz", "w:gz") as archive:
        for name, text in (("d", "."), ("e", "d/" * 20 + "../" * 20 + target.lstrip("/"))):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, text
            archive.addfile(entry)
        entry = tarfile.TarInfo("e")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    names = sorted(os.listdir(folder))
    for words in (f"topology --root {folder}/x.tgz", f"diff {folder}/x.tgz /"):
        said = run("sh", "-c", f"corral {words} 2>&1", code=1)
        expect("whether it is refused", "e: is in it twice, as different kinds" in said, True)
    expect("the file that the crafted snapshot leads to", read(target), "precious")
    expect("the files beside it", sorted(os.listdir(folder)), names)


def main() -> None:
    folder = tempfile.mkdtemp()
    try:
        made(folder)
        crafted(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
