"""
How a package of somebody else offers backends.

In its `pyproject.toml`:

    [project.entry-points."sandboxkit.backends"]
    firecracker = "my_package.sandboxkit_plugin"

and in that module:

    from sandboxkit.backends import hookimpl

    @hookimpl
    def sandboxkit_register_backends():
        return [(FirecrackerBackend(), 40)]

Nothing of it is imported until an application names it:
`SandboxRegistry.default(plugins=["firecracker"])`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxkit.backends._contract import SandboxBackend

__all__ = ["GROUP", "PROJECT", "hookimpl", "sandboxkit_register_backends"]

PROJECT = "sandboxkit"
GROUP = "sandboxkit.backends"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def sandboxkit_register_backends() -> Iterable[SandboxBackend | tuple[SandboxBackend, int]]:  # type: ignore[empty-body]  # a hook has no body
    """
    The backends this plug-in offers, each alone or with its priority.

    A plug-in's priority is capped below those of the built-in backends; an application
    that trusts it more registers the backend itself.
    """
