"""
What a caller gives a box to run, held to what the kernel takes. Pure.

Source: execve(2), environ(7), signal(7).
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from sandboxkit.errors import CommandError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["checked_signal", "checked_variables", "checked_words"]


def checked_words(argv: Sequence[str]) -> tuple[str, ...]:
    """
    *argv*, if a program can be given it.

    Raises:
        CommandError: It is empty, or holds a NUL byte.
    """
    words = tuple(argv)
    if not words or not words[0]:
        raise CommandError("it is empty; name a program")
    if any("\0" in word for word in words):
        raise CommandError("a word holds a NUL byte, which no program can be given")
    return words


def checked_variables(environment: Mapping[str, str]) -> Mapping[str, str]:
    """
    *environment*, if a program can be given it.

    Raises:
        CommandError: A name is empty or holds "=", or something holds a NUL byte.
    """
    for name, text in environment.items():
        if not name or "=" in name or "\0" in name:
            raise CommandError(f"{name!r} is no name of an environment variable; give one without '=' and NUL")
        if "\0" in text:
            raise CommandError(f"the environment variable {name} holds a NUL byte, which no program can be given")
    return environment


def checked_signal(number: int) -> int:
    """
    *number*, if a process can be sent it.

    Raises:
        SpecError: There is no such signal.
    """
    if number not in signal.valid_signals():
        raise SpecError(f"there is no signal {number}; give one of the module signal")
    return int(number)
