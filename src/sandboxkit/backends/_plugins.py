"""
Loads the plug-ins an application names, and no others: loading runs their code.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from sandboxkit.backends._contract import SandboxBackend
from sandboxkit.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

__all__ = ["plugin_backends"]


def plugin_backends(name: str) -> tuple[tuple[SandboxBackend, int], ...]:
    """
    The backends of the plug-in *name*, with the priorities it asks for.

    Raises:
        PluginError: There is no such entry point, or it is broken.
    """
    point = _entry_point(name)
    try:
        return tuple(_offered(name, point.load()))
    except PluginError:
        raise
    except (Exception, SystemExit) as exc:
        raise PluginError(name, f"loading {point.value} failed: {type(exc).__name__}: {exc}") from exc


def _entry_point(name: str) -> EntryPoint:
    from sandboxkit.backends._hookspecs import GROUP

    points = entry_points(group=GROUP)
    found = [point for point in points if point.name == name]
    if not found:
        known = ", ".join(sorted({point.name for point in points})) or "none"
        raise PluginError(
            name,
            f"no installed package offers it in the entry-point group {GROUP!r} (offered: {known}); install the package",
        )
    if len({point.value for point in found}) > 1:
        values = ", ".join(sorted(point.value for point in found))
        raise PluginError(name, f"several installed packages offer it ({values}); uninstall all but one")
    return found[0]


def _offered(name: str, plugin: object) -> Iterator[tuple[SandboxBackend, int]]:
    import pluggy

    from sandboxkit.backends import _hookspecs

    manager = pluggy.PluginManager(_hookspecs.PROJECT)
    manager.add_hookspecs(_hookspecs)
    manager.register(plugin, name=name)
    manager.check_pending()
    answers = manager.hook.sandboxkit_register_backends()
    if not answers:
        raise PluginError(
            name, "it has no hook sandboxkit_register_backends, or that returned None; mark the function with hookimpl"
        )
    for answer in answers:
        for row in answer:
            yield _row(name, row)


def _row(name: str, row: object) -> tuple[SandboxBackend, int]:
    match row:
        case SandboxBackend():
            return row, 0
        case (SandboxBackend() as backend, int() as priority) if not isinstance(priority, bool):
            return backend, priority
        case _:
            raise PluginError(
                name, f"it offers {row!r}; return SandboxBackend objects, alone or as (backend, priority)"
            )
