"""
Specs as files: what they mean, and every mistake at once.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit import SandboxSpec, SpecError
from sandboxkit.model import Control, FilesystemPolicy, Grade, Limits, NetworkPolicy

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
allow_degraded = ["limits.memory"]

[filesystem]
read = [".", "~/.gitconfig"]  # of the file's directory, and of the home
write = ["out"]

[network]
mode = "host"

[limits]
wall = 5
memory_bytes = 268_435_456

[environment]
set = { GREETING = "hello # world" }

[require]
"net.none" = "partial"
"""

WRONG = """\
allow_degraded = ["limits.memry"]
colour = "blue"

[filesystem]
read = [
  "src",  # a comment with "quotes" and = signs
  "~nobody-has-this-name/x",
  3,
]
wriet = ["."]
base = 'sytem'

[limits]
wall = -1
memory_bytes = 3
when = 1979-05-27 07:32:00
note = \"\"\"
wall = 1
\"\"\"
processes = "many"

[environment]
inherit = ["a b"]
set = { "B=" = "x" }

[process]
tty = "maybe"

[require]
"fs.read" = "strong"

[[extra]]
x = 1
"""

WRONG_AT = {
    1: "allow_degraded[0]: 'limits.memry' is not known; did you mean 'limits.memory'?",
    2: "colour: there is no such key; use one of allow_degraded, environment, filesystem, limits, network, process, require",
    7: "filesystem.read[1]: '~nobody-has-this-name/x' starts at a home directory",
    8: "filesystem.read[2]: must be a valid string, not 3",
    10: "filesystem.wriet: there is no such key; did you mean 'write'?",
    11: "filesystem.base: 'sytem' is not known; did you mean 'system'?",
    14: "limits.wall: must be greater than 0, not -1",
    15: "limits.memory_bytes: must be greater than or equal to 33554432, not 3",
    16: "limits.when: there is no such key",
    17: "limits.note: there is no such key",
    20: "limits.processes: must be a valid integer",
    23: "environment.inherit[0]: 'a b' is no variable name",
    24: "environment.set: variable 'B='",
    27: "process.tty: must be a valid boolean",
    30: "require.fs.read: 'strong' is no grade",
    32: "extra: there is no such key",
}


def _file(directory: Path, text: str, name: str = "box.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def _problems(path: Path | str) -> tuple[str, ...]:
    with pytest.raises(SpecError) as caught:
        SandboxSpec.from_file(path)
    assert caught.value.source == str(path)
    return tuple(caught.value.problems)


def test_a_file_says_what_the_fields_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "there").mkdir()
    (tmp_path / "out").symlink_to("there")
    spec = SandboxSpec.from_file(_file(tmp_path, GOOD))
    assert spec == SandboxSpec(
        filesystem=FilesystemPolicy(
            read=(str(tmp_path), str(tmp_path / "home/.gitconfig")), write=(str(tmp_path / "there"),)
        ),
        network=NetworkPolicy(mode="host"),
        limits=Limits(wall=5, memory_bytes=268_435_456),
        environment={"set": {"GREETING": "hello # world"}},  # type: ignore[arg-type]  # pydantic takes the parts as mappings
        require={Control.NET_NONE: Grade.PARTIAL},
        allow_degraded=frozenset({Control.LIMITS_MEMORY}),
    )
    assert spec.limits.model_fields_set == {"wall", "memory_bytes"}


def test_json_says_the_same_as_toml(tmp_path: Path) -> None:
    import tomllib

    as_json = _file(tmp_path, json.dumps(tomllib.loads(GOOD)), "box.json")
    assert SandboxSpec.from_file(as_json) == SandboxSpec.from_file(_file(tmp_path, GOOD))


def test_paths_start_from_the_file_and_not_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    _file(tmp_path, '[filesystem]\nread = ["."]\n')
    monkeypatch.chdir(tmp_path / "here")
    assert SandboxSpec.from_file("../box.toml").filesystem.read == (str(tmp_path),)


def test_every_mistake_is_listed_with_its_key_and_line(tmp_path: Path) -> None:
    problems = _problems(_file(tmp_path, WRONG))
    found = {int(problem.split(":")[0].removeprefix("line ")): problem.partition(": ")[2] for problem in problems}
    assert found.keys() == WRONG_AT.keys()
    assert [(line, found[line]) for line, start in WRONG_AT.items() if not found[line].startswith(start)] == []


def test_the_lines_of_json_are_found_too(tmp_path: Path) -> None:
    text = '{\n "limits": {"wall": 0},\n "filesystem": {\n  "read": ["/usr",\n   7]\n },\n "\\u0078": [{"y": 1}]\n}\n'
    assert _problems(_file(tmp_path, text, "box.json")) == (
        "line 2: limits.wall: must be greater than 0, not 0",
        "line 5: filesystem.read[1]: must be a valid string, not 7",
        "line 7: x: there is no such key; use one of allow_degraded, environment, filesystem, limits, network, process, require",
    )


