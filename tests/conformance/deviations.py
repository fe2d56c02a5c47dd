"""
What the built-in backends do not keep of the conformance suite, by backend and by who
calls: each with the reason. The suite finds an entry that is no longer true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEVIATIONS", "ROOT", "USER"]

ROOT: Final = "root"
USER: Final = "a plain user"

DEVIATIONS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "bubblewrap": {
        ROOT: {},
        USER: {
            "keys_of_the_host_are_not_listed": "a box of a plain user has that user's id on the host, and /proc/keys "
            "goes by it: it lists the names of the user's keys; no call of the box can read or use one",
        },
    },
}
