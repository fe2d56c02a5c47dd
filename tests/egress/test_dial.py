"""
Only checked addresses are dialed, and every address of a name is checked.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

import anyio
import pytest
from tests.egress.servers import local_policy, names, serving

from sandboxkit import EgressDeniedError, EgressPolicy, EgressTimeoutError, EgressUnreachableError
from sandboxkit.egress import Dialer, own_addresses, system_resolver
from sandboxkit.egress._dial import _in_turn, connect_checked
from sandboxkit.guard import checked_addresses

if TYPE_CHECKING:
    from anyio.abc import ByteStream

    from sandboxkit.guard import Address

pytestmark = pytest.mark.anyio


class Dialed:
    """
    Stands where the network is: remembers what is dialed and connects to nothing but loopback.
    """

    def __init__(self, **answers: object) -> None:
        self.addresses: list[str] = []
        self.port = 0

    async def __call__(self, address: Address, port: int) -> ByteStream:
        self.addresses.append(str(address))
        if address.is_loopback:
            return await connect_checked(address, port)
        raise ConnectionRefusedError(str(address))


async def test_what_is_dialed_is_what_was_checked() -> None:
    async with serving() as port:
        dialer = Dialer(local_policy(), resolver=names(), own=())
        found = await dialer.connect("a.example", port)
        async with found.stream:
            await found.stream.send(b"hello")
            assert await found.stream.receive() == b"hello"
        assert str(found.address) == "127.0.0.1"


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "10.0.0.1"],
        ["169.254.169.254", "93.184.216.34"],
        ["::ffff:127.0.0.1"],
        ["fe80::1%eth0"],
        [],
        ["x"],
    ],
)
async def test_one_refused_address_refuses_the_name_before_anything_is_dialed(answers: list[str]) -> None:
    dialed = Dialed()
    dialer = Dialer(EgressPolicy(), resolver=names(a_example=answers), connector=dialed, own=())
    with pytest.raises(EgressDeniedError):
        await dialer.connect("a.example", 80)
    assert dialed.addresses == []
    async with serving() as port:  # the same act where it is permitted
        permitted = Dialer(local_policy(), resolver=names(), connector=dialed, own=())
        await anyio.aclose_forcefully((await permitted.connect("a.example", port)).stream)
    assert dialed.addresses == ["127.0.0.1"]


async def test_each_connection_resolves_again() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def flips(_host: str, _port: int) -> list[str]:
        return answers.pop(0)

    async with serving() as port:
        dialer = Dialer(local_policy(), resolver=flips, own=())
        await anyio.aclose_forcefully((await dialer.connect("a.example", port)).stream)
        with pytest.raises(EgressDeniedError, match="private use"):
            await dialer.connect("a.example", port)


async def test_a_literal_is_judged_and_not_resolved() -> None:
    async def never(host: str, _port: int) -> list[str]:
        raise AssertionError(host)

    for literal in ("127.0.0.1", "::1", "::ffff:7f00:1", "10.0.0.1"):
        with pytest.raises(EgressDeniedError):
            await Dialer(EgressPolicy(), resolver=never, own=()).connect(literal, 80)


async def test_an_address_of_this_machine_is_refused() -> None:
    dialed = Dialed()
    own = [ipaddress.ip_address("93.184.216.34")]
    resolver = names(a_example=["93.184.216.34"])
    with pytest.raises(EgressDeniedError, match="of this machine"):
        await Dialer(EgressPolicy(), resolver=resolver, connector=dialed, own=own).connect("a.example", 80)
    assert dialed.addresses == []
    with pytest.raises(EgressUnreachableError):
        await Dialer(EgressPolicy(), resolver=resolver, connector=dialed, own=()).connect("a.example", 80)
    assert dialed.addresses == ["93.184.216.34"]


def test_own_addresses_are_those_the_kernel_delivers_here() -> None:
    own = own_addresses()
    assert all(not address.is_loopback for address in own)
    for address in own:
        if address.version == 4:
            with socket.socket() as sock:
                sock.bind((str(address), 0))  # fails where the address is not ours


async def test_another_address_is_tried_when_one_fails() -> None:
    async with serving() as port:
        dialed = Dialed()
        resolver = names(a_example=["93.184.216.34", "127.0.0.1"])
        found = await Dialer(local_policy(), resolver=resolver, connector=dialed, own=()).connect("a.example", port)
        await anyio.aclose_forcefully(found.stream)
    assert dialed.addresses == ["93.184.216.34", "127.0.0.1"]


async def test_a_slow_address_gets_company_and_loses() -> None:
    ended: list[str] = []

    async def connector(address: Address, port: int) -> ByteStream:
        if address.version == 6:
            try:
                await anyio.sleep(30)
            finally:
                ended.append(str(address))
        return await connect_checked(address, port)

    async with serving() as port:
        resolver = names(a_example=["2606:4700::1", "127.0.0.1"])
        with anyio.fail_after(5):
            found = await Dialer(local_policy(), resolver=resolver, connector=connector, own=()).connect(
                "a.example", port
            )
        assert str(found.address) == "127.0.0.1"
        await anyio.aclose_forcefully(found.stream)
    assert ended == ["2606:4700::1"]


async def test_a_slow_name_service_meets_its_deadline() -> None:
    async def slow(_host: str, _port: int) -> list[str]:
        await anyio.sleep(30)
        return []

    with pytest.raises(EgressTimeoutError, match=r"no answer within 0.1 s"):
        await Dialer(EgressPolicy(), resolver=slow, resolve_timeout=0.1, own=()).connect("a.example", 80)


async def test_a_slow_host_meets_its_deadline() -> None:
    async def slow(_address: Address, _port: int) -> ByteStream:
        await anyio.sleep(30)
        raise AssertionError

    dialer = Dialer(
        EgressPolicy(), resolver=names(a_example=["93.184.216.34"]), connector=slow, connect_timeout=0.1, own=()
    )
    with pytest.raises(EgressTimeoutError, match=r"no connection within 0.1 s"):
        await dialer.connect("a.example", 80)


async def test_the_machines_own_name_service_is_asked() -> None:
    assert set(await system_resolver("localhost", 80)) & {"127.0.0.1", "::1"}


def test_families_take_turns() -> None:
    texts = ["1.1.1.1", "1.1.1.2", "1.1.1.3", "2606:4700::1", "::ffff:1.1.1.1"]
    assert [str(address) for address in _in_turn(checked_addresses(texts))] == [
        "2606:4700::1",
        "1.1.1.1",
        "1.1.1.2",
        "1.1.1.3",
    ]