def test_json_may_not_give_a_key_twice(tmp_path: Path) -> None:
    text = '{"filesystem": {"deny": ["/etc"],\n "deny": []}}'
    assert _problems(_file(tmp_path, text, "box.json")) == (
        "line 1: filesystem.deny: the key is given twice in one object",
    )


def test_a_loop_of_links_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (problem,) = _problems(_file(tmp_path, '[filesystem]\nread = ["loop/x"]\n'))
    assert problem.startswith("line 2: filesystem.read[0]: ")
    assert "is a loop of symbolic links" in problem


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("box.yaml", b"", "its name must end in .toml or .json"),
        ("box.toml", b"a = ", "it is no TOML: "),
        ("box.toml", b"a = 1\na = 2", "it is no TOML: "),
        ("box.toml", b"\xff\xfe", "it is no UTF-8 text: "),
        ("box.toml", b"a = " + b"[" * 100_000, "it is no TOML"),
        ("box.toml", b"#" * (1 << 20) + b"#", "it is larger than 1048576 bytes"),
        ("box.json", b"{", "it is no JSON: "),
        ("box.json", b"[]", "it must hold one object with the fields of a spec"),
        ("box.json", b"[" * 100_000, "it is no JSON that can be read: it is nested too deeply"),
        ("box.json", b'{"limits": {"memory_bytes": ' + b"9" * 5000 + b"}}", "it is no JSON: "),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[:30],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    (found,) = _problems(path)
    assert found.startswith(problem)


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    said = f"it cannot be read: No such file or directory; check the name: {tmp_path} holds no 'missing.toml'"
    assert _problems(tmp_path / "missing.toml") == (said,)
    (tmp_path / "directory.toml").mkdir()
    assert _problems(tmp_path / "directory.toml") == ("it is a directory; give a file in it",)
    os.mkfifo(tmp_path / "pipe.json")
    assert _problems(tmp_path / "pipe.json") == ("it is no regular file; give one",)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"filesystem": {"read": ["src"]}}, "filesystem.read[0]: 'src' is a relative path"),
        ({"filesystem": {"read": "/usr"}}, "filesystem.read: must be a list"),
        ({"filesystem": {"read": ["/a\0b"]}}, "filesystem.read[0]: a path cannot hold a NUL byte"),
        ({"filesystem": {"read": ["/a/../b"]}}, "filesystem.read[0]: '/a/../b' is not in normal form; write '/b'"),
        ({"filesystem": 3}, "filesystem: must be a table of keys"),
        ({"environment": {"set": {"TOKEN": 12345}}}, "environment.set.TOKEN: must be a valid string"),
        ({"limits": {"wall": float("inf")}}, "limits.wall: "),
        ({"limits": {"wall": float("nan")}}, "limits.wall: "),
        ({"network": {"mode": "x" * 1000}}, f"network.mode: must be 'none', 'listed' or 'host', not '{'x' * 79}…"),
        ({"require": {"fs.read": 7}}, "require.fs.read: '7' is no grade; use enforced, partial or absent"),
    ],
)
def test_a_mapping_is_checked_like_a_file(data: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        SandboxSpec.from_dict(data)
    (found,) = caught.value.problems
    assert found.startswith(problem)
    assert "12345" not in found, "a variable's value may be a secret"


def test_a_mapping_with_a_base_resolves_paths(tmp_path: Path) -> None:
    assert SandboxSpec.from_dict({"filesystem": {"read": ["a/../b"]}}, base=tmp_path).filesystem.read == (
        str(tmp_path / "b"),
    )
    for path in ("", "a\0b", "\ud800"):
        with pytest.raises(SpecError, match=r"filesystem\.read\[0\]"):
            SandboxSpec.from_dict({"filesystem": {"read": [path]}}, base=tmp_path)
    with pytest.raises(SpecError, match="longer than a path can be"):
        SandboxSpec.from_dict({"filesystem": {"read": ["x" * 5000]}}, base=tmp_path)


def test_a_pattern_to_read_or_write_is_expanded_and_one_to_deny_is_kept(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    for name in ("a/x.csv", "a/b/y.csv", "a/.hidden.csv", "a/z.txt"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).touch()
    (base / "a/loop").symlink_to(".")
    spec = SandboxSpec.from_dict(
        {"filesystem": {"read": ["glob:a/**/*.csv"], "write": [f"glob:{base}/a/*.txt"], "deny": ["glob:./**/.env"]}},
        base=base,
    )
    assert spec.filesystem.read == tuple(f"{base}/a/{name}" for name in (".hidden.csv", "b/y.csv", "x.csv"))
    assert spec.filesystem.write == (f"{base}/a/z.txt",)
    assert spec.filesystem.deny == (f"glob:{base}/**/.env",)


def test_a_pattern_stands_only_where_it_is_kept() -> None:
    with pytest.raises(SpecError) as caught:
        SandboxSpec.from_dict({"filesystem": {"read": ["glob:/a/*"], "deny": ["glob:/a", "glob:b/*"]}})
    assert [problem.split(": ")[0] for problem in caught.value.problems] == [
        "filesystem.read[0]",
        "filesystem.deny[0]",
        "filesystem.deny[1]",
    ]
