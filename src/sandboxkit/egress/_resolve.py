"""
Asks the machine's name service, with a bound on what hangs.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio.to_thread

from sandboxkit.egress._plain import shortage
from sandboxkit.errors import EgressUnreachableError

__all__ = ["Resolver", "system_resolver"]

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives every address of a canonical host name, as text; no address at all is an answer too."""

_MAX_LOOKUPS = 64
_lookups = threading.BoundedSemaphore(_MAX_LOOKUPS)


async def system_resolver(host: str, port: int) -> tuple[str, ...]:
    """
    Every address that getaddrinfo(3) has for *host*; none where there is no such name.

    A lookup that is given up goes on in its thread, because nothing can stop it; at most
    64 do so at one time.

    Raises:
        EgressUnreachableError: The name service does not answer, or 64 lookups hang.
    """
    if not _lookups.acquire(blocking=False):
        raise EgressUnreachableError(f"{host}:{port}", f"{_MAX_LOOKUPS} name lookups hang; check the name service")
    started = threading.Event()
    try:
        return await anyio.to_thread.run_sync(_look_up, host, port, started, abandon_on_cancel=True)
    finally:
        if not started.is_set():
            started.set()
            _lookups.release()


def _look_up(host: str, port: int, started: threading.Event) -> tuple[str, ...]:
    if started.is_set():
        return ()  # given up before its turn came
    started.set()
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as exc:
        if exc.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return ()
        raise EgressUnreachableError(f"{host}:{port}", f"the name service failed: {exc.strerror}") from exc
    except (OSError, UnicodeError) as exc:
        raise EgressUnreachableError(f"{host}:{port}", shortage(exc) or f"the name service failed: {exc}") from exc
    finally:
        _lookups.release()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
