"""
Processes under a filter of this machine's architecture.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandboxkit.confine import ARCHITECTURES, seccomp_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Answers = dict[str, int | str]

SCRIPT = (Path(__file__).parent / "_under_filter.py").read_text()
OTHER_UID = "4242"
ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class Filtered:
    """
    A way to start processes under one filter, as one user.

    Attributes:
        fd: The filter; -1 for none.
        drop: The command that changes the user.
        python: An interpreter that user can run.
    """

    fd: int
    drop: tuple[str, ...] = ()
    python: str = sys.executable

    def command(self, *arguments: str) -> list[str]:
        return [*self.drop, self.python, "-I", "-S", "-c", SCRIPT, str(self.fd), *arguments]

    def run(self, argv: Sequence[str], *, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """
        Runs *argv* under the filter.
        """
        fds = (self.fd,) if self.fd >= 0 else ()
        environment = {**ENVIRONMENT, "HOME": str(cwd or "/")}
        return subprocess.run(
            self.command("exec", *argv),
            cwd=cwd,
            env=environment,
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    def probe(self, rows: Mapping[str, Sequence[int]]) -> Answers:
        """
        What each system call of *rows* answers under the filter.
        """
        fds = (self.fd,) if self.fd >= 0 else ()
        command = self.command("probe", json.dumps(rows))
        output = subprocess.check_output(command, env=ENVIRONMENT, pass_fds=fds, stdin=subprocess.DEVNULL, timeout=50)
        answers: Answers = json.loads(output)
        return answers


def machine() -> str:
    name = os.uname().machine
    if name not in ARCHITECTURES:
        pytest.skip(f"there is no filter for {name}")
    return name


def opened(*, allow_ptrace: bool = True, allow_nested_userns: bool = False) -> Iterator[int]:
    fd = os.memfd_create("filter")
    os.write(fd, seccomp_filter(machine(), allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns))
    yield fd
    os.close(fd)


@pytest.fixture(scope="session")
def plain_fd() -> Iterator[int]:
    """
    The filter of a default spec.
    """
    yield from opened()


@pytest.fixture(scope="session")
def strict_fd() -> Iterator[int]:
    """
    The filter without ptrace.
    """
    yield from opened(allow_ptrace=False)


@pytest.fixture(scope="session")
def nested_fd() -> Iterator[int]:
    """
    The filter with nested user namespaces.
    """
    yield from opened(allow_nested_userns=True)


# Root is not held back by permissions, so what passes as root says little of others.
USERS = ["this user", "another user"] if os.geteuid() == 0 else ["this user"]


@pytest.fixture(scope="session", params=USERS)
def user(request: pytest.FixtureRequest) -> Filtered:
    """
    Starts processes as whoever runs the tests and, where that is root, also as nobody
    in particular.
    """
    if request.param == "this user":
        return Filtered(-1)
    setpriv, python = shutil.which("setpriv"), shutil.which("python3", path="/usr/bin:/bin")
    if not setpriv or not python:
        pytest.skip("setpriv or a system-wide python3 is not installed")
    return Filtered(-1, (setpriv, "--reuid", OTHER_UID, "--regid", OTHER_UID, "--clear-groups"), python)
