"""
A workspace that is copied into a container, for engines that do not see this machine's
files, and for commands that must not change them.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import stat
import tarfile
from typing import TYPE_CHECKING

import anyio.to_thread

from sandboxkit.backends._tree import Node, Tree
from sandboxkit.backends.docker._plan import shown_tree
from sandboxkit.errors import SetupError, SpecError
from sandboxkit.model import is_inside, open_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.backends.docker._session import Session
    from sandboxkit.model import SandboxSpec

__all__ = ["copy_in", "packed"]

_MOST_BYTES = 512 << 20
_MOST_FILES = 100_000
_DEEPEST = 200
_SECONDS = 120.0
_GRACE_SECONDS = 10.0
_MOST_SAID = 500
_UNPACK = """
import os, sys, tarfile
with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
    archive.extraction_filter = lambda member, path: member
    for member in archive:
        archive.extract(member, sys.argv[1], set_attrs=not member.issym())
"""
"""
Links are what they are on the host: Python 3.14 would refuse those that lead elsewhere. Where
they lead, in the container, is no more than its command may reach anyway.
"""
_LINK_MODE = 0o777
_OPEN = open_flags("RDONLY", "CLOEXEC", "NOFOLLOW", "NONBLOCK")


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
        try:
            with anyio.fail_after(_SECONDS + _GRACE_SECONDS):
                wrong = await _unpacked(session, root, content, python)
        except TimeoutError:
            wrong = f"it was not unpacked within {_SECONDS + _GRACE_SECONDS:g} s"
        if wrong:
            raise SetupError(facts.engine, f"{root!r} could not be copied into the container: {wrong}")


async def _unpacked(session: Session, root: str, content: bytes, python: str) -> str:
    """
    Has *content* unpacked at *root* in a container; what kept it from that.
    """
    said = bytearray()

    def hear(kind: int, data: bytes) -> None:
        said.extend(data)
        del said[:-_MOST_SAID]

    told = {
        "argv": [python, "-I", "-S", "-c", _UNPACK, root],
        "environment": [["PATH", "/usr/local/bin:/usr/bin:/bin"]],
        "cwd": "/",
        "rlimits": [],
        "wall": _SECONDS,
        "cpu": None,
    }
    remote = await session.order(told, hear)
    await session.feed(remote, content)
    await session.feed(remote, b"")
    await session.until(lambda: remote.is_over)
    session.forget(remote)
    if remote.end is not None and remote.end["code"] == 0:
        return ""
    return said.decode(errors="replace").strip() or str(remote.failure or "it was ended")


def _roots(spec: SandboxSpec) -> tuple[str, ...]:
    named = (*spec.filesystem.write, *spec.filesystem.read)
    return tuple(path for path in named if not any(path != other and is_inside(path, other) for other in named))


def packed(root: str, tree: Tree) -> bytes:
    """
    An archive of *root*, without what *tree* hides. Links are kept as links; sockets,
    pipes and devices are left out.

    Each file is opened from the directory it was found in, and no link is followed: whoever
    may write there while it is copied could else have any file of this user's copied.

    Raises:
        SpecError: It holds too much, is a link now, or holds what cannot be read.
    """
    buffer = io.BytesIO()
    with _refused(root):
        top = _without_links(root)
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _Packing(archive, root, tree).directory(top, root)
    return buffer.getvalue()


@contextlib.contextmanager
def _refused(path: str) -> Iterator[None]:
    """
    Names *path* in an error of the system.
    """
    try:
        yield
    except OSError as exc:
        raise SpecError(
            f"{path!r} cannot be copied: {exc.strerror}; name directories all of which can be read, and deny what cannot"
        ) from exc


def _without_links(path: str) -> int:
    """
    A descriptor of the directory *path*, to which no link leads.
    """
    way = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", way)
    for name in (*path.strip("/").split("/"), "."):
        above = fd
        try:
            fd = os.open(name, way if name != "." else _OPEN | os.O_DIRECTORY, dir_fd=above)
        finally:
            os.close(above)
    return fd


class _Packing:
    """
    Puts what lies in *root* into *archive*.
    """

    def __init__(self, archive: tarfile.TarFile, root: str, tree: Tree) -> None:
        self._archive, self._root, self._tree = archive, root, tree
        self._bytes = self._files = 0

    def directory(self, fd: int, path: str) -> None:
        """
        Packs what is in the directory *fd*, which is closed, whose name is *path*.
        """
        try:
            if path.count("/") - self._root.count("/") > _DEEPEST:
                raise SpecError(f"{self._root!r} holds directories more than {_DEEPEST} deep; bind it, or name less")
            for name in sorted(os.listdir(fd)):
                inner = posixpath.join(path, name)
                if self._tree.at(inner) in (Node.READ, Node.WRITE):
                    self._entry(fd, name, inner)
        finally:
            os.close(fd)

    def _entry(self, above: int, name: str, path: str) -> None:
        with _refused(path), contextlib.suppress(FileNotFoundError):  # it went while the others were packed
            mode = os.lstat(name, dir_fd=above).st_mode
            if stat.S_ISLNK(mode):
                self._link(path, os.readlink(name, dir_fd=above))
            elif stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                self._opened(os.open(name, _OPEN, dir_fd=above), path)

    def _opened(self, fd: int, path: str) -> None:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            self._add(self._member(path, tarfile.DIRTYPE, found))
            self.directory(fd, path)
            return
        with open(fd, "rb") as file:
            if stat.S_ISREG(found.st_mode):
                member = self._member(path, tarfile.REGTYPE, found)
                self._room(found.st_size)
                content = file.read(found.st_size)
                member.size = len(content)  # it may have been cut meanwhile
                self._add(member, content)

    def _link(self, path: str, text: str) -> None:
        member = self._member(path, tarfile.SYMTYPE)
        member.linkname = text
        self._add(member)

    def _member(self, path: str, kind: bytes, found: os.stat_result | None = None) -> tarfile.TarInfo:
        member = tarfile.TarInfo(posixpath.relpath(path, self._root))
        member.type = kind
        member.mode = stat.S_IMODE(found.st_mode) if found else _LINK_MODE
        member.mtime = found.st_mtime if found else 0
        return member

    def _add(self, member: tarfile.TarInfo, content: bytes = b"") -> None:
        self._room(0)
        self._files += 1
        self._bytes += len(content)
        self._archive.addfile(member, io.BytesIO(content) if content else None)

    def _room(self, size: int) -> None:
        if self._bytes + size > _MOST_BYTES or self._files >= _MOST_FILES:
            raise SpecError(
                f"{self._root!r} holds more than {_MOST_BYTES >> 20} MiB or {_MOST_FILES} files; bind it, or name less"
            )
