"""
The private directory of an open box, for its home and temporary files: without a mount
namespace there is no /tmp of its own.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from sandboxkit.backends._temporary import temporary_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["scratch"]

_PREFIX = "sandboxkit-landlock-"


@contextlib.contextmanager
def scratch(settings: bytes, user: tuple[int, int] | None) -> Iterator[str]:
    """
    A new directory with an empty `home` and `tmp`, removed afterwards.

    Args:
        settings: The content of the home's `.gitconfig`; none is made for an empty one.
        user: Who is to own what is in it, or None for the caller.
    """
    with temporary_directory(_PREFIX) as root:
        made = []
        for name in ("home", "tmp"):
            made.append(f"{root}/{name}")
            os.mkdir(made[-1], 0o700)
        if settings:
            made.append(f"{root}/home/.gitconfig")
            with open(made[-1], "xb") as file:
                file.write(settings)
        if user is not None:
            os.chmod(root, 0o711)  # noqa: S103 - the command's user must get through it
            for path in made:
                os.chown(path, *user)
        yield root
