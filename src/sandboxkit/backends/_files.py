"""
Files of a box, reached through the box itself: what it may not touch, this may not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.errors import CommandError, FileAccessError

if TYPE_CHECKING:
    from sandboxkit.backends._contract import Sandbox

__all__ = ["BoxFiles"]

_WRITE = 'cat > "$1"'
_LIST = 'cd -- "$1" && for name in * .[!.]* ..?*; do [ -e "$name" ] || [ -L "$name" ] || continue; printf "%s\\0" "$name"; done'


class BoxFiles:
    """
    Reads and writes files as a command in the box would. Paths are the box's own; a
    relative one counts from its working directory. Each call runs one command, so
    what it writes stays only where the spec lets the box write.
    """

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    async def read(self, path: str) -> bytes:
        """
        The content of *path*.

        Raises:
            FileAccessError: It cannot be read, or is larger than
                `limits.max_output_bytes`.
        """
        return await self._do(path, "cat", "--", path)

    async def write(self, path: str, content: bytes) -> None:
        """
        Makes *content* the content of *path*; its directory must exist.

        Raises:
            FileAccessError: It cannot be written.
        """
        await self._do(path, "/bin/sh", "-c", _WRITE, "sh", path, stdin=content)

    async def list(self, path: str = ".") -> tuple[str, ...]:
        """
        The names in directory *path*, sorted.

        Raises:
            FileAccessError: It cannot be listed.
        """
        listed = await self._do(path, "/bin/sh", "-c", _LIST, "sh", path)
        return tuple(sorted(name.decode(errors="surrogateescape") for name in listed.split(b"\0") if name))

    async def remove(self, path: str) -> None:
        """
        Removes *path*, a directory with all that is in it.

        Raises:
            FileAccessError: It does not exist or cannot be removed.
        """
        await self._do(path, "rm", "-r", "--", path)

    async def _do(self, path: str, *argv: str, stdin: bytes | None = None) -> bytes:
        if not path:
            raise CommandError("the path is empty; name a file of the box")
        result = await self._box.run(argv, stdin=stdin)
        if not result.ok:
            raise FileAccessError(path, result.text("stderr").strip() or f"the file command {result.outcome}")
        if result.truncated:
            raise FileAccessError(
                path, "it is larger than limits.max_output_bytes; raise that limit or read it in parts with a command"
            )
        return result.stdout
