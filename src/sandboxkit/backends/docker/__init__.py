"""
Isolation in a container of Docker, or of Podman through its Docker interface.
"""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.backends._contract import Detection, Facts, SandboxBackend
from sandboxkit.backends.docker._address import WORDS, address, socket_path
from sandboxkit.backends.docker._enforcement import enforcement
from sandboxkit.backends.docker._engine import Engine
from sandboxkit.backends.docker._facts import DockerFacts, EngineName, PullPolicy, Settings, Workspace
from sandboxkit.backends.docker._labels import LABEL, is_left, maker
from sandboxkit.backends.docker._plan import launch_plan
from sandboxkit.errors import BackendError, BackendUnavailableError, MissingExtraError, SpecError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from sandboxkit.backends.docker._box import DockerSandbox
    from sandboxkit.backends.docker._detect import Seen
    from sandboxkit.backends.docker._plain import PlainSandbox
    from sandboxkit.model import Enforcement, ExecResult, Invocation, LaunchPlan, SandboxSpec

__all__ = ["ActiveContainer", "DockerBackend", "DockerFacts"]

_PREFIX = "sandboxkit-docker-"


@dataclass(frozen=True, slots=True)
class ActiveContainer:
    """
    A container this library made.

    Attributes:
        id: Its id.
        name: Its name.
        state: What the engine says of it: `created`, `running`, `exited`.
        pid: The process that made it, on its machine; None where the labels do not tell.
        is_left: Whether that process has ended, as far as it is one of this machine.
    """

    id: str
    name: str
    state: str
    pid: int | None
    is_left: bool


