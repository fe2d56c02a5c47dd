"""
The command as a whole: help, version, and no traceback whatever happens.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import PROGRAM, Cli, record

import sandboxkit
from sandboxkit import errors
from sandboxkit.cli._exit import _TABLE, EPILOG, Exit, exit_of, reserved
from sandboxkit.cli._output import printable, shortened, table

if TYPE_CHECKING:
    from pathlib import Path

VERBS = ("run", "check", "explain", "audit", "policy", "doctor", "backends", "demo", "completion", "eval", "render")
FAMILIES = {"audit": ("verify", "tail", "grep", "schema"), "policy": ("lint", "test", "show", "replay", "schema")}


def test_help_names_every_verb_and_code(cli: Cli) -> None:
    out = cli("--help").stdout.decode()
    assert [verb for verb in VERBS if f"    {verb} " not in out] == []
    assert [code for code in Exit if code > 1 and f"  {int(code)}  " not in out] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(cli: Cli, verb: str) -> None:
    done = cli(verb, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    takes = "VERB [options]" if verb in FAMILIES else "[options]"
    assert done.stdout.startswith(f"usage: sandboxkit {verb} {takes}".encode())


@pytest.mark.parametrize(("family", "member"), [(family, member) for family in FAMILIES for member in FAMILIES[family]])
def test_every_member_of_a_family_has_help(cli: Cli, family: str, member: str) -> None:
    assert f"    {member} " in cli(family, "--help").stdout.decode()
    done = cli(family, member, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(f"usage: sandboxkit {family} {member} [options]".encode())


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from sandboxkit.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print([name for name in ('anyio', 'pydantic', 'tree_sitter') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.endswith(b"\n[]\n")


def test_the_version_is_the_packages(cli: Cli) -> None:
    assert cli("--version").stdout.decode() == f"sandboxkit {sandboxkit.__version__}\n"


def test_a_failure_of_ours_is_one_line_and_debug_shows_where() -> None:
    code = (
        "import sys; from sandboxkit.cli import _check\n"
        "def broken(options, report): raise ZeroDivisionError('made up')\n"
        "_check.check = broken\n"
        "from sandboxkit.cli import main; sys.exit(main(sys.argv[1:]))"
    )

    def run(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)

    done = run("check", "ls")
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr == b"sandboxkit: unexpected ZeroDivisionError: made up; --debug shows where\n"
    assert b"Traceback" in run("check", "--debug", "ls").stderr
    assert record(run("check", "--json", "ls"))["error"]["type"] == "ZeroDivisionError"


FULL = "sandboxkit: standard output cannot be written: No space left on device; free the disk, or send it elsewhere\n"


@pytest.mark.parametrize(
    "words",
    [("--help",), ("run", "--help"), ("--version",), ("policy", "schema"), ("check", "ls"), ("check", "--json", "ls")],
)
def test_output_that_cannot_be_written_is_said(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.decode()) == (125, FULL)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PROGRAM, *words], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_every_error_has_a_code_of_its_own_kind() -> None:
    listed = [kind for kind, _ in _TABLE]
    kinds = [kind for name in errors.__all__ if not issubclass(kind := getattr(errors, name), Warning)]
    for kind in kinds:
        first = next(row for row in listed if issubclass(kind, row))
        assert all(not issubclass(first, later) for later in listed[: listed.index(first)]), kind
    assert exit_of(ValueError()) is Exit.INTERNAL
    assert list(reserved()) == list(range(118, 126))
    assert "118 to 125" in EPILOG


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\u202ex", r"\u202ex"),
        ("\udc80", r"\udc80"),
        ("'\"\\", "'\"\\"),
    ],
)
def test_only_what_is_harmless_is_printed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_tables_line_up() -> None:
    assert table(("a", "b"), [("1\n", "x"), ("22222", "")]) == "a      b\n1\\n    x\n22222"
    assert shortened("abcdef", 5) == "ab..."
    assert shortened("abcde", 5) == "abcde"


# files that cannot be what they are given as


FILES = ["missing", "directory", "binary", "long", "pipe", "circle"]


def made(directory: Path, kind: str, name: str) -> None:
    path = directory / name
    match kind:
        case "directory":
            path.mkdir()
        case "binary":
            path.write_bytes(b"\xff\x00\xfe" * 10_000)
        case "long":
            with path.open("wb") as file:
                file.truncate(3 << 30)
        case "pipe":
            os.mkfifo(path)
        case "circle":
            path.symlink_to(name)
    if path.is_file():
        path.chmod(0o600)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    ("words", "name", "said"),
    [
        (("run", "--spec", "FILE", "--", "true"), "x.toml", "the sandbox spec in x.toml"),
        (("run", "--spec", "FILE", "--", "true"), "x.json", "the sandbox spec in x.json"),
        (("check", "--policy", "FILE", "--", "ls"), "x.toml", "the rules in x.toml"),
        (("policy", "replay", "FILE"), "x.jsonl", "audit log {}/x.jsonl"),
        (("audit", "tail", "FILE"), "x.jsonl", "audit log {}/x.jsonl"),
        (("audit", "grep", "x", "FILE"), "x.jsonl", "audit log {}/x.jsonl"),
        (("audit", "verify", "--key-file", "FILE", "log"), "x", "audit key x"),
        (("audit", "verify", "--anchors", "FILE", "log"), "x", "audit anchors x"),
    ],
)
def test_what_where_and_the_remedy_are_said(
    cli: Cli, tmp_path: Path, kind: str, words: tuple[str, ...], name: str, said: str
) -> None:
    (tmp_path / "log").touch()
    made(tmp_path, kind, name)
    done = cli(*(name if word == "FILE" else word for word in words))
    error = done.stderr.decode().splitlines()[-1]
    assert done.returncode == 119
    assert error.startswith(f"sandboxkit: {said.format(tmp_path)}")
    assert "; " in error
    assert "sink" not in error


def test_an_unreadable_file_is_said(cli: Cli, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    for words in (
        ("run", "--spec", "x.toml", "--", "true"),
        ("check", "--policy", "x.toml", "--", "ls"),
        ("audit", "tail", "x.toml"),
    ):
        (tmp_path / "x.toml").touch()
        opened = cli(*words)
        assert "Permission denied" not in opened.stderr.decode()
        (tmp_path / "x.toml").chmod(0)
        done = cli(*words)
        assert done.returncode == 119
        assert "Permission denied; give this user (uid" in done.stderr.decode()
        (tmp_path / "x.toml").unlink()
