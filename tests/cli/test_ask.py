"""
`sandboxkit run --ask` at a real terminal, and `sandboxkit grants`.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.approval.person import seated
from tests.cli.conftest import PROGRAM, Cli, record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("bubblewrap")
ASKS = "git push --force"


def asked(cwd: Path, answer: bytes, *arguments: str) -> tuple[int, dict[str, Any], bytes]:
    """
    The exit code, the JSON and the screen of a run that is answered once.
    """
    with seated([*PROGRAM, "run", "--ask", "--json", *arguments], cwd=cwd) as person:
        screen = person.read()
        person.type(answer)
        out, err = person.child.communicate(timeout=40)
        assert b"Traceback" not in err
        return person.child.returncode, json.loads(out), screen


@pytest.fixture
def grants(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("home") / "state" / "grants.json")


def test_a_yes_runs_it(tmp_path: Path, grants: str) -> None:
    code, found, screen = asked(tmp_path, b"y\n", "--grants", grants, "--", ASKS)
    assert found["status"] == "ran"
    assert code == found["result"]["exit_code"] != 0  # there is no repository
    assert b"git push --force" in screen
    assert str(tmp_path).encode() in screen


@pytest.mark.parametrize("answer", [b"\n", b"n\n", b"\x03", b"\x04"])
def test_anything_else_does_not(tmp_path: Path, grants: str, answer: bytes) -> None:
    code, found, _ = asked(tmp_path, answer, "--grants", grants, "--", ASKS)
    assert (code, found["status"]) == (121, "approval")
    assert not os.path.exists(grants)


def test_without_a_terminal_it_is_a_no(cli: Cli, grants: str) -> None:
    done = cli("run", "--ask", "--grants", grants, "--", ASKS, start_new_session=True)
    assert done.returncode == 121
    assert b"nobody can be asked: /dev/tty: this process has no terminal" in done.stderr


def test_what_needs_no_approval_asks_nobody(cli: Cli, grants: str) -> None:
    assert cli("run", "--ask", "--grants", grants, "--", "echo", "hello", start_new_session=True).stdout == b"hello\n"


def test_always_is_remembered_listed_and_revoked(tmp_path: Path, cli: Cli, grants: str) -> None:
    assert asked(tmp_path, b"a\n", "--grants", grants, "--", ASKS)[1]["status"] == "ran"
    again = cli("run", "--ask", "--grants", grants, "--json", "--", ASKS, start_new_session=True)
    assert record(again)["status"] == "ran"
    assert cli("run", "--ask", "--grants", grants, "--", f"{ASKS} x", start_new_session=True).returncode == 121
    (row,) = record(cli("grants", "list", "--grants", grants, "--json"))["grants"]
    assert row["command"] == ASKS
    listed = cli("grants", "list", "--grants", grants).stdout.decode()
    assert row["id"] in listed
    assert ASKS in listed
    assert cli("grants", "revoke", "--grants", grants, "nothing").returncode == 119
    assert cli("grants", "revoke", "--grants", grants, row["id"]).stdout == b"forgotten: git push --force\n"
    assert cli("grants", "list", "--grants", grants).stdout == b"nothing is approved for good\n"
    assert cli("run", "--ask", "--grants", grants, "--", ASKS, start_new_session=True).returncode == 121


def test_always_is_not_on_offer_where_a_box_may_write_the_store(tmp_path: Path) -> None:
    grants = str(tmp_path / "state" / "grants.json")
    code, _, screen = asked(tmp_path, b"a\n", "--write", str(tmp_path), "--grants", grants, "--", ASKS)
    assert code == 121
    assert b"not on offer: always" in screen
    assert b"keep it elsewhere" in screen.replace(b"\r\n", b" ")


def test_a_store_that_is_broken_is_said_and_can_be_cleared(tmp_path: Path, cli: Cli, grants: str) -> None:
    assert asked(tmp_path, b"a\n", "--grants", grants, "--", ASKS)[1]["status"] == "ran"
    with open(grants, "w") as file:
        file.write("{")
    done = cli("grants", "list", "--grants", grants)
    assert done.returncode == 119
    assert b"move it away and grant anew" in done.stderr
    _, found, screen = asked(tmp_path, b"y\n", "--grants", grants, "--", ASKS)
    assert found["status"] == "ran"
    assert b"not on offer: always" in screen
    assert cli("grants", "clear", "--grants", grants).stdout == b"forgotten: 0\n"
    assert record(cli("grants", "clear", "--grants", grants, "--json"))["count"] == 0


def test_a_file_that_is_not_there_is_named(tmp_path: Path, cli: Cli) -> None:
    said = f" ({tmp_path}/other is not there)\n"
    assert cli("grants", "list", "--grants", "other").stdout.decode() == f"nothing is approved for good{said}"
    assert cli("grants", "clear", "--grants", "other").stdout.decode() == f"forgotten: 0{said}"


def test_a_family_needs_its_verb(cli: Cli) -> None:
    assert cli("grants").returncode == 119
