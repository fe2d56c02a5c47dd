"""
The one border to the docker SDK: calls that end, and errors in the words of this library.

The SDK blocks, so every call runs in a worker thread, with a deadline of its own: an
engine that accepts a connection and then says nothing must not hold the caller.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

import anyio
import anyio.to_thread

from sandboxkit.backends.docker._words import WORDS, Words
from sandboxkit.errors import BackendUnavailableError, MissingExtraError, SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from docker import APIClient

    from sandboxkit.backends.docker._endpoint import Endpoint
    from sandboxkit.backends.docker._facts import EngineName
    from sandboxkit.backends.docker._tunnel import Tunnel

__all__ = ["Engine", "connected"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Meaning:
    """
    What words of the SDK mean.

    Attributes:
        said: The words, as a regular expression.
        reason: What that means.
        remedy: What helps.
    """

    said: str
    reason: str
    remedy: Callable[[Words], str]


_GRACE = 2.0
_UNREACHED: tuple[_Meaning, ...] = (
    _Meaning(
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        "the engine's certificate is not signed by the known authority, has expired, or is another machine's",
        lambda words: f"{words.certificates}; another certificate may be another machine",
    ),
    _Meaning(
        r"alert certificate required|alert bad certificate|alert unknown ca|alert handshake failure",
        "the engine does not take this application's certificate",
        lambda words: words.certificates,
    ),
    _Meaning(
        r"WRONG_VERSION_NUMBER|wrong version number|record layer failure",
        "the engine does not speak TLS on this port",
        lambda words: "correct the port; an engine without TLS makes whoever reaches it root there",
    ),
    _Meaning(
        r"PermissionError|Permission denied|permission denied while trying to connect",
        "this user may not open the engine's socket",
        lambda words: words.access,
    ),
    _Meaning(
        r"FileNotFoundError|No such file or directory'\)\)|cannot find the file",
        "no engine listens there",
        lambda words: words.start,
    ),
    _Meaning(r"ConnectionRefused|Connection refused", "no engine answers there", lambda words: words.start),
    _Meaning(
        r"Name or service not known|getaddrinfo|NameResolution",
        "the host of its address does not exist",
        lambda words: f"correct {words.variable}",
    ),
    _Meaning(
        r"RemoteDisconnected|Connection aborted|ConnectionReset|BrokenPipe|IncompleteRead|\bEOF\b",
        "the engine went away during the call",
        lambda words: "look at the engine's log, start it again, and repeat the command",
    ),
)
"""What failed on the way to the engine."""
_REFUSED: tuple[_Meaning, ...] = (
    _Meaning(
        r"HTTP request to an HTTPS server",
        "the engine speaks TLS alone",
        lambda words: words.tls,
    ),
    _Meaning(r"no space left on device", "the engine's disk is full", lambda words: words.space),
    _Meaning(
        r"unknown or invalid runtime|runtime.*not found|unknown runtime",
        "the engine has no such runtime",
        lambda words: words.runtime,
    ),
    _Meaning(
        r"bind source path does not exist|invalid mount config",
        "the engine does not see a path of this spec: it runs on another machine, or in a container",
        lambda words: "use DockerBackend(workspace='copy') with an image, or an engine of this machine",
    ),
)
"""What the engine itself answers."""


class Engine:
    """
    One engine, reached through the SDK.

    Args:
        name: `docker` or `podman`, for the messages of errors.
        where: Its address.
        timeout: Seconds a call may take.
        api: The version of its interface; empty asks it.
        tunnel: The way to it, where it is reached by ssh.

    Attributes:
        found: Which engine answers, once it was asked.
    """

    def __init__(
        self, name: EngineName, where: Endpoint, timeout: float, api: str = "", tunnel: Tunnel | None = None
    ) -> None:
        self.name = name
        self.where = where
        self.timeout = timeout
        self.found: EngineName = name
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
        The SDK's client; the first call makes it and asks which engine that is, and for the
        version of its interface. Not by `version="auto"`: what that asks, Podman answers
        only after it has asked the package manager about each of its programs.

        Raises:
            MissingExtraError: The SDK is not installed.

        Source: Docker Engine API, SystemPing; podman, pkg/api/handlers/compat/ping.go.
        """
        if self._client is None:
            try:
                import docker
                import requests
                from docker.constants import MINIMUM_DOCKER_API_VERSION
                from docker.tls import TLSConfig
            except ModuleNotFoundError as exc:
                raise MissingExtraError("docker", f"the {self.name} backend") from exc
            certificates = self.where.certificates
            tls = (
                TLSConfig(client_cert=certificates.client, ca_cert=certificates.ca or None, verify=True)
                if certificates
                else False
            )
            url = self._tunnel.url if self._tunnel else self.host

            def client(version: str) -> APIClient:
                made = docker.APIClient(url, version=version, timeout=self.timeout, tls=tls)
                # REQUESTS_CA_BUNDLE would beat our own authority, and a proxy would read the calls.
                made.trust_env = False
                return made

            if not self._api:
                with contextlib.closing(client(MINIMUM_DOCKER_API_VERSION)) as asking:
                    answer = asking.get(f"{asking.base_url}/_ping", timeout=self.timeout)
                try:
                    answer.raise_for_status()
                except requests.HTTPError as exc:
                    docker.errors.create_api_error_from_http_exception(exc)
                if "Api-Version" not in answer.headers:
                    raise docker.errors.DockerException("no container engine answers there, but something else")
                self.found = "podman" if "Libpod-Api-Version" in answer.headers else "docker"
                self._api = answer.headers["Api-Version"]
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
            self.name,
            f"{self.host}: the engine did not {what} within {self.timeout:g} s",
            "look at its load and its log, or give it longer with DockerBackend(timeout=...)",
        )

    def _translate(self, what: str, exc: Exception, words: str) -> NoReturn:
        import requests
        from docker import errors

        said, names = _chain(exc), WORDS[self.name]
        if known := _meaning_of_ssh(self.name, words):
            raise BackendUnavailableError(self.name, f"{self.host}: {known[0]}", known[1]) from exc
        if isinstance(exc, requests.Timeout) or "timed out" in said.lower():
            raise self._slow(what) from exc
        for meaning in _REFUSED if isinstance(exc, errors.APIError) else _UNREACHED:
            if re.search(meaning.said, said, re.IGNORECASE):
                raise BackendUnavailableError(
                    self.name, f"{self.host}: {meaning.reason}", meaning.remedy(names)
                ) from exc
        if isinstance(exc, errors.APIError):
            raise SetupError(self.name, f"the engine would not {what}: {exc.explanation or exc}") from exc
        raise BackendUnavailableError(
            self.name,
            f"{self.host}: {type(exc).__name__}: {str(exc)[:300]}",
            f"correct {names.variable} or DockerBackend(host=...)",
        ) from exc

    def close(self) -> None:
        """
        Closes its connections.
        """
        if self._client is not None:
            self._client.close()
            self._client = None


def _meaning_of_ssh(name: EngineName, words: str) -> tuple[str, str] | None:
    if not words:
        return None
    from sandboxkit.backends.docker._tunnel import meaning

    return meaning(name, words)


@contextlib.asynccontextmanager
async def connected(
    name: EngineName,
    where: Endpoint,
    timeout: float,  # noqa: ASYNC109 - of each call
    api: str = "",
) -> AsyncIterator[Engine]:
    """
    The engine at *where*, with all that leads to it; nothing stays open afterwards.

    Args:
        name: `docker` or `podman`.
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

            way = await ends.enter_async_context(tunnel(name, where.host, timeout))
        engine = Engine(name, where, timeout, api, way)
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
