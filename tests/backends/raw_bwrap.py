"""
A small real backend for the tests of the registry and of the attack: bwrap, started
without any of this library, with one hole where a test asks for it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.backends import Detection, Facts, Sandbox, SandboxBackend
from sandboxkit.errors import ProgramNotFoundError, SetupError
from sandboxkit.model import Control, ControlState, Enforcement, ExecResult, Grade, LaunchPlan, SandboxSpec, Termination

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from sandboxkit.egress import Ask, OnEvent
    from sandboxkit.model import Invocation

ALLOW_EVERYTHING = b"\x06\x00\x00\x00\x00\x00\xff\x7f"
"""A seccomp filter of one instruction, SECCOMP_RET_ALLOW. Source: linux/seccomp.h."""

BOLD = Enforcement({control: ControlState(Grade.ENFORCED, "so it says") for control in Control})


def bwrap() -> str:
    path = shutil.which("bwrap")
    if path is None:
        pytest.skip("bwrap is not installed")
    return path


@dataclass
class RawBox(Sandbox):
    backend: RawBwrap
    spec_: SandboxSpec

    @property
    def spec(self) -> SandboxSpec:
        return self.spec_

    @property
    def enforcement(self) -> Enforcement:
        return self.backend.claim

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's
        environment: Mapping[str, str] | None = None,
        explain: bool = False,
        discard: bool = False,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
    ) -> ExecResult:
        fd = os.memfd_create("filter")
        os.write(fd, ALLOW_EVERYTHING)
        os.lseek(fd, 0, os.SEEK_SET)
        given = self.spec_.environment.apply(os.environ) if environment is None else environment
        try:
            done = await anyio.run_process(
                [*self.backend.line(self.spec_, given, fd), *argv],
                input=stdin or b"",
                check=False,
                cwd=cwd or "/",
                env=None if "launcher-env" in self.backend.holes else {},
                pass_fds=[fd],
            )
        finally:
            os.close(fd)
        if b"bwrap: execvp" in done.stderr:
            raise ProgramNotFoundError(argv[0], "in the box")
        if done.stderr.startswith(b"bwrap:"):
            raise SetupError(self.backend.name, done.stderr.decode())
        return ExecResult(
            done.returncode,
            None,
            Termination.EXITED,
            done.stdout,
            done.stderr,
            False,
            0.1,
            self.backend.name,
            self.enforcement,
        )


@asynccontextmanager
async def _opened(box: Sandbox) -> AsyncIterator[Sandbox]:
    yield box


@dataclass(eq=False)
class RawBwrap(SandboxBackend):
    """
    Attributes:
        holes: What is left open.
        claim: What it says it enforces, whatever is left open.
        called: Its name.
        found: What it says of the machine.
        detections: What it was asked about.
        opened: The boxes it opened.
        box: What it opens.
    """

    holes: frozenset[str] = frozenset()
    claim: Enforcement = BOLD
    called: str = "raw-bwrap"
    found: Detection = field(default_factory=lambda: Detection(True, "it is there"))
    detections: list[SandboxSpec | None] = field(default_factory=list)
    opened: list[SandboxSpec] = field(default_factory=list)
    box: type[RawBox] = RawBox

    @property
    def name(self) -> str:
        return self.called

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        self.detections.append(spec)
        return self.found

    def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
        return self.claim

    def plan(self, invocation: Invocation, spec: SandboxSpec, facts: Facts) -> LaunchPlan:
        return LaunchPlan(self.name, (bwrap(), *invocation.argv))

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        self.opened.append(spec)
        return _opened(self.box(self, spec))

    def line(self, spec: SandboxSpec, environment: Mapping[str, str], filter_fd: int) -> list[str]:
        temp, home, hole = os.path.realpath(tempfile.gettempdir()), str(Path.home()), self.holes
        if "bare" in hole:
            return []
        line = [
            bwrap(),
            "--unshare-user",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--new-session",
            "--cap-drop",
            "ALL",
        ]
        line += [] if "pid" in hole else ["--unshare-pid", "--die-with-parent"]
        line += [] if "net" in hole else ["--unshare-net"]
        line += [] if "nested" in hole else ["--disable-userns"]
        line += [] if "syscalls" in hole else ["--seccomp", str(filter_fd)]
        if "empty" not in hole:
            line += ["--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
            for name in ("bin", "lib", "lib64", "sbin"):
                line += ["--symlink", f"usr/{name}", f"/{name}"]
        line += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        line += [] if "proc" in hole else ["--remount-ro", "/proc"]
        line += ["--ro-bind", temp, temp] if "read" in hole else []
        line += ["--bind", temp, temp] if "write" in hole else []
        line += ["--ro-bind", home, home] if "home" in hole else []
        for path in spec.filesystem.write:
            line += ["--bind", path, path]
        line += [] if "env" in hole or "launcher-env" in hole else ["--clearenv"]
        if "env" in hole:
            environment = os.environ
        for name, text in environment.items():
            line += ["--setenv", name, text]
        return line


def only(**grades: Grade) -> Enforcement:
    """
    Everything enforced but the named controls: `only(net_none=Grade.ABSENT)`.
    """
    states = {Control[name.upper()]: ControlState(grade, "so it says") for name, grade in grades.items()}
    return Enforcement({**BOLD.states, **states})
