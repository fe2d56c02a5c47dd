"""
Where an engine is and how it is reached, in the words of the `docker` and `podman` commands.

Contexts are read without the SDK, whose import takes as long as a whole box.

Source: docs.docker.com, "Docker CLI environment variables", "Protect the Docker daemon
socket" and "Docker contexts"; docker/cli, cli/context/store; podman-system-service(1).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sandboxkit.backends.docker._words import WORDS
from sandboxkit.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends.docker._facts import EngineName

__all__ = ["NAME", "Certificates", "Endpoint", "endpoint"]

NAME = "docker"
_SOCKET = "unix:///var/run/docker.sock"
_WINDOWS_PIPE = "npipe:////./pipe/docker_engine"
_PODMAN_SOCKET = "podman/podman.sock"
_BY_TLS = ("tcp", "https")


@dataclass(frozen=True, slots=True)
class Certificates:
    """
    What TLS is spoken with. The engine's certificate is always checked.

    Attributes:
        ca: The file of the authority that signed the engine's; empty takes those of the system.
        client: (certificate, key) this application shows; None shows none.
    """

    ca: str = ""
    client: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """
    An engine's address.

    Attributes:
        host: The address, as DOCKER_HOST has it.
        certificates: For TLS; None speaks none.
    """

    host: str = ""
    certificates: Certificates | None = None

    @property
    def scheme(self) -> str:
        """
        `unix`, `npipe`, `tcp`, `ssh`, ...
        """
        return self.host.partition("://")[0]

    @property
    def is_open(self) -> bool:
        """
        Whether anybody on the way can read and change what is said.
        """
        return self.scheme in ("tcp", "http") and self.certificates is None


def endpoint(host: str | None, engine: EngineName = "docker") -> Endpoint:
    """
    Where *engine* is. Docker: *host*, DOCKER_HOST, the current context of the `docker`
    command, or the platform's own socket, in this order. Podman: *host*, CONTAINER_HOST, or
    the first socket that is there, of this user's service and then of root's.

    Docker's address by `tcp` speaks TLS where DOCKER_TLS_VERIFY or DOCKER_CERT_PATH is set.

    Raises:
        BackendUnavailableError: The context or the certificates cannot be read, or the
            engine's certificate would not be checked.
    """
    named = host or os.environ.get(WORDS[engine].variable)
    if engine == "podman":
        return Endpoint(named or _podman_socket())
    if named:
        return Endpoint(named, _of_environment(named))
    return _of_context() or Endpoint(_WINDOWS_PIPE if sys.platform == "win32" else _SOCKET)


def _podman_socket() -> str:
    directories = [os.environ.get("XDG_RUNTIME_DIR", ""), "/run"]
    sockets = [f"{directory}/{_PODMAN_SOCKET}" for directory in directories if directory.startswith("/")]
    return f"unix://{next(filter(os.path.exists, sockets), sockets[0])}"


def _configuration() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker"))


def _of_environment(host: str) -> Certificates | None:
    path = os.environ.get("DOCKER_CERT_PATH")
    if urlsplit(host).scheme not in _BY_TLS or not (path or os.environ.get("DOCKER_TLS_VERIFY")):
        return None
    directory = Path(path) if path else _configuration()
    if not (directory / "ca.pem").is_file():
        raise BackendUnavailableError(
            NAME,
            f"{host}: there is no {directory / 'ca.pem'} to check the engine's certificate by",
            "name the directory of ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH",
        )
    return _certificates(host, directory)


def _certificates(host: str, directory: Path) -> Certificates:
    """
    What lies in *directory* by the names of the `docker` command.
    """
    pair = (directory / "cert.pem", directory / "key.pem")
    there = [path.is_file() for path in pair]
    if any(there) and not all(there):
        raise BackendUnavailableError(
            NAME,
            f"{host}: {directory} has only one of cert.pem and key.pem",
            "put both there, or neither",
        )
    ca = directory / "ca.pem"
    client = (str(pair[0]), str(pair[1])) if all(there) else None
    return Certificates(str(ca) if ca.is_file() else "", client)


def _of_context() -> Endpoint | None:
    """
    The current context's, or None where it is the platform's own.
    """
    root = _configuration()
    name = os.environ.get("DOCKER_CONTEXT") or str(_read(root / "config.json").get("currentContext") or "")
    if name in ("", "default"):
        return None
    ident = hashlib.sha256(name.encode()).hexdigest()
    meta = root / "contexts" / "meta" / ident / "meta.json"
    if not meta.is_file():
        raise BackendUnavailableError(
            NAME, f"there is no docker context {name!r}", "name one of docker context ls in DOCKER_CONTEXT"
        )
    found = _read(meta).get("Endpoints")
    engine = found.get("docker") if isinstance(found, dict) else None
    host = engine.get("Host") if isinstance(engine, dict) else None
    if not isinstance(engine, dict) or not isinstance(host, str) or not host:
        raise _unreadable(meta, "it names no engine")
    if engine.get("SkipTLSVerify"):
        raise BackendUnavailableError(
            NAME,
            f"the docker context {name!r} does not check the engine's certificate, so anybody could be the engine",
            "update it without skip-tls-verify and with the engine's ca (docker context update)",
        )
    directory = root / "contexts" / "tls" / ident / "docker"
    return Endpoint(host, _certificates(host, directory) if directory.is_dir() else None)


def _read(path: Path) -> Mapping[str, Any]:
    """
    The object in a file of JSON; an empty one where there is no such file.
    """
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise _unreadable(path, str(exc)) from exc
    if not isinstance(found, dict):
        raise _unreadable(path, "it holds no object")
    return found


def _unreadable(path: Path, why: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        NAME, f"{path} cannot be read: {why}", "correct it (docker context ls shows it), or set DOCKER_HOST"
    )
