"""
What a box keeps on the host to cover hidden paths with.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from typing import TYPE_CHECKING

from sandboxkit.backends._temporary import temporary_directory
from sandboxkit.backends.docker._plan import PROFILE, TRUST, TRUST_DIRECTORY, profile, ways

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.model import SandboxSpec

__all__ = ["make_ways", "scratch_directory", "trusted"]

_PREFIX = "sandboxkit-docker-"


@contextlib.contextmanager
def scratch_directory(spec: SandboxSpec, facts: DockerFacts) -> Iterator[str]:
    """
    A directory of a box's own on the host, with what covers hidden paths. None on Windows: no
    path of that machine is shown in a container, so there is nothing to cover.
    """
    if sys.platform == "win32":
        yield ""
        return
    with temporary_directory(_PREFIX) as scratch:
        _make_covers(scratch, spec, facts)
        yield scratch


def _make_covers(scratch: str, spec: SandboxSpec, facts: DockerFacts) -> None:
    """
    Makes the file nobody may read, the directory nobody may enter, the one for certificates
    of proxies, and the seccomp profile.
    """
    with open(f"{scratch}/{PROFILE}", "x", encoding="utf-8") as file:
        file.write(profile(spec, facts))
    os.close(os.open(f"{scratch}/nothing", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o000))
    os.mkdir(f"{scratch}/closed", 0o000)
    if spec.network.intercepts:
        os.mkdir(f"{scratch}/{TRUST_DIRECTORY}")
        os.chmod(f"{scratch}/{TRUST_DIRECTORY}", 0o755)  # noqa: S103 - certificates, which the command reads


@contextlib.contextmanager
def trusted(scratch: str, authority: bytes) -> Iterator[str]:
    """
    Shows the certificate of a command's proxy in the container, where there is one: its path
    there.
    """
    if not authority:
        yield ""
        return
    name = f"{secrets.token_hex(8)}.pem"
    path = f"{scratch}/{TRUST_DIRECTORY}/{name}"
    with open(path, "xb") as file:
        file.write(authority)
        os.fchmod(file.fileno(), 0o444)
    try:
        yield f"{TRUST}/{name}"
    finally:
        os.unlink(path)


def make_ways(scratch: str, spec: SandboxSpec, facts: DockerFacts) -> None:
    """
    Makes the directories that lead to what is shown inside of hidden ones, where *scratch*
    is one. They can be passed and not listed, not even by their owner, who may be the
    command's user.
    """
    if not scratch:
        return
    root = f"{scratch}/way"
    _open(root)
    for path, is_directory in ways(spec, facts):
        target = root + path
        os.makedirs(target if is_directory else os.path.dirname(target), exist_ok=True)
        if not is_directory and not os.path.exists(target):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o000))
    for directory, _, _ in os.walk(root, topdown=False):
        os.chmod(directory, 0o111)  # noqa: S103 - the command must get through


def _open(root: str) -> None:
    """
    Lets the owner list and change what lies in *root* again.
    """
    if os.path.isdir(root):
        os.chmod(root, 0o700)
        for entry in os.scandir(root):
            if entry.is_dir(follow_symlinks=False):
                _open(entry.path)
