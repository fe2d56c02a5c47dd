"""
What works where there is no POSIX: tried with its modules masked, as on Windows.
"""

from __future__ import annotations

import subprocess
import sys

MASKED = """
import sys

import anyio, pydantic, zoneinfo  # what others do there is theirs
import anyio._backends._asyncio

for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios"):
    sys.modules[name] = None

import os
del os.register_at_fork, os.fork, os.geteuid, os.getuid, os.memfd_create
sys.platform = "win32"
"""


def masked(script: str) -> str:
    """
    What *script* prints where these modules cannot be imported.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", MASKED + script], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_and_deciding_work() -> None:
    said = masked(
        "import sandboxkit as sk\n"
        "policy = sk.ExecPolicy.default()\n"
        "print(policy.evaluate('rm -rf /').action.name, policy.evaluate('ls -la').action.name)\n"
        "print(sk.SandboxSpec.isolated().requirements() != {})\n"
    )
    assert said == "DENY ALLOW\nTrue\n"


def test_no_backend_is_an_error_that_says_what_to_do() -> None:
    said = masked(
        "import anyio, sandboxkit as sk\n"
        "from sandboxkit.backends import SandboxRegistry\n"
        "try:\n"
        "    anyio.run(SandboxRegistry.default().active)\n"
        "except sk.NoBackendError as exc:\n"
        "    print(exc)\n"
    )
    assert "docker: " in said
    assert "WSL 2" in said
