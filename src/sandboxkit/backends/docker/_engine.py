"""
The one border to the docker SDK: calls that end, and errors in the words of this library.

The SDK blocks, so every call runs in a worker thread, with a deadline of its own: an
engine that accepts a connection and then says nothing must not hold the caller.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NoReturn, TypeVar

import anyio
import anyio.to_thread

from sandboxkit.backends.docker._endpoint import NAME
from sandboxkit.errors import BackendUnavailableError, MissingExtraError, SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from docker import APIClient

    from sandboxkit.backends.docker._endpoint import Endpoint
    from sandboxkit.backends.docker._tunnel import Tunnel

__all__ = ["NAME", "Engine", "connected"]

_T = TypeVar("_T")
_GRACE = 2.0

_START = "start Docker or Podman's API service, or name a running engine in DOCKER_HOST or DockerBackend(host=...)"
_GROUP = (
    "add the user to the socket's group (usermod -aG docker NAME, then log in again), or use a rootless engine; "
    "whoever may use the socket is root on that host"
)
_CERTIFICATES = "name the directory of ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH, or correct the docker context"
_SAID: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed", re.IGNORECASE),
        "the engine's certificate is not signed by the known authority, has expired, or is another machine's",
        f"{_CERTIFICATES}; another certificate may be another machine",
    ),
    (
        re.compile(
            r"alert certificate required|alert bad certificate|alert unknown ca|alert handshake failure", re.IGNORECASE
        ),
        "the engine does not take this application's certificate",
        _CERTIFICATES,
    ),
    (
        re.compile(r"HTTP request to an HTTPS server", re.IGNORECASE),
        "the engine speaks TLS alone",
        f"set DOCKER_TLS_VERIFY=1; {_CERTIFICATES}",
    ),
    (
        re.compile(r"WRONG_VERSION_NUMBER|wrong version number|record layer failure", re.IGNORECASE),
        "the engine does not speak TLS on this port",
        "correct the port; an engine without TLS makes whoever reaches it root there",
    ),
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


class Engine:
    """
    One engine, reached through the SDK.

    Args:
        where: Its address.
        timeout: Seconds a call may take.
        api: The version of its interface; empty asks it.
        tunnel: The way to it, where it is reached by ssh.
    """

    def __init__(self, where: Endpoint, timeout: float, api: str = "", tunnel: Tunnel | None = None) -> None:
        self.where = where
        self.timeout = timeout
        self._api = api
        self._tunnel = tunnel
        self._client: APIClient | None = None

    @property
    def host(self) -> str:
        """
        Its address, as people write it.
        """
        return self.where.host

    def client(self) -> APIClient:
        """
        The SDK's client; the first call makes it and asks the engine for its version.

        Raises:
            MissingExtraError: The SDK is not installed.
        """
        if self._client is None:
            try:
                import docker
                from docker.constants import MINIMUM_DOCKER_API_VERSION
                from docker.tls import TLSConfig
            except ModuleNotFoundError as exc:
                raise MissingExtraError("docker", "the docker backend") from exc
            found = self.where.certificates
            tls = TLSConfig(client_cert=found.client, ca_cert=found.ca or None, verify=True) if found else False
            url = self._tunnel.url if self._tunnel else self.host

            def client(version: str) -> APIClient:
                made = docker.APIClient(url, version=version, timeout=self.timeout, tls=tls)
                # REQUESTS_CA_BUNDLE would beat our own authority, and a proxy would read the calls.
                made.trust_env = False
                return made

            if not self._api:
                with contextlib.closing(client(MINIMUM_DOCKER_API_VERSION)) as asking:
                    self._api = str(asking.version()["ApiVersion"])
            self._client = client(self._api)
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
            self._translate(what, exc, await self._tunnel.said() if self._tunnel else "")

    def _slow(self, what: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            NAME,
            f"{self.host}: the engine did not {what} within {self.timeout:g} s",
            "look at its load and its log, or give it longer with DockerBackend(timeout=...)",
        )

    def _translate(self, what: str, exc: Exception, words: str) -> NoReturn:
        import requests
        from docker import errors

        said = _chain(exc)
        if known := _meaning_of_ssh(words):
            raise BackendUnavailableError(NAME, f"{self.host}: {known[0]}", known[1]) from exc
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


def _meaning_of_ssh(words: str) -> tuple[str, str] | None:
    if not words:
        return None
    from sandboxkit.backends.docker._tunnel import meaning

    return meaning(words)


@contextlib.asynccontextmanager
async def connected(where: Endpoint, timeout: float, api: str = "") -> AsyncIterator[Engine]:  # noqa: ASYNC109 - of each call
    """
    The engine at *where*, with all that leads to it; nothing stays open afterwards.

    Args:
        where: Its address.
        timeout: Seconds a call may take.
        api: The version of its interface; empty asks it.

    Raises:
        BackendUnavailableError: There is no way to it.
    """
    async with contextlib.AsyncExitStack() as ends:
        way = None
        if where.scheme == "ssh":
            from sandboxkit.backends.docker._tunnel import tunnel

            way = await ends.enter_async_context(tunnel(where.host, timeout))
        engine = Engine(where, timeout, api, way)
        ends.callback(engine.close)
        yield engine


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
