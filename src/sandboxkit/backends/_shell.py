"""
The shell that was read is the shell that runs.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from sandboxkit.errors import ProgramNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.model import SandboxSpec

__all__ = ["bash_argv", "command_environment"]

_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin")
_NEVER = frozenset({"BASH_ENV", "ENV"})
_NEVER_IN_BASH = frozenset({"BASHOPTS", "BASH_COMPAT", "GLOBIGNORE", "POSIXLY_CORRECT", "SHELLOPTS"})
"""
They change how bash reads what follows. Source: bash(1), "Shell Variables".
"""


def bash_argv(text: str) -> tuple[str, ...]:
    """
    What runs *text* as bash reads it, with no start-up file.

    Raises:
        ProgramNotFoundError: This machine has no bash where one is trusted.
    """
    return (_bash(), "--noprofile", "--norc", "-c", "--", text)


def _bash() -> str:
    for folder in _FOLDERS:
        path = f"{folder}/bash"
        try:
            found = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and os.access(path, os.X_OK):
            return path
    where = f"in {', '.join(_FOLDERS)}, and no other shell reads this command the same way"
    raise ProgramNotFoundError("bash", f"{where}; install bash, or give the command as a list of words")


def command_environment(spec: SandboxSpec, environ: Mapping[str, str], *, for_bash: bool) -> dict[str, str]:
    """
    What a command gets of *environ* under *spec*: never a file or function that a shell
    would run first, whatever the spec says.

    Args:
        spec: Whose allowlist applies.
        environ: The application's variables.
        for_bash: Whether bash reads the command; then nothing that changes how.
    """
    dropped = _NEVER | _NEVER_IN_BASH if for_bash else _NEVER
    return {
        name: text
        for name, text in spec.environment.apply(environ).items()
        if name not in dropped and not name.startswith("BASH_FUNC_")
    }
