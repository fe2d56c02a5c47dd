"""
Isolation in a container of Docker, or of Podman through its Docker interface.
"""

from __future__ import annotations

import math
import os
import re
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.backends._contract import Detection, Facts, SandboxBackend
from sandboxkit.backends._outward import Outward
from sandboxkit.backends.docker._endpoint import endpoint
from sandboxkit.backends.docker._enforcement import enforcement
from sandboxkit.backends.docker._engine import connected
from sandboxkit.backends.docker._facts import DockerFacts, EngineName, PullPolicy, Settings, Workspace
from sandboxkit.backends.docker._labels import LABEL, is_left, is_own_name, maker
from sandboxkit.backends.docker._plan import launch_plan
from sandboxkit.backends.docker._words import WORDS, socket_path
from sandboxkit.errors import BackendError, BackendUnavailableError, MissingExtraError, SpecError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from docker import APIClient

    from sandboxkit.backends.docker._box import DockerSandbox
    from sandboxkit.backends.docker._detect import Seen
    from sandboxkit.backends.docker._endpoint import Endpoint
    from sandboxkit.backends.docker._engine import Engine
    from sandboxkit.backends.docker._plain import PlainSandbox
    from sandboxkit.egress import Resolver
    from sandboxkit.model import Enforcement, ExecResult, Invocation, LaunchPlan, SandboxSpec
    from sandboxkit.secrets import SecretRegistry

__all__ = ["ActiveContainer", "DockerBackend", "DockerFacts"]

_FEWEST_CPUS = 0.01
_SHORT_ID = 12
_RUNNING = ("running", "paused")
_IMAGE = re.compile(r"[A-Za-z0-9]+(?:(?:[._-]+|[:@/]_*)[A-Za-z0-9]+)*[._-]*")
"""
Where it becomes a part of an address, it leads nowhere else. Source: distribution/reference.
"""
_KNOWN_SECONDS = 10.0
"""
How long what an engine offers is taken for known. A box reads back what is in force, so
what has changed meanwhile is seen there.
"""


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
            container, where changes stay. Engines reached by tcp or ssh need the latter:
            they do not have this machine's files.
        runtime: The runtime that starts the container, for example `runsc`; None is the
            engine's default.
        host: The engine's address, for example `unix:///run/docker.sock`, `ssh://machine`
            or `tcp://machine:2376`, the last with TLS by DOCKER_CERT_PATH. None takes, for
            Docker: DOCKER_HOST, then the current context of the `docker` command, then the
            platform's own socket; for Podman: CONTAINER_HOST, then
            `$XDG_RUNTIME_DIR/podman/podman.sock`, then `/run/podman/podman.sock`.
        timeout: Seconds the engine may take for one call.
        cpus: Processors a container may use at one time, for example 1.5, at least 0.01; None
            is all there are. `limits.cpu` of a spec is another matter: seconds in all.
        engine: `docker` or `podman`, which is also the backend's name. Podman is spoken to by
            its Docker interface; where the other one answers, the backend is unavailable.
        resolver: The name service for boxes whose spec lists hosts; the machine's own by default.
        secrets: The values of what specs inject; each goes only to the hosts it was
            registered for.
        ssl_context: Verifies the real hosts where a spec looks into TLS; by default with the
            certificate authorities of the system.

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
        cpus: float | None = None,
        engine: EngineName = "docker",
        resolver: Resolver | None = None,
        secrets: SecretRegistry | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if engine not in WORDS:
            raise ValueError(f"engine {engine!r}: use 'docker' or 'podman'")
        if pull not in ("never", "missing", "always"):
            raise ValueError(f"pull {pull!r}: use 'never', 'missing' or 'always'")
        if workspace not in ("bind", "copy"):
            raise ValueError(f"workspace {workspace!r}: use 'bind' or 'copy'")
        if not timeout > 0:
            raise ValueError(f"timeout {timeout}: give a positive number of seconds")
        if cpus is not None and not _FEWEST_CPUS <= cpus < math.inf:
            raise ValueError(f"cpus {cpus}: give a number of processors, at least {_FEWEST_CPUS}")
        if image is not None and not _IMAGE.fullmatch(image):
            raise ValueError(
                f"image {image!r}: it is no name of an image; write NAME, NAME:TAG, NAME@DIGEST or an id, or leave it out "
                "for the host's system"
            )
        self._settings = Settings(image, pull, workspace, runtime, host, timeout, cpus, engine)
        self._outward = Outward(resolver, secrets, ssl_context)
        self._seen: Seen | None = None
        self._known: tuple[float, DockerFacts] | None = None
        self._own_images: dict[tuple[Endpoint, tuple[tuple[str, str], ...]], str] = {}

    @property
    def name(self) -> str:
        """
        `docker` or `podman`, the engine it was made for.
        """
        return self._settings.engine

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        """
        Whether an engine answers and has what was asked for. An image is looked into once, in
        containers that are removed; nothing else is made. With a *spec*, what was found in
        the last ten seconds is taken for true.
        """
        try:
            facts = await self._look(is_fresh=spec is None)
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

    async def _look(self, *, is_fresh: bool) -> DockerFacts:
        where = endpoint(self._settings.host, self._settings.engine)
        if _is_no_socket(where.host):
            # Answered without the SDK, whose import takes as long as a whole box.
            raise BackendUnavailableError(
                self.name, f"{where.host}: no engine listens there", WORDS[self._settings.engine].start
            )
        if self._known and not is_fresh:
            since, facts = self._known
            if facts.where == where and time.monotonic() < since + _KNOWN_SECONDS:
                return facts
        from sandboxkit.backends.docker._detect import Seen, look

        self._seen = self._seen or Seen()
        async with connected(self._settings.engine, where, self._settings.timeout) as engine:
            facts = await look(engine, self._settings, self._seen)
        self._known = (time.monotonic(), facts)
        return facts

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
        from sandboxkit.backends.docker._box import DockerSandbox
        from sandboxkit.backends.docker._plain import PlainSandbox
        from sandboxkit.backends.docker._scratch import scratch_directory

        facts = _own(detection.facts)
        async with connected(self._settings.engine, facts.where, self._settings.timeout, facts.api) as engine:
            with scratch_directory(spec, facts) as scratch:
                box: DockerSandbox | PlainSandbox
                if facts.supervisor == "python":
                    image = await self._image(engine, facts)
                    box = DockerSandbox(engine, spec, facts, image, scratch, outward=self._outward)
                else:
                    box = PlainSandbox(engine, spec, facts, scratch)
                try:
                    await self._made_ready(box)
                    yield box
                finally:
                    await box.close()

    async def _image(self, engine: Engine, facts: DockerFacts) -> str:
        """
        The named image's id, or that of the empty one, which is looked for once.
        """
        if facts.image or facts.survey is None:
            return facts.image
        from sandboxkit.backends.docker._detect import own_image

        key = (engine.where, facts.survey.links)
        if key not in self._own_images:
            self._own_images[key] = await own_image(engine, facts.survey.links)
        return self._own_images[key]

    async def _made_ready(self, box: DockerSandbox | PlainSandbox) -> None:
        try:
            await box.ready()
        except BackendError:
            self._known = None  # the next look is at the engine itself
            self._own_images.clear()
            raise

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
            return await engine.call("list containers", _active)

    async def kill(self, container: str) -> bool:
        """
        Ends and removes a container by its id or name; False where there is none.

        Raises:
            BackendError: It is none of this library's.
        """
        from sandboxkit.backends.docker._container import remove

        found = [row for row in await self.list_active() if _is_meant(row, container)]
        async with self._connected() as engine:
            if len(found) == 1:
                return await remove(engine, found[0].id)
            from sandboxkit.backends.docker._container import gone

            if (
                not container
                or found
                or not await engine.call("look for a container", lambda client: gone(client, container))
            ):
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

    def _connected(self) -> AbstractAsyncContextManager[Engine]:
        return connected(
            self._settings.engine, endpoint(self._settings.host, self._settings.engine), self._settings.timeout
        )


