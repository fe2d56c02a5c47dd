"""
An application on a host that lacks what Windows lacks, which runs commands in containers.

    python windows_application.py IMAGE [ADDRESS]

With ADDRESS, the engine's address is that of the named pipe of such a host. There is none
here, so the SDK reaches ADDRESS in its place, and hands out for the stream to a container what it
hands out there: calls that block, and no descriptor. Prints what was seen, as one JSON object.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import docker
import psutil
import requests
import urllib3
from tests.windows_host import become_windows

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

IMAGE, ADDRESS = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
_ = (psutil, requests, urllib3)  # others' business too
become_windows()

import anyio  # noqa: E402 - as on such a host from here on

import sandboxkit as sk  # noqa: E402 - likewise
from sandboxkit.backends import SandboxRegistry  # noqa: E402 - likewise
from sandboxkit.backends.docker import DockerBackend  # noqa: E402 - likewise
from sandboxkit.backends.docker._labels import Owner, own_labels  # noqa: E402 - likewise

NO_PID = 4_194_303
NAMED_PIPE = "npipe:////./pipe/docker_engine"
SPEC = sk.SandboxSpec.isolated(environment={"set": {"PYTHONHOME": "/usr/local"}})
LISTED = sk.NetworkPolicy(mode="listed", allow_hosts=("example.com",))


class Pipe:
    """
    A connection with nothing but what the SDK's named pipes have.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream  # what the SDK answered, which closes the connection when it is collected
        self._connection: socket.socket = stream._sock

    def recv_into(self, buffer: memoryview) -> int:
        return self._connection.recv_into(buffer)

    def send(self, data: bytes) -> int:
        return self._connection.send(data)

    def settimeout(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def close(self) -> None:
        # A pipe that is closed wakes who reads; a socket has to be shut for that.
        self._connection.shutdown(2)
        self._connection.close()


def by_pipe(client: type[Any], address: str) -> Callable[..., Any]:
    """
    The SDK's client, with *address* behind the named pipe.
    """

    class Client(client):  # type: ignore[misc]  # the SDK ships no types
        def attach_socket(self, *args: Any, **options: Any) -> Pipe:
            return Pipe(super().attach_socket(*args, **options))

    return lambda url, **options: Client(address if url == NAMED_PIPE else url, **options)


def backend(**options: Any) -> DockerBackend:
    return DockerBackend(IMAGE, **{"workspace": "copy", **options})


async def refusals() -> dict[str, str]:
    """
    What cannot be on such a host, and what is said then.
    """
    found = {}
    ways = {"bind": backend(workspace="bind"), "system": DockerBackend(), "ssh": backend(host="ssh://machine")}
    for name, made in ways.items():
        detection = await made.detect(SPEC)
        assert not detection.available
        found[name] = f"{detection.reason}; {detection.remedy}"
    async with backend().open(SPEC) as box:
        try:
            async with box.start(["true"], stdout=1):
                pass
        except sk.SandboxError as exc:
            found["descriptor"] = f"{type(exc).__name__}: {exc}"
    try:
        async with backend().open(SPEC.model_copy(update={"network": LISTED})):
            pass
    except sk.SandboxError as exc:
        found["listed"] = f"{type(exc).__name__}: {exc}"
    return found


async def streams(box: Any) -> dict[str, Any]:
    """
    What a command reads and writes meanwhile, and a long stream both ways at once.
    """
    data = bytes(range(256)) * 12_000
    async with box.start(["cat"], stdin=PIPE, stderr=None) as process:
        got = bytearray()

        async def read() -> None:
            async for chunk in process.stdout:
                got.extend(chunk)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await process.stdin.send(data)
            await process.stdin.aclose()
        ended = await process.wait()
    async with box.start(["sleep", "100"]) as process:
        process.kill()
        killed = await process.wait()
    async with box.start(["cat", "/dev/zero"]) as process:
        await process.stdout.aclose()
        process.kill()
        await process.wait()
    return {"echoed": bytes(got) == data, "ended": ended.exit_code, "killed": str(killed.termination)}


async def acts() -> dict[str, Any]:
    seen: dict[str, Any] = {"platform": sys.platform, "refusals": await refusals()}
    registry = SandboxRegistry()
    registry.register(backend(), priority=1)
    router = sk.AutoSandboxRouter(registry=registry)
    words = ["python3", "-c", "import os; print(os.uname().sysname, os.getuid())"]
    ran = await sk.run(words, spec=SPEC, router=router)
    seen["routed"], seen["backend"] = ran.text().split(), ran.backend
    async with backend().open(SPEC) as box:
        variables = "import os; print(os.environ['PATH'], os.environ['HOME'], os.getcwd())"
        seen["environment"] = (await box.run(["python3", "-c", variables])).text().split()
        await box.files.write("note", b"of the application")
        seen["file"] = (await box.files.read("note")).decode()
        seen["input"] = (await box.run(["cat"], stdin=b"x" * 3_000_000)).stdout == b"x" * 3_000_000
        late = await box.run(["sh", "-c", "sleep 100 & sleep 100"], timeout=0.5)
        seen["late"] = str(late.termination)
        seen["net"] = str(box.enforcement.grade(sk.Control.NET_NONE))
        with anyio.move_on_after(0.5) as scope:
            await box.run(["sleep", "100"])
        seen["cancelled"] = scope.cancelled_caught
        seen["after"] = (await box.run(["cat"], stdin=b"still here")).text()
        seen |= await streams(box)
        mine = [row for row in await backend().list_active() if row.pid == os.getpid()]
        seen["is_left"] = [row.is_left for row in mine]
    seen["labels"] = own_labels()
    seen["owners"] = [
        Owner.current().is_gone(is_running=True),
        dataclasses.replace(Owner.current(), started="1.000").is_gone(is_running=True),
        dataclasses.replace(Owner.current(), pid=NO_PID).is_gone(is_running=True),
    ]
    seen["active"] = [row.name for row in await backend().list_active() if row.pid == os.getpid()]
    return seen


if ADDRESS:
    docker.APIClient = by_pipe(docker.APIClient, ADDRESS)
    os.environ["DOCKER_HOST"] = NAMED_PIPE
os.environ["PATH"] = r"C:\Windows\system32;C:\Windows"
os.environ.pop("HOME", None)
print(json.dumps(anyio.run(acts)))
