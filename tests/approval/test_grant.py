"""
A grant covers exactly what was shown.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandboxkit.approval import Executable, Grant
from sandboxkit.model import Limits, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

GRANT = Grant(("make", "all"), "/srv/app", SandboxSpec.isolated(), Executable("/usr/bin/make", 1, 2, 3, 4), "f" * 64)


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
        replace(GRANT, spec=SandboxSpec()),
        replace(GRANT, spec=SandboxSpec.isolated(limits=Limits(wall=600.0))),
        replace(GRANT, executable=None),
        replace(GRANT, executable=Executable("/usr/bin/make", 1, 2, 3, 5)),
        replace(GRANT, rules_digest="0" * 64),
    ],
)
def test_every_part_counts(other: Grant) -> None:
    assert other.digest != GRANT.digest


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "tool"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_bare_name_is_looked_up_in_order(program: Path, tmp_path: Path) -> None:
    found = Executable.find("tool", cwd="/", search=f"/nowhere:{tmp_path}:{program.parent}")
    assert found
    assert found.path == os.path.realpath(program)
    assert found.size == 10


def test_a_name_with_a_slash_starts_at_the_working_directory(program: Path, tmp_path: Path) -> None:
    assert Executable.find("bin/tool", cwd=str(tmp_path), search="") == Executable.find(
        str(program), cwd="/", search=""
    )


def test_a_changed_program_is_another(program: Path, tmp_path: Path) -> None:
    before = Executable.find("bin/tool", cwd=str(tmp_path), search="")
    program.write_text("#!/bin/false\n")
    assert Executable.find("bin/tool", cwd=str(tmp_path), search="") != before


def test_a_link_is_followed(program: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(program)
    found = Executable.find("./link", cwd=str(tmp_path), search="")
    assert found
    assert found.path == os.path.realpath(program)


@pytest.mark.parametrize("name", ["nothing", "./nothing", "bin", "", "a\0b", "x" * 5000])
def test_what_is_no_program_is_none(tmp_path: Path, program: Path, name: str) -> None:
    assert Executable.find(name, cwd=str(tmp_path), search=str(tmp_path)) is None
