"""
Why a file that somebody named cannot be read, and what would help.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["unreadable"]

_REMEDIES = {
    errno.EACCES: "give this user (uid {uid}) the right to the file and to search {folder}",
    errno.EISDIR: "give a file in it",
    errno.ENOTDIR: "{folder} is to be a directory, and it or one above it is a file; check the name",
    errno.ELOOP: "its symbolic links lead in a circle; give the file itself",
    errno.ENAMETOOLONG: "give a shorter path",
}
"""By errno. Source: open(2), read(2)."""


def unreadable(path: str | os.PathLike[str], error: OSError) -> str:
    """
    What *error* says about the file *path*, with the remedy.
    """
    path = Path(path)
    folder = path.absolute().parent
    if error.errno == errno.ENOENT:
        remedy = "check the name: {folder} " + ("holds no {name!r}" if folder.is_dir() else "is not there either")
    else:
        remedy = _REMEDIES.get(error.errno or 0, "give a file that can be read")
    found = remedy.format(folder=folder, name=path.name, uid=os.geteuid())
    return f"it cannot be read: {error.strerror or error}; {found}"
