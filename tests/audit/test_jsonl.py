"""
A file of records: whole lines or none, chained, closed to others.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.audit.logs import event, records, small_disk

from sandboxkit.audit import JsonlAudit, examine, verify
from sandboxkit.errors import AuditError
from sandboxkit.model import AuditSink
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from pathlib import Path


def test_a_record_is_one_line_with_every_key(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = JsonlAudit(path)
    assert isinstance(sink, AuditSink)
    sink.write(event())
    (record,) = records(path)
    digest = record.pop("hash")
    assert record == {
        "schema": 2, "kind": "decided", "run_id": "run-0", "time": 1700000000.5, "command": "ls", "seq": 1, "prev": "0" * 64,
    }  # fmt: skip
    line = path.read_bytes().removesuffix(b"\n")
    assert hashlib.sha256(line[: line.index(b',"hash":')] + b"}").hexdigest() == digest


def test_the_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        JsonlAudit(tmp_path / "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_records_form_a_chain_that_goes_on_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for number in range(3):
        JsonlAudit(path).write(event(number))
    sink = JsonlAudit(path)
    for number in range(3, 6):
        sink.write(event(number, long="x" * 9000))
    assert verify(path) == 6
    assert [row["run_id"] for row in records(path)] == [f"run-{n}" for n in range(6)]


@pytest.mark.parametrize("damage", ["change", "remove", "swap", "insert", "forge-torn"])
def test_damage_is_found_at_its_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a"
    sink = JsonlAudit(path)
    for number in range(5):
        sink.write(event(number))
    lines = path.read_text().splitlines(keepends=True)
    match damage:
        case "change":
            lines[2] = lines[2].replace("ls", "rm")
        case "remove":
            del lines[2]
        case "swap":
            lines[1:3] = lines[2:0:-1]
        case "insert":
            lines.insert(2, lines[1])
        case _:
            lines[2] = "{" + lines[2]
    path.write_text("".join(lines))
    with pytest.raises(AuditError, match=r"line [234] .*compare it with a copy you trust"):
        verify(path)


def test_an_empty_file_holds_no_record(tmp_path: Path) -> None:
    JsonlAudit(tmp_path / "a")
    assert verify(tmp_path / "a") == 0


def test_verify_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="nothing: it cannot be read: No such file"):
        verify(tmp_path / "nothing")


@pytest.mark.parametrize("cut", [1, 10, 50])
def test_half_a_record_is_reported_and_the_next_one_marks_it(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a"
    sink = JsonlAudit(path)
    sink.write(event(0))
    sink.write(event(1))
    os.truncate(path, path.stat().st_size - cut)
    is_whole = cut == 1
    if is_whole:
        assert verify(path) == 2
    else:
        with pytest.raises(AuditError, match="line 2 is half a record"):
            verify(path)
    JsonlAudit(path).write(event(2))
    JsonlAudit(path).write(event(3))
    assert verify(path) == (4 if is_whole else 3)
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    assert ("torn" in json.loads(lines[2])) is not is_whole


_LIMITED = """
import resource, sys
from sandboxkit.audit import JsonlAudit
from sandboxkit.errors import AuditError
from sandboxkit.model import AuditEvent
sink = JsonlAudit(sys.argv[1])
sink.write(AuditEvent("decided", "one", 1.0, {}))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    sink.write(AuditEvent("decided", "two", 1.0, {"text": "x" * 500}))
except AuditError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sink.write(AuditEvent("decided", "three", 1.0, {}))
"""


@pytest.mark.parametrize("room", [0, 1, 300])
def test_a_full_disk_is_an_error_and_leaves_no_half_line(tmp_path: Path, room: int) -> None:
    path = tmp_path / "a"
    JsonlAudit(path).write(event())
    size = path.stat().st_size * 2 + room
    done = subprocess.run([sys.executable, "-c", _LIMITED, path, str(size)], capture_output=True, text=True, check=True)
    assert str(path) in done.stdout
    assert "rotate earlier" in done.stdout or "free the disk" in done.stdout
    assert [row["run_id"] for row in records(path)] == ["run-0", "one", "three"]
    assert verify(path) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tiny file system takes root")
def test_a_really_full_file_system(tmp_path: Path) -> None:
    with small_disk(tmp_path / "full", "size=8k") as full:
        sink = JsonlAudit(full / "a")
        count = 0
        full_disk = r"full/a: (No space left on device|only \d+ of \d+ bytes fitted)"
        with pytest.raises(AuditError, match=full_disk):  # noqa: PT012 - when the disk is full is what is looked for
            for count in range(1000):
                sink.write(event(count, text="x" * 700))
        assert verify(full / "a") == count


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("keep")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(AuditError, match="symbolic link"):
        JsonlAudit(tmp_path / "link")
    assert (tmp_path / "target").read_text() == "keep"


def test_a_link_that_comes_later_is_not_followed_either(tmp_path: Path) -> None:
    sink = JsonlAudit(tmp_path / "a")
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditError, match="symbolic link"):
        sink.write(event())
    assert not (tmp_path / "elsewhere").exists()


def test_only_a_regular_file_is_taken(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(AuditError, match="no regular file"):
        JsonlAudit(tmp_path / "fifo")
    with pytest.raises(AuditError, match="no regular file"):
        JsonlAudit("/dev/full")


def test_a_file_others_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(0o666)
    with pytest.raises(AuditError, match="chmod it to 0600"):
        JsonlAudit(tmp_path / "a")


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        AuditError, match=r"nowhere/a: No such file or directory; create the directory .*nowhere, or name another file"
    ):
        JsonlAudit(tmp_path / "nowhere" / "a")


def test_paths_are_absolute_and_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert JsonlAudit("alias/a").paths == (os.path.realpath(tmp_path / "real" / "a"),)


def test_a_moved_file_is_followed_by_a_new_one(tmp_path: Path) -> None:
    sink = JsonlAudit(tmp_path / "a")
    sink.write(event(0))
    (tmp_path / "a").rename(tmp_path / "a.1")
    sink.write(event(1))
    assert verify(tmp_path / "a.1") == verify(tmp_path / "a") == 1
    assert examine(tmp_path / "a").first == 2


def test_threads_and_forked_children_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    sink = JsonlAudit(path)

    def write_some(first: int) -> None:
        for number in range(25):
            sink.write(event(first + number))

    sink.write(event(999))
    child = os.fork()
    if child == 0:
        try:
            write_some(500)
        finally:
            os._exit(0)
    threads = [threading.Thread(target=write_some, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert verify(path) == 101


def test_a_held_lock_is_an_error_and_no_hang(tmp_path: Path) -> None:
    import fcntl

    sink = JsonlAudit(tmp_path / "a")
    with (tmp_path / "a").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AuditError, match="another process has held its lock"):
            sink.write(event())


def test_secrets_and_tokens_are_masked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    token = "ghp_" + "a1" * 18
    JsonlAudit(path, secrets=SecretRegistry({"DB": "hunter2"})).write(
        event(command=f"x hunter2 {token}", argv=["hunter2"], env={"hunter2": {"deep": b"hunter2"}})
    )
    text = path.read_text()
    assert "hunter2" not in text
    assert token not in text
    assert records(path)[0]["argv"] == ["⟦DB⟧"]


def test_no_descriptor_is_kept(tmp_path: Path) -> None:
    sink = JsonlAudit(tmp_path / "a")
    sink.write(event())
    open_files = {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    }
    assert str(tmp_path / "a") not in open_files
    assert resource.getrlimit(resource.RLIMIT_NOFILE)
