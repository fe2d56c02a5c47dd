"""
The ways to isolate a command, the contract they keep, and the registry that picks one.

Whoever makes a backend needs `SandboxBackend`, `Sandbox`, `Detection`, `Facts` and
`hookimpl`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit._lazy import lazy
from sandboxkit.backends._contract import PIPE, BoxProcess, Detection, Facts, Sandbox, SandboxBackend
from sandboxkit.backends._default import (
    default_registry,
    get_active_sandbox_backend,
    list_sandbox_backends,
    register_sandbox_backend,
    sandbox_execute,
)
from sandboxkit.backends._files import BoxFiles
from sandboxkit.backends._registry import PLUGIN_PRIORITY, BackendStatus, SandboxRegistry, Selection
from sandboxkit.backends._shell import bash_argv, command_environment
from sandboxkit.backends._verification import VERIFIED, Finding, Verification

if TYPE_CHECKING:
    from sandboxkit.backends._hookspecs import hookimpl
    from sandboxkit.backends._verify import attack

__all__ = [
    "PIPE",
    "PLUGIN_PRIORITY",
    "VERIFIED",
    "BackendStatus",
    "BoxFiles",
    "BoxProcess",
    "Detection",
    "Facts",
    "Finding",
    "Sandbox",
    "SandboxBackend",
    "SandboxRegistry",
    "Selection",
    "Verification",
    "attack",
    "bash_argv",
    "command_environment",
    "default_registry",
    "get_active_sandbox_backend",
    "hookimpl",
    "list_sandbox_backends",
    "register_sandbox_backend",
    "sandbox_execute",
]


# pluggy costs 20 ms, and only plug-ins need it; an attack is not needed where one was just made.
__getattr__ = lazy(__name__, {"_hookspecs": ("hookimpl",), "_verify": ("attack",)})
