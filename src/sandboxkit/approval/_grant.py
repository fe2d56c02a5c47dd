"""
What exactly was approved, so that exactly that runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxkit.model import SandboxSpec

__all__ = ["Executable", "Grant"]


@dataclass(frozen=True, slots=True)
class Executable:
    """
    A program file as it was found.

    Attributes:
        path: Its real path on the host.
        device: Its device number.
        inode: Its inode number.
        size: Bytes.
        mtime_ns: When it was last changed.
    """

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def find(cls, program: str, *, cwd: str, search: str) -> Executable | None:
        """
        The file that *program* names on the host, or None where there is none: it may
        still exist in the box.

        Args:
            program: The first word of a command.
            cwd: Where a name with a slash starts.
            search: The directories a bare name is looked for in, as in PATH.
        """
        folders = [cwd] if "/" in program else [os.path.join(cwd, folder) for folder in search.split(":")]
        for folder in folders:
            try:
                path = os.path.realpath(os.path.join(folder, program))
                found = os.stat(path)
            except (OSError, ValueError):
                continue
            if stat.S_ISREG(found.st_mode) and os.access(path, os.X_OK):
                return cls(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return None


@dataclass(frozen=True, slots=True)
class Grant:
    """
    What an approval covers. A run whose grant has another digest was not approved.

    The program file is covered by its identity, not by its content, and files it reads
    (a script, a Makefile) are not covered at all.

    Attributes:
        command: The exact words, or the exact text for bash.
        cwd: Where it runs.
        spec: The box it gets.
        executable: The program file, where it was found on the host.
        rules_digest: The rule set that asked.
    """

    command: tuple[str, ...] | str
    cwd: str
    spec: SandboxSpec
    executable: Executable | None
    rules_digest: str

    @property
    def digest(self) -> str:
        """
        Names it: sha256 over every attribute, hex.
        """
        content = {
            "command": self.command,
            "cwd": self.cwd,
            "spec": self.spec.model_dump(mode="json"),
            "named_limits": sorted(self.spec.limits.model_fields_set),
            "executable": asdict(self.executable) if self.executable else None,
            "rules": self.rules_digest,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
