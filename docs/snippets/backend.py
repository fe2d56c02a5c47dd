import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic

import anyio

import sandboxkit as sk
from sandboxkit.backends import Detection, Facts
from sandboxkit.egress import Ask, OnEvent
from sandboxkit.model import ControlState, Invocation, LaunchPlan


class UnshareBackend(sk.SandboxBackend):
    """
    Takes the network away with unshare(1), and claims nothing else.
    """

    @property
    def name(self) -> str:
        return "unshare"

    async def detect(self, spec: sk.SandboxSpec | None = None) -> Detection:
        if shutil.which("unshare", path="/usr/bin") is None:
            return Detection(False, "/usr/bin/unshare does not exist", "install util-linux")
        return Detection(True, "/usr/bin/unshare exists")

    def enforcement(self, spec: sk.SandboxSpec, facts: Facts) -> sk.Enforcement:
        return sk.Enforcement({sk.Control.NET_NONE: ControlState(sk.Grade.ENFORCED, "a network namespace of its own")})

    def plan(self, invocation: Invocation, spec: sk.SandboxSpec, facts: Facts) -> LaunchPlan:
        return LaunchPlan(
            backend=self.name,
            argv=("/usr/bin/unshare", "--map-current-user", "--net", "--", *invocation.argv),
            environment=invocation.environment,
            cwd=invocation.cwd or os.getcwd(),
        )

    @asynccontextmanager
    async def open(self, spec: sk.SandboxSpec) -> AsyncIterator[sk.Sandbox]:
        yield UnshareBox(self, spec)


class UnshareBox(sk.Sandbox):
    def __init__(self, backend: UnshareBackend, spec: sk.SandboxSpec) -> None:
        self._backend = backend
        self._spec = spec

    @property
    def spec(self) -> sk.SandboxSpec:
        return self._spec

    @property
    def enforcement(self) -> sk.Enforcement:
        return self._backend.enforcement(self._spec, Facts())

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        explain: bool = False,
        discard: bool = False,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
    ) -> sk.ExecResult:
        if discard:
            raise sk.BackendError("this backend cannot discard what a command writes; use another")
        passed = self._spec.environment.apply(os.environ) if environment is None else environment
        plan = self._backend.plan(Invocation(tuple(argv), tuple(passed.items()), cwd), self._spec, Facts())
        start = monotonic()
        done = await anyio.run_process(
            plan.argv, input=stdin or b"", check=False, cwd=plan.cwd, env=dict(plan.environment)
        )
        return sk.ExecResult(
            exit_code=done.returncode,
            signal=None,
            termination=sk.Termination.EXITED,
            stdout=done.stdout,
            stderr=done.stderr,
            truncated=False,
            duration_s=monotonic() - start,
            backend=self._backend.name,
            enforcement=self.enforcement,
        )


async def main() -> None:
    registry = sk.SandboxRegistry()
    registry.register(UnshareBackend())

    try:
        await registry.active()
    except sk.EnforcementError as refused:
        print(refused)  # lists what the backend does not enforce
    else:
        raise AssertionError("every spec requires more than the network to be off")

    anything = frozenset(sk.Control)  # an application that wants the network off and no more
    async with registry.open(sk.SandboxSpec.read_only(allow_degraded=anything)) as box:
        result = await box.run(["ls", "/sys"])
        assert result.ok
        assert result.enforcement.grade(sk.Control.NET_NONE) >= sk.Grade.PARTIAL
        assert result.enforcement.grade(sk.Control.FS_WRITE) is sk.Grade.ABSENT


anyio.run(main)
