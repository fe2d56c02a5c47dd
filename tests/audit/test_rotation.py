"""
A log goes on in a new file; the chain does not break.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from tests.audit.logs import event, names, records, small_disk, written

from sandboxkit.audit import AuditKey, JsonlAudit, Rotation, examine, verify
from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "wrong", [{"max_bytes": 10}, {"max_records": 0}, {"max_age_s": 0.0}, {"max_age_s": float("nan")}, {"keep": 0}]
)
def test_limits_have_to_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rotation(**wrong)


def test_by_count(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 7, rotation=Rotation(max_records=3))
    assert names(tmp_path) == ["a", "a.000001", "a.000002"]
    first, second, third = (records(tmp_path / name) for name in ("a.000001", "a.000002", "a"))
    assert [record["seq"] for record in first + second + third] == list(range(1, 8))
    assert second[0]["prev"] == first[-1]["hash"]
    assert third[0]["prev"] == second[-1]["hash"]
    assert verify(tmp_path / "a") == 7
    assert sink.paths == tuple(str(tmp_path / name) for name in ("a", "a.000001", "a.000002"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_by_size(tmp_path: Path) -> None:
    written(tmp_path / "a", 40, rotation=Rotation(max_bytes=2000))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 4
    assert max(sizes) <= 2000
    assert verify(tmp_path / "a") == 40


def test_a_record_larger_than_a_file_has_one_of_its_own(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 1, rotation=Rotation(max_bytes=1024))
    sink.write(event(text="x" * 3000))
    sink.write(event())
    assert names(tmp_path) == ["a", "a.000001", "a.000002"]
    assert verify(tmp_path / "a") == 3


def test_by_age(tmp_path: Path) -> None:
    sink = JsonlAudit(tmp_path / "a", rotation=Rotation(max_age_s=60))
    for seconds in (0, 59, 60, 61, 119, 120):
        sink.write(event(seconds, time=1000.0 + seconds))
    assert [[record["run_id"] for record in records(tmp_path / name)] for name in names(tmp_path)] == [
        ["run-120"],
        ["run-0", "run-59"],
        ["run-60", "run-61", "run-119"],
    ]
    JsonlAudit(tmp_path / "a", rotation=Rotation(max_age_s=60)).write(event(time=1180.0))
    assert verify(tmp_path / "a") == 7
    assert len(names(tmp_path)) == 4


def test_only_so_many_stay(tmp_path: Path) -> None:
    written(tmp_path / "a", 20, rotation=Rotation(max_records=2, keep=3))
    assert names(tmp_path) == ["a", "a.000007", "a.000008", "a.000009"]
    assert examine(tmp_path / "a").first == 13
    assert verify(tmp_path / "a") == 8


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    others = ["a.bak", "a.1", "a.00000x", "b.000001", "xa.000001", "a.000001.gz"]
    for name in others:
        (tmp_path / name).write_text("mine")
    written(tmp_path / "a", 9, rotation=Rotation(max_records=2, keep=1))
    assert {name for name in names(tmp_path) if (tmp_path / name).read_text() == "mine"} == set(others)
    assert verify(tmp_path / "a") == 3


def test_a_rotation_cut_off_after_the_rename(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, 3)
    path.rename(tmp_path / "a.000001")
    assert verify(path) == 3
    written(path, 2)  # another process: it knows nothing
    assert records(path)[0]["seq"] == 4
    assert verify(path) == 5


def test_a_rotation_cut_off_after_the_new_file_was_made(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, 3)
    path.rename(tmp_path / "a.000001")
    JsonlAudit(path)
    assert path.stat().st_size == 0
    assert verify(path) == 3
    written(path, 1)
    assert verify(path) == 4


@pytest.mark.parametrize("cut", [1, 5, 100])
def test_an_older_file_that_lost_its_end_in_a_power_cut(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a"
    written(path, 3)
    path.rename(tmp_path / "a.000001")
    os.truncate(tmp_path / "a.000001", (tmp_path / "a.000001").stat().st_size - cut)
    written(path, 2)
    found = examine(path)
    assert found.is_whole, found.problem
    assert (found.records, len(found.tears)) == ((5, 0) if cut == 1 else (4, 1))


def test_a_deletion_cut_off_is_made_up_for(tmp_path: Path) -> None:
    written(tmp_path / "a", 10, rotation=Rotation(max_records=2))
    assert len(names(tmp_path)) == 5
    written(tmp_path / "a", 2, rotation=Rotation(max_records=2, keep=2))
    assert names(tmp_path) == ["a", "a.000004", "a.000005"]


def test_a_torn_file_is_mended_before_it_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, 3)
    os.truncate(path, path.stat().st_size - 30)
    written(path, 3, rotation=Rotation(max_records=2))
    found = examine(path)
    assert found.is_whole, found.problem
    assert found.records == 5
    (tear,) = found.tears
    assert tear.file == str(tmp_path / "a.000001")


def test_a_keyed_chain_goes_on_too(tmp_path: Path) -> None:
    key = AuditKey(b"0123456789abcdef")
    written(tmp_path / "a", 5, key=key, rotation=Rotation(max_records=2))
    assert verify(tmp_path / "a", key=key) == 5
    (tmp_path / "a").unlink()
    with pytest.raises(AuditError, match="give that key"):
        written(tmp_path / "a", 1)


def test_without_room_for_a_new_name_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)
    sink = written(path, 1, rotation=Rotation(max_records=1))
    with pytest.raises(AuditError, match="at most 255 bytes in a name"):
        sink.write(event())
    assert verify(path) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tiny file system takes root")
def test_a_disk_that_is_full_in_a_rotation_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "full", "size=32k,nr_inodes=6") as full:
        sink = JsonlAudit(full / "a", rotation=Rotation(max_records=3))
        count = 0
        with pytest.raises(AuditError, match=r"(No space left on device|bytes fitted); free the disk"):  # noqa: PT012 - when the disk is full is what is looked for
            for count in range(100):
                sink.write(event(count, text="x" * 700))
        found = examine(full / "a")
        assert (found.is_whole, found.records) == (True, count)
        (full / "a.000001").unlink()
        sink.write(event(count))
        JsonlAudit(full / "a").write(event(count))
        found = examine(full / "a")
        assert (found.is_whole, found.first, found.records) == (True, 4, count - 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do it all the same")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 1, rotation=Rotation(max_records=1))
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(AuditError, match="Permission denied; give this user"):
            sink.write(event())
    finally:
        tmp_path.chmod(0o700)
    assert verify(tmp_path / "a") == 1
