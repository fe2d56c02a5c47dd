"""
Who asks, as the machine's user database knows them.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["home_of", "own_account"]


def home_of(environ: Mapping[str, str]) -> str | None:
    """
    The home that *environ* names, or else the user's; None where neither is an absolute path.
    """
    home = environ.get("HOME") or own_account()[1]
    return home if home and home.startswith("/") else None


def own_account() -> tuple[str | None, str | None]:
    """
    The name and the home of this user; nothing on Windows, which has no such database.
    """
    return (None, None) if sys.platform == "win32" else _account(os.getuid())


@functools.lru_cache(maxsize=16)
def _account(uid: int) -> tuple[str | None, str | None]:
    """
    The name and the home of user *uid*. Kept: a directory service may take long.
    """
    import pwd

    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None, None
    return entry.pw_name, entry.pw_dir
