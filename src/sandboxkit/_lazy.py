"""
Packages whose names load the module they live in when they are first used (PEP 562).

A program that runs one command pays for every module it imports; most it never needs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["lazy"]


def lazy(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """
    The `__getattr__` of *package*.

    Args:
        package: Its full name.
        modules: The names that each of its modules gives.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
