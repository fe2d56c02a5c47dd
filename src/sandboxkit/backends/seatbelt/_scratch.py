"""
The private directory of an open box, for its home, its temporary files and its sockets.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

from sandboxkit.backends._temporary import temporary_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["scratch", "trusted"]

_PREFIX = "sandboxkit-seatbelt-"


@contextlib.contextmanager
def scratch(settings: bytes) -> Iterator[str]:
    """
    A new directory with an empty `home` and `tmp`, removed afterwards.

    Args:
        settings: The content of the home's `.gitconfig`; none is made for an empty one.
    """
    with temporary_directory(_PREFIX) as root:
        for name in ("home", "tmp"):
            os.mkdir(f"{root}/{name}", 0o700)
        if settings:
            with open(f"{root}/home/.gitconfig", "xb") as file:
                file.write(settings)
        yield root


@contextlib.contextmanager
def trusted(directory: str, authority: bytes) -> Iterator[str]:
    """
    Shows a box the certificate of one command's proxy: its path, empty where there is none.

    Args:
        directory: What `scratch` made; the box reads it, and writes only in what it holds.
        authority: The certificate, or nothing.
    """
    if not authority:
        yield ""
        return
    path = f"{directory}/proxy-{secrets.token_hex(8)}.pem"
    with open(path, "xb") as file:
        file.write(authority)
    try:
        yield path
    finally:
        os.unlink(path)
