"""
The one border to the docker SDK: calls that end, and errors in the words of this library.

The SDK blocks, so every call runs in a worker thread, with a deadline of its own: an
engine that accepts a connection and then says nothing must not hold the caller.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NoReturn, TypeVar

import anyio
import anyio.to_thread

from sandboxkit.errors import BackendUnavailableError, MissingExtraError, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable

    from docker import APIClient

__all__ = ["NAME", "Engine", "address"]

NAME = "docker"
_T = TypeVar("_T")
_GRACE = 2.0
_SOCKET = "unix:///var/run/docker.sock"
_WINDOWS_PIPE = "npipe:////./pipe/docker_engine"

_START = "start Docker or Podman's API service, or name a running engine in DOCKER_HOST or DockerBackend(host=...)"
_GROUP = (
    "add the user to the socket's group (usermod -aG docker NAME, then log in again), or use a rootless engine; "
    "whoever may use the socket is root on that host"
)
_SAID: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"PermissionError|Permission denied|permission denied while trying to connect", re.IGNORECASE),
        "this user may not open the engine's socket",
        _GROUP,
    ),
    (
        re.compile(r"FileNotFoundError|No such file or directory'\)\)|cannot find the file", re.IGNORECASE),
        "no engine listens there",
        _START,
    ),
    (re.compile(r"ConnectionRefused|Connection refused", re.IGNORECASE), "no engine answers there", _START),
    (
        re.compile(r"Name or service not known|getaddrinfo|NameResolution", re.IGNORECASE),
        "the host of its address does not exist",
        "correct DOCKER_HOST",
    ),
    (
        re.compile(
            r"RemoteDisconnected|Connection aborted|ConnectionReset|BrokenPipe|IncompleteRead|EOF", re.IGNORECASE
        ),
        "the engine went away during the call",
        "look at the engine's log, start it again, and repeat the command",
    ),
    (
        re.compile(r"no space left on device", re.IGNORECASE),
        "the engine's disk is full",
        "free space where the engine keeps its data (docker system df, docker system prune)",
    ),
    (
        re.compile(r"unknown or invalid runtime|runtime.*not found|unknown runtime", re.IGNORECASE),
        "the engine has no such runtime",
        "install it and register it with the engine (dockerd --add-runtime), or name another",
    ),
    (
        re.compile(r"bind source path does not exist|invalid mount config", re.IGNORECASE),
        "the engine does not see a path of this spec: it runs on another machine, or in a container",
        "use DockerBackend(workspace='copy') with an image, or an engine of this machine",
    ),
)


def address(host: str | None) -> str:
    """
    Where the engine is: *host*, DOCKER_HOST, the current context of the `docker` command,
    or the platform's own socket, in this order.

    Raises:
        BackendUnavailableError: The context cannot be read.
    """
    if named := host or os.environ.get("DOCKER_HOST"):
        return named
    return _context() or (_WINDOWS_PIPE if os.name == "nt" else _SOCKET)


def _context() -> str:
    """
    The address of the current context, or an empty text where none was chosen.
    """
    name = os.environ.get("DOCKER_CONTEXT", "")
    if not name and not os.path.exists(os.path.expanduser("~/.docker/config.json")):
        return ""
    import docker
    from docker.context import ContextAPI

    try:
        found = ContextAPI.get_context(name) if name else ContextAPI.get_current_context()
    except (docker.errors.DockerException, OSError, ValueError) as exc:
        raise BackendUnavailableError(
            NAME,
            f"the docker context {name!r} cannot be read: {exc}",
            "correct it (docker context ls), or set DOCKER_HOST",
        ) from exc
    if found is None:
        raise BackendUnavailableError(
            NAME, f"there is no docker context {name!r}", "name one of docker context ls in DOCKER_CONTEXT"
        )
    return "" if found.name == "default" else str(found.Host or "")


class Engine:
    """
    One engine, reached through the SDK.

    Args:
        host: Its address.
        timeout: Seconds a call may take.
    """

    def __init__(self, host: str, timeout: float) -> None:
        self.host = host
        self.timeout = timeout
        self._client: APIClient | None = None

    def client(self) -> APIClient:
        """
        The SDK's client; the first call makes it and asks the engine for its version.

        Raises:
            MissingExtraError: The SDK is not installed.
        """
        if self._client is None:
            try:
                import docker
                from docker.utils import kwargs_from_env
            except ModuleNotFoundError as exc:
                raise MissingExtraError("docker", "the docker backend") from exc
            given = kwargs_from_env() if os.environ.get("DOCKER_HOST") == self.host else {}
            given["base_url"] = given.get("base_url", self.host)
            self._client = docker.APIClient(version="auto", timeout=self.timeout, **given)
        return self._client

    async def call(self, what: str, function: Callable[[APIClient], _T]) -> _T:
        """
        What *function* gives for the client.

        Args:
            what: What is done, for the message of an error.
            function: Called in a worker thread.

        Raises:
            BackendUnavailableError: The engine is not there, refuses this user, takes too
                long or has no space.
            SetupError: It refuses what was asked.
        """
        try:
            with anyio.fail_after(self.timeout + _GRACE):
                return await anyio.to_thread.run_sync(lambda: function(self.client()), abandon_on_cancel=True)
        except TimeoutError as exc:
            raise self._slow(what) from exc
        except (MissingExtraError, SetupError, BackendUnavailableError):
            raise
        except Exception as exc:  # noqa: BLE001 - every failure of the SDK and of what it uses is translated here
            self._translate(what, exc)

    def _slow(self, what: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            NAME,
            f"{self.host}: the engine did not {what} within {self.timeout:g} s",
            "look at its load and its log, or give it longer with DockerBackend(timeout=...)",
        )

    def _translate(self, what: str, exc: Exception) -> NoReturn:
        import requests
        from docker import errors

        said = _chain(exc)
        if isinstance(exc, requests.Timeout) or "timed out" in said.lower():
            raise self._slow(what) from exc
        for pattern, reason, remedy in _SAID:
            if pattern.search(said):
                raise BackendUnavailableError(NAME, f"{self.host}: {reason}", remedy) from exc
        if isinstance(exc, errors.APIError):
            raise SetupError(NAME, f"the engine would not {what}: {exc.explanation or exc}") from exc
        raise BackendUnavailableError(
            NAME,
            f"{self.host}: {type(exc).__name__}: {str(exc)[:300]}",
            "correct DOCKER_HOST or DockerBackend(host=...)",
        ) from exc

    def close(self) -> None:
        """
        Closes its connections.
        """
        if self._client is not None:
            self._client.close()
            self._client = None


def _chain(exc: BaseException) -> str:
    """
    What an exception and those behind it say: the SDK and requests wrap each other.
    """
    said: list[str] = []
    found: BaseException | None = exc
    while found is not None and len(said) < 10:
        said.append(f"{type(found).__name__}: {found}")
        found = found.__cause__ or found.__context__
    return "\n".join(said)
