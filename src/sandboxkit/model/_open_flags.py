"""
Flags of open(2) by name.
"""

from __future__ import annotations

import os

__all__ = ["open_flags"]


def open_flags(*names: str) -> int:
    """
    The flags of open(2) called O_*name*, together; what this system does not have is left
    out.

    So modules that open files with care can be imported everywhere: on Windows, whose
    flags say nothing about links and locks, each refuses by its own error before it opens
    one. macOS lacks only O_PATH, without which a directory is opened to be read.

    Source: open(2).
    """
    flags = 0
    for name in names:
        flags |= getattr(os, f"O_{name}", 0)
    return flags
