"""
The blocking door: the same calls for programs without an event loop.

    result = sandboxkit.sync.run("ls -la")

Every call is carried out by one event loop in a thread of its own, started when first
needed and shared by all threads of the process. So the calls work from any thread, and
also where an event loop of asyncio or trio is running; there they block that loop, so
prefer `await sandboxkit.run(...)`. An approver is asked on the loop of that thread: one
that needs the loop it was made on, while this call blocks it, is never answered, and
the command is refused when the approval times out.

Ctrl-C while a call waits ends the command and everything it started before
`KeyboardInterrupt` is raised. Inside `asyncio.run` the first Ctrl-C only marks the main
task for cancellation, so it takes effect when the call returns; the second one ends it.

In a forked child nothing of the parent is used: the first call there starts anew.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, final

from sandboxkit.process import shared_loop

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sandboxkit.backends import Sandbox as AsyncSandbox
    from sandboxkit.backends import SandboxRegistry
    from sandboxkit.egress import Ask, OnEvent
    from sandboxkit.learning import Lesson
    from sandboxkit.model import Approver, Enforcement, ExecResult, RouteResult, SandboxSpec
    from sandboxkit.policy import ExecPolicy
    from sandboxkit.process import Loop
    from sandboxkit.router import AutoSandboxRouter

__all__ = ["Sandbox", "open_sandbox", "route", "run"]


@final
class Sandbox:
    """
    An open box: commands run in it under one spec. From `open_sandbox`.
    """

    def __init__(self, box: AsyncSandbox, loop: Loop) -> None:
        self._box = box
        self._loop = loop

    @property
    def spec(self) -> SandboxSpec:
        """
        What the box may do.
        """
        return self._box.spec

    @property
    def enforcement(self) -> Enforcement:
        """
        What is enforced, as far as was verified.
        """
        return self._box.enforcement

    def run(
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
    ) -> ExecResult:
        """
        Runs *argv* to its end. No shell reads it. See `sandboxkit.Sandbox.run`; *ask* and
        *on_egress* are called from the loop's thread.

        Raises:
            ShutDownError: The interpreter is ending, or this process was forked after
                the box was opened.
        """
        # An older backend may not know what nobody asks for.
        options = {"explain": explain, "discard": discard, "ask": ask, "on_egress": on_egress}
        asked: dict[str, Any] = {name: wanted for name, wanted in options.items() if wanted}
        return self._loop.call(
            lambda: self._box.run(argv, stdin=stdin, cwd=cwd, timeout=timeout, environment=environment, **asked)
        )


@contextmanager
def open_sandbox(spec: SandboxSpec, *, registry: SandboxRegistry | None = None) -> Iterator[Sandbox]:
    """
    A box on the best backend; `sandboxkit.open_sandbox` for programs without an event
    loop. Leaving the context ends everything in it.

    Args:
        spec: The box.
        registry: The backends; None are the process's own.

    Raises:
        ShutDownError: The interpreter is ending.
    """
    from sandboxkit.router import open_sandbox as open_on_loop

    loop = shared_loop()
    with loop.entered(open_on_loop(spec, registry=registry)) as box:
        yield Sandbox(box, loop)


def learn_spec(
    command: str | Sequence[str],
    *,
    approver: Approver,
    base: SandboxSpec | None = None,
    cwd: str | os.PathLike[str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    max_runs: int = 50,
    policy: ExecPolicy | None = None,
    registry: SandboxRegistry | None = None,
    on_run: Callable[[int, ExecResult], object] | None = None,
) -> Lesson:
    """
    The smallest spec under which *command* exits with 0; `sandboxkit.learn_spec` for
    programs without an event loop. *on_run* is called from the loop's thread.

    Raises:
        ShutDownError: The interpreter is ending.
    """
    from sandboxkit.learning import learn_spec as learn_on_loop

    return shared_loop().call(
        lambda: learn_on_loop(
            command,
            approver=approver,
            base=base,
            cwd=cwd,
            stdin=stdin,
            timeout=timeout,
            max_runs=max_runs,
            policy=policy,
            registry=registry,
            on_run=on_run,
        )
    )


def route(
    command: str | Sequence[str],
    *,
    spec: SandboxSpec | None = None,
    router: AutoSandboxRouter | None = None,
    stdin: bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    explain: bool = False,
) -> RouteResult:
    """
    Runs *command* and says where it ran and why; `AutoSandboxRouter.route` for programs
    without an event loop.

    Raises:
        ShutDownError: The interpreter is ending.
    """
    from sandboxkit.router import default_router

    chosen = router if router is not None else default_router()
    return shared_loop().call(
        lambda: chosen.route(command, spec=spec, stdin=stdin, cwd=cwd, timeout=timeout, explain=explain)
    )


def run(
    command: str | Sequence[str],
    *,
    spec: SandboxSpec | None = None,
    router: AutoSandboxRouter | None = None,
    stdin: bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    explain: bool = False,
) -> ExecResult:
    """
    Runs *command*; `sandboxkit.run` for programs without an event loop.

    Arguments, results and exceptions are those of `sandboxkit.run`.

    Raises:
        ShutDownError: The interpreter is ending.
    """
    return route(command, spec=spec, router=router, stdin=stdin, cwd=cwd, timeout=timeout, explain=explain).result
