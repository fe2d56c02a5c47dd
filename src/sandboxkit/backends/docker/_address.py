"""
Where an engine listens, and what to say where it does not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sandboxkit.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends.docker._facts import EngineName

__all__ = ["WORDS", "Words", "address", "socket_path"]

_SOCKET = "unix:///var/run/docker.sock"
_WINDOWS_PIPE = "npipe:////./pipe/docker_engine"
_PODMAN_SOCKET = "podman/podman.sock"


@dataclass(frozen=True, slots=True)
class Words:
    """
    What remedies call an engine's parts.

    Attributes:
        variable: The environment variable that names its address.
        start: How it is started.
        access: How a user gets to its socket.
        space: How its disk is emptied.
        runtime: How it gets another runtime.
    """

    variable: str
    start: str
    access: str
    space: str
    runtime: str


WORDS: Final[Mapping[EngineName, Words]] = {
    "docker": Words(
        "DOCKER_HOST",
        "start Docker, or name a running engine in DOCKER_HOST or DockerBackend(host=...)",
        "add the user to the socket's group (usermod -aG docker NAME, then log in again), or use a rootless engine; "
        "whoever may use the socket is root on that host",
        "free space where the engine keeps its data (docker system df, docker system prune)",
        "install it and register it with the engine (dockerd --add-runtime), or name another",
    ),
    "podman": Words(
        "CONTAINER_HOST",
        "start Podman's API service (systemctl --user start podman.socket, or podman system service --time=0 "
        "unix://PATH), or name a running one in CONTAINER_HOST or DockerBackend(engine='podman', host=...)",
        "use a service of this user's own (systemctl --user start podman.socket); root's, let others in by "
        "SocketGroup= in podman.socket: whoever may use it is root on that host",
        "free space where the engine keeps its data (podman system df, podman system prune)",
        "install it and start the service with it (podman --runtime NAME system service), or leave runtime out",
    ),
}


def address(engine: EngineName, host: str | None) -> str:
    """
    Where *engine* is: *host*, or what its variable names (DOCKER_HOST, CONTAINER_HOST). Then
    Docker's is the current context of the `docker` command, or the platform's own socket;
    Podman's the first socket that is there, of this user's service and then of root's.

    Raises:
        BackendUnavailableError: Docker's context cannot be read.

    Source: podman-system-service(1), "DESCRIPTION"; docker(1), "Environment variables".
    """
    if named := host or os.environ.get(WORDS[engine].variable):
        return named
    if engine == "podman":
        sockets = _podman_sockets()
        return next((f"unix://{path}" for path in sockets if os.path.exists(path)), f"unix://{sockets[0]}")
    return _context() or (_WINDOWS_PIPE if os.name == "nt" else _SOCKET)


def socket_path(host: str) -> str:
    """
    The file that *host* is, or an empty text for an address of another kind.
    """
    return host.removeprefix("unix://") if host.startswith("unix://") else ""


def _podman_sockets() -> tuple[str, ...]:
    """
    Where its service listens, the user's own first.
    """
    directories = [os.environ.get("XDG_RUNTIME_DIR", ""), "/run"]
    return tuple(f"{directory}/{_PODMAN_SOCKET}" for directory in directories if directory.startswith("/"))


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
            "docker",
            f"the docker context {name!r} cannot be read: {exc}",
            "correct it (docker context ls), or set DOCKER_HOST",
        ) from exc
    if found is None:
        raise BackendUnavailableError(
            "docker", f"there is no docker context {name!r}", "name one of docker context ls in DOCKER_CONTEXT"
        )
    return "" if found.name == "default" else str(found.Host or "")
