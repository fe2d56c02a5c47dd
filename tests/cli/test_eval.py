"""
`sandboxkit eval` and `sandboxkit render`.
"""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Cli, record

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = {"user": {"name": "Alice", "tags": ["a"]}, "n": 3}


@pytest.fixture
def context(tmp_path: Path) -> str:
    (tmp_path / "context.json").write_text(json.dumps(CONTEXT))
    return "context.json"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("n * 2", "6"),
        ("user.name", '"Alice"'),
        ("user", '{"name": "Alice", "tags": ["a"]}'),
        ("{3, 1}, date(2026, 1, 31), float('nan'), 1j, {1: None}", '[[1, 3], "2026-01-31", "nan", "1j", {"1": null}]'),
        ("'\\x1b[2J'", '"\\u001b[2J"'),
        ("{1: 'a', '1': 'b'}", '[[1, "a"], ["1", "b"]]'),
    ],
)
def test_a_value_is_printed_as_json(code: str, shown: str, cli: Cli, context: str) -> None:
    done = cli("eval", code, "--context", context, "--timeout", "10")
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, shown + "\n", b"")


def test_an_integer_may_be_long(cli: Cli) -> None:
    done = cli("eval", "[16**5000, {-16**5000: 1}]", "--timeout", "10")
    assert (done.returncode, json.loads(done.stdout)) == (0, ["0x1" + "0" * 5000, {"-0x1" + "0" * 5000: 1}])


def test_a_context_may_begin_with_a_mark(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "marked.json").write_bytes(b'\xef\xbb\xbf{"n": 3}')
    assert cli("eval", "n", "--context", "marked.json", "--timeout", "10").stdout == b"3\n"


def test_a_text_may_begin_with_a_dash(cli: Cli, context: str) -> None:
    done = cli("eval", "--context", context, "--timeout", "10", "--", "-n")
    assert (done.returncode, done.stdout) == (0, b"-3\n")
    assert cli("render", "--timeout", "10", "--", "--json").stdout == b"--json\n"
    assert cli("render", "--", "a", "b").returncode == 119


def test_statements(cli: Cli) -> None:
    done = cli("eval", "--exec", "result = 0\nfor i in range(4):\n    result += i", "--timeout", "10")
    assert done.stdout == b"6\n"


def test_a_template_is_printed_filled_in(cli: Cli, context: str) -> None:
    done = cli("render", "Dear {{ user.name | upper }} {{ n:>3 }}", "--context", context, "--timeout", "10")
    assert (done.returncode, done.stdout) == (0, b"Dear ALICE   3\n")
    found = record(cli("render", "--json", "{{ 1 + 1 }}", "--timeout", "10"))
    assert (found["status"], found["text"]) == ("rendered", "2")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("1 / 0",), 1, "ZeroDivisionError"),
        (("1 +",), 119, "cannot be read"),
        (("",), 119, "line 1: it cannot be read: it is empty"),
        (("().__class__",), 120, "not allowed"),
        (("max(range(10**12))", "--timeout", "0.3"), 124, "timeout=0.3"),
        (("'9' * 10**9", "--memory", "64"), 124, "memory_bytes=67108864"),
        (("1", "--context", "nothing.json"), 119, "cannot be read: No such file"),
        (("1", "--context", "list.json"), 119, "is a list, not an object"),
        (("1", "--context", "/dev/zero"), 119, "is longer than 64 MiB"),
        (("1", "--context", "text.json"), 119, "is no JSON"),
        (("1", "--context", "number.json"), 119, "an integer of too many digits; write it as a text"),
        (("1", "--timeout", "0"), 119, "greater than 0"),
        (("1", "--memory", "much"), 119, "greater than 0"),
    ],
)
def test_what_is_wrong_has_its_code(arguments: tuple[str, ...], code: int, said: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "text.json").write_text("{")
    (tmp_path / "number.json").write_text('{"x": ' + "9" * 5000 + "}")
    done = cli("eval", "--timeout", "10", *arguments)
    assert done.returncode == code
    assert said in done.stderr.decode()


@pytest.mark.parametrize("verb", ["eval", "render"])
def test_what_cannot_be_read_is_shown_with_a_caret(verb: str, cli: Cli) -> None:
    code, place = {
        "eval": ("1 +", "    1 +\n       ^\n"),
        "render": ("a {{ 1 + }}", "    a {{ 1 + }}\n            ^\n"),
    }[verb]
    done = cli(verb, code, "--timeout", "10")
    assert done.stderr.decode().split("invalid syntax\n")[1] == place
    done = cli(verb, f"\x1b[2J{code}", "--timeout", "10")
    assert b"\x1b" not in done.stderr
    assert b"?[2J" in done.stderr


def test_javascript(cli: Cli, context: str) -> None:
    done = cli("eval", "user.tags.map(t => t + n)", "--language", "javascript", "--context", context, "--timeout", "10")
    if importlib.util.find_spec("_quickjs") is None:
        assert done.returncode == 125
        assert b"sandboxkit[js]" in done.stderr
        pytest.skip("the extra js is not installed")
    assert (done.returncode, done.stdout) == (0, b'["a3"]\n')
    done = cli("render", "{{ `${n}!` }}", "--language", "javascript", "--context", context, "--timeout", "10")
    assert (done.returncode, done.stdout) == (0, b"3!\n")


@pytest.mark.parametrize("isolation", ["worker", "reuse", "in-process"])
def test_the_isolation_can_be_chosen(isolation: str, cli: Cli, context: str) -> None:
    done = cli("eval", "n + 1", "--context", context, "--isolation", isolation, "--timeout", "10")
    assert (done.returncode, done.stdout) == (0, b"4\n")
    if isolation == "in-process":
        assert b"authors you trust; not enforced: fs.read, " in done.stderr
        assert b"limits.memory" in done.stderr
    else:
        assert done.stderr == b""


@pytest.mark.requires("bubblewrap")
def test_a_box_evaluates(cli: Cli, context: str) -> None:
    done = cli("render", "{{ n + 1 }}", "--context", context, "--isolation", "box", "--timeout", "10")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"4\n", b"")


def test_an_isolation_that_does_not_fit_is_told(cli: Cli) -> None:
    done = cli("eval", "1", "--language", "javascript", "--isolation", "in-process")
    assert done.returncode == 119
    assert b"worker|reuse|box" in done.stderr
    done = cli("eval", "1", "--isolation", "none")
    assert done.returncode == 119
    assert b"invalid choice: 'none'" in done.stderr
