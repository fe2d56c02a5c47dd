"""
`sandboxkit demo`: what is allowed, boxed and refused, shown and checked.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from sandboxkit.cli._exit import Exit
from sandboxkit.cli._output import enforcement_table, say, shortened, table
from sandboxkit.errors import CommandDeniedError, LaunchError
from sandboxkit.model import Control, Limits, PolicyAction, SandboxSpec, Termination
from sandboxkit.policy import ExecPolicy
from sandboxkit.router import AutoSandboxRouter

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Iterator

    from sandboxkit.cli._report import Report
    from sandboxkit.model import Enforcement, ExecResult

__all__ = ["demo"]

_LOCALHOST = "127.0.0.1"
_MEMORY = 64 << 20
_WIDTH = 44


@dataclass(frozen=True, slots=True)
class _Scene:
    """
    A command, and what must be true of it.

    Attributes:
        shows: What it is there to show.
        command: The command.
        action: What the policy must decide.
        spec: Its box; None takes the router's own.
        timeout: Seconds.
        holds: Whether what came back is as it must be; None where nothing may start.
    """

    shows: str
    command: str
    action: PolicyAction
    spec: SandboxSpec | None = None
    timeout: float | None = None
    holds: Callable[[ExecResult], bool] | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """
    How a scene went.
    """

    shows: str
    command: str
    decision: str
    where: str
    outcome: str
    held: bool


def demo(_options: argparse.Namespace, report: Report) -> int:
    """
    Plays every scene, prints a row for each, and ends with what was enforced.
    """
    with _stage() as stage:
        rows, backend, enforcement = anyio.run(_played, stage)
    has_held = all(row.held for row in rows)
    if not report.is_json:
        cells = [
            (
                row.shows,
                shortened(row.command, _WIDTH),
                row.decision,
                row.where,
                row.outcome,
                "yes" if row.held else "NO",
            )
            for row in rows
        ]
        say(table(("shows", "command", "decision", "ran in", "outcome", "as it must be"), cells))
        say(f"\nwhat {backend} enforced\n\n{enforcement_table(enforcement)}")
        say("\neverything held" if has_held else "\nsomething that must hold did not: see the rows with NO")
    fields = {"rows": [asdict(row) for row in rows], "backend": backend, "enforcement": enforcement.to_dict()}
    return report.done(Exit.DONE if has_held else Exit.FOUND_WANTING, "done" if has_held else "found_wanting", fields)


@contextlib.contextmanager
def _stage() -> Iterator[Path]:
    """
    A directory of its own, with a workspace in it and a place outside of that.
    """
    with tempfile.TemporaryDirectory(prefix="sandboxkit-demo-") as name:
        stage = Path(os.path.realpath(name))
        (stage / "workspace").mkdir()
        (stage / "outside").mkdir()
        (stage / "workspace" / "home.sh").write_text("cat ~/.* ~/*\n", encoding="utf-8")
        (stage / "workspace" / "fill.sh").write_text(
            "text=$(head -c 1000000000 /dev/zero | tr '\\0' x)\necho \"took ${#text} bytes\"\n"
        )
        yield stage


async def _played(stage: Path) -> tuple[list[_Row], str, Enforcement]:
    router, workspace = AutoSandboxRouter(policy=ExecPolicy.default()), stage / "workspace"
    played: list[tuple[_Row, ExecResult | None]] = []
    failure: Exception | None = None
    async with _listener() as listener:
        (workspace / "connect.sh").write_text(
            f"exec 3<>/dev/tcp/{_LOCALHOST}/{listener.port} || exit 1\necho connected\n"
        )
        scenes = _scenes(stage, listener)
        try:
            played = [await _play(scene, router, str(workspace)) for scene in scenes]
        except Exception as exc:  # noqa: BLE001 - raised again outside of the listener's tasks, which would wrap it
            failure = exc
    if failure:
        raise failure
    result = next(result for _, result in played if result and result.backend != "direct")
    return [row for row, _ in played], result.backend, result.enforcement


def _scenes(stage: Path, listener: _Listener) -> tuple[_Scene, ...]:
    workspace = stage / "workspace"
    box = SandboxSpec.workspace_write(workspace)
    small = SandboxSpec.workspace_write(
        workspace, limits=Limits(memory_bytes=_MEMORY), allow_degraded=frozenset({Control.LIMITS_MEMORY})
    )
    boxed = PolicyAction.SANDBOX
    return (
        _Scene("a harmless tool needs no box", "ls", PolicyAction.ALLOW, holds=lambda r: r.ok),
        _Scene(
            "the workspace can be written", "echo hello > note.txt && cat note.txt", boxed, box,
            holds=lambda r: r.ok and (workspace / "note.txt").is_file(),
        ),
        _Scene(
            "nothing outside of it can", f"cp note.txt {stage}/outside/", boxed, box,
            holds=lambda r: not r.ok and not os.listdir(stage / "outside"),
        ),
        _Scene(
            "the home is hidden", "bash home.sh", boxed, box,
            holds=lambda r: not r.ok and _is_git_identity(r.stdout),
        ),
        _Scene(
            "the network is off", "bash connect.sh", boxed, box,
            holds=lambda r: not r.ok and b"connected" not in r.stdout and not listener.was_reached,
        ),
        _Scene("destruction is denied", "rm -rf /", PolicyAction.DENY),
        _Scene("publishing needs approval", "git push --force", PolicyAction.ASK),
        _Scene(
            "memory is limited", "bash fill.sh", boxed, small,
            holds=lambda r: not r.ok and b"took" not in r.stdout,
        ),
        _Scene(
            "time is limited", "sleep 60", PolicyAction.ALLOW, box, timeout=0.5,
            holds=lambda r: r.termination is Termination.TIMED_OUT,
        ),
    )  # fmt: skip


def _is_git_identity(shown: bytes) -> bool:
    """
    Whether *shown* has nothing but the name git knows the user by, which a box gets.
    """
    return all(line.startswith((b"[user]", b"\tname", b"\temail")) for line in shown.splitlines())


async def _play(scene: _Scene, router: AutoSandboxRouter, cwd: str) -> tuple[_Row, ExecResult | None]:
    action = router.evaluate(scene.command, spec=scene.spec, cwd=cwd).action
    decision, is_as_said = str(action), action is scene.action

    def row(where: str, outcome: str, *, held: bool) -> _Row:
        return _Row(scene.shows, scene.command, decision, where, outcome, held and is_as_said)

    if scene.holds is None and not is_as_said:  # it is not tried out what would happen
        return row("-", f"the policy says {decision}", held=False), None
    try:
        routed = await router.route(scene.command, spec=scene.spec, cwd=cwd, timeout=scene.timeout)
    except CommandDeniedError:
        return row("-", "refused, nothing was started", held=scene.holds is None), None
    except LaunchError as exc:
        return row("-", f"not started: {exc}", held=False), None
    result = routed.result
    held = scene.holds is not None and scene.holds(result)
    where = routed.mode if routed.mode != "sandbox" else routed.backend
    return row(where, _outcome(result), held=held), result


def _outcome(result: ExecResult) -> str:
    said = (result.text("stderr") if not result.ok else result.text()).strip().splitlines()
    return result.outcome + (f": {shortened(said[-1], _WIDTH)}" if said else "")


class _Listener:
    """
    Something on this machine that would answer.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections = 0

    async def answer(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        await stream.aclose()

    @property
    def was_reached(self) -> bool:
        return self.connections > 1  # the first one is the demo's own, which proves that it answers


@contextlib.asynccontextmanager
async def _listener() -> AsyncIterator[_Listener]:
    async with await anyio.create_tcp_listener(local_host=_LOCALHOST) as server, anyio.create_task_group() as tasks:
        listener = _Listener(server.extra(anyio.abc.SocketAttribute.local_port))
        tasks.start_soon(server.serve, listener.answer)
        async with await anyio.connect_tcp(_LOCALHOST, listener.port) as stream:
            with contextlib.suppress(anyio.EndOfStream):
                await stream.receive(1)
        yield listener
        tasks.cancel_scope.cancel()
