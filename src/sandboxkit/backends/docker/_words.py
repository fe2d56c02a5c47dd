"""
What engines and their parts are called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends.docker._facts import EngineName

__all__ = ["WORDS", "Words", "socket_path"]


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
        certificates: Where those of TLS are named.
        tls: How it is reached where it speaks TLS alone.
        socket: Where its socket is on most machines.
    """

    variable: str
    start: str
    access: str
    space: str
    runtime: str
    certificates: str
    tls: str
    socket: str


_CERTIFICATES = "name the directory of ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH, or correct the docker context"
_NO_TLS = "reach it by ssh://, or by a socket of this machine: no certificates are known for Podman"
WORDS: Final[Mapping[EngineName, Words]] = {
    "docker": Words(
        "DOCKER_HOST",
        "start Docker, or name a running engine in DOCKER_HOST or DockerBackend(host=...)",
        "add the user to the socket's group (usermod -aG docker NAME, then log in again), or use a rootless engine; "
        "whoever may use the socket is root on that host",
        "free space where the engine keeps its data (docker system df, docker system prune)",
        "install it and register it with the engine (dockerd --add-runtime), or name another",
        _CERTIFICATES,
        f"set DOCKER_TLS_VERIFY=1; {_CERTIFICATES}",
        "/var/run/docker.sock",
    ),
    "podman": Words(
        "CONTAINER_HOST",
        "start Podman's API service (systemctl --user start podman.socket, or podman system service --time=0 "
        "unix://PATH), or name a running one in CONTAINER_HOST or DockerBackend(engine='podman', host=...)",
        "use a service of this user's own (systemctl --user start podman.socket); root's, let others in by "
        "SocketGroup= in podman.socket: whoever may use it is root on that host",
        "free space where the engine keeps its data (podman system df, podman system prune)",
        "install it and start the service with it (podman --runtime NAME system service), or leave runtime out",
        _NO_TLS,
        _NO_TLS,
        "/run/podman/podman.sock",
    ),
}


def socket_path(host: str) -> str:
    """
    The file that *host* is, or an empty text for an address of another kind.
    """
    return host.removeprefix("unix://") if host.startswith("unix://") else ""
