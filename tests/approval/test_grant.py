"""
A grant covers exactly what was shown.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.approval import Executable, Grant, find_executable, grant_for
from sandboxkit.model import Command, Limits, PolicyAction, PolicyEvaluation, SandboxSpec, Setting, SimpleCommand

if TYPE_CHECKING:
    from pathlib import Path

MAKE = Executable("/usr/bin/make", 1, 2, 3, 4, 5, "/bin/make")
GRANT = Grant(("make", "all"), "/srv/app", ("/srv/app",), SandboxSpec.isolated(), (MAKE,), "f" * 64)


def test_equal_grants_have_one_digest() -> None:
    assert GRANT.digest == replace(GRANT, spec=SandboxSpec.isolated()).digest
    assert len(GRANT.digest) == 64


@pytest.mark.parametrize(
    "other",
    [
        replace(GRANT, command=("make", "all", "")),
        replace(GRANT, command=("make all",)),
        replace(GRANT, command="make all"),
        replace(GRANT, cwd="/srv"),
        replace(GRANT, workspace_roots=("/srv",)),
        replace(GRANT, workspace_roots=()),
        replace(GRANT, spec=SandboxSpec()),
        replace(GRANT, spec=SandboxSpec.isolated(limits=Limits(wall=600.0))),
        replace(GRANT, executables=()),
        replace(GRANT, executables=(MAKE, MAKE)),
        replace(GRANT, executables=(replace(MAKE, path="/bin/make"),)),
        replace(GRANT, executables=(replace(MAKE, device=9),)),
        replace(GRANT, executables=(replace(MAKE, inode=9),)),
        replace(GRANT, executables=(replace(MAKE, size=9),)),
        replace(GRANT, executables=(replace(MAKE, mtime_ns=9),)),
        replace(GRANT, executables=(replace(MAKE, ctime_ns=9),)),
        replace(GRANT, executables=(replace(MAKE, found_at="/usr/bin/make"),)),
        replace(GRANT, rules_digest="0" * 64),
        replace(GRANT, mode="unsandboxed"),
        replace(GRANT, mode="direct"),
        replace(GRANT, stdin_digest="0" * 64),
        replace(GRANT, not_found=("tool",)),
        replace(GRANT, search="/usr/bin"),
    ],
)
def test_every_part_counts(other: Grant) -> None:
    assert other.digest != GRANT.digest


def test_text_that_no_encoding_takes_has_a_digest() -> None:
    assert replace(GRANT, command="echo \udcff").digest != replace(GRANT, command="echo \udcfe").digest


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "tool"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_bare_name_is_looked_up_in_order(program: Path, tmp_path: Path) -> None:
    found = find_executable("tool", cwd="/", search=f"/nowhere:{tmp_path}:{program.parent}")
    assert found
    assert found.path == os.path.realpath(program)
    assert found.size == 10


def test_a_name_with_a_slash_starts_at_the_working_directory(program: Path, tmp_path: Path) -> None:
    assert find_executable("bin/tool", cwd=str(tmp_path), search="") == find_executable(
        str(program), cwd="/", search=""
    )


def test_a_changed_program_is_another(program: Path, tmp_path: Path) -> None:
    before = find_executable("bin/tool", cwd=str(tmp_path), search="")
    program.write_text("#!/bin/false\n")
    assert find_executable("bin/tool", cwd=str(tmp_path), search="") != before


def test_a_changed_program_with_its_old_times_is_another(program: Path, tmp_path: Path) -> None:
    before, times = find_executable("bin/tool", cwd=str(tmp_path), search=""), os.stat(program)
    program.write_text("#!/bin/bo\n")
    os.utime(program, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = find_executable("bin/tool", cwd=str(tmp_path), search="")
    assert before
    assert after
    assert (after.size, after.mtime_ns) == (before.size, before.mtime_ns)
    assert after != before


def test_a_link_is_followed_and_kept_in_mind(program: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(program)
    found = find_executable("./link", cwd=str(tmp_path), search="")
    assert found
    assert found.path == os.path.realpath(program)
    assert found.found_at == str(tmp_path / "link")


@pytest.mark.parametrize("name", ["nothing", "./nothing", "bin", "", "a\0b", "x" * 5000])
def test_what_is_no_program_is_none(tmp_path: Path, program: Path, name: str) -> None:
    assert find_executable(name, cwd=str(tmp_path), search=str(tmp_path)) is None


# -- what a grant for a command holds --


def grant(command: str | tuple[str, ...], cwd: Path, read: Command | None = None, **fields: Any) -> Grant:
    words = command if isinstance(command, tuple) else tuple(command.split())
    read = read or Command(None, (SimpleCommand(words),), argv=words)
    given: dict[str, Any] = {"workspace_roots": (), "spec": SandboxSpec.isolated(), "mode": "sandbox", "stdin": None}
    return grant_for(
        PolicyEvaluation(PolicyAction.ASK, "asks", read),
        command=command,
        argv=read.argv or ("/bin/bash", "-c", str(command)),
        cwd=str(cwd),
        search="/usr/bin:/bin",
        **{**given, **fields},
    )


def test_every_program_of_a_text_counts(tmp_path: Path, program: Path) -> None:
    text = "cat x | bin/tool; no-such-program"
    parts = (SimpleCommand(("cat", "x")), SimpleCommand(("bin/tool",)), SimpleCommand(("no-such-program",)))
    found = grant(text, tmp_path, Command(text, parts))
    assert [one.found_at for one in found.executables] == ["/bin/bash", "/usr/bin/cat", str(program)]
    assert found.not_found == ("no-such-program",)


def test_a_program_on_another_host_does_not_count(tmp_path: Path) -> None:
    parts = (SimpleCommand(("ssh", "host", "ls"), own=2), SimpleCommand(("ls",), setting=Setting.REMOTE, outer=0))
    found = grant("ssh host ls", tmp_path, Command("ssh host ls", parts))
    assert "/usr/bin/ls" not in [one.found_at for one in found.executables]


def test_a_script_counts_with_its_file(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text("print(1)")
    before = grant("python3 run.py", tmp_path)
    assert str(script) in [one.found_at for one in before.executables]
    script.write_text("print(2)")
    assert grant("python3 run.py", tmp_path).digest != before.digest


def test_a_build_file_counts(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    before = grant(("make", "all"), tmp_path)
    (tmp_path / "Makefile").write_text("all:\n\ttrue\n")
    assert grant(("make", "all"), tmp_path).digest != before.digest


def test_the_input_counts(tmp_path: Path) -> None:
    digests = {grant("cat", tmp_path, stdin=stdin).digest for stdin in (None, b"a", b"b")}
    assert len(digests) == 3
    assert grant("cat", tmp_path, stdin=b"").digest == grant("cat", tmp_path).digest
