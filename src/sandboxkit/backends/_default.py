"""
The registry of the process, for programs that need no other.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandboxkit.backends._registry import SandboxRegistry
from sandboxkit.backends._shell import bash_argv, command_environment
from sandboxkit.errors import CommandError
from sandboxkit.model import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.backends._contract import SandboxBackend
    from sandboxkit.backends._registry import BackendStatus
    from sandboxkit.model import ExecResult

__all__ = [
    "default_registry",
    "get_active_sandbox_backend",
    "list_sandbox_backends",
    "register_sandbox_backend",
    "sandbox_execute",
]

_KEY = "registry"
_shared: dict[str, SandboxRegistry] = {}
"""Filled by `setdefault`, which is atomic: a lock could be held when another thread forks."""


def default_registry() -> SandboxRegistry:
    """
    The process's own registry: the built-in backends, and what was registered since.
    """
    return _shared.get(_KEY) or _shared.setdefault(_KEY, SandboxRegistry.default())


def register_sandbox_backend(backend: SandboxBackend, priority: int = 0) -> None:
    """
    Adds *backend* to the process's registry; see `SandboxRegistry.register`.
    """
    default_registry().register(backend, priority)


async def get_active_sandbox_backend(spec: SandboxSpec | None = None) -> SandboxBackend:
    """
    The preferred backend of the process's registry that can keep *spec*; see
    `SandboxRegistry.active`.
    """
    return (await default_registry().active(spec)).backend


async def list_sandbox_backends(spec: SandboxSpec | None = None) -> tuple[BackendStatus, ...]:
    """
    How the backends of the process's registry stand; see `SandboxRegistry.list`.
    """
    return await default_registry().list(spec)


async def sandbox_execute(
    command: str | Sequence[str],
    *,
    spec: SandboxSpec | None = None,
    stdin: bytes | None = None,
    cwd: str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - a deadline is part of the result, not an exception
) -> ExecResult:
    """
    Runs *command* in a box of the process's registry. No policy is asked and nothing is
    recorded: the box is the boundary. `sandboxkit.run` decides first.

    Args:
        command: Words, or a text for bash.
        spec: The box; None is `SandboxSpec.workspace_write()` of the working directory.
        stdin: What it reads; None is an empty input.
        cwd: A host directory that is visible in the box; None lets the spec choose.
        timeout: Seconds; the smaller of this and `limits.wall` counts.

    Raises:
        CommandError: There is no command.
        NoBackendError: No backend is available.
        EnforcementError: None enforces what *spec* requires.
    """
    argv = bash_argv(command) if isinstance(command, str) else tuple(command)
    if not command:
        raise CommandError("it is empty; name a program")
    box_spec = spec if spec is not None else SandboxSpec.workspace_write()
    environment = command_environment(box_spec, os.environ, for_bash=isinstance(command, str))
    async with default_registry().open(box_spec) as box:
        return await box.run(argv, stdin=stdin, cwd=cwd, timeout=timeout, environment=environment)
