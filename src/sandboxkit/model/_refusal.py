"""
What a run was refused, as it was seen: before anybody says what it means for the spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Act", "Refusal"]

Act = Literal[
    "read", "exec", "content", "attributes", "create", "entry", "connect", "bind", "socket", "signal", "other"
]
"""
What a call is about: it reads or executes what stands at a path; changes its content or
its mode, owner and times; opens it and makes it where it is missing (`create`); makes,
moves or removes it (`entry`); connects or binds a socket, makes one; sends a signal; or
anything else.
"""


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    A call that the kernel answered with an error.

    Attributes:
        act: What it was about.
        call: Its name, as the kernel's tables spell it.
        number: Its number on this machine.
        arguments: Its registers, of the first call of this kind.
        error: The error number.
        is_filtered: Whether the box's own seccomp filter answered.
        program: The program that asked, as the box shows it: a path or a name.
        count: How often.
        paths: The paths it named, absolute, in the box, without symbolic links as far as
            they exist there.
        address: The address it named, or the process.
    """

    act: Act
    call: str
    number: int
    arguments: tuple[int, ...]
    error: int
    is_filtered: bool
    program: str
    count: int
    paths: tuple[str, ...] = ()
    address: str = ""
