"""
What exactly is approved, so that exactly that runs.
"""

from __future__ import annotations

import hashlib
import os
import stat
from typing import TYPE_CHECKING

from sandboxkit.approval._programs import scripts
from sandboxkit.model import Executable, Grant, RunMode, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.model import Command, PolicyEvaluation, SandboxSpec

__all__ = ["find_executable", "grant_for"]


def find_executable(program: str, *, cwd: str, search: str) -> Executable | None:
    """
    The file that *program* names on the host, or None where there is none: it may still
    exist in the box.

    Args:
        program: The first word of a command.
        cwd: Where a name with a slash starts.
        search: The directories a bare name is looked for in, as in PATH.
    """
    folders = [cwd] if "/" in program else [os.path.join(cwd, folder) for folder in search.split(":")]
    for folder in folders:
        found = _identified(os.path.join(folder, program))
        if found and os.access(found.path, os.X_OK):
            return found
    return None


def grant_for(
    evaluation: PolicyEvaluation,
    *,
    command: tuple[str, ...] | str,
    argv: Sequence[str],
    cwd: str,
    search: str,
    workspace_roots: tuple[str, ...],
    spec: SandboxSpec,
    mode: RunMode,
    stdin: bytes | None,
) -> Grant:
    """
    What an approval of *command* covers, as things are on this machine now.

    Args:
        evaluation: The decision that asks.
        command: The words or the text that was asked for.
        argv: What is executed for it.
        cwd: Where it runs.
        search: The directories bare program names are looked for in, as in PATH.
        workspace_roots: The directories that count as the workspace.
        spec: The box it gets.
        mode: Whether it gets the box.
        stdin: What it reads.
    """
    programs = (argv[0], *_programs(evaluation.command))
    found = {name: find_executable(name, cwd=cwd, search=search) for name in programs}
    files = [program for program in found.values() if program]
    files += [code for path in _scripts(evaluation.command, cwd) if (code := _identified(path))]
    return Grant(
        command=command,
        cwd=cwd,
        workspace_roots=workspace_roots,
        spec=spec,
        executables=tuple(dict.fromkeys(files)),
        rules_digest=evaluation.rules_digest,
        mode=mode,
        stdin_digest=hashlib.sha256(stdin).hexdigest() if stdin else None,
        not_found=tuple(name for name, program in found.items() if program is None),
        search=search,
    )


def _programs(command: Command) -> Iterator[str]:
    """
    The programs that start on this host, as they are named.
    """
    for part in command.parts:
        if part.program and not part.is_dynamic and not part.setting & Setting.REMOTE:
            yield part.program


def _scripts(command: Command, cwd: str) -> Iterator[str]:
    for part in command.parts:
        if not part.setting & Setting.REMOTE:
            yield from scripts(part.argv, cwd)


def _identified(path: str) -> Executable | None:
    try:
        real = os.path.realpath(path)
        found = os.stat(real)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return Executable(
        real, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, os.path.normpath(path)
    )
