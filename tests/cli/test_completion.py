"""
`sandboxkit completion`: by real shells, as far as they are installed.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from sandboxkit.cli._completion import script, tree
from sandboxkit.cli._options import ROOMS, parser

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli


def completed(directory: Path, *words: str) -> list[str]:
    """
    What bash offers for the last of *words*.
    """
    (directory / "completion.bash").write_text(script("bash"))
    given = " ".join(map(shlex.quote, words))
    program = f"source ./completion.bash; COMP_WORDS=(sandboxkit {given}); COMP_CWORD={len(words)}; _sandboxkit; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-u", "-c", program],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_verbs(tmp_path: Path) -> None:
    assert set(ROOMS) <= set(completed(tmp_path, ""))
    assert completed(tmp_path, "d") == ["doctor", "demo"]
    assert completed(tmp_path, "policy", "") == ["lint", "test", "show", "replay", "schema", "-h", "--help"]
    assert completed(tmp_path, "policy", "l") == ["lint"]
    assert completed(tmp_path, "completion", "")[:3] == ["bash", "zsh", "fish"]


def test_options_are_those_of_the_verb(tmp_path: Path) -> None:
    assert completed(tmp_path, "run", "--net") == ["--network"]
    assert completed(tmp_path, "check", "--net") == []
    assert completed(tmp_path, "policy", "lint", "--s") == ["--strict"]
    assert completed(tmp_path, "policy", "test", "--s") == []


def test_values(tmp_path: Path) -> None:
    (tmp_path / "a rule.toml").touch()
    assert completed(tmp_path, "run", "--network", "") == ["none", "listed", "host"]
    assert completed(tmp_path, "run", "--json", "--network", "h") == ["host"]
    assert completed(tmp_path, "run", "--timeout", "") == []
    assert completed(tmp_path, "run", "--spec", "a") == ["a rule.toml"]
    assert completed(tmp_path, "policy", "lint", "a") == ["a rule.toml"]
    assert completed(tmp_path, "policy", "lint", "--level", "p") == ["project"]


def test_the_command_is_completed_as_a_command(tmp_path: Path) -> None:
    assert "bash" in completed(tmp_path, "run", "--", "bas")
    assert "bash" in completed(tmp_path, "check", "bas")
    (tmp_path / "zzz.txt").touch()
    assert completed(tmp_path, "run", "--", "cat", "zz") == ["zzz.txt"]


def test_it_is_registered(tmp_path: Path) -> None:
    (tmp_path / "completion.bash").write_text(script("bash"))
    program = "source ./completion.bash; complete -p sandboxkit"
    done = subprocess.run(["bash", "--norc", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "complete -F _sandboxkit sandboxkit\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_right_by_its_shell(tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script(shell))
    subprocess.run([shell, "-n", "script"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_and_option_is_in_every_script(shell: str) -> None:
    text = script(shell)
    for node in tree(parser()).all():
        assert [verb for verb in node.path if verb not in text] == []
        names = [name.lstrip("-") for option in node.options for name in option.names]
        assert [name for name in names if name not in text] == []


def test_the_command_prints_it(cli: Cli) -> None:
    for shell in ("bash", "zsh", "fish"):
        done = cli("completion", shell)
        assert (done.returncode, done.stdout.decode()) == (0, script(shell))
    assert cli("completion", "tcsh").returncode == 119
    assert cli("completion").returncode == 119
