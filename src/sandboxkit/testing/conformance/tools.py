"""
Ordinary tools work in a box that may write its workspace and has no network, wherever
the host keeps them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sandboxkit
from sandboxkit.model import EnvironmentPolicy, FilesystemPolicy, SandboxSpec
from sandboxkit.process import interpreter
from sandboxkit.testing.conformance._acts import IS_ROOT
from sandboxkit.testing.conformance._behaviours import exported
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what the behaviours ask for
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.testing.conformance._acts import Boxes

ROWS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("ordinary_tools.toml").read_text())["tool"]
"""
The table of ordinary work; what its columns mean stands at its head.
"""
LIBRARY = str(Path(sandboxkit.__file__).resolve().parents[1])
READABLE = sorted({os.path.realpath(sys.prefix), sysconfig.get_path("purelib"), LIBRARY})
"""Where the tests' own environment lies, for the rows that use it."""


def need(*programs: str) -> None:
    """
    Skips a test that does not apply here, unless `SANDBOXKIT_REQUIRE` names the program.
    """
    required = {"git", "python3", "sh", *os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()}
    for program in programs:
        if shutil.which(program) is None:
            (pytest.fail if program in required else pytest.skip)(f"not applicable: there is no {program} here")


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
async def test_ordinary_tool(row: Mapping[str, Any], boxes: Boxes, repository: Path) -> None:
    """
    Ordinary work of git, shells, Python, Node and other tools goes on in a box; what is
    refused, is refused rightly.

    Control: where a row is refused, the same script runs without a box.
    """
    need("bash", *row["needs"])
    argv = ["bash", "--noprofile", "--norc", "-c", row["script"]]
    spec = SandboxSpec(
        filesystem=FilesystemPolicy(write=(str(repository),), read=tuple(READABLE)),
        environment=EnvironmentPolicy(set={"PY": sys.executable, "OWN_PYTHON": interpreter(), "LIBRARY": LIBRARY}),
    )
    result = await boxes.run(spec, argv, timeout=50)
    said = result.text() + result.text("stderr")
    assert (result.exit_code, row.get("output", "") in said) == (row.get("exit", 0), True), (result.outcome, said)
    if row.get("refused"):
        shutil.rmtree(repository / "m", ignore_errors=True)
        works = row["outside"] == "works" or (row["outside"] == "works as root" and IS_ROOT)
        if row["outside"] != "fails":
            outside = subprocess.run(argv, cwd=repository, capture_output=True, timeout=30, check=False)
            assert (outside.returncode == 0) == works, outside


async def test_a_root_caller_keeps_its_files(boxes: Boxes, repository: Path) -> None:
    """
    A command changes and makes files: in the box they are its own, on the host the
    caller's.

    Control: owners are compared before and after.
    """
    owner = (os.getuid(), os.getgid())
    before = (repository / "README.md").stat()
    result = await boxes.run(
        SandboxSpec.workspace_write(repository),
        ["sh", "-c", "echo more >> README.md && mkdir d && echo new > d/f && stat -c %u . README.md d/f && id -u"],
    )
    *seen, uid = result.check().text().split()
    assert seen == [uid] * 3, "in the box, the workspace belongs to the command"
    assert (before.st_uid, before.st_gid) == owner
    assert {(p.stat().st_uid, p.stat().st_gid) for p in (repository / "README.md", repository / "d/f")} == {owner}


# --- where the host keeps its tools ----------------------------------------------------


def directory_with(path: Path, name: str, script: str) -> Path:
    path.mkdir(parents=True)
    (path / name).write_text(script)
    (path / name).chmod(0o755)
    return path


