"""
Why Landlock cannot be used here, and what a failed start means.
"""

from __future__ import annotations

import platform
import re
from typing import TYPE_CHECKING

from sandboxkit.backends._obstacles import Obstacle
from sandboxkit.confine import ARCHITECTURES

if TYPE_CHECKING:
    from sandboxkit.backends.landlock._facts import LandlockFacts

__all__ = ["refusal", "unusable"]

_SAID = (
    Obstacle(
        "the command's user cannot enter its working directory",
        "open the directories above it to that user, or run as an ordinary user",
        said=re.compile(r"step 'cwd' failed"),
    ),
    Obstacle(
        "the kernel refused a Landlock domain, or does not scope signals as its ABI says",
        "permit the landlock_* and openat2 system calls in the container's seccomp profile",
        said=re.compile(r"step 'landlock' failed"),
    ),
    Obstacle(
        "the caller could not give up its user or its capabilities",
        "run as an ordinary user, or give the container CAP_SETUID and CAP_SETGID",
        said=re.compile(r"step 'privileges' failed"),
    ),
)


def unusable(facts: LandlockFacts) -> Obstacle | None:
    """
    What keeps a box of Landlock from being made here, or None.
    """
    if platform.system() != "Linux":
        return Obstacle(f"Landlock is for Linux, this is {platform.system()}", "use another backend")
    if facts.abi < 1:
        return Obstacle(
            "the kernel has no Landlock, or the container's seccomp profile refuses its system calls",
            "use Linux 5.13 or newer booted with landlock in lsm=, and permit landlock_create_ruleset",
        )
    if facts.machine not in ARCHITECTURES:
        return Obstacle(
            f"there is no seccomp table for the architecture {facts.machine!r}", f"use {' or '.join(ARCHITECTURES)}"
        )
    if not facts.interpreter:
        return Obstacle("no Python interpreter was found to run the supervisor", "install one next to this program")
    return None


def refusal(said: str) -> Obstacle:
    """
    What a failed start means, from *said*.
    """
    known = next((known for known in _SAID if known.said is not None and known.said.search(said)), None)
    return known or Obstacle(said, "sandboxkit doctor shows what this machine has")
