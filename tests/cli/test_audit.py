"""
`sandboxkit audit`, as a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.conftest import PROGRAM, Cli, record

from sandboxkit.audit import AuditKey, FileAnchor, JsonlAudit, Rotation, record_schema
from sandboxkit.model import AuditEvent

if TYPE_CHECKING:
    from pathlib import Path

EVIL = "ls \x1b[2J\n\u202e\u2066\u200b\x9b\x07\udc80 \\x1b"
ONE_SECOND_PAST = datetime(2026, 1, 31, 12, 0, 1, tzinfo=UTC).timestamp()


def decided(number: int, **fields: Any) -> AuditEvent:
    about = {"command": f"ls {number}", "cwd": "/w", "action": "sandbox", "outcome": "run", "mode": "sandbox"}
    return AuditEvent("decided", f"{number:032x}", ONE_SECOND_PAST + number, about | {"backend": "b"} | fields)


def finished(number: int) -> AuditEvent:
    about = {"outcome": "finished", "termination": "exited", "exit_code": 3, "signal": None, "duration_s": 0.5}
    return AuditEvent("finished", f"{number:032x}", ONE_SECOND_PAST + number, about)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    sink = JsonlAudit(tmp_path / "log", rotation=Rotation(max_records=3))
    for number in range(4):
        sink.write(decided(number))
        sink.write(finished(number))
    return tmp_path / "log"


def out(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return done.stdout.decode("ascii").splitlines()


def test_verify_says_what_holds_and_what_is_not_proven(cli: Cli, log: Path) -> None:
    head = json.loads(log.read_text().splitlines()[-1])["hash"]
    done = cli("audit", "verify", str(log))
    assert (done.returncode, done.stderr) == (0, b"")
    assert out(done) == [
        f"{log}.000001: records 1 to 3",
        f"{log}.000002: records 4 to 6",
        f"{log}: records 7 to 8",
        "whole: 8 records, each follows the one before",
        f"head: 8:{head}",
        "not proven: that nobody wrote it anew: its chain has no key, so whoever can write the files can do that",
        "not proven: that no record is missing at the end: that takes a head that was kept elsewhere",
    ]
    for expected in (head, f"8:{head}"):
        assert cli("audit", "verify", "--expect-head", expected, str(log)).returncode == 0
    assert record(cli("audit", "verify", "--json", str(log)))["head"] == {"sequence": 8, "hash": head}


def test_verify_ends_with_1_at_what_does_not_fit(cli: Cli, log: Path) -> None:
    head = json.loads(log.read_text().splitlines()[-1])["hash"]
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0])
    done = cli("audit", "verify", "--expect-head", head, str(log))
    assert done.returncode == 1
    assert f"BROKEN: {log}: the expected head {head} is not in it" in out(done)[3]
    log.write_text(lines[0].replace("ls", "rm"))
    done = cli("audit", "verify", "--json", str(log))
    found = record(done)
    assert done.returncode == 1
    assert found["problem"] == {
        "file": str(log), "line": 1, "reason": "was changed after it was written: its hash does not fit"
    }  # fmt: skip


def test_verify_takes_a_key_and_anchors(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"0123456789abcdef\n")
    (tmp_path / "key").chmod(0o600)
    key = AuditKey.from_file(tmp_path / "key")
    JsonlAudit(tmp_path / "log", key=key, anchor=FileAnchor(tmp_path / "anchors")).write(decided(1))
    given = ("--key-file", "key", "--anchors", "anchors")
    assert cli("audit", "verify", *given, "log").returncode == 0
    assert cli("audit", "verify", "log").returncode == 1
    (tmp_path / "key").chmod(0o644)
    done = cli("audit", "verify", *given, "log")
    assert done.returncode == 119
    assert b"lets others read it" in done.stderr


def test_verify_says_where_a_record_was_torn(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in range(2):
        JsonlAudit(path).write(decided(number))
    os.truncate(path, path.stat().st_size - 100)
    done = cli("audit", "verify", "log")
    assert done.returncode == 1
    assert f"BROKEN: {path}: line 2 is half a record; the write was cut off, or the file was" in out(done)
    JsonlAudit(path).write(decided(3))
    done = cli("audit", "verify", "log")
    assert done.returncode == 0
    assert f"recovered: {path}, line 2: " in out(done)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("verify", "nothing"), "No such file or directory"),
        (("tail", "nothing"), "No such file or directory"),
        (("tail", "-f", "nothing"), "No such file or directory"),
        (("grep", "x", "nothing"), "No such file or directory"),
        (("grep", "(", "log"), "PATTERN is no regular expression"),
        (("verify", "--expect-head", "x", "log"), "is no head"),
        (("verify", "--anchors", "nothing", "log"), "No such file or directory"),
        (("verify", "/dev/null"), "it is no regular file"),
        (("tail", "-n", "-1", "log"), "give 0 or more"),
        (("tail", "-n", "x", "log"), "give 0 or more"),
        (("grep", "--since", "yesterday", "log"), "is no time"),
        (("grep", "--until", "nan", "log"), "is no time"),
        (("grep", "--since", "1e300", "log"), "is no time"),
        ((), "VERB"),
    ],
)  # fmt: skip
def test_wrong_use_is_named(cli: Cli, log: Path, words: tuple[str, ...], said: str) -> None:
    done = cli("audit", *words, cwd=log.parent)
    assert done.returncode == 119
    assert said in done.stderr.decode()


@pytest.mark.parametrize(
    "content",
    [b"hello\n", bytes(range(256)) * 20, b"x" * (17 << 20), b'{"schema":2}\n{"a":1}\n'],
    ids=["text", "bytes", "one long line", "other records"],
)
def test_what_holds_no_record_is_no_log(cli: Cli, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    for words in (("tail", "log"), ("grep", "x", "log")):
        done = cli("audit", *words)
        assert (done.returncode, done.stdout) == (119, b"")
        last = done.stderr.decode().splitlines()[-1]
        assert last.startswith(f"sandboxkit: audit log {tmp_path}/log: ")
        assert "so it is no log; rename it, or name another" in last or "name the file that JsonlAudit writes" in last
    done = cli("audit", "verify", "log")
    assert done.returncode == 1
    assert "remedy: compare it with a copy you trust, or name the file that JsonlAudit writes" in out(done)


def test_an_empty_log_is_one(cli: Cli, tmp_path: Path) -> None:
    path = JsonlAudit(tmp_path / "log").name
    done = cli("audit", "tail", "log")
    assert (done.returncode, done.stdout, done.stderr.decode()) == (0, b"", f"sandboxkit: {path}: no record yet\n")
    assert cli("audit", "grep", "", "log").returncode == 1
    assert cli("audit", "verify", "log").returncode == 0


def test_tail_shows_the_last_records(cli: Cli, log: Path) -> None:
    assert out(cli("audit", "tail", "-n", "3", str(log))) == [
        "2026-01-31T12:00:03.000Z #6 00000000 finished finished exited code 3 after 0.5 s",
        "2026-01-31T12:00:04.000Z #7 00000000 decided sandbox run (sandbox, b) in /w: ls 3",
        "2026-01-31T12:00:04.000Z #8 00000000 finished finished exited code 3 after 0.5 s",
    ]
    assert len(out(cli("audit", "tail", str(log)))) == 8
    assert out(cli("audit", "tail", "-n", "0", str(log))) == []
    rows = [json.loads(line) for line in out(cli("audit", "tail", "--json", "-n", "4", str(log)))]
    assert [row["seq"] for row in rows] == [5, 6, 7, 8]


@pytest.mark.parametrize("place", ["command", "cwd", "action", "outcome", "mode", "backend", "error"])
def test_nothing_in_a_record_steers_the_terminal(cli: Cli, tmp_path: Path, place: str) -> None:
    sink = JsonlAudit(tmp_path / "log")
    sink.write(decided(0, **{place: EVIL}))
    sink.write(
        AuditEvent("finished", EVIL, 1.0, {"outcome": EVIL, "termination": EVIL, "exit_code": EVIL, place: EVIL})
    )
    sink.write(AuditEvent(EVIL, EVIL, 1e300, {}))  # type: ignore[arg-type]  # a kind of somebody else's
    with (tmp_path / "log").open("ab") as file:
        file.write(EVIL.encode("utf-8", "surrogatepass").replace(b"\n", b"") + b"\n")
    for words in (("tail", "log"), ("grep", "", "log"), ("tail", "--json", "log"), ("grep", "--json", "", "log")):
        done = cli("audit", *words, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
        assert len(done.stdout.splitlines()) == 3
        shown = done.stdout.decode() + done.stderr.decode()
        assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ls 1",), [3]),
        (("LS 1", "-i"), [3]),
        (("ls [12]",), [3, 5]),
        (("ls [12]", "-F"), []),
        (("", "--kind", "finished"), [2, 4, 6, 8]),
        (("", "--run", f"{2:032x}"), [5, 6]),
        (("", "--action", "sandbox"), [1, 3, 5, 7]),
        (("", "--action", "deny"), []),
        (("^3$", "--field", "exit_code"), [2, 4, 6, 8]),
        (("^3$", "--field", "command"), []),
        (("", "--since", "2026-01-31T12:00:03Z"), [5, 6, 7, 8]),
        (("", "--since", "2026-01-31T13:00:02+01:00", "--until", "2026-01-31T12:00:03Z"), [3, 4, 5, 6]),
        (("", "--until", str(ONE_SECOND_PAST)), [1, 2]),
        (("", "--since", "1m"), []),
        (("sandbox", "--kind", "decided", "--since", "2026-01-31T12:00:04Z"), [7]),
    ],
)
def test_grep_shows_what_fits(cli: Cli, log: Path, words: tuple[str, ...], found: list[int]) -> None:
    done = cli("audit", "grep", "--json", *words, str(log))
    assert [json.loads(line)["seq"] for line in out(done)] == found
    assert (done.returncode, done.stderr) == (0 if found else 1, b"")


def test_the_schema_is_printed(cli: Cli) -> None:
    assert json.loads(cli("audit", "schema").stdout) == record_schema()


def follow(log: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, "audit", "tail", "-f", *words, str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_follow_goes_on_over_rotations_until_ctrl_c(log: Path) -> None:
    with follow(log, "--json", "-n", "1") as tail:
        assert tail.stdout
        assert json.loads(tail.stdout.readline())["seq"] == 8
        sink = JsonlAudit(log, rotation=Rotation(max_records=3))
        for number in range(9, 20):
            sink.write(decided(number))
            assert json.loads(tail.stdout.readline())["seq"] == number
        tail.send_signal(signal.SIGINT)
        rest, errors = tail.communicate(timeout=20)
    assert (tail.returncode, rest, errors) == (130, b"", b"")


def test_follow_ends_when_nobody_reads_it(log: Path) -> None:
    with follow(log, "-n", "1") as tail:
        assert tail.stdout
        tail.stdout.readline()
        tail.stdout.close()
        assert tail.wait(20) == 141


def test_a_reader_that_goes_away_is_no_failure(log: Path) -> None:
    sink = JsonlAudit(log)
    for number in range(2000):
        sink.write(decided(number))
    command = " ".join([*PROGRAM, "audit", "grep", "ls", str(log)])
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_large_log_takes_little_memory(cli: Cli, tmp_path: Path) -> None:
    JsonlAudit(tmp_path / "log", max_field_chars=50000).write(decided(1, text="x" * 40000))
    line = (tmp_path / "log").read_bytes()
    with (tmp_path / "log").open("ab") as file:
        for _ in range(30):
            file.write(line * 100)  # 120 MB; not a chain, which neither verb minds
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20));"
    code = f"{limited} from sandboxkit.cli import main; sys.exit(main(sys.argv[1:]))"
    started = time.monotonic()
    done = subprocess.run(
        [PROGRAM[0], "-c", code, "audit", "tail", str(tmp_path / "log")], capture_output=True, check=False
    )
    assert (done.returncode, len(out(done)), done.stderr) == (0, 10, b"")
    assert time.monotonic() - started < 10
    done = subprocess.run(
        [PROGRAM[0], "-c", code, "audit", "grep", "-F", "no such text", str(tmp_path / "log")],
        capture_output=True,
        check=False,
        timeout=50,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_a_connection_is_shown_in_one_line(cli: Cli, tmp_path: Path) -> None:
    sink = JsonlAudit(tmp_path / "log")
    said = {"action": "deny", "destination": "http://a.example/\x1b[2J", "reason": "no rule allows it"}
    sink.write(AuditEvent("egress", "run", 1_700_000_000.0, said))
    sink.write(AuditEvent("finished", "run", 1_700_000_000.0, {"outcome": "finished"}))
    done = cli("audit", "grep", "", "log", "--kind", "egress")
    (line,) = done.stdout.decode().splitlines()
    assert "egress deny http://a.example/" in line
    assert "no rule allows it" in line
    assert "\x1b" not in line
