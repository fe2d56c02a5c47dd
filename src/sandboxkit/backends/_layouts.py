"""
The table of what a box sees, hides and protects by default.
"""

from __future__ import annotations

import pkgutil
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Layouts", "layouts"]


@dataclass(frozen=True, slots=True)
class Layouts:
    """
    `layouts.toml`, read.

    Attributes:
        system: Directories readable in every box.
        private: Directories that are fresh in every box.
        tools: Subtrees of the home where tools live.
        variables: Variables that name such a subtree, with an optional path below it.
        denied_home: Credentials below the home.
        denied_system: Credentials elsewhere.
        denied_services: Sockets of services that act outside of the box.
        service_variables: Variables that name such a socket.
        protect: For each protection set, names inside a writable directory.
    """

    system: tuple[str, ...]
    private: tuple[str, ...]
    tools: tuple[str, ...]
    variables: tuple[str, ...]
    denied_home: tuple[str, ...]
    denied_system: tuple[str, ...]
    denied_services: tuple[str, ...]
    service_variables: tuple[str, ...]
    protect: Mapping[str, tuple[str, ...]]


@cache
def layouts() -> Layouts:
    """
    The table shipped with the package.
    """
    raw = pkgutil.get_data(__package__, "layouts.toml")
    table = tomllib.loads((raw or b"").decode())
    return Layouts(
        system=tuple(table["system"]["read"]),
        private=tuple(table["system"]["private"]),
        tools=tuple(table["tools"]["home"]),
        variables=tuple(table["tools"]["variables"]),
        denied_home=tuple(table["denied"]["home"]),
        denied_system=tuple(table["denied"]["system"]),
        denied_services=tuple(table["denied"]["services"]),
        service_variables=tuple(table["denied"]["service_variables"]),
        protect={name: tuple(names) for name, names in table["protect"].items()},
    )
