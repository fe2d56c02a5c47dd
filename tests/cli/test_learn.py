"""
`sandboxkit learn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import record

import sandboxkit as sk

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

pytestmark = pytest.mark.requires("bubblewrap")

COMMAND = "mkdir made && echo x >made/y"


def test_the_spec_is_printed_and_works(cli: Cli, tmp_path: Path) -> None:
    done = cli("learn", "--within", ".", "--", COMMAND)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == f'filesystem.write = ["{tmp_path}"]\n'
    assert b"run 1: the command exited with code 1; 1 refused" in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "box.toml").write_bytes(done.stdout)
    assert cli("run", "--spec", "box.toml", "--", COMMAND).returncode == 0
    assert (tmp_path / "made" / "y").read_text() == "x\n"


def test_it_is_written_to_a_file_once(cli: Cli, tmp_path: Path) -> None:
    done = cli("learn", "--within", ".", "-o", "box.toml", "--", COMMAND)
    assert (done.returncode, done.stdout) == (0, b"")
    assert sk.SandboxSpec.from_file(tmp_path / "box.toml").filesystem.write == (str(tmp_path),)
    again = cli("learn", "--within", ".", "-o", "box.toml", "--", COMMAND)
    assert again.returncode == 119
    assert b"'box.toml' exists; give --force to replace it, or another name" in again.stderr
    assert cli("learn", "-o", "box.toml", "--force", "--", "true").returncode == 0
    assert sk.SandboxSpec.from_file(tmp_path / "box.toml").filesystem.write == ()


def test_without_a_terminal_nothing_is_approved(cli: Cli, tmp_path: Path) -> None:
    done = cli("learn", "--", COMMAND)
    assert (done.returncode, done.stdout) == (1, b"")
    assert f'not approved: filesystem.write = ["{tmp_path}"]'.encode() in done.stderr
    assert b"nobody can be asked: /dev/tty" in done.stderr
    assert b"no spec was found: the command exited with code 1" in done.stderr


def test_it_is_one_object_for_programs(cli: Cli, tmp_path: Path) -> None:
    done = cli("learn", "--json", "--within", ".", "--", COMMAND)
    found = record(done)
    assert (found["passed"], found["lines"]) == (True, [f'filesystem.write = ["{tmp_path}"]'])
    assert found["toml"] == f'filesystem.write = ["{tmp_path}"]\n'
    assert found["runs"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--force", "--", "true"], "--force goes with --output"),
        (["--max-runs", "0", "--", "true"], "'0' is no number of runs; give one from 1 to 10000"),
        (["--within", "", "--", "true"], "--within"),
        (["-o", "missing/box.toml", "--", "true"], "/missing'; create it, or choose another name"),
        (["--"], "a command is missing"),
    ],
)
def test_wrong_use_is_said(cli: Cli, arguments: list[str], said: str) -> None:
    done = cli("learn", *arguments)
    assert done.returncode == 119
    assert said in done.stderr.decode()
    assert b"run 1" not in done.stderr


def test_what_the_policy_denies_is_not_run(cli: Cli) -> None:
    assert cli("learn", "--", "rm -rf /").returncode == 120
