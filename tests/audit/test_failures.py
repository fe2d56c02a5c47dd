"""
Each thing that can go wrong with a file is named with what would help.
"""

from __future__ import annotations

import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.audit.logs import event, written

from sandboxkit.audit import AuditKey, FileAnchor, JsonlAudit, read_anchors, verify
from sandboxkit.audit._failures import _REMEDIES, failure
from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    from pathlib import Path

IS_ROOT = os.geteuid() == 0


@pytest.mark.parametrize("number", sorted(_REMEDIES), ids=errno.errorcode.get)
def test_every_errno_has_a_remedy_of_its_own(number: int) -> None:
    error = failure("/no/such/a", OSError(number, os.strerror(number)))
    assert str(error) == f"audit sink /no/such/a: {os.strerror(number)}; {error.remedy}"
    assert "{" not in error.remedy
    same = {errno.ENXIO, errno.ENODEV, errno.ENOLCK, errno.EOPNOTSUPP}
    assert number in same or list(_REMEDIES.values()).count(_REMEDIES[number]) == 1


def test_an_unknown_errno_says_where_to_look() -> None:
    assert "see errno 71 in open(2)" in str(failure("/a", OSError(71, "Protocol error")))


def test_a_missing_file_is_told_from_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(
        AuditError, match=r"^audit log /.*: it cannot be read: No such file or directory; .* holds no 'a'$"
    ):
        verify(tmp_path / "a")
    with pytest.raises(AuditError, match=r"No such file or directory; check the name: .*/no is not there either$"):
        verify(tmp_path / "no" / "a")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"^audit key /.*: it cannot be read: No such file"):
        AuditKey.from_file(tmp_path / "key")
    with pytest.raises(AuditError, match=r"^audit anchors /.*: it cannot be read: No such file"):
        list(read_anchors(tmp_path / "anchors"))


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="it is a directory; name a file in it"):
        verify(tmp_path)
    with pytest.raises(AuditError, match="it is a directory; name a file in it"):
        AuditKey.from_file(tmp_path)


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match=r"No such file or directory; create the directory .*/no, or name another"):
        JsonlAudit(tmp_path / "no" / "a")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AuditError, match=r"Not a directory; .*/file is to be a directory"):
        JsonlAudit(tmp_path / "file" / "a")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="it is a directory; name a file in it"):
        JsonlAudit(tmp_path)


def test_a_long_name(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="File name too long; name a shorter path"):
        JsonlAudit(tmp_path / ("x" * 300))


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(AuditError, match="symbolic link"):
        JsonlAudit(tmp_path / "one")


def test_a_socket(tmp_path: Path) -> None:
    os.mknod(tmp_path / "pipe", 0o600 | 0o010000)
    with pytest.raises(AuditError, match="it is no regular file; name one"):
        JsonlAudit(tmp_path / "pipe")


@pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")
def test_no_right(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(AuditError, match=rf"Permission denied; give this user \(uid {os.geteuid()}\) the right"):
        JsonlAudit(tmp_path / "a")
    tmp_path.chmod(0o700)


@pytest.mark.skipif(not IS_ROOT, reason="mounting takes root")
def test_a_file_system_that_is_read_only(tmp_path: Path) -> None:
    written(tmp_path / "a", 1)
    subprocess.run(["mount", "--bind", tmp_path, tmp_path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", tmp_path], check=True)
        with pytest.raises(AuditError, match="the file system is read-only; remount it writable"):
            JsonlAudit(tmp_path / "a")
        assert verify(tmp_path / "a") == 1
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(not IS_ROOT, reason="giving a file away takes root")
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    written(tmp_path / "a", 1)
    os.chown(tmp_path / "a", 12345, 12345)
    with pytest.raises(AuditError, match="it belongs to uid 12345, who can change it at will; chown it to uid 0"):
        JsonlAudit(tmp_path / "a")


def test_a_file_given_away_later(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 1)
    (tmp_path / "a").chmod(0o660)
    with pytest.raises(AuditError, match="its mode 0660 lets others write it, so it proves nothing; chmod it to 0600"):
        sink.write(event())
    assert verify(tmp_path / "a") == 1


def test_a_key_is_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"0123456789abcdef0123456789abcdef\n")
    path.chmod(0o640)
    with pytest.raises(AuditError, match="its mode 0640 lets others read it, so it is no secret"):
        AuditKey.from_file(path)
    path.chmod(0o600)
    key = AuditKey.from_file(path)
    assert key.id == AuditKey(b"0123456789abcdef0123456789abcdef").id
    assert "0123456789abcdef0123" not in repr(key)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(AuditError, match="symbolic link"):
        AuditKey.from_file(tmp_path / "link")
    path.write_bytes(b"short")
    with pytest.raises(AuditError, match=r"the key holds 5 bytes; .*openssl rand -hex 32"):
        AuditKey.from_file(path)
    with pytest.raises(AuditError, match="is not there either"):
        AuditKey.from_file(tmp_path / "no" / "key")
    with pytest.raises(ValueError, match="holds 5000 bytes"):
        AuditKey(b"x" * 5000)


def test_an_anchor_is_for_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "anchors").touch()
    (tmp_path / "anchors").chmod(0o666)
    with pytest.raises(AuditError, match="lets others write it"):
        FileAnchor(tmp_path / "anchors")


def test_after_a_failure_the_log_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    sink = written(folder / "a", 2)
    folder.rename(tmp_path / "away")
    with pytest.raises(AuditError, match="create the directory"):
        sink.write(event())
    (tmp_path / "away").rename(folder)
    sink.write(event())
    assert verify(folder / "a") == 3
