"""
What is found in a log that was touched, and what is said not to be proven.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest
from tests.audit.logs import event, records, written

from sandboxkit.audit import AuditKey, FileAnchor, Head, JsonlAudit, Rotation, examine, read_anchors, verify
from sandboxkit.errors import AuditError

if TYPE_CHECKING:
    from pathlib import Path

KEY = AuditKey(b"0123456789abcdef0123456789abcdef")
OTHER = AuditKey(b"another key, as long as a key is")


def reason(path: Path, **options: object) -> str:
    found = examine(path, **options)  # type: ignore[arg-type]  # passed on
    return str(found.problem) if found.problem else ""


def forged(path: Path, key: AuditKey | None = None) -> None:
    """
    Writes the whole log anew, with `rm` for `ls`, as somebody would who knows how.
    """
    prev, lines = "0" * 64, []
    for record in records(path):
        record |= {"command": "rm", "prev": prev}
        del record["hash"]
        content = json.dumps(record, separators=(",", ":")).encode()
        prev = key.digest(content) if key else hashlib.sha256(content).hexdigest()
        lines.append(content[:-1] + f',"hash":"{prev}"}}\n'.encode())
    path.write_bytes(b"".join(lines))


def test_a_whole_log(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 3)
    found = examine(tmp_path / "a")
    assert (found.is_whole, found.records, found.first, found.tears, found.key_id) == (True, 3, 1, (), None)
    assert found.head == sink.head() == Head(3, records(tmp_path / "a")[-1]["hash"])
    (file,) = found.files
    assert (file.path, file.records, file.first, file.last, file.is_whole) == (
        str(tmp_path / "a"),
        3,
        1,
        found.head,
        True,
    )
    found.check()
    assert json.loads(json.dumps(found.to_dict()))["head"]["sequence"] == 3


def test_what_an_unkeyed_chain_does_not_prove(tmp_path: Path) -> None:
    written(tmp_path / "a", 3)
    head = examine(tmp_path / "a").head
    forged(tmp_path / "a")
    found = examine(tmp_path / "a")
    assert found.is_whole  # this is the limit
    assert "whoever can write the files can do that" in found.not_proven[0]
    assert "no record is missing at the end" in found.not_proven[1]
    assert "the expected head" in reason(tmp_path / "a", expect_head=head)


def test_a_keyed_chain_cannot_be_forged_without_the_key(tmp_path: Path) -> None:
    written(tmp_path / "a", 3, key=KEY)
    assert verify(tmp_path / "a", key=KEY) == 3
    assert "holds the key" in examine(tmp_path / "a", key=KEY).not_proven[0]
    forged(tmp_path / "a")
    assert "line 1 was changed" in reason(tmp_path / "a", key=KEY)


def test_its_last_record_cannot_be_changed_either(tmp_path: Path) -> None:
    written(tmp_path / "a", 2, key=KEY)
    text = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(text[:-300].replace(b"ls", b"ls") + text[-300:].replace(b"ls", b"rm"))
    assert "line 2 was changed" in reason(tmp_path / "a", key=KEY)


@pytest.mark.parametrize(
    ("wrote", "given", "said"),
    [
        (KEY, None, "only with that key"),
        (None, KEY, "is hashed without a key"),
        (KEY, OTHER, "not with the given one"),
    ],
)
def test_the_key_has_to_be_the_one(tmp_path: Path, wrote: AuditKey | None, given: AuditKey | None, said: str) -> None:
    written(tmp_path / "a", 1, key=wrote)
    assert said in reason(tmp_path / "a", key=given)
    with pytest.raises(AuditError, match="give that key, or rename the file"):
        JsonlAudit(tmp_path / "a", key=given)
    assert verify(tmp_path / "a", key=wrote) == 1


def test_a_cut_end_shows_against_a_head_kept_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "a"
    early = written(path, 2).head()
    late = written(path, 2).head()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    assert examine(path).is_whole  # this is the limit
    assert "its end was cut off" in reason(path, expect_head=late)
    assert reason(path, expect_head=early) == ""
    assert examine(path, expect_head=early).not_proven[1] == "that no record is missing after record 2"
    assert reason(path, expect_head=str(early)) == ""
    assert early
    assert reason(path, expect_head=early.hash.upper()) == ""
    assert "expected head" in reason(path, expect_head=f"1:{early.hash}")


@pytest.mark.parametrize("text", ["", "1", "0:" + "a" * 64, "a" * 63, "x" * 64, "-1:" + "a" * 64])
def test_what_is_no_head_is_refused(tmp_path: Path, text: str) -> None:
    written(tmp_path / "a", 1)
    with pytest.raises(ValueError, match="is no head"):
        verify(tmp_path / "a", expect_head=text)


def test_anchors_show_what_was_cut_off_or_written_anew(tmp_path: Path) -> None:
    path, anchors = tmp_path / "a", tmp_path / "anchors"
    written(path, 7, anchor=FileAnchor(anchors), anchor_every=3)
    assert [head.sequence for head in read_anchors(anchors)] == [3, 6]
    assert JsonlAudit(path, anchor=FileAnchor(anchors)).paths == (str(path), str(anchors))
    assert verify(path, anchors=anchors) == 7
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:5]))
    assert reason(path, anchors=anchors) == "record 6 was anchored, and the log ends with 5: its end was cut off"
    path.write_bytes(whole)
    forged(path)
    assert reason(path, anchors=anchors) == "line 3 is not record 3 as it was anchored"


def test_a_log_begun_anew_shows_against_its_anchors(tmp_path: Path) -> None:
    path, anchors = tmp_path / "a", tmp_path / "anchors"
    written(path, 2, anchor=FileAnchor(anchors))
    path.unlink()
    written(path, 3, anchor=FileAnchor(anchors), key=None, max_field_chars=1)
    assert "as it was anchored" in reason(path, anchors=anchors)


def test_half_an_anchor_is_left_out_and_nonsense_is_not(tmp_path: Path) -> None:
    anchors = tmp_path / "anchors"
    FileAnchor(anchors)(Head(1, "a" * 64))
    with anchors.open("a") as file:
        file.write('{"seq":2,"ha')
    assert list(read_anchors(anchors)) == [Head(1, "a" * 64)]
    FileAnchor(anchors)(Head(3, "c" * 64))  # on the same line
    FileAnchor(anchors)(Head(4, "d" * 64))
    assert [head.sequence for head in read_anchors(anchors)] == [1, 3, 4]
    anchors.write_text("nonsense\n")
    with pytest.raises(AuditError, match="line 1 is no head"):
        list(read_anchors(anchors))


@pytest.mark.parametrize("mark", [{"gone": "all"}, {"gone": [1]}, {"torn": 3}])
def test_marks_of_another_form_are_a_problem(tmp_path: Path, mark: dict[str, object]) -> None:
    content = json.dumps({"schema": 2, **mark, "seq": 1, "prev": "0" * 64}, separators=(",", ":")).encode()
    line = content[:-1] + f',"hash":"{hashlib.sha256(content).hexdigest()}"}}\n'.encode()
    (tmp_path / "a").write_bytes(line)
    assert reason(tmp_path / "a").startswith("line 1 ")


def test_an_anchor_that_fails_is_named(tmp_path: Path) -> None:
    def broken(head: Head) -> None:
        raise ConnectionError("nobody there")

    sink = JsonlAudit(tmp_path / "a", anchor=broken)
    with pytest.raises(AuditError, match=r"record 1 is written, and its head could not be anchored \(ConnectionError"):
        sink.write(event())
    assert verify(tmp_path / "a") == 1
    with pytest.raises(ValueError, match="anchor_every 0"):
        JsonlAudit(tmp_path / "a", anchor_every=0)


def test_the_head_can_be_asked_for_at_any_time(tmp_path: Path) -> None:
    sink = JsonlAudit(tmp_path / "a")
    assert sink.head() is None
    sink.write(event())
    JsonlAudit(tmp_path / "a").write(event())
    head = sink.head()
    assert head
    assert head == JsonlAudit(tmp_path / "a").head() == Head.parse(str(head))


def test_records_cut_off_while_the_log_is_in_use_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    sink = written(path, 4)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    sink.write(event(9))
    assert records(path)[-1]["gone"]["seq"] == 4
    assert "line 3 was written when records before it, up to 4, had been cut off" in reason(path)


def test_so_is_a_log_that_was_emptied(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 4)
    os.truncate(tmp_path / "a", 0)
    sink.write(event(9))
    assert "up to 4, had been cut off" in reason(tmp_path / "a")


def test_the_last_record_was_changed_before_the_next_came(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, 3)
    path.write_bytes(path.read_bytes().replace(b'"run-2"', b'"run-9"'))
    assert "line 3 was changed" in reason(path)
    written(path, 1)  # going on does not heal it
    assert "line 3 was changed" in reason(path)
    assert [record["seq"] for record in records(path)] == [1, 2, 3, 3]


def test_a_last_line_that_was_overwritten_stays_broken(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"x" * 50 + b"\n"]))
    assert "line 3 is no record" in reason(path)
    written(path, 1)
    assert "line 3 was damaged after it was written; record 3, the next one, says so" in reason(path)


def test_a_tear_cannot_be_changed_later(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, 2)
    os.truncate(path, path.stat().st_size - 20)
    written(path, 2)
    (tear,) = examine(path).tears
    assert (tear.line, tear.marked_by) == (2, 2)
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in (
        [lines[0], b"x" + lines[1], *lines[2:]],
        [lines[0], *lines[2:]],
        [lines[0], lines[1], b"\n", *lines[2:]],
    ):
        path.write_bytes(b"".join(changed))
        assert reason(path)


def test_what_lies_before_the_first_record_is_said_not_to_be_proven(tmp_path: Path) -> None:
    written(tmp_path / "a", 9, rotation=Rotation(max_records=2, keep=1))
    found = examine(tmp_path / "a")
    assert (found.is_whole, found.first, found.records) == (True, 7, 3)
    assert found.not_proven[-1] == "what the records 1 to 6 said: their files are not here"


def test_a_log_of_an_earlier_version_is_named_and_not_written(tmp_path: Path) -> None:
    old = json.dumps(
        {"schema": 1, "kind": "decided", "run_id": "r", "time": 1.0, "prev": "0" * 64}, separators=(",", ":")
    )
    (tmp_path / "a").write_text(old + "\n")
    (tmp_path / "a").chmod(0o600)
    assert "line 1 is of a version before 0.2" in reason(tmp_path / "a")
    with pytest.raises(AuditError, match=r"begun by a version before 0\.2"):
        JsonlAudit(tmp_path / "a")


@pytest.mark.parametrize("text", ["root:x:0:0\n", '{"other": 1}\n', "\n\n", "\0\0\0"])
def test_a_file_that_is_no_log_is_not_written(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_text(text)
    (tmp_path / "a").chmod(0o600)
    if text.strip():
        with pytest.raises(AuditError, match="it holds lines that are no records"):
            JsonlAudit(tmp_path / "a")
        assert (tmp_path / "a").read_text() == text
    assert not examine(tmp_path / "a").is_whole


def test_checking_ends_at_the_first_problem(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written(path, 9, rotation=Rotation(max_records=3))
    second = tmp_path / "a.000002"
    second.write_bytes(second.read_bytes().replace(b"ls", b"rm", 1))
    found = examine(path)
    assert found.problem
    assert (found.problem.file, found.problem.line) == (str(second), 1)
    assert [file.is_whole for file in found.files] == [True, False, None]
    with pytest.raises(AuditError, match=r"a\.000002: line 1 was changed .*compare it with a copy you trust"):
        found.check()


@pytest.mark.parametrize("taken", ["a.000002", "a.000003", "a"])
def test_a_file_taken_out_is_noticed(tmp_path: Path, taken: str) -> None:
    head = written(tmp_path / "a", 12, rotation=Rotation(max_records=3)).head()
    (tmp_path / taken).unlink()
    if taken == "a":
        assert examine(tmp_path / "a").is_whole  # the end is missing, which takes a head to see
        assert "expected head" in reason(tmp_path / "a", expect_head=head)
    else:
        assert "does not follow the record before it" in reason(tmp_path / "a")


def test_records_are_checked_while_others_write(tmp_path: Path) -> None:
    import threading

    sink = JsonlAudit(tmp_path / "a", rotation=Rotation(max_records=3, keep=4))
    is_done = threading.Event()

    def write() -> None:
        while not is_done.is_set():
            sink.write(event())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(40):
            found = examine(tmp_path / "a")
            assert found.is_whole, found.problem
    finally:
        is_done.set()
        writer.join()