def _active(client: APIClient) -> tuple[ActiveContainer, ...]:
    rows = client.containers(all=True, filters={"label": LABEL})
    named = [(row, name.lstrip("/")) for row in rows for name in (row.get("Names") or ())[:1]]
    return tuple(
        ActiveContainer(
            id=row["Id"],
            name=name,
            state=row["State"],
            pid=maker(row["Labels"]),
            is_left=is_left(row["Labels"], is_running=row["State"] in _RUNNING),
        )
        for row, name in named
        if is_own_name(name)
    )


def _is_meant(row: ActiveContainer, container: str) -> bool:
    """
    Whether *container* is its name, its id, or the short form of that.
    """
    return container == row.name or (len(container) >= _SHORT_ID and row.id.startswith(container))


def _is_no_socket(host: str) -> bool:
    path = socket_path(host)
    return bool(path) and not os.path.exists(path)


def _own(facts: Facts) -> DockerFacts:
    if not isinstance(facts, DockerFacts):
        raise SpecError("these facts are another backend's; use those of DockerBackend.detect()")
    return facts


def _warnings(facts: DockerFacts) -> tuple[str, ...]:
    found = []
    if facts.where.is_open:
        found.append("anybody on the way to this engine can read and change what is said, as it is reached without TLS")
    if not facts.is_rootless:
        found.append("whoever may use this engine is root on its machine; keep its socket out of every box")
    if not facts.has_seccomp:
        found.append("the engine applies no seccomp profile")
    return tuple(found)
