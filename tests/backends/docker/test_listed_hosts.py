"""
A container that may reach listed hosts reaches those and no other, whatever it tries. The
control of the ways is beside those of bubblewrap: without a box they lead there.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.backends.bubblewrap.test_listed_hosts import OPEN, PYTHON, UNSEEN, network, order, resolver, servers
from tests.backends.docker.conftest import DEGRADED, nothing_left

from sandboxkit import NetworkPolicy, SandboxSpec
from sandboxkit.backends import SandboxRegistry
from sandboxkit.backends._proxied import PROXY_PORT
from sandboxkit.backends._way_out import WayOut
from sandboxkit.backends.docker import DockerFacts
from sandboxkit.backends.docker._endpoint import Endpoint
from sandboxkit.backends.docker._plan import DOOR
from sandboxkit.errors import EnforcementError, SetupError, SpecError
from sandboxkit.model import Control, Grade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sandboxkit.backends.docker import DockerBackend
    from sandboxkit.backends.docker._box import DockerSandbox
    from sandboxkit.egress import EgressEvent

pytest.importorskip("h11", reason="the proxy is the extra egress")
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

LISTED = SandboxSpec.isolated(network=NetworkPolicy(mode="listed"), allow_degraded=DEGRADED)


@asynccontextmanager
async def box(make: Callable[..., DockerBackend], lists: NetworkPolicy) -> AsyncIterator[DockerSandbox]:
    backend = make(resolver=resolver)
    async with backend.open(SandboxSpec.isolated(network=lists, allow_degraded=DEGRADED)) as opened:
        yield opened  # type: ignore[misc]  # on the host's own system there is always a Python
    await nothing_left(backend)


def get(host: str, port: int = 80) -> list[str]:
    return ["curl", "-sS", "-m30", f"http://{host}:{port}/"]


async def test_no_way_leads_to_what_is_not_listed(backend: DockerBackend, make: Callable[..., DockerBackend]) -> None:
    with servers() as found:
        hosts = (f"open.example:{found.open}", f"inside.example:{found.port}", "mixed.example")
        async with box(make, network(found.open, allow_hosts=hosts)) as inside:
            result = await inside.run(order(found, PROXY_PORT), timeout=200)
        answers = json.loads(result.check().text())
        assert len(answers) >= 70
        assert answers["host-header"].startswith("HTTP/1.1 200"), answers  # what is listed answers all the while
        assert found.heard == [], (found.names(), found.heard, answers)
        done = {name for name in UNSEEN if "Error" not in answers[name]}
        # Docker lets a container ping its own loopback.
        assert done <= {"icmp-datagram", "icmp-datagram-ipv6", "ping"}, answers
        assert any(violation.kind == "egress" for violation in result.violations)
        assert result.enforcement.grade(Control.NET_ALLOWLIST) is Grade.ENFORCED


async def test_what_is_listed_is_reached_and_the_rest_is_reported_by_each_command(
    backend: DockerBackend, make: Callable[..., DockerBackend]
) -> None:
    events: list[EgressEvent] = []
    with servers() as found:
        async with box(make, network(found.open, deny_hosts=("denied.example",))) as inside:
            result = await inside.run(get("open.example", found.open), on_egress=events.append)
            assert (result.text(), result.violations) == ("hi", ())
            assert [(event.address, event.verdict.allowed) for event in events] == [(OPEN, True)]
            for host, line in (
                ("other.example", 'network.allow_hosts = ["other.example:80"]'),
                ("denied.example", None),
            ):
                result = await inside.run(get(host))
                (violation,) = result.violations
                assert (violation.kind, violation.target, violation.spec_line) == ("egress", f"http://{host}/", line)
                assert "to curl" in violation.detail
            async with inside.start(get("other.example")) as process:
                (violation,) = (await process.wait()).violations
                assert violation.target == "http://other.example/"
            assert len(inside.containers) == 1
        assert found.heard == []


async def test_commands_at_one_time_have_each_their_own_proxy(
    backend: DockerBackend, make: Callable[..., DockerBackend]
) -> None:
    script = "echo $http_proxy; curl -sSm30 http://$0.example/; read line"
    told: dict[str, list[str]] = {}

    async def one(inside: DockerSandbox, name: str, go: anyio.Event, ready: anyio.Semaphore) -> None:
        async with inside.start(["bash", "-c", script, name], stdin=-1) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            said = b""
            while b"refused" not in said:
                said += await process.stdout.receive()
            ready.release()
            await go.wait()
            await process.stdin.aclose()
            result = await process.wait()
        told[name] = [said.decode().split()[0], *(violation.target for violation in result.violations)]

    go, ready = anyio.Event(), anyio.Semaphore(0)
    async with box(make, NetworkPolicy(mode="listed")) as inside:
        async with anyio.create_task_group() as tasks:
            for name in ("one", "two"):
                tasks.start_soon(one, inside, name, go, ready)
            for _ in ("one", "two"):
                await ready.acquire()
            go.set()
        later = await inside.run(["sh", "-c", "echo $http_proxy"])
    ports = {f"http://127.0.0.1:{port}" for port in (PROXY_PORT, PROXY_PORT + 1)}
    assert {proxy for proxy, *_ in told.values()} == ports
    assert [told[name][1:] for name in ("one", "two")] == [[f"http://{name}.example/"] for name in ("one", "two")]
    assert later.text().strip() == f"http://127.0.0.1:{PROXY_PORT}"


async def test_a_command_gets_neither_the_listener_nor_what_it_is_handed_out_by(
    backend: DockerBackend, make: Callable[..., DockerBackend]
) -> None:
    script = (
        "import os, socket, sys\n"
        "print(sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1])\n"
        "try: socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=True)\n"
        "except OSError as error: print(error.errno)\n"
        "for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):\n"
        "    try: socket.socket(socket.AF_UNIX, kind).connect(sys.argv[2])\n"
        "    except OSError as error: print(type(error).__name__)\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    socket.create_connection(server.getsockname()).close()\n"
        "    print('own loopback')\n"
    )
    async with box(make, NetworkPolicy(mode="listed")) as inside:
        result = await inside.run([*PYTHON, script, str(PROXY_PORT), DOOR])
    said = result.check().text().splitlines()
    assert said == ["[0, 1, 2]", "98", "ConnectionRefusedError", "ConnectionRefusedError", "own loopback"]


async def test_a_proxy_that_fails_ends_the_command_and_is_said(
    backend: DockerBackend, make: Callable[..., DockerBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_self: WayOut, fd: int) -> None:
        os.close(fd)
        raise RuntimeError("out of order")

    monkeypatch.setattr(WayOut, "serve", fails)
    async with box(make, NetworkPolicy(mode="listed")) as inside:
        with anyio.fail_after(60), pytest.raises(SetupError, match="the proxy of the command failed: out of order"):
            await inside.run(["sleep", "600"])
        with anyio.fail_after(60), pytest.raises(SetupError, match="the proxy of the command failed: out of order"):
            async with inside.start(["sleep", "600"]) as process:
                await process.wait()
        monkeypatch.undo()
        assert (await inside.run(get("other.example"))).violations


async def test_cancelling_at_any_moment_keeps_no_descriptor(
    backend: DockerBackend, make: Callable[..., DockerBackend]
) -> None:
    with servers() as found:
        async with box(make, network(found.open)) as inside:
            ask = get("open.example", found.open)
            assert (await inside.run(ask)).text() == "hi"
            before = len(os.listdir("/proc/self/fd"))
            for after in (0.0, 0.002, 0.01, 0.05, 0.2):
                with anyio.move_on_after(after):
                    await inside.run(["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; sleep 600"])
                with anyio.move_on_after(after):
                    async with inside.start(["sleep", "600"]) as process:
                        await process.wait()
            assert (await inside.run(ask)).text() == "hi"
            with anyio.fail_after(10):
                # A second connection to the engine may be kept; a leak would be one for each of the ten.
                while len(os.listdir("/proc/self/fd")) > before + 3:  # noqa: ASYNC110 - the event loop closes them
                    await anyio.sleep(0.05)


async def test_the_registry_believes_it_after_an_attack(backend: DockerBackend) -> None:
    registry = SandboxRegistry()
    registry.register(backend, 20)
    taken = await registry.active(LISTED)
    assert taken.enforcement.grade(Control.NET_ALLOWLIST) is Grade.ENFORCED
    assert [
        "only through the proxy" in found.reason
        for found in taken.verification.findings
        if found.control is Control.NET_ALLOWLIST
    ] == [True]


async def test_an_image_with_python_has_it_too(
    backend: DockerBackend, make: Callable[..., DockerBackend], python_image: str
) -> None:
    script = "import urllib.request as u; print(u.urlopen(f'http://open.example:{sys.argv[1]}/').read().decode())"
    with servers() as found:
        spec = SandboxSpec.isolated(network=network(found.open), allow_degraded=DEGRADED)
        result = await make(python_image, resolver=resolver).execute(
            ["python3", "-c", f"import sys; {script}", str(found.open)], spec=spec
        )
        assert result.check().text() == "hi\n"


async def test_an_image_without_python_has_none_and_says_so(
    backend: DockerBackend, make: Callable[..., DockerBackend], shell_image: str
) -> None:
    plain = make(shell_image)
    detection = await plain.detect(LISTED)
    claim = plain.enforcement(LISTED, detection.facts)
    assert claim.grade(Control.NET_ALLOWLIST) is Grade.ABSENT
    assert "the image has no python3" in claim.reason(Control.NET_ALLOWLIST)
    with pytest.raises((EnforcementError, SpecError), match="no python3"):
        await plain.execute(["true"], spec=LISTED)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"where": Endpoint("tcp://192.0.2.1:2376")}, "the engine is reached over a network"),
        ({"runtime": "runsc"}, "gVisor"),
        ({"has_proxy": False}, r"pip install 'sandboxkit\[egress\]'"),
    ],
)
async def test_where_no_way_leads_out_it_is_absent_with_the_reason(
    backend: DockerBackend, changed: dict[str, Any], why: str
) -> None:
    facts = (await backend.detect(LISTED)).facts
    assert isinstance(facts, DockerFacts)
    claim = backend.enforcement(LISTED, replace(facts, **changed))
    assert claim.grade(Control.NET_ALLOWLIST) is Grade.ABSENT
    assert re.search(why, claim.reason(Control.NET_ALLOWLIST))


async def test_the_plan_says_it(backend: DockerBackend, make: Callable[..., DockerBackend]) -> None:
    from sandboxkit.model import Invocation

    spec = SandboxSpec.isolated(network=NetworkPolicy(allow_hosts=("*.github.io",)), allow_degraded=DEGRADED)
    plan = backend.plan(Invocation(("true",), (), None), spec, (await backend.detect(spec)).facts)
    assert f"proxy     127.0.0.1:{PROXY_PORT} in the box" in plan.describe()
    assert any("anybody can have a name under github.io" in note for note in plan.notes)
    assert "--network none" in " ".join(plan.argv)
