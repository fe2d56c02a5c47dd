"""
Files that are replaced as a whole.
"""

from __future__ import annotations

import contextlib
import os

from sandboxkit.model import open_flags

__all__ = ["replace_file"]

_FLAGS = open_flags("WRONLY", "CREAT", "EXCL", "NOFOLLOW", "CLOEXEC")


def replace_file(folder: int, name: str, content: bytes, *, temporary: str) -> None:
    """
    Puts *content* in the place of the file *name*: for whoever reads it, and after a
    crash, there is the old one or the new one. Only the owner can read it (mode 0600).

    Whether the new one is there after a power cut is certain once *folder* is synced.

    Args:
        folder: The open directory it lies in.
        name: What it is called there.
        content: All of it.
        temporary: What it is called there until it is whole; nothing of that name may
            be there.

    Raises:
        OSError: It could not be written; what was there is untouched.

    Source: rename(2), fsync(2).
    """
    descriptor = os.open(temporary, _FLAGS, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask takes away
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
