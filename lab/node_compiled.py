# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On a node of the lab, in each Python that starts: source text that was compiled once is not compiled again.

Ansible brings each module as a zip file, and Python compiles again in each run what it imports from one: on an emulated
node that takes two thirds of a module's time. What was compiled is kept by the text's own digest, and the lab lends it
to the next nodes (lab_compiled.py). What is executed is the same code either way, and it names the file that it is from.
"""

from __future__ import annotations

import _frozen_importlib_external
import _imp
import zipimport

TYPE_CHECKING = False  # typing's takes longer to import than all else here
if TYPE_CHECKING:
    import typing as t

FOLDER = "/var/cache/lab-compiled"


def kept(compile_text: t.Callable[[bytes, str], t.Any], path: str, data: bytes) -> t.Any:
    """The compiled text: from the folder, or compiled and put there."""
    import hashlib
    import marshal
    import os

    # By the text alone: each run has a zip file of another name, and each release of the agent a folder of its own.
    # Python's own number for what its compiler makes is the same in 3.11.2 and 3.11.9.
    magic: bytes = vars(_frozen_importlib_external)["MAGIC_NUMBER"]
    mark = hashlib.blake2b(magic + data, digest_size=16).hexdigest()
    name = f"{FOLDER}/{mark}"
    for there in (f"{FOLDER}/kept/{mark}", name):
        try:
            with open(there, "rb") as file:
                code = marshal.loads(file.read())  # noqa: S302 - root's own folder
            vars(_imp)["_fix_co_filename"](code, path)
            return code
        except (OSError, ValueError, EOFError, TypeError):
            pass
    code = compile_text(data, path)
    try:
        with open(f"{name}.{os.getpid()}", "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(f"{name}.{os.getpid()}", name)
    except OSError:  # no room, a read-only file system, another user than root
        pass
    return code


def begin() -> None:
    """Put it between Python and its compiler: for zip files, and for folders."""
    from_zip = vars(zipimport)["_compile_source"]
    loader = vars(_frozen_importlib_external)["SourceFileLoader"]
    from_file = loader.source_to_code

    def of_zip(path: str, data: bytes) -> t.Any:
        return kept(lambda text, where: from_zip(where, text), path, data)

    def of_file(self: t.Any, data: t.Any, path: t.Any, *, _optimize: int = -1) -> t.Any:
        if _optimize != -1 or not isinstance(data, bytes):
            return from_file(self, data, path, _optimize=_optimize)
        return kept(lambda text, where: from_file(self, text, where), path, data)

    vars(zipimport)["_compile_source"] = of_zip
    loader.source_to_code = of_file


begin()
