"""
`sandboxkit check` and `explain`: said, not done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Cli, record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("command", "action", "code"),
    [
        ("ls -la", "allow", 0),
        ("npm install", "sandbox", 0),
        ("git push --force", "ask", 121),
        ("rm -rf /", "deny", 120),
    ],
)
def test_check_says_the_decision(cli: Cli, command: str, action: str, code: int) -> None:
    done = cli("check", command)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == code
    assert lines[0].startswith(f"{action}: ")
    assert lines[2] == f"1 | {command}"
    assert lines[3].startswith(f"  | {'^' * len(command)} {action}: ")
    found = record(cli("check", "--json", "--", *command.split()))
    assert (found["status"], found["action"]) == ("checked", action)


def test_check_lists_every_rule_that_matched(cli: Cli) -> None:
    found = record(cli("check", "--json", "ls; rm -rf /"))
    out = cli("check", "ls; rm -rf /").stdout.decode()
    assert len(found["matches"]) > 1
    assert [match["rule"] for match in found["matches"] if match["rule"] not in out] == []


def test_check_runs_nothing(cli: Cli, tmp_path: Path) -> None:
    cli("check", "touch made; $(touch made)")
    cli("explain", "touch made; $(touch made)")
    assert not (tmp_path / "made").exists()


def test_check_refuses_what_is_no_command(cli: Cli) -> None:
    for words in ([""], ["--"], []):
        assert cli("check", *words).returncode == 119


@pytest.mark.requires("bubblewrap")
def test_explain_says_the_plan_and_what_would_hold(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = cli("explain", "--write", "out", "--", "npm", "install")
    out = done.stdout.decode()
    assert done.returncode == 0
    assert "1 | npm install" in out
    assert f"mount     bind {tmp_path}/out" in out
    assert "fs.write" in out
    assert "taken: bubblewrap" in out
    assert "not taken: docker: bubblewrap is preferred" in out
    found = record(cli("explain", "--json", "--", "npm", "install"))
    assert found["status"] == "explained"
    assert found["backend"]
    assert found["plan"]["command"] == ["npm", "install"]


@pytest.mark.requires("bubblewrap")
def test_explain_says_why_nothing_would_run(cli: Cli, tmp_path: Path) -> None:
    assert cli("explain", "rm -rf /").returncode == 120
    (tmp_path / "box.toml").write_text('[require]\n"fs.overlay" = "enforced"\n')
    done = cli("explain", "--spec", "box.toml", "--", "npm", "install")
    assert done.returncode == 122
    assert "fs.overlay is absent" in done.stdout.decode()


def test_what_is_printed_cannot_steer_a_terminal(cli: Cli) -> None:
    for verb in ("check", "explain"):
        out = cli(verb, "--", "echo \x1b]0;title\x07 \u202e; rm -rf / # \x1b[2J").stdout
        assert b"\x1b" not in out
        assert b"\x07" not in out
        assert "\u202e".encode() not in out
