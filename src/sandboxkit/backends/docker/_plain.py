"""
A box of an image without Python: each command is a container of its own.

Where the image has a shell, that is the first process, holds the deadline and ends what is
left; a first container says what is really in force. Where it has none, the command itself is
the first process, and nothing can be read back.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import anyio

from sandboxkit.backends._aftermath import Aftermath
from sandboxkit.backends._contract import Sandbox
from sandboxkit.backends._given import checked_variables, checked_words
from sandboxkit.backends.docker._container import Container
from sandboxkit.backends.docker._enforcement import enforcement
from sandboxkit.backends.docker._labels import own_labels
from sandboxkit.backends.docker._plan import container, order
from sandboxkit.backends.docker._readback import held, misplaced, too_many_cpus
from sandboxkit.backends.docker._replies import checked_report
from sandboxkit.backends.docker._scratch import make_ways
from sandboxkit.errors import BackendError, BackendUnavailableError, BrokerError, EnforcementError, SetupError
from sandboxkit.model import Control, ExecResult, Grade, Invocation, Termination

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandboxkit.backends.docker._engine import Engine
    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.egress import Ask, OnEvent
    from sandboxkit.model import Enforcement, SandboxSpec

__all__ = ["SUPERVISOR", "PlainSandbox"]

SUPERVISOR: Final = """
seconds=$1; shift
exec 3<&0
"$@" <&3 3<&- &
child=$!
exec 3<&- </dev/null
[ "$seconds" = 0 ] || { sleep "$seconds"; kill -9 -1; } >/dev/null 2>&1 &
wait $child
exit $?
"""
"""
POSIX sh. When it ends, the kernel ends the container; what it ends it cannot miss.
"""
_REPORT: Final = r"""
cat /proc/1/status
echo "Kernel: $(cat /proc/sys/kernel/osrelease)"
echo "[interfaces]"; cat /proc/net/dev
echo "[limits]"
for name in memory.max memory/memory.limit_in_bytes memory.swap.max memory/memory.memsw.limit_in_bytes \
    pids.max pids/pids.max cpu.max cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us cgroup.controllers; do
    [ -r "/sys/fs/cgroup/$name" ] && echo "$name $(cat "/sys/fs/cgroup/$name")"
done
echo "[places]"
mounts=$(cat /proc/self/mountinfo)
for path in "$@"; do
    case "$path" in *[\\\ ]*) ;; *) case "$mounts" in *" $path "*) ;; *) echo none; continue ;; esac ;; esac
    stat -c '%d:%i' "$path" || echo none
