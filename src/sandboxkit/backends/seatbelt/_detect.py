"""
Why Seatbelt cannot be used here, and what a failed start means.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from sandboxkit.backends._obstacles import Obstacle
from sandboxkit.backends.seatbelt._facts import SeatbeltFacts
from sandboxkit.errors import BrokerError
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NOT_RUN_HERE", "found", "refusal", "unusable", "user_processes"]

PROGRAM: Final = "/usr/bin/sandbox-exec"
"""By this path only: the system volume is sealed, and a PATH is anybody's."""
NOT_RUN_HERE = (
    "what this backend enforces is declared and was not run on macOS before this version was released; "
    "sandboxkit doctor attacks it on this machine, and what does not hold is lowered"
)
_PROC_UID_ONLY = 4

_SAID = (
    Obstacle(
        "this program runs in a sandbox already, and macOS does not put one into another",
        "start it outside of that sandbox (an App Sandbox, another sandbox-exec)",
        said=re.compile(r"sandbox_apply|sandbox_init|Operation not permitted"),
    ),
    Obstacle(
        "this version of macOS does not take the profile",
        "report the words of the message, and the version of macOS",
        said=re.compile(r"sandbox-exec:|unbound variable|syntax error|unsupported"),
    ),
    Obstacle(
        "the command's user cannot enter its working directory",
        "open the directories above it to that user",
        said=re.compile(r"step 'cwd' failed"),
    ),
)


def found() -> SeatbeltFacts:
    """
    What this machine has, without a look at any spec's paths. Looks for nothing elsewhere
    than on macOS.
    """
    if sys.platform != "darwin":
        return SeatbeltFacts()
    try:
        python = interpreter()
    except BrokerError:
        python = ""
    return SeatbeltFacts(
        program=PROGRAM if os.access(PROGRAM, os.X_OK) else "",
        macos=platform.mac_ver()[0],
        interpreter=python,
        processes=user_processes(),
        has_proxy=None not in (find_spec("h11"), find_spec("cryptography")),
    )


def unusable(facts: SeatbeltFacts) -> Obstacle | None:
    """
    What keeps a box of Seatbelt from being made here, or None.
    """
    if sys.platform != "darwin":
        return Obstacle(f"Seatbelt is a part of macOS, this is {platform.system()}", "use another backend")
    if not facts.program:
        return Obstacle(f"{PROGRAM} is missing or not executable", "use a macOS that has it, or Docker")
    if os.geteuid() == 0:
        return Obstacle(
            "a root caller's uid would be lent to the command, and no profile was tried against it",
            "run as an ordinary user",
        )
    if not facts.interpreter:
        return Obstacle(
            "no Python interpreter was found to run the last step inside", "install one next to this program"
        )
    return None


def refusal(said: str) -> Obstacle:
    """
    What a failed start means, from *said*.
    """
    known = next((known for known in _SAID if known.said is not None and known.said.search(said)), None)
    return known or Obstacle(said, "sandboxkit doctor shows what this machine has")


def user_processes(listed: Callable[[int], int] | None = None) -> int | None:
    """
    How many processes this user has; None where it cannot be found out.

    Source: libproc.h, proc_listpids with PROC_UID_ONLY: the size in bytes of as many numbers.
    """
    try:
        count = (listed or _listed)(os.getuid())
    except (OSError, AttributeError):
        return None  # this system has no such call
    return count // ctypes.sizeof(ctypes.c_int) if count > 0 else None


def _listed(uid: int) -> int:
    return int(ctypes.CDLL(None).proc_listpids(_PROC_UID_ONLY, uid, None, 0))
