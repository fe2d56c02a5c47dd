"""
Whatever is done to a log before its end shows; whatever a crash leaves is recovered.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxkit.audit import AuditKey, JsonlAudit, Rotation, examine
from sandboxkit.model import AuditEvent

COUNT = 6
KEY = AuditKey(b"a key that is long enough")
KEYS = st.sampled_from([None, KEY])
on_disk = settings(deadline=None)  # a busy disk may take its time


def event(number: int) -> AuditEvent:
    return AuditEvent("decided", f"run-{number}", 1.5, {"command": f"ls {number}", "argv": ["ls", "é\n\u202e"]})


@cache
def log(key: AuditKey | None) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        sink = JsonlAudit(Path(folder) / "a", key=key)
        for number in range(COUNT):
            sink.write(event(number))
        return (Path(folder) / "a").read_bytes()


def is_whole(content: bytes, key: AuditKey | None, *, goes_on: bool = False) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_bytes(content)
        path.chmod(0o600)
        if goes_on:
            JsonlAudit(path, key=key).write(event(99))
        return examine(path, key=key).is_whole


def test_the_log_itself_is_whole() -> None:
    assert is_whole(log(None), None)
    assert is_whole(log(KEY), KEY)


@on_disk
@given(KEYS, st.data())
def test_a_changed_byte_shows(key: AuditKey | None, data: st.DataObject) -> None:
    content = bytearray(log(key))
    content[data.draw(st.integers(0, len(content) - 2))] ^= data.draw(st.integers(1, 255))
    assert not is_whole(bytes(content), key)


@on_disk
@given(KEYS, st.data())
def test_a_removed_piece_shows(key: AuditKey | None, data: st.DataObject) -> None:
    content = log(key)
    start = data.draw(st.integers(0, len(content) - 3))
    stop = data.draw(st.integers(start + 1, len(content) - 2))
    assert not is_whole(content[:start] + content[stop:], key)


@on_disk
@given(KEYS, st.data(), st.binary(min_size=1, max_size=40))
def test_an_inserted_piece_shows(key: AuditKey | None, data: st.DataObject, piece: bytes) -> None:
    content = log(key)
    at = data.draw(st.integers(0, len(content) - 2))
    assert not is_whole(content[:at] + piece + content[at:], key)


@on_disk
@given(KEYS, st.data())
def test_swapped_bytes_show(key: AuditKey | None, data: st.DataObject) -> None:
    content = bytearray(log(key))
    places = st.integers(0, len(content) - 2)
    one, two = data.draw(places), data.draw(places)
    content[one], content[two] = content[two], content[one]
    assert is_whole(bytes(content), key) is (content == log(key))


@on_disk
@given(KEYS, st.lists(st.integers(0, COUNT - 1), max_size=COUNT + 2))
def test_only_the_records_in_their_order_are_whole(key: AuditKey | None, order: list[int]) -> None:
    lines = log(key).splitlines(keepends=True)
    begins = order[0] if order else 0  # the beginning may be missing: older files are deleted
    expected = order == list(range(begins, begins + len(order)))
    assert is_whole(b"".join(lines[at] for at in order), key) is expected


@on_disk
@given(KEYS, st.integers(0, COUNT - 2), st.data())
def test_a_change_shows_after_others_wrote_on(key: AuditKey | None, record: int, data: st.DataObject) -> None:
    lines = log(key).splitlines(keepends=True)
    text = bytearray(lines[record])
    text[data.draw(st.integers(0, len(text) - 2))] ^= data.draw(st.integers(1, 255))
    lines[record] = bytes(text)
    assert not is_whole(b"".join(lines), key, goes_on=True)


@pytest.mark.parametrize("tail", ["cut", "zeros"])
def test_a_tail_torn_at_any_byte_is_recovered(tmp_path: Path, tail: str) -> None:
    content = log(None)
    last = content.rstrip(b"\n").rindex(b"\n") + 1
    for length in range(last, len(content) + 1):
        path = tmp_path / str(length)
        lost = len(content) - length
        path.write_bytes(content[:length] + (b"\0" * lost if tail == "zeros" else b""))
        path.chmod(0o600)
        sink = JsonlAudit(path)
        sink.write(event(99))
        sink.write(event(100))
        found = examine(path)
        is_kept = lost == 0 or (lost == 1 and tail == "cut")
        assert found.is_whole, (length, found.problem)
        assert found.records == COUNT + 2 - (not is_kept)
        assert len(found.tears) == int(length > last or tail == "zeros") - is_kept
        path.unlink()


@on_disk
@given(KEYS, st.lists(st.integers(0, 900), min_size=1, max_size=4))
def test_however_often_it_is_torn(key: AuditKey | None, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        sink = JsonlAudit(path, key=key)
        sink.write(event(0))
        for number, cut in enumerate(cuts, start=1):
            before = path.stat().st_size
            JsonlAudit(path, key=key).write(event(number))
            os.truncate(path, max(before, path.stat().st_size - cut))
        JsonlAudit(path, key=key).write(event(99))
        found = examine(path, key=key)
        assert found.is_whole, found.problem
        assert 2 <= found.records <= len(cuts) + 2


@on_disk
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["write", "rename", "tear"]), st.integers(1, 300)), max_size=12),
)
def test_rotations_may_be_cut_off_anywhere(per_file: int, acts: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        rotation = Rotation(max_records=per_file)
        number = 0
        for act, size in acts:
            match act:
                case "write":
                    number += 1
                    JsonlAudit(path, rotation=rotation).write(event(number))
                case "rename" if path.exists() and path.stat().st_size:
                    path.rename(f"{path}.{len(list(path.parent.iterdir())):06}")
                case "tear" if path.exists() and number:
                    number += 1
                    before = path.stat().st_size
                    JsonlAudit(path, rotation=Rotation(max_bytes=None)).write(event(number))
                    os.truncate(path, max(before, path.stat().st_size - size))
        JsonlAudit(path, rotation=rotation).write(event(number))
        found = examine(path)
        assert found.is_whole, found.problem