done
"""
_OUTSIDE_GRACE = 5.0
_KILL_FACTOR, _KILL_FLOOR = 16, 1 << 20
_STDOUT, _STDERR = 1, 2
_PODMAN_MOST = 20_000
"""Its service lowers what it may have itself, to what pid_max is for processes."""


class PlainSandbox(Sandbox):
    """
    A box without an agent. It cannot stream, and tells a signal that ended a command only
    by an exit code above 128, as a shell does.

    Args:
        engine: The engine.
        spec: What the box may do.
        facts: From `detect(spec)`.
        scratch: A directory of the box's own on the host.
    """

    def __init__(self, engine: Engine, spec: SandboxSpec, facts: DockerFacts, scratch: str) -> None:
        self._engine = engine
        self._spec = spec
        self._facts = facts
        self._scratch = scratch
        self._enforcement = enforcement(spec, facts)
        self._is_closed = False

    @property
    def spec(self) -> SandboxSpec:
        """
        What the box may do.
        """
        return self._spec

    @property
    def enforcement(self) -> Enforcement:
        """
        What is enforced, as read back where the image has a shell.
        """
        return self._enforcement

    @property
    def containers(self) -> tuple[str, ...]:
        """
        None: each command's goes with it.
        """
        return ()

    def _no_streams(self) -> str:
        image = self._facts.settings.image
        return f": the image {image!r} has no python3, which would carry the streams, so use one that has it"

    async def close(self) -> None:
        """
        Lets no further command start.
        """
        self._is_closed = True

    async def ready(self) -> None:
        """
        Reads back what is in force, in a container like those of the commands.

        Raises:
            EnforcementError: It is less than the spec requires.
            SetupError: The engine sees other files than this machine.
        """
        if self._facts.supervisor == "sh":
            await self._read_back()
        else:
            for control in (Control.LIMITS_MEMORY, Control.LIMITS_PROCESSES, Control.SYSCALLS):
                reason = "asked for and not read back: the image has no shell"
                self._enforcement = self._enforcement.lowered(control, Grade.PARTIAL, reason)
        if missing := self._enforcement.missing(self._spec.requirements()):
            raise EnforcementError(
                {self._engine.name: f"{'; '.join(missing)}; list in allow_degraded what may hold less well"}
            )

    async def _read_back(self) -> None:
        paths = tuple(self._facts.places or {})
        result = await self.run(["/bin/sh", "-c", _REPORT, "sh", *paths], timeout=self._engine.timeout, environment={})
        if not result.ok:
            raise SetupError(self._engine.name, f"what is in force could not be read: {result.text('stderr')[-300:]}")
        try:
            report = checked_report(_parsed(result.text()), len(paths))
        except ValueError as exc:
            raise SetupError(
                self._engine.name, f"what is in force could not be read: {exc}; use an image whose /bin/sh is known"
            ) from exc
        if wrong := misplaced(self._facts, paths, report):
            raise SetupError(self._engine.name, f"{', '.join(map(repr, wrong))}: the engine sees something else there")
        if wrong_number := too_many_cpus(self._facts, report):
            raise SetupError(self._engine.name, f"{wrong_number}; use another engine or runtime, or leave cpus out")
        self._enforcement = held(self._enforcement, self._spec, self._facts, report)

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline is part of the result, not an exception
        environment: Mapping[str, str] | None = None,
        explain: bool = False,
        discard: bool = False,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
    ) -> ExecResult:
        """
        Runs *argv* to its end; see `Sandbox.run`. A program that does not exist is an exit
        code of 127 where the image has a shell.

        Raises:
            BackendError: The box was closed, or *discard* was asked for.
            SetupError: The engine refused the container.
        """
        if self._is_closed:
            raise BackendError("this box is closed; open another for more commands")
        if discard:
            raise BackendError(
                f"{self._engine.name} cannot discard what a command writes to a bound directory; use another backend"
            )
        words, variables = checked_words(argv), self._passed(environment)
        facts = self._facts.surveyed(self._spec)
        bound = self._spec.timeout(timeout)
        watched = facts.survey.watched if facts.survey else ()
        aftermath = Aftermath(self._spec.filesystem, facts.survey, watched, mounts=True)
        try:
            config = self._config(Invocation(words, variables, cwd), facts, bound)
            ended = await self._followed(config, stdin or b"", bound)
        finally:
            found = aftermath.settle()
        return ExecResult(
            **ended,
            backend=self._engine.name,
            enforcement=aftermath.lowered(self._enforcement),
            violations=found,
            explain_gap="a container engine tells nothing of refused calls" if explain else "",
        )

    def _passed(self, environment: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
        passed = self._spec.environment.apply(os.environ) if environment is None else checked_variables(environment)
        return tuple(passed.items())

    def _config(self, invocation: Invocation, facts: DockerFacts, bound: float | None) -> dict[str, Any]:
        told = order(invocation, self._spec, facts, bound)
        seconds = "0" if bound is None else f"{bound:.3f}"
        words = tuple(told["argv"])
        if facts.supervisor == "sh":
            words = ("/bin/sh", "-c", SUPERVISOR, "sh", seconds, *words)
        make_ways(self._scratch, self._spec, facts)
        config = container(
            self._spec, facts, image=facts.image, labels=own_labels(), scratch=self._scratch, command=words
        )
        config["Env"] = [f"{name}={text}" for name, text in told["environment"]]
        config["WorkingDir"] = told["cwd"]
        config["HostConfig"]["AutoRemove"] = False  # how it ended is read first
        config["HostConfig"]["Ulimits"] = _ulimits(self._spec, facts)
        return config

    async def _followed(self, config: dict[str, Any], stdin: bytes, bound: float | None) -> dict[str, Any]:
        made = await Container.start(self._engine, config)
        started = time.monotonic()
        kept = _Output(self._spec.limits.max_output_bytes)
        try:
            with anyio.move_on_after(None if bound is None else bound + _OUTSIDE_GRACE) as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(made.feed, stdin)
                    await made.session.follow(kept.put)
                    tasks.cancel_scope.cancel()
            if made.session.fault:
                raise BrokerError(f"{self._engine.name}: {made.session.fault}")
            state = {} if scope.cancelled_caught or kept.is_flood else await made.state()
        finally:
            await made.close()
        duration = time.monotonic() - started
        is_late = scope.cancelled_caught or (bound is not None and duration >= bound)
        termination = _termination(self._engine.name, state, is_late=is_late, is_flood=kept.is_flood)
        is_by_us = termination in (Termination.TIMED_OUT, Termination.OUTPUT_LIMIT)
        return {
            "exit_code": None if is_by_us else state.get("ExitCode"),
            "signal": None,
            "termination": termination,
            "stdout": kept.content(_STDOUT),
            "stderr": kept.content(_STDERR),
            "truncated": kept.is_truncated,
            "duration_s": duration,
        }


def _termination(engine: str, state: Mapping[str, Any], *, is_late: bool, is_flood: bool) -> Termination:
    if is_flood:
        return Termination.OUTPUT_LIMIT
    if is_late and state.get("ExitCode") != 0:
        return Termination.TIMED_OUT
    if not state:
        raise BackendUnavailableError(
            engine, "the engine went away during the run", "start it again, and repeat the command"
        )
    return Termination.MEMORY_LIMIT if state.get("OOMKilled") and state.get("ExitCode") else Termination.EXITED


def _ulimits(spec: SandboxSpec, facts: DockerFacts) -> list[dict[str, Any]]:
    """
    Limits of one process that the engine sets: those below what it has itself.

    Podman takes these for all there are, and adds its own for descriptors and processes, which
    may be more than it can give; so these are said too, as this application has them.
    """
    limits = spec.limits
    wanted = {"fsize": limits.file_size_bytes, "cpu": limits.cpu and max(1, round(limits.cpu)), "core": 0}
    if facts.engine == "podman" and sys.platform != "win32":
        import resource

        own = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
        wanted |= {name: min(resource.getrlimit(what)[1], _PODMAN_MOST) for name, what in own.items()}
    return [{"Name": name, "Soft": int(most), "Hard": int(most)} for name, most in wanted.items() if most is not None]


class _Output:
    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._chunks: dict[int, list[bytes]] = {_STDOUT: [], _STDERR: []}
        self._kept = {_STDOUT: 0, _STDERR: 0}
        self._seen = {_STDOUT: 0, _STDERR: 0}

    def put(self, kind: int, data: bytes) -> bool:
        """
        Keeps what is to be kept of *data*; whether more is wanted.
        """
        self._seen[kind] += len(data)
        self._chunks[kind].append(data[: self._keep - self._kept[kind]])
        self._kept[kind] += len(self._chunks[kind][-1])
        return not self.is_flood

    def content(self, kind: int) -> bytes:
        return b"".join(self._chunks[kind])

    @property
    def is_flood(self) -> bool:
        return max(self._seen.values()) > max(self._keep * _KILL_FACTOR, _KILL_FLOOR)

    @property
    def is_truncated(self) -> bool:
        return self._seen != self._kept


def _parsed(text: str) -> dict[str, Any]:
    """
    What `_REPORT` printed, in the form of the agent's report.
    """
    status, _, rest = text.partition("[interfaces]\n")
    devices, _, rest = rest.partition("[limits]\n")
    limits, _, places = rest.partition("[places]\n")
    field = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    bounds = dict(line.split(" ", 1) for line in limits.splitlines() if " " in line)

    def bound(*names: str) -> int | None:
        word = next((bounds[name] for name in names if name in bounds), "")
        return int(word) if word.isdigit() else None

    return {
        **{name: field.get(name, "").strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")},
        "kernel": field.get("Kernel", "").strip(),
        "pid": int(field.get("Pid", "0")),
        "interfaces": [line.split(":")[0].strip() for line in devices.splitlines()[2:]],
        "memory": bound("memory.max", "memory/memory.limit_in_bytes"),
        "swap": bound("memory.swap.max", "memory/memory.memsw.limit_in_bytes"),
        "is_v2": "cgroup.controllers" in bounds,
        "processes": bound("pids.max", "pids/pids.max"),
        "cpus": _quota(bounds),
        "counts_cpu": False,
        "rootfs": False,
        "places": [[int(part) for part in row.split(":")] if ":" in row else None for row in places.splitlines()],
    }


def _quota(bounds: Mapping[str, str]) -> float | None:
    """
    Processors the container may use, or None for no bound.
    """
    words = bounds.get("cpu.max", "").split()
    words = words or [bounds.get(f"cpu/cpu.cfs_{name}_us", "") for name in ("quota", "period")]
    most, period = (int(word) if word.isdigit() else 0 for word in words)
    return most / period if most and period else None
