"""
The way to an engine on another machine: ssh(1) forwards a socket of ours to the engine's.

Nothing of a user's is typed or asked: who may log in, and which machine it is, is the
matter of the user's own keys, agent, ssh_config(5) and known_hosts.

Source: ssh(1) -L, ssh_config(5) ExitOnForwardFailure, StreamLocalBindMask.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import anyio

from sandboxkit.backends._temporary import temporary_directory
from sandboxkit.backends.docker._words import WORDS
from sandboxkit.errors import BackendUnavailableError
from sandboxkit.process import direct_plan, launch, pipe_to_us

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sandboxkit.backends.docker._facts import EngineName
    from sandboxkit.process import PipeReader

__all__ = ["Tunnel", "meaning", "ssh_argv", "tunnel"]

_PREFIX = "sandboxkit-tunnel-"
_WHERE = "/usr/bin:/bin:/usr/local/bin"
_POLL_SECONDS = 0.02
_MOST_WORDS = 4000
_LAST_WORDS_SECONDS = 0.2
_OPTIONS = (
    "BatchMode=yes",  # no question that nobody is there to answer
    "ExitOnForwardFailure=yes",
    "StreamLocalBindMask=0177",
    "ControlMaster=no",  # a connection of one's own, which ends with the box
    "ControlPath=none",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "ServerAliveInterval=15",
)
_BY_HAND: Final = "try it by hand: ssh -v, with the same user, machine and port"
_SAID: Final = (
    (
        re.compile(r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"),
        "its host key is unknown here, or another than the known one",
        "compare the key's fingerprint with the machine's (ssh-keygen -l), then put it into known_hosts",
    ),
    (
        re.compile(r"open failed: (connect failed|administratively prohibited)"),
        "no engine listens there, the user there may not open its socket, or its sshd forwards none",
        "start it, name its socket (ssh://machine/path), open it to that user, or set AllowStreamLocalForwarding yes",
    ),
    (
        re.compile(r"Permission denied \("),
        "the machine takes none of this user's keys",
        "load the key into ssh-agent (ssh-add), or name it in ~/.ssh/config; no password is asked for",
    ),
    (
        re.compile(r"Could not resolve hostname"),
        "the host of its address does not exist",
        "correct its address: {variable}, a context of the docker command, or DockerBackend(host=...)",
    ),
    (
        re.compile(r"Connection refused|No route to host|timed out|Network is unreachable"),
        "no sshd answers there",
        f"start it, or correct the machine and port; {_BY_HAND}",
    ),
)


class Tunnel:
    """
    A forwarded engine.

    Attributes:
        url: Where it is reached on this machine.
    """

    def __init__(self, url: str, words: PipeReader) -> None:
        self.url = url
        self._words = words
        self._said = b""

    async def said(self) -> str:
        """
        What ssh has said, with what comes within a moment.
        """
        with (
            anyio.move_on_after(_LAST_WORDS_SECONDS),
            contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError),
        ):
            while True:
                await self.hear()
        return self._said.decode(errors="replace").strip()

    async def hear(self) -> None:
        """
        Takes the next of what ssh says.

        Raises:
            anyio.EndOfStream: It has ended.
        """
        self._said = (self._said + await self._words.receive())[-_MOST_WORDS:]


def ssh_argv(name: EngineName, host: str, socket: str, timeout: float) -> tuple[str, ...]:
    """
    The command that makes *socket* lead to the engine at *host*. Pure but for the look for ssh.

    Args:
        name: `docker` or `podman`, by which errors and its usual socket go.
        host: `ssh://[user@]machine[:port][/path of the engine's socket]`.
        socket: A path on this machine that does not exist.
        timeout: Seconds to connect.

    Raises:
        BackendUnavailableError: The address is none, or there is no ssh.
    """
    found = urlsplit(host)
    try:
        port, machine = found.port, found.hostname or ""
    except ValueError:
        port, machine = None, ""
    user = unquote(found.username or "")
    is_option = machine.startswith("-") or user.startswith("-")
    if not machine or is_option or found.password is not None or found.query or found.fragment:
        raise BackendUnavailableError(
            name,
            f"{found.scheme}://{machine or '?'}: no address by ssh",
            "write ssh://[user@]machine[:port][/path of the engine's socket], without a password",
        )
    program = shutil.which("ssh", path=_WHERE)
    if program is None:
        raise BackendUnavailableError(
            name, f"{host}: there is no ssh in {_WHERE}", "install OpenSSH's client, or reach the engine by TLS"
        )
    path = unquote(found.path) if found.path.strip("/") else WORDS[name].socket
    options = [word for option in (*_OPTIONS, f"ConnectTimeout={max(1, round(timeout))}") for word in ("-o", option)]
    who = ["-l", user] if user else []
    where = ["-p", str(port)] if port else []
    return (program, "-N", "-T", *options, *who, *where, "-L", f"{socket}:{path}", "--", machine)


@contextlib.asynccontextmanager
async def tunnel(name: EngineName, host: str, timeout: float) -> AsyncIterator[Tunnel]:  # noqa: ASYNC109 - what the engine has for any call
    """
    A way to the engine at *host* by ssh, as long as it is open. It ends with this process,
    however that ends.

    Raises:
        BackendUnavailableError: ssh did not get there; the message says why.
    """
    if sys.platform == "win32":
        raise BackendUnavailableError(
            name,
            f"{host}: an engine is reached by ssh from POSIX systems alone",
            "reach it by TLS (tcp://), or run in WSL 2",
        )
    async with contextlib.AsyncExitStack() as ends:
        socket = f"{ends.enter_context(temporary_directory(_PREFIX))}/engine"
        plan = direct_plan(ssh_argv(name, host, socket, timeout), environment=os.environ, cwd="/")
        words, end = pipe_to_us(ends)
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        ends.callback(os.close, nothing)
        await ends.enter_async_context(launch(plan, stdin=None, stdout=nothing, stderr=end.fd))
        end.close()
        found = Tunnel(f"unix://{socket}", words)
        await _up(name, found, host, socket, timeout)
        yield found


async def _up(name: EngineName, found: Tunnel, host: str, socket: str, timeout: float) -> None:  # noqa: ASYNC109 - passed on
    try:
        with anyio.fail_after(timeout):
            while not os.path.exists(socket):  # noqa: ASYNC240 - a directory of our own, in memory or on a local disk
                with anyio.move_on_after(_POLL_SECONDS):
                    await found.hear()
    except anyio.EndOfStream as exc:
        said = await found.said()
        reason, remedy = meaning(name, said) or (f"ssh did not get there: {said or 'it said nothing'}", _BY_HAND)
        raise BackendUnavailableError(name, f"{host}: {reason}", remedy) from exc
    except TimeoutError as exc:
        raise BackendUnavailableError(name, f"{host}: ssh was not there within {timeout:g} s", _BY_HAND) from exc


def meaning(name: EngineName, said: str) -> tuple[str, str] | None:
    """
    (reason, remedy) for what ssh said, where it is known. Pure.
    """
    for pattern, reason, remedy in _SAID:
        if pattern.search(said):
            return reason, remedy.format(variable=WORDS[name].variable)
    return None
