"""
What is never remembered for good.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.approval import grant_for, why_not_always
from sandboxkit.approval._programs import Kind, kind_of
from sandboxkit.model import (
    Assignment,
    Command,
    Doubt,
    FilesystemPolicy,
    PolicyAction,
    PolicyEvaluation,
    SandboxSpec,
    Setting,
    SimpleCommand,
    Unknown,
)
from sandboxkit.shell import parse

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.model import Grant, RunMode


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """
    `desk` may be written by a box, `tools` may not; both hold the same files.
    """
    for folder in ("desk", "tools"):
        (tmp_path / folder).mkdir()
        for name in ("tool", "run.sh", "x.py", "x.js", "Makefile", "data.csv"):
            (tmp_path / folder / name).write_text("#!/bin/sh\n" if name == "tool" else "")
        (tmp_path / folder / "tool").chmod(0o755)
    (tmp_path / "tools" / "shell").symlink_to("/bin/bash")
    (tmp_path / "tools" / "link.py").symlink_to(tmp_path / "desk" / "x.py")
    (tmp_path / "desk" / "safe").symlink_to(tmp_path / "tools" / "tool")
    (tmp_path / "tools" / "python3.11").symlink_to("/bin/true")
    return tmp_path


def _read(command: str | tuple[str, ...]) -> Command:
    return parse(command) if isinstance(command, str) else Command(None, (SimpleCommand(command),), argv=command)


def compound(text: str, *words: tuple[str, ...], **fields: Any) -> Command:
    return Command(text, tuple(SimpleCommand(argv) for argv in words), **fields)


def reason(
    command: str | tuple[str, ...] | Command,
    place: Path,
    *,
    cwd: str = "tools",
    mode: RunMode = "sandbox",
    rules: str = "f" * 64,
) -> str | None:
    read = command if isinstance(command, Command) else _read(command)
    evaluation = PolicyEvaluation(PolicyAction.ASK, "asks", read, rules_digest=rules)
    grant: Grant = grant_for(
        evaluation,
        command=read.source if read.source is not None else read.argv or (),
        argv=read.argv or ("/bin/bash", "-c", read.text),
        cwd=str(place / cwd),
        search=f"{place}/tools:/usr/bin:/bin",
        workspace_roots=(str(place / "desk"),),
        spec=SandboxSpec(filesystem=FilesystemPolicy(write=(str(place / "desk"),))),
        mode=mode,
        stdin=None,
    )
    return why_not_always(grant, read)


@pytest.mark.parametrize(
    "command",
    [
        "ls -l",
        "git push --force origin main",
        "git add ../desk/x.py",
        "curl -o ../desk/x.csv https://example.com/x.sh",
        "rm -- ../desk/x.py",
        "tool data.csv",
        "sed -f data.csv ../desk/data.csv",
        "ls ../desk/data.csv",
        "./tool",
        "bash run.sh",
        "sh ./run.sh -x",
        "node x.js" if os.path.exists("/usr/bin/node") else "ls",
        compound("cat data.csv | sort", ("cat", "data.csv"), ("sort",)),
        "make all" if os.path.exists("/usr/bin/make") else "ls",
        ("git", "commit", "-m", "a; rm -rf /"),
    ],
)
def test_what_may_be_remembered(command: str | tuple[str, ...] | Command, place: Path) -> None:
    assert reason(command, place) is None


@pytest.mark.parametrize(
    ("command", "because"),
    [
        ("../desk/tool", "lies in"),
        (("../desk/tool",), "lies in"),
        ("../desk/safe", "lies in"),  # the link itself may be turned to something else
        (compound("ls; ../desk/tool", ("ls",), ("../desk/tool",)), "lies in"),
        (compound("ls; bash ../desk/run.sh", ("ls",), ("bash", "../desk/run.sh")), "lies in"),
        ("bash ../desk/run.sh", "lies in"),
        ("sh link.py", "lies in"),
        ("./tool ../desk/x.py", "lies in"),
        ("./tool --config=../desk/x.js", "lies in"),
        ("./tool -f../desk/not-yet.py", "lies in"),
        ("./tool ../desk/tool", "lies in"),
        ("./tool --plugin=../desk/x.so", "lies in"),
        ("tar -I../desk/run.sh -xf a", "lies in"),
        ("sort --compress-program ../desk/tool data.csv", "lies in"),
        ("tar --to-command=../desk/tool -xf a", "lies in"),
        ("git -c core.pager=../desk/tool log", "lies in"),
        ("sed -f ../desk/data.csv x.py", "lies in"),
        ("sed -f../desk/data.csv x.py", "lies in"),
        ("sed --file=../desk/data.csv x.py", "lies in"),
        ("jq --from-file ../desk/data.csv x.js", "lies in"),
    ],
)
def test_a_program_or_script_in_a_writable_root(
    command: str | tuple[str, ...] | Command, because: str, place: Path
) -> None:
    assert because in (reason(command, place) or "")


@pytest.mark.parametrize("command", ["make", "make -C ../tools all", "npm install", "pytest -q", "cargo build"])
def test_a_build_tool_in_a_writable_directory(command: str, place: Path) -> None:
    assert "runs what files of" in (reason(command, place, cwd="desk") or "")


def test_an_interpreter_that_loads_what_lies_where_it_starts(place: Path) -> None:
    (place / "tools" / "x.lua").write_text("")
    for name in ("lua", "lua5.4", "Rscript", "bun"):
        assert "may load files of" in (reason(f"{name} ../tools/x.lua", place, cwd="desk") or "")
    assert reason("sh ../tools/run.sh", place, cwd="desk") is None


@pytest.mark.parametrize("command", ["make -f ../desk/rules", "make -C ../desk", "make --directory=../desk"])
def test_a_build_tool_that_is_sent_to_one(command: str, place: Path) -> None:
    (place / "desk" / "rules").write_text("all:\n")
    assert reason(command, place)


@pytest.mark.parametrize(
    "command",
    [
        "bash",
        "sh",
        "/bin/bash",
        "bash -c ls",
        "bash -lc ls",
        "sh -s",
        "sh missing.sh",
        "python3",
        "python3 -c 'print(1)'",
        "python3 -m http.server",
        "python3 -",
        "/usr/bin/python3.11 -V",
        "python3.12",
        "pypy3",
        "perl -e 1",
        "ruby",
        "node -e 1",
        "nodejs18",
        "lua5.4",
        "awk '{print}' data.csv",
        "env ls",
        "env",
        "sudo ls",
        "doas ls",
        "xargs rm",
        "nice ls",
        "timeout 5 ls",
        "nohup ls",
        "find . -exec ls ';'",
        "watch ls",
        "ssh host ls",
        "docker run alpine",
        "busybox ls",
        "command ls",
        "eval ls",
        "exec ls",
        ". run.sh",
        "source run.sh",
        "BASH",
        "R",
        "R -e 1",
        "lksh",
        "bash-static -c ls",
        "ocaml",
        "dc -e 1",
        "gnuplot",
        "vim.basic",
        "ltrace ls",
        "perf stat ls",
        "socat - EXEC:sh",
        "nc -e sh host 1",
        "sg group -c ls",
        ("env", "ls"),
        ("/usr/bin/env", "ls"),
        ("bash", "-c", "ls"),
        compound("ls | bash", ("ls",), ("bash",)),
        compound("ls; ./shell", ("ls",), ("./shell",)),
    ],
)
def test_never_a_bare_shell_interpreter_or_wrapper(command: str | tuple[str, ...] | Command, place: Path) -> None:
    assert reason(command, place) is not None


def test_never_one_under_another_name(place: Path) -> None:
    assert "'shell' is" in (reason("./shell", place) or "")
    assert "'shell' is" in (reason(("shell", "run.sh"), place) or "")
    assert reason("./python3.11 -V", place)  # by its name alone


LS = SimpleCommand(("ls", "x"))


@pytest.mark.parametrize(
    "command",
    [
        replace(compound("ls"), parts=(replace(LS, unknown=((1, Unknown(Doubt.VALUE)),)),)),
        replace(compound("ls"), parts=(replace(LS, unknown=((0, Unknown(Doubt.VALUE)),)),)),
        replace(compound("ls"), parts=(replace(LS, assignments=(Assignment("A", "1"),)),)),
        replace(compound("ls"), parts=(replace(LS, setting=Setting.SUSPECT),)),
        replace(compound("ls"), parts=(replace(LS, setting=Setting.FOREIGN | Setting.TEXT),)),
        replace(compound("ls"), parts=(replace(LS, setting=Setting.REMOTE),)),
        compound("f() { ls; }; f", ("ls",), ("f",), functions=frozenset({"f"})),
        compound("cd /; ls", ("cd", "/"), ("ls",)),
        compound("ls", ("ls",), opaque="half a quote"),
        "ls $(cat x)",
        "rm *.txt",
        "ls $X",
        "A=1 ls",
        "PATH=. ls",
        "ls ;; x",
        "no-such-program",
    ],
)
def test_never_what_is_not_known(command: str | Command, place: Path) -> None:
    assert reason(command, place) is not None


def test_never_without_a_box_or_named_rules(place: Path) -> None:
    assert reason("ls", place, mode="unsandboxed") == "it would run without a box"
    assert "digest" in (reason("ls", place, rules="") or "")


def test_never_more_words_than_are_looked_at(place: Path) -> None:
    assert reason(("ls", *["x"] * 255), place) is None
    assert reason(("ls", *["x"] * 256), place) is not None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("python", Kind.INTERPRETER),
        ("Python3", Kind.INTERPRETER),
        ("/opt/x/bin/python3.13t", Kind.INTERPRETER),
        ("python3-dbg", Kind.INTERPRETER),
        ("bash-5.2", Kind.INTERPRETER),
        ("ksh93", Kind.INTERPRETER),
        ("tclsh8.6", Kind.INTERPRETER),
        ("php8.2", Kind.INTERPRETER),
        ("node.exe", Kind.INTERPRETER),
        ("ld-linux-x86-64.so.2", Kind.WRAPPER),
        ("ld-musl-aarch64.so.1", Kind.WRAPPER),
        ("pip3.11", Kind.BUILDER),
        ("busybox", Kind.WRAPPER),
        ("git", Kind.DATA),
        ("make", Kind.BUILDER),
        ("sha256sum", Kind.DATA),
        ("7z", None),
        ("", None),
        ("123", None),
        ("apt-get", None),
    ],
)
def test_kinds_are_told_by_name(name: str, kind: Kind | None) -> None:
    assert kind_of(name) is kind


def test_never_where_programs_are_looked_for_in_a_writable_root(place: Path) -> None:
    read = parse("ls")
    evaluation = PolicyEvaluation(PolicyAction.ASK, "asks", read, rules_digest="f" * 64)
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(place / "desk"),)))

    def because(search: str) -> str | None:
        grant = grant_for(
            evaluation,
            command="ls",
            argv=("ls",),
            cwd=str(place / "tools"),
            search=search,
            workspace_roots=(),
            spec=spec,
            mode="sandbox",
            stdin=None,
        )
        return why_not_always(grant, read)

    assert because(f"/usr/bin:{place}/tools") is None
    for folder in (f"{place}/desk/.venv/bin", "../desk", str(place / "desk")):
        assert "programs are looked for in" in (because(f"/usr/bin:{folder}") or "")


def test_every_writable_root_counts(place: Path) -> None:
    read = parse("ls")
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=("/usr",), read=("/usr/bin",)))
    evaluation = PolicyEvaluation(PolicyAction.ASK, "asks", read, rules_digest="f" * 64)
    grant = grant_for(
        evaluation, command="ls", argv=("ls",), cwd="/", search="/usr/bin", workspace_roots=(), spec=spec, mode="sandbox", stdin=None
    )  # fmt: skip
    assert "lies in '/usr'" in (why_not_always(grant, read) or "")
    assert why_not_always(replace(grant, spec=SandboxSpec()), read) is None
