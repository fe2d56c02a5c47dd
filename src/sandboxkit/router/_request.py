"""
What a caller asks for, checked before anybody decides.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.errors import CommandError, SpecError
from sandboxkit.model import SandboxSpec, checked_timeout, real_path
from sandboxkit.router._account import home_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Request", "working_directory"]


@dataclass(frozen=True, slots=True)
class Request:
    """
    A command as it was asked for.

    Attributes:
        command: A text, or words.
        spec: The caller's box, or None.
        stdin: What it reads, or None.
        cwd: Where it starts, a real path: where it is judged.
        box_cwd: The same, or None where a box chooses by its spec.
        timeout: Seconds, or None.
        environ: The application's variables when it was asked for.
        explain: Whether what it is refused is to be looked at.
    """

    command: str | tuple[str, ...]
    spec: SandboxSpec | None
    stdin: bytes | None
    cwd: str
    box_cwd: str | None
    timeout: float | None
    environ: Mapping[str, str]
    explain: bool = False

    @classmethod
    def of(
        cls,
        command: str | Sequence[str],
        *,
        spec: SandboxSpec | None,
        stdin: bytes | None,
        cwd: str | os.PathLike[str] | None,
        timeout: float | None,
        environ: Mapping[str, str],
        explain: bool = False,
    ) -> Request:
        """
        The request, if every part of it can be meant.

        Raises:
            CommandError: The command or its input is of a wrong type.
            SpecError: The spec, the working directory or the timeout is wrong.
        """
        if isinstance(command, (bytes, bytearray, memoryview)) or not isinstance(command, (str, Sequence)):
            raise CommandError(f"it is of type {type(command).__name__}; give a string or a list of strings")
        if spec is not None and not isinstance(spec, SandboxSpec):
            raise SpecError(
                f"it is of type {type(spec).__name__}; give a SandboxSpec, for example SandboxSpec.from_dict(...)"
            )
        if stdin is not None and not isinstance(stdin, (bytes, bytearray, memoryview)):
            raise CommandError(f"its input is of type {type(stdin).__name__}; give bytes")
        place = _starting_place(spec, environ) if spec is not None and cwd is None else working_directory(cwd)
        return cls(
            command=command if isinstance(command, str) else tuple(command),
            spec=spec,
            stdin=None if stdin is None else bytes(stdin),
            cwd=place,
            box_cwd=None if spec is not None and cwd is None else place,
            timeout=checked_timeout(timeout),
            environ=environ,
            explain=bool(explain),
        )


def _starting_place(spec: SandboxSpec, environ: Mapping[str, str]) -> str:
    """
    Where a box under *spec* starts a command by itself; its home is not on the host.
    """
    home = home_of(environ) or "/"
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = "/"  # it was removed
    return next((place for place in spec.starting_places(here, home) if os.path.isdir(place)), home)


def working_directory(cwd: str | os.PathLike[str] | None) -> str:
    """
    The real path of *cwd*; None is the application's own.

    Raises:
        SpecError: It is no directory that exists.
    """
    if cwd is not None and not isinstance(cwd, (str, os.PathLike)):
        raise SpecError(f"cwd is of type {type(cwd).__name__}; give a path")
    try:
        real = real_path("." if cwd is None else cwd)
    except (OSError, ValueError) as exc:
        raise SpecError(f"cwd: {exc}") from exc
    if not os.path.isdir(real):
        problem = "is no directory" if os.path.lexists(real) else "does not exist"
        raise SpecError(f"cwd: {real!r} {problem}; create it, or name another directory")
    return real