class DockerBackend(SandboxBackend):
    """
    The backend for machines with a container engine.

    Without *image* a box shows the host's system, as other backends do, in a container
    of its own; with one it shows that image's. Either way: no network unless the spec asks
    for it, a read-only root, no capabilities, no_new_privs, this library's seccomp allow-list,
    limits by control group, an unprivileged user, and nothing of the engine's socket.

    Whoever may use the engine is root on its machine. A caller that is root and hands in
    root's own directories gets a command with uid 0, without capabilities; `process.isolation`
    is partial then.

    Args:
        image: The image a box shows; None shows the host's system.
        pull: When the image is fetched from its registry: `never` (a missing one is an
            error that names it), `missing` or `always`.
        workspace: `bind` shows the named paths as they are; `copy` copies them into the
            container, where changes stay. Engines on other machines need the latter.
        runtime: The runtime that starts the container, for example `runsc`; None is the
            engine's default.
        host: The engine's address. None takes, for Docker: DOCKER_HOST, then the current context
            of the `docker` command, then the platform's own socket; for Podman: CONTAINER_HOST,
            then `$XDG_RUNTIME_DIR/podman/podman.sock`, then `/run/podman/podman.sock`.
        timeout: Seconds the engine may take for one call.
        engine: `docker` or `podman`, which is also the backend's name. Podman is spoken to by
            its Docker interface; where the other one answers, the backend is unavailable.

    Raises:
        ValueError: A value is none of those named.
    """

    def __init__(
        self,
        image: str | None = None,
        *,
        pull: PullPolicy = "never",
        workspace: Workspace = "bind",
        runtime: str | None = None,
        host: str | None = None,
        timeout: float = 20.0,
        engine: EngineName = "docker",
    ) -> None:
        if engine not in WORDS:
            raise ValueError(f"engine {engine!r}: use 'docker' or 'podman'")
        if pull not in ("never", "missing", "always"):
            raise ValueError(f"pull {pull!r}: use 'never', 'missing' or 'always'")
        if workspace not in ("bind", "copy"):
            raise ValueError(f"workspace {workspace!r}: use 'bind' or 'copy'")
        if not timeout > 0:
            raise ValueError(f"timeout {timeout}: give a positive number of seconds")
        if image is not None and not image.strip():
            raise ValueError("image: it is empty; name one, or leave it out for the host's system")
        self._settings = Settings(image, pull, workspace, runtime, host, timeout, engine)
        self._seen: Seen | None = None

    @property
    def name(self) -> EngineName:
        """
        `docker` or `podman`, the engine it was made for.
        """
        return self._settings.engine

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        """
        Whether an engine answers and has what was asked for. An image is looked into once, in
        containers that are removed; nothing else is made.
        """
        try:
            facts = await self._look()
        except BackendUnavailableError as exc:
            return Detection(False, exc.reason, exc.remedy)
        except MissingExtraError:
            return Detection(False, "the docker SDK is not installed", "pip install 'sandboxkit[docker]'")
        reason = f"{facts.engine} {facts.version} at {facts.host}, runtime {facts.runtime}"
        if spec is None:
            return Detection(True, reason, "", facts, _warnings(facts))
        from sandboxkit.backends._journal import finish_others

        finish_others()  # what they left would be taken for the user's own
        return Detection(True, reason, "", facts.surveyed(spec), _warnings(facts))

    async def _look(self) -> DockerFacts:
        if sys.platform == "win32":
            raise BackendUnavailableError(
                self.name, "the stream to a container needs a POSIX system in this version", "run this program in WSL 2"
            )
        host = self._address()
        if _is_no_socket(host):
            # Answered without the SDK, whose import takes as long as a whole box.
            raise BackendUnavailableError(self.name, f"{host}: no engine listens there", WORDS[self.name].start)
        from sandboxkit.backends.docker._detect import Seen, look

        self._seen = self._seen or Seen()
        engine = self._engine(host)
        try:
            return await look(engine, self._settings, self._seen)
        finally:
            engine.close()

    def _address(self) -> str:
        return address(self.name, self._settings.host)

    def _engine(self, host: str) -> Engine:
        return Engine(self.name, host, self._settings.timeout)

    def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
        """
        What it would enforce for *spec*; a box then reads back what is in force.
        """
        return enforcement(spec, _own(facts))

    def plan(self, invocation: Invocation, spec: SandboxSpec, facts: Facts) -> LaunchPlan:
        """
        How it would start *invocation*, as the nearest command line of `docker`.
        """
        return launch_plan(invocation, spec, _own(facts))

    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[DockerSandbox | PlainSandbox]:
        """
        A box under *spec*.

        Raises:
            BackendUnavailableError: There is no engine, or it went away.
            EnforcementError: It would hold less than *spec* requires.
            SetupError: The engine refused the container.
        """
        async with self.open_detected(spec, await self.detect(spec)) as box:
            yield box

    @asynccontextmanager
    async def open_detected(
        self, spec: SandboxSpec, detection: Detection
    ) -> AsyncIterator[DockerSandbox | PlainSandbox]:
        """
        A box under *spec*, on what `detect(spec)` has just found.

        Raises:
            BackendUnavailableError: There is no engine, or it went away.
            EnforcementError: It would hold less than *spec* requires.
            SetupError: The engine refused the container.
        """
        if not detection.available:
            raise BackendUnavailableError(self.name, detection.reason, detection.remedy)
        from sandboxkit.backends._temporary import temporary_directory
        from sandboxkit.backends.docker._box import DockerSandbox
        from sandboxkit.backends.docker._detect import own_image
        from sandboxkit.backends.docker._plain import PlainSandbox
        from sandboxkit.backends.docker._scratch import make_covers

        facts = _own(detection.facts)
        engine = self._engine(facts.host)
        try:
            image = facts.image or await own_image(engine, facts.survey.links if facts.survey else ())
            with temporary_directory(_PREFIX) as scratch:
                make_covers(scratch, spec, facts)
                box: DockerSandbox | PlainSandbox
                if facts.supervisor == "python":
                    box = DockerSandbox(engine, spec, facts, image, scratch)
                else:
                    box = PlainSandbox(engine, spec, facts, scratch)
                try:
                    await box.ready()
                    yield box
                finally:
                    await box.close()
        finally:
            engine.close()

    # -- by the names of other libraries -------------------------------------------

    async def is_available(self) -> bool:
        """
        Whether an engine answers.
        """
        return (await self.detect()).available

    async def execute(
        self,
        argv: Sequence[str],
        *,
        spec: SandboxSpec,
        stdin: bytes | None = None,
        cwd: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline is part of the result, not an exception
        environment: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """
        Runs *argv* in a box of its own; see `Sandbox.run`.
        """
        async with self.open(spec) as box:
            return await box.run(argv, stdin=stdin, cwd=cwd, timeout=timeout, environment=environment)

    async def stream(self, argv: Sequence[str], *, spec: SandboxSpec, cwd: str | None = None) -> AsyncIterator[bytes]:
        """
        What *argv* writes to stdout in a box of its own, as it comes.

        Raises:
            CommandFailedError: It did not exit with code 0.
        """
        import anyio

        async with self.open(spec) as box, box.start(argv, cwd=cwd, stderr=None) as process:
            while process.stdout is not None:
                try:
                    yield await process.stdout.receive()
                except anyio.EndOfStream:
                    break
            (await process.wait()).check()

    async def list_active(self) -> tuple[ActiveContainer, ...]:
        """
        The containers this library has on the engine, whoever made them.

        Raises:
            BackendUnavailableError: There is no engine.
        """
        async with self._connected() as engine:
            rows = await engine.call(
                "list containers", lambda client: client.containers(all=True, filters={"label": LABEL})
            )
        return tuple(
            ActiveContainer(
                id=row["Id"],
                name=row["Names"][0].lstrip("/"),
                state=row["State"],
                pid=maker(row["Labels"]),
                is_left=is_left(row["Labels"]),
            )
            for row in rows
        )

    async def kill(self, container: str) -> bool:
        """
        Ends and removes a container by its id or name; False where there is none.

        Raises:
            BackendError: It is none of this library's.
        """
        from sandboxkit.backends.docker._container import remove

        found = [row for row in await self.list_active() if container == row.name or row.id.startswith(container)]
        async with self._connected() as engine:
            if len(found) == 1:
                return await remove(engine, found[0].id)
            from sandboxkit.backends.docker._container import gone

            if found or not await engine.call("look for a container", lambda client: gone(client, container)):
                raise BackendError(
                    f"{container!r} names no container of this library's alone; list_active() gives them"
                )
        return False

    async def prune(self) -> tuple[str, ...]:
        """
        Removes the containers whose application has ended, and only those it made on this
        machine. Returns their ids.

        Raises:
            BackendUnavailableError: There is no engine.
        """
        from sandboxkit.backends.docker._container import remove

        left = [row.id for row in await self.list_active() if row.is_left]
        async with self._connected() as engine:
            return tuple([ident for ident in left if await remove(engine, ident)])

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Engine]:
        engine = self._engine(self._address())
        try:
            yield engine
        finally:
            engine.close()


def _is_no_socket(host: str) -> bool:
    path = socket_path(host)
    return bool(path) and not os.path.exists(path)


def _own(facts: Facts) -> DockerFacts:
    if not isinstance(facts, DockerFacts):
        raise SpecError("these facts are another backend's; use those of DockerBackend.detect()")
    return facts


def _warnings(facts: DockerFacts) -> tuple[str, ...]:
    found = []
    if not facts.is_rootless:
        found.append("whoever may use this engine is root on its machine; keep its socket out of every box")
    if not facts.has_seccomp:
        found.append("the engine applies no seccomp profile")
    return tuple(found)
