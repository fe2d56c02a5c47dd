"""
What of a workspace is copied into a container, while somebody else changes it.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._tree import Node, Tree
from sandboxkit.backends.docker._copy import _DEEPEST, _UNPACK, packed
from sandboxkit.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)
SECRET = b"of the user, outside"
TURNS = 100


@pytest.fixture(autouse=True)
def collected() -> None:
    """
    Nothing: no engine and no SDK is used here.
    """


def tree(ws: Path, **others: Node) -> Tree:
    return Tree({str(ws): Node.WRITE, **{f"{ws}/{name}": node for name, node in others.items()}}, frozenset({str(ws)}))


def content(data: bytes) -> Mapping[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


def unpacked(data: bytes, target: Path) -> None:
    target.mkdir()
    argv = [sys.executable, "-I", "-S", "-c", _UNPACK, str(target)]
    subprocess.run(argv, input=data, check=True, capture_output=True)


def test_all_kinds_of_files(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    (ws / "dir/empty").mkdir(parents=True)
    (ws / "file").write_bytes(b"x" * 100_000)
    (ws / "file").chmod(0o750)
    os.link(ws / "file", ws / "dir/second name")
    (ws / "out").symlink_to("/etc/hostname")
    (ws / "up").symlink_to("../../outside")
    (ws / "hidden").write_text("no")
    os.mkfifo(ws / "pipe")
    data = packed(str(ws), tree(ws, hidden=Node.HIDDEN))
    assert set(content(data)) == {"dir", "dir/empty", "dir/second name", "file", "out", "up"}
    unpacked(data, copy := tmp_path / "copy")
    assert (copy / "dir/second name").read_bytes() == (copy / "file").read_bytes() == b"x" * 100_000
    assert (copy / "file").stat().st_mode & 0o777 == 0o750
    assert os.readlink(copy / "out") == "/etc/hostname"
    assert os.readlink(copy / "up") == "../../outside"


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """
    A workspace, and beside it what is not to be copied.
    """
    found = tmp_path / "ws"
    (found / "dir").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for place in (found / "file", found / "dir/file"):
        place.write_bytes(b"of the workspace")
    (tmp_path / "outside/file").write_bytes(SECRET)
    return found


@dataclass(frozen=True)
class Swapping(Tree):
    """
    A tree in which a link comes into a directory's place while that is packed.
    """

    ws: Path | None = None

    def at(self, path: str) -> Node | None:
        if self.ws is not None and path == f"{self.ws}/dir/file":
            (self.ws / "dir").rename(self.ws / "moved")
            (self.ws / "dir").symlink_to(self.ws.parent / "outside")
        return super().at(path)


def test_a_directory_that_becomes_a_link_is_left_by_nothing(ws: Path) -> None:
    data = packed(str(ws), Swapping({str(ws): Node.WRITE}, frozenset({str(ws)}), ws))
    assert SECRET not in data
    assert (ws / "dir/file").read_bytes() == SECRET, "whoever goes by names gets it"


EXCHANGE = """
import ctypes, sys
here, there = (path.encode() for path in sys.argv[1:])
call = ctypes.CDLL(None).renameat2
assert call(-100, here, -100, there, 2) == 0, "RENAME_EXCHANGE"
print("begun", flush=True)
while True:
    call(-100, here, -100, there, 2)
"""


@pytest.mark.parametrize("name", ["file", "dir"])
def test_a_link_put_there_meanwhile_is_not_followed(ws: Path, name: str) -> None:
    spare = ws.parent / "spare"
    spare.symlink_to(ws.parent / "outside" / ("file" if name == "file" else ""))
    argv = [sys.executable, "-I", "-S", "-c", EXCHANGE, str(ws / name), str(spare)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"begun\n"
        seen = 0
        for _ in range(TURNS):
            with contextlib.suppress(SpecError):  # a link came between the look and the opening
                assert SECRET not in packed(str(ws), tree(ws))
                seen += 1
        other.kill()
    assert seen, "not one was packed"


def test_a_link_on_the_way_to_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real/ws").mkdir(parents=True)
    (tmp_path / "real/ws/file").write_bytes(SECRET)
    (tmp_path / "link").symlink_to("real")
    ws = tmp_path / "link/ws"
    with pytest.raises(SpecError, match="cannot be copied"):
        packed(str(ws), tree(ws))
    assert SECRET in packed(str(tmp_path / "real/ws"), tree(tmp_path / "real/ws"))


def test_what_is_too_deep_or_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ws = tmp_path / "ws"
    (ws / "/".join(["d"] * (_DEEPEST + 1))).mkdir(parents=True)
    with pytest.raises(SpecError, match=f"more than {_DEEPEST} deep"):
        packed(str(ws), tree(ws))
    other = tmp_path / "other"
    other.mkdir()
    with open(other / "sparse", "wb") as file:
        file.truncate(513 << 20)
    with pytest.raises(SpecError, match="more than 512 MiB"):
        packed(str(other), tree(other))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    ws.mkdir()
    (ws / "closed").write_text("x")
    (ws / "closed").chmod(0)
    with pytest.raises(SpecError, match="closed' cannot be copied"):
        packed(str(ws), tree(ws))
