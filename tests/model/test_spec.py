"""
`SandboxSpec`: wrong fields raise one error of ours, and records are stable.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandboxkit import Control, EnvironmentPolicy, FilesystemPolicy, Grade, Limits, SandboxSpec, SpecError
from sandboxkit.model import Access, strictest

if TYPE_CHECKING:
    from pathlib import Path


def test_every_problem_of_a_part_is_listed() -> None:
    with pytest.raises(SpecError) as caught:
        Limits(wall=0, cpu=-1, memory_bytes=1)
    assert caught.value.problems == (
        "wall: must be greater than 0, not 0",
        "cpu: must be greater than 0, not -1",
        "memory_bytes: must be greater than or equal to 33554432, not 1",
    )
    assert isinstance(caught.value, ValueError)


def test_a_limit_beyond_what_the_kernel_can_hold_is_named() -> None:
    with pytest.raises(SpecError) as caught:
        Limits(memory_bytes=1 << 64, file_size_bytes=1 << 64, max_output_bytes=1 << 64)
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "memory_bytes",
        "file_size_bytes",
        "max_output_bytes",
    ]


@pytest.mark.parametrize("asked", [0, -1, float("nan"), float("inf"), True, "5"])
def test_a_timeout_that_is_none_does_not_lift_the_limit(asked: object) -> None:
    with pytest.raises(SpecError, match="is no positive number of seconds"):
        SandboxSpec().timeout(asked)  # type: ignore[arg-type]  # wrong on purpose


def test_the_smaller_deadline_counts() -> None:
    spec = SandboxSpec(limits=Limits(wall=5))
    assert [spec.timeout(asked) for asked in (None, 3, 7, 10**400)] == [5, 3, 5, 5]


def test_problems_of_all_parts_are_listed_with_their_whole_key() -> None:
    with pytest.raises(SpecError) as caught:
        SandboxSpec(filesystem={"read": ["x"], "base": "none"}, limits={"wall": 0}, proces={})  # type: ignore[arg-type, call-arg]  # wrong on purpose
    assert caught.value.problems == (
        "filesystem.base: must be 'system' or 'tools', not 'none'",
        "filesystem.read[0]: 'x' is a relative path; write it from the root, or use a preset or a spec file, which resolve it",
        "limits.wall: must be greater than 0, not 0",
        "proces: there is no such key; did you mean 'process'?",
    )


def test_presets_follow_links_and_list_what_they_cannot(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to("loop")
    assert SandboxSpec.read_only(tmp_path / "link").filesystem.read == (str(tmp_path / "real"),)
    with pytest.raises(SpecError) as caught:
        SandboxSpec.workspace_write(tmp_path / "loop", "a\0b", "")
    assert caught.value.problems == (
        f"'{tmp_path}/loop' is a loop of symbolic links; name the directory itself",
        "a path cannot hold a NUL byte",
        "a path cannot be empty; write '.' for the directory itself",
    )


def test_a_working_directory_that_is_gone_is_a_problem_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(SpecError, match="the working directory, which is gone"):
        SandboxSpec.read_only()


def test_a_spec_has_one_json_form_in_every_process() -> None:
    code = "from sandboxkit import SandboxSpec; print(SandboxSpec(allow_degraded=['env', 'fs.read', 'limits.cpu']).model_dump_json())"
    forms = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(forms) == 1


def test_a_denial_inside_a_denial_is_left_out() -> None:
    one = {"/": Access.DENY, "/a": Access.DENY, "/a/b": Access.READ}
    assert strictest(one, one) == {"/": Access.DENY, "/a/b": Access.READ}


def test_a_field_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        FilesystemPolicy().base = "system"


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("shellrc", "'shellrc' is no protection set; did you mean 'shell-rc'; a path starts with ./ or /"),
        ("Makefile", "a path starts with ./ or /"),
        ("../x", "a path starts with ./ or /"),
        ("./a/../b", "not in normal form"),
        ("./", "not in normal form"),
        ("/a//b", "not in normal form"),
        ("./a\0", "NUL byte"),
    ],
)
def test_a_wrong_entry_of_protect_is_named(entry: str, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        FilesystemPolicy(protect=frozenset({entry}))
    assert problem in caught.value.problems[0]


def test_protection_only_grows() -> None:
    one, two = (FilesystemPolicy(protect=frozenset(entries)) for entries in ({"ci", "./a"}, {"/b/*"}))
    assert one.tighten(two).protect == {"git", "ci", "./a", "/b/*"}


def test_a_command_starts_in_no_denied_directory() -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=("/a", "/b"), deny=("/a",)))
    assert spec.starting_places("/", "/home") == ("/b", "/home")


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(),
        SandboxSpec(filesystem=FilesystemPolicy(read=("/a", "/b c"), write=('/q"\\',), deny=("/a/d",))),
        SandboxSpec(
            limits=Limits(wall=5, processes=3),
            environment=EnvironmentPolicy(set={"A.b": "x\x7f\n"}),
            require={Control.FS_WRITE: Grade.ENFORCED},
            allow_degraded=frozenset({Control.PROCESS_ISOLATION}),
        ),
    ],
)
def test_a_written_spec_is_read_as_the_same(spec: SandboxSpec, tmp_path: Path) -> None:
    file = tmp_path / "box.toml"
    file.write_text(spec.to_toml())
    assert SandboxSpec.from_file(file) == spec


def test_what_toml_cannot_say_is_named() -> None:
    with pytest.raises(SpecError, match=r"limits\.wall: TOML has no way to write None; give it as JSON"):
        SandboxSpec(limits=Limits(wall=None)).to_toml()
