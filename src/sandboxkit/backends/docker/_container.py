"""
One container of a box, from its making until nothing is left of it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import anyio

from sandboxkit.backends.docker._alone import turn
from sandboxkit.backends.docker._labels import new_name
from sandboxkit.backends.docker._session import Session
from sandboxkit.errors import BackendUnavailableError, BrokerError, SetupError
from sandboxkit.process import PipeReader, PipeWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO

    from docker import APIClient
    from docker.errors import APIError

    from sandboxkit.backends.docker._engine import Engine

__all__ = ["Container", "gone", "remove"]

_ATTACHED = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
_REMOVE_SECONDS = 10.0
_POLL_SECONDS = 0.02
_NOT_THERE, _CONFLICT = 404, 409
_SHUT_WR = 1


class Container:
    """
    A running container with its agent.

    Attributes:
        ident: Its id.
        session: The stream to its agent.
    """

    def __init__(self, engine: Engine, ident: str, session: Session, stream: Any) -> None:
        self._engine = engine
        self._stream = stream
        self.ident = ident
        self.session = session

    @classmethod
    async def start(cls, engine: Engine, config: Mapping[str, Any]) -> Container:
        """
        A container by *config*, whose first process has begun.

        Raises:
            BackendUnavailableError: The engine is not there, too slow or full.
            SetupError: It refuses the container.
        """
        # Podman's rootless service ends, with all it runs, when it reads the ranges of ids for
        # two new containers at once (libsubid; seen with 4.3.1).
        is_mapped = config["HostConfig"].get("UsernsMode") == "keep-id"
        making = _Making(config, await turn() if is_mapped else contextlib.nullcontext())
        try:
            ident, stream = await engine.call("start a container", making.carry_out)
        except BaseException:
            making.abandon()
            raise
        return cls(engine, ident, _session(engine, stream), stream)

    async def greet(
        self, files: Mapping[str, str], places: tuple[str, ...], program: bytes, *, door: str, is_counted: bool
    ) -> Mapping[str, Any]:
        """
        What is in force in it; see `Session.greet`.

        Raises:
            SetupError: Its agent did not come up.
        """
        try:
            with anyio.fail_after(self._engine.timeout):
                return await self.session.greet(files, places, program, door=door, is_counted=is_counted)
        except BrokerError as exc:
            said = self.session.fault or self.session.said or "it ended and said nothing"
            raise SetupError(self._engine.name, f"the agent in the container did not come up: {said}") from exc
        except TimeoutError as exc:
            raise BackendUnavailableError(
                self._engine.name,
                f"the agent in the container did not answer within {self._engine.timeout:g} s",
                "look at the engine's load, or give it longer with DockerBackend(timeout=...)",
            ) from exc

    async def feed(self, data: bytes) -> None:
        """
        Hands *data*, and then an end, to the input of a container without an agent.
        """
        await self.session.write(data)
        inner = getattr(self._stream, "_sock", self._stream)
        with contextlib.suppress(OSError, AttributeError):
            inner.shutdown(_SHUT_WR)

    async def state(self) -> Mapping[str, Any]:
        """
        How it ended, once its stream has; empty where the engine knows it no more.

        Raises:
            BackendUnavailableError: The engine went away.
        """
        await self._engine.call("wait for a container", lambda client: client.wait(self.ident))
        return await self._engine.call("look at a container", lambda client: _state(client, self.ident))

    async def close(self) -> None:
        """
        Ends it and removes it. That the engine has gone meanwhile is no error here: the
        container's input ends with it, and `prune` finds what is left.
        """
        self.session.close()
        _close(self._stream)
        with anyio.CancelScope(shield=True), contextlib.suppress(BackendUnavailableError, SetupError):
            await remove(self._engine, self.ident)


def _session(engine: Engine, stream: Any) -> Session:
    if engine.where.certificates is None and sys.platform != "win32":
        return Session(PipeReader(os.dup(stream.fileno())), PipeWriter(os.dup(stream.fileno())))
    from sandboxkit.backends.docker._channel import SocketStream, over_pipe  # most engines need neither

    is_pipe = engine.where.scheme == "npipe"
    both = over_pipe(stream) if is_pipe else SocketStream(getattr(stream, "_sock", stream))
    return Session(both, both)


class _Making:
    """
    The making of a container in a worker thread, which may be given up meanwhile: then
    what it made is removed by the thread itself.
    """

    def __init__(self, config: Mapping[str, Any], turn: BinaryIO | contextlib.nullcontext[None]) -> None:
        self._config = config
        self._turn = turn
        self._is_begun = False
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._is_done = False
        self._made: tuple[APIClient, str, Any] | None = None

    def carry_out(self, client: APIClient) -> tuple[str, Any]:
        self._is_begun = True
        name = new_name()
        with self._turn:
            try:
                made = client.create_container_from_config(dict(self._config), name)
            except BaseException:
                _force_quietly(client, name)  # it may have been made all the same
                raise
        ident = str(made["Id"])
        try:
            stream = client.attach_socket(ident, _ATTACHED)
            try:
                client.start(ident)
            except BaseException:
                _close(stream)
                raise
        except BaseException:
            _force(client, ident)
            raise
        with self._lock:
            self._made = (client, ident, stream)
            if self._is_abandoned:
                self._undo()
        return ident, stream

    def abandon(self) -> None:
        """
        Says that nobody waits for it any more.
        """
        with self._lock:
            self._is_abandoned = True
            if not self._is_begun:
                with self._turn:
                    pass  # it is over
            if self._made:
                self._undo()

    def _undo(self) -> None:
        if self._made is not None:
            client, ident, stream = self._made
            self._made = None
            _close(stream)
            _force(client, ident)


def _state(client: APIClient, ident: str) -> Mapping[str, Any]:
    return dict(client.inspect_container(ident)["State"])


def _close(stream: Any) -> None:
    """
    Closes the SDK's own handles of an attached stream: the stream, the socket below it, and
    with TLS the answer that it came of. Ours are other descriptors of it.
    """
    inner = [getattr(stream, name, None) for name in ("_response", "_sock")]
    for handle in (*inner, stream):
        if handle is not None:
            with contextlib.suppress(OSError, ValueError):  # one may have been closed with another
                handle.close()


def _force_quietly(client: APIClient, name: str) -> None:
    """
    Removes a container, where there is one and the engine still answers.
    """
    import requests
    from docker import errors

    with contextlib.suppress(errors.DockerException, requests.RequestException, OSError):
        _force(client, name)


def _force(client: APIClient, ident: str) -> bool:
    """
    Removes a container, whatever it does; False where there is none.
    """
    from docker import errors

    try:
        client.remove_container(ident, force=True, v=True)
    except errors.APIError as exc:
        if _is_unknown(exc):
            return False
        # It is being removed already; Podman says so of one that ends meanwhile.
        if exc.status_code != _CONFLICT and "container state improper" not in str(exc.explanation):
            raise
    return True


async def remove(engine: Engine, ident: str) -> bool:
    """
    Ends and removes a container, and waits until the engine knows it no more.

    Returns:
        Whether there was one.

    Raises:
        BackendUnavailableError: The engine is not there, or does not get it done.
        SetupError: It refuses.
    """
    existed = await engine.call("remove a container", lambda client: _force(client, ident))
    with anyio.move_on_after(_REMOVE_SECONDS):
        while not await engine.call("look for a container", lambda client: gone(client, ident)):  # noqa: ASYNC110 - another program does it
            await anyio.sleep(_POLL_SECONDS)
    return existed


def gone(client: APIClient, ident: str) -> bool:
    """
    Whether the engine knows no such container.
    """
    from docker import errors

    try:
        client.inspect_container(ident)
    except errors.APIError as exc:
        if _is_unknown(exc):
            return True
        raise
    return False


def _is_unknown(exc: APIError) -> bool:
    """
    Whether the engine said that there is no such container. Podman calls it an error of its
    own where one goes while it looks.
    """
    return bool(exc.status_code == _NOT_THERE or "no such container" in str(exc.explanation).lower())
