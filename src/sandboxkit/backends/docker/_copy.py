"""
A workspace that is copied into a container, for engines that do not see this machine's
files, and for commands that must not change them.
"""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import anyio.to_thread

from sandboxkit.backends._tree import Node, Tree
from sandboxkit.backends.docker._plan import shown_tree
from sandboxkit.errors import SetupError, SpecError
from sandboxkit.model import is_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.backends.docker._session import Session
    from sandboxkit.model import SandboxSpec

__all__ = ["copy_in", "packed"]

_MOST_BYTES = 512 << 20
_MOST_FILES = 100_000
_SECONDS = 120.0
_UNPACK = """
import os, sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
    for member in archive:
        archive.extract(member, sys.argv[1], set_attrs=not member.issym())
"""


async def copy_in(session: Session, spec: SandboxSpec, facts: DockerFacts, python: str) -> None:
    """
    Copies what *spec* names into a container.

    Raises:
        SpecError: It is too much.
        SetupError: The container could not take it.
    """
    tree, survey = shown_tree(spec, facts)
    for root in _roots(spec):
        if survey.kinds.get(root) != "directory":
            raise SpecError(f"{root!r} is a file; a copied workspace takes directories")
        content = await anyio.to_thread.run_sync(packed, root, tree)
        said: list[bytes] = []
        told = {
            "argv": [python, "-I", "-S", "-c", _UNPACK, root],
            "environment": [["PATH", "/usr/local/bin:/usr/bin:/bin"]],
            "cwd": "/",
            "rlimits": [],
            "wall": _SECONDS,
            "cpu": None,
        }
        remote = await session.order(told, lambda kind, data: said.append(data))  # noqa: B023 - used up within this turn
        await session.feed(remote, content)
        await session.feed(remote, b"")
        await session.until(lambda: remote.is_over)  # noqa: B023 - likewise
        session.forget(remote)
        if remote.end is None or remote.end["code"] != 0:
            text = b"".join(said)[-500:].decode(errors="replace").strip()
            raise SetupError(facts.engine, f"{root!r} could not be copied into the container: {text or remote.failure}")


def _roots(spec: SandboxSpec) -> tuple[str, ...]:
    named = (*spec.filesystem.write, *spec.filesystem.read)
    return tuple(path for path in named if not any(path != other and is_inside(path, other) for other in named))


def packed(root: str, tree: Tree) -> bytes:
    """
    An archive of *root*, without what *tree* hides. Links are kept as links; sockets,
    pipes and devices are left out.

    Raises:
        SpecError: It holds too much.
    """
    buffer = io.BytesIO()
    size = count = 0
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in _walk(root, tree):
            member = archive.gettarinfo(path, os.path.relpath(path, root))
            if not (member.isreg() or member.isdir() or member.issym()):
                continue
            size, count = size + member.size, count + 1
            if size > _MOST_BYTES or count > _MOST_FILES:
                raise SpecError(
                    f"{root!r} holds more than {_MOST_BYTES >> 20} MiB or {_MOST_FILES} files; bind it, or name less"
                )
            member.uid = member.gid = 0
            if member.isreg():
                with open(path, "rb") as file:
                    archive.addfile(member, file)
            else:
                archive.addfile(member)
    return buffer.getvalue()


def _walk(root: str, tree: Tree) -> Iterator[str]:
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if _is_copied(f"{directory}/{name}", tree)]
        linked = [name for name in names if os.path.islink(f"{directory}/{name}")]
        yield from (
            f"{directory}/{name}"
            for name in sorted({*names, *files})
            if name in names or _is_copied(f"{directory}/{name}", tree)
        )
        names[:] = [name for name in names if name not in linked]


def _is_copied(path: str, tree: Tree) -> bool:
    return tree.at(path) in (Node.READ, Node.WRITE)