async def test_tools_below_a_private_home(boxes: Boxes, ws: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Tools that nvm, pyenv and a directory in PATH keep in a private home run, and nothing
    else there is seen.

    Control: the files that must not be seen are there.
    """
    version = home / ".nvm/versions/node/v20.0.0"
    nvm = directory_with(version / "bin", "node-of-nvm", '#!/bin/sh\ncat "$(dirname "$0")/../lib/data"\n')
    (version / "lib").mkdir()
    (version / "lib/data").write_text("from nvm\n")
    pyenv = directory_with(
        home / ".pyenv/shims", "python-of-pyenv", f"#!/bin/sh\nexec {home}/.pyenv/versions/3/bin/python-of-pyenv\n"
    )
    directory_with(home / ".pyenv/versions/3/bin", "python-of-pyenv", "#!/bin/sh\necho from pyenv\n")
    own = directory_with(home / "own/bin", "own-tool", "#!/bin/sh\necho from own\n")
    (home / "own/private").write_text("secret")
    (home / "notes").write_text("secret")
    monkeypatch.setenv("PATH", f"{nvm}:{pyenv}:{own}:{os.environ['PATH']}")
    monkeypatch.setenv("NVM_DIR", str(home / ".nvm"))
    script = f"node-of-nvm; python-of-pyenv; own-tool; cat {home}/own/private {home}/notes; ls -A {home} | sort"
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", script])
    assert result.text() == "from nvm\nfrom pyenv\nfrom own\n.nvm\n.pyenv\nown\n", result.text("stderr")
    assert "secret" not in result.text()


async def test_git_knows_its_user(boxes: Boxes, ws: Path, home: Path) -> None:
    """
    git finds the user's name and address, and no other setting of the user's.

    Control: the settings that must not be found are there.
    """
    (home / ".gitconfig").write_text("[user]\n\tname = Someone\n\temail = someone@localhost\n[alias]\n\tst = !id\n")
    script = (
        "git init -q new && cd new && git commit -q --allow-empty -m x && git log --format=%an; git config alias.st"
    )
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", script])
    assert result.text() == "Someone\n", result.text("stderr")  # and nothing else of that file


async def test_an_activated_environment_outside_the_workspace(
    boxes: Boxes, ws: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The application's active environment is used from elsewhere, and cannot be written.

    Control: the module it imports was put there outside.
    """
    environment = home / "work/env"
    subprocess.run([interpreter(), "-m", "venv", "--without-pip", environment], check=True)
    packages = next((environment / "lib").glob("python3*/site-packages"))
    (packages / "thing.py").write_text("print('from the environment')\n")
    monkeypatch.setenv("PATH", f"{environment}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    argv = ["python", "-c", f"import thing, sys; print(sys.prefix); open({str(packages / 'evil.pth')!r}, 'w')"]
    result = await boxes.run(SandboxSpec.workspace_write(ws), argv)
    assert result.text() == f"from the environment\n{environment}\n"
    assert any(text in result.text("stderr") for text in ("Read-only file system", "Permission denied"))
    assert not (packages / "evil.pth").exists()


async def test_an_environment_in_the_workspace(boxes: Boxes, ws: Path) -> None:
    """
    An environment in the workspace is activated, written and used.

    Control: none: that it succeeds in the box is the point.
    """
    subprocess.run([interpreter(), "-m", "venv", "--without-pip", ws / ".venv"], check=True)
    script = "set -e; . .venv/bin/activate; cd .venv/lib/python3*/site-packages; echo 'print(\"grown\")' > grown.py; python -c 'import grown'"
    assert (await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", script])).check().text() == "grown\n"


async def test_a_workspace_in_the_real_home(boxes: Boxes, repository: Path) -> None:
    """
    The workspace lies in the caller's home; work goes on, and its neighbours are not there.

    Control: git on the host reads what was committed.
    """
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".sandboxkit-test-") as directory:
        root = Path(directory).resolve()
        shutil.copytree(repository, root / "ws")
        (root / "beside").write_text("secret")
        script = f"git add . && git commit -q --allow-empty -m inside && cat {root}/beside; ls -A {root}"
        result = await boxes.run(SandboxSpec.workspace_write(root / "ws"), ["sh", "-c", script])
        assert result.text() in ("ws\n", ""), "the neighbours are not listed, if the home can be listed at all"
        assert any(text in result.text("stderr") for text in ("No such file", "Permission denied")), result
        log = subprocess.run(["git", "log", "--format=%s"], cwd=root / "ws", capture_output=True, text=True, check=True)
        assert log.stdout == "inside\nfirst\n"


__all__ = exported(globals(), *FIXTURES)
