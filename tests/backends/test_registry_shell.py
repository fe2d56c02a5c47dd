"""
What runs a text, and with which variables.
"""

from __future__ import annotations

import pytest

from sandboxkit.backends import _shell, bash_argv, command_environment
from sandboxkit.errors import ProgramNotFoundError
from sandboxkit.model import EnvironmentPolicy, SandboxSpec

HOSTILE = {
    "BASH_ENV": "/tmp/evil",
    "ENV": "/tmp/evil",
    "BASH_FUNC_ls%%": "() { id; }",
    "BASH_FUNC_x": "() { id; }",
    "SHELLOPTS": "xtrace",
    "BASHOPTS": "extglob",
    "POSIXLY_CORRECT": "1",
    "PATH": "/bin",
}


def test_a_text_runs_in_bash_without_start_up_files() -> None:
    path, *options, text = bash_argv("echo 'a  b'")
    assert path in ("/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash")
    assert (options, text) == (["--noprofile", "--norc", "-c", "--"], "echo 'a  b'")


def test_without_bash_a_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shell, "_FOLDERS", ("/nowhere",))
    with pytest.raises(ProgramNotFoundError, match="install bash, or give the command as a list of words"):
        bash_argv("ls")


@pytest.mark.parametrize("policy", [EnvironmentPolicy(inherit=("*",)), EnvironmentPolicy(set=HOSTILE)])
def test_nothing_a_shell_would_run_first_is_passed_on(policy: EnvironmentPolicy) -> None:
    spec = SandboxSpec(environment=policy)
    assert command_environment(spec, HOSTILE, for_bash=True) == {"PATH": "/bin"}
    assert command_environment(spec, HOSTILE, for_bash=False) == {
        "PATH": "/bin",
        "SHELLOPTS": "xtrace",
        "BASHOPTS": "extglob",
        "POSIXLY_CORRECT": "1",
    }


def test_the_allowlist_applies() -> None:
    given = command_environment(SandboxSpec(), {"LC_ALL": "C", "TOKEN": "x"}, for_bash=False)
    assert given == {"LC_ALL": "C"}
