"""
A command in a container uses a secret, the server gets it, and nothing in the container ever
holds it; whom it trusts is known there alone. The controls are beside those of bubblewrap.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.backends.bubblewrap.test_secrets import (
    ATTACK,
    PATH,
    SECRET,
    is_told,
    network,
    resolver,
    roots,
    script,
    secrets,
    server,
)
from tests.backends.docker.conftest import DEGRADED, nothing_left

from sandboxkit import NetworkPolicy, SandboxRegistry, SandboxSpec
from sandboxkit.errors import CommandError, SpecError
from sandboxkit.model import Control, Grade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from sandboxkit.backends.docker import DockerBackend
    from sandboxkit.backends.docker._box import DockerSandbox
    from sandboxkit.egress import EgressEvent

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


@asynccontextmanager
async def box(make: Callable[..., DockerBackend], port: int, lists: NetworkPolicy) -> AsyncIterator[DockerSandbox]:
    backend = make(resolver=resolver, secrets=secrets(port), ssl_context=roots())
    async with backend.open(SandboxSpec.isolated(network=lists, allow_degraded=DEGRADED)) as opened:
        yield opened  # type: ignore[misc]  # on the host's own system there is always a Python
    await nothing_left(backend)


async def test_the_server_gets_the_secret_and_the_container_never_does(
    backend: DockerBackend, make: Callable[..., DockerBackend]
) -> None:
    events: list[EgressEvent] = []
    with server() as found:
        async with box(make, found.port, network(found.port)) as inside:
            environment = {**PATH, "API_KEY": SECRET}  # as the application has it
            attack = [*script(ATTACK), "sh", str(found.port)]
            result = await inside.run(attack, environment=environment, on_egress=events.append)
            for holds in (["echo", SECRET], ["cat"]):
                with pytest.raises(CommandError, match="holds the value of a secret"):
                    await inside.run(holds, environment=PATH, stdin=SECRET.encode())
            with pytest.raises(SpecError, match="OTHER holds the value of a secret"):
                async with inside.start(["true"], environment={**PATH, "OTHER": SECRET}):
                    pass
            assert result.enforcement.grade(Control.NET_INTERCEPT) is Grade.ENFORCED
    said = result.text()
    assert "API_KEY=<API_KEY>" in said.splitlines()
    assert said.count("X-Got:") == 9, (said, result.text("stderr"))
    assert not is_told(said, result.text("stderr"), repr(result), repr(events)), said
    filled = [(line.partition(" ")[2].partition("/")[2], held) for line, held, _ in found.asked if SECRET in held]
    assert filled == [("v1/x", f"Bearer {SECRET}")]
    dumped = [sent for line, _, sent in found.asked if line.startswith("POST")]
    assert len(dumped) == 2
    assert not is_told(*dumped, *(line for line, _, _ in found.asked))


async def test_the_authority_is_the_commands_own_and_shown_there_alone(
    backend: DockerBackend, make: Callable[..., DockerBackend]
) -> None:
    text = (
        "stat -c '%a %F' $SSL_CERT_FILE; grep -c 'BEGIN CERT' $SSL_CERT_FILE; grep -c KEY $SSL_CERT_FILE;"
        "(echo x >$SSL_CERT_FILE) 2>/dev/null || echo kept; (rm -f $SSL_CERT_FILE) 2>/dev/null || echo stays;"
        "ls /.sandboxkit-trust | wc -l; cat $SSL_CERT_FILE"
    )
    rules = ({"action": "allow", "to": "https://api.example/v1", "methods": ("GET",)},)
    asks = "for w in 'GET /v1/x' 'POST /v1/x' 'GET /v2'; do set -- $w; curl -so /dev/null -m30 -w '%{http_code} ' -X $1 https://api.example:PORT$2; done"
    with server() as found:
        lists = network(found.port, allow_hosts=(), rules=rules, inject=(), intercept=True)
        async with box(make, found.port, lists) as inside:
            one, two = [await inside.run(script(text)) for _ in range(2)]
            seen = await inside.run(script(asks.replace("PORT", str(found.port))))
            unknown = await inside.run(
                script(f"env -u SSL_CERT_FILE -u CURL_CA_BUNDLE curl -sm30 https://api.example:{found.port}/v1/x")
            )
            assert len(inside.containers) == 1
    assert one.text().splitlines()[:6] == ["444 regular file", "1", "0", "kept", "stays", "1"], one.text("stderr")
    assert one.text() != two.text()
    assert seen.text().split() == ["200", "403", "403"]
    assert len(seen.violations) == 2
    assert unknown.exit_code == 60  # who does not trust the proxy does not speak with it
    assert not Path("/.sandboxkit-trust").exists()


async def test_the_registry_hands_secrets_to_it(
    backend: DockerBackend, kind: str, make: Callable[..., DockerBackend]
) -> None:
    spec = SandboxSpec.isolated(network=network(8443), allow_degraded=DEGRADED)
    with pytest.raises(SpecError, match="no value of the secret API_KEY is known here"):
        await make(ssl_context=roots()).execute(["true"], spec=spec)
    found = {status.name: status for status in await SandboxRegistry.default(secrets=secrets(8443)).list(spec)}
    assert found[kind].missing == ()
