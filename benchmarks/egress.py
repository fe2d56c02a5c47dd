"""
What the egress proxy costs, next to a direct connection on loopback.

    python benchmarks/egress.py [--quick] [--json] [--check]

Server, proxy and client are processes of their own, so the proxy needs a third of the
processor time: on a machine with two busy cores it cannot reach a direct connection.
Nothing fails on timing unless `--check` is given.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import anyio

from sandboxkit import EgressPolicy
from sandboxkit.egress import EgressProxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MIB = 1 << 20
SPARE = 64  # descriptors for anything else
LIMITS = {"throughput ratio": 0.5, "added latency p50 ms": 1.0}


def serve() -> None:
    """
    A server: sends as many MiB as the first line says, or echoes where it says 0.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def answer(peer: socket.socket) -> None:
    """
    One connection of `serve`.
    """
    with peer, peer.makefile("rb") as lines:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = int(lines.readline())
        block = bytes(MIB)
        for _ in range(size):
            peer.sendall(block)
        while not size and (line := lines.readline()):
            peer.sendall(line)


async def relay() -> None:
    """
    The proxy, for names below `.example`, all of which are on loopback.
    """

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    proxy = EgressProxy(EgressPolicy(permit_networks=["127.0.0.0/8"]), resolver=resolve, own=())
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", backlog=2048)
    print(listener.extra(anyio.abc.SocketAttribute.local_port), flush=True)
    await proxy.serve(listener)


@contextmanager
def running(role: str) -> Iterator[int]:
    """
    This program in another process, as *role*; gives its port.
    """
    with subprocess.Popen([sys.executable, __file__, "--role", role], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def connected(port: int, proxy: int | None) -> socket.socket:
    """
    A connection to the server at *port*, through the proxy where there is one.
    """
    peer = socket.create_connection(("127.0.0.1", proxy or port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if proxy:
        peer.sendall(f"CONNECT a.example:{port} HTTP/1.1\r\nHost: a.example\r\n\r\n".encode())
        answered = b""
        while not answered.endswith(b"\r\n\r\n"):
            answered += peer.recv(1)
        assert answered.startswith(b"HTTP/1.1 200"), answered
    return peer


def throughput(port: int, proxy: int | None, size: int) -> float:
    """
    MiB a second of *size* MiB.
    """
    buffer = bytearray(MIB)
    with connected(port, proxy) as peer:
        started = time.perf_counter()
        peer.sendall(b"%d\n" % size)
        left = size * MIB
        while left:
            left -= peer.recv_into(buffer, min(left, MIB))
        return size / (time.perf_counter() - started)


def latency(port: int, proxy: int | None, rounds: int) -> float:
    """
    Milliseconds of one small exchange, the median.
    """
    times = []
    with connected(port, proxy) as peer:
        peer.sendall(b"0\n")
        for _ in range(rounds):
            started = time.perf_counter()
            peer.sendall(b"ping\n")
            peer.recv(100)
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def let_open(count: int) -> int:
    """
    Lets this process, and those it starts, have *count* descriptors more than it needs
    anyway, if the hard limit does; gives how many of them it may have.

    Source: getrlimit(2), RLIMIT_NOFILE.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + SPARE
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        print(f"open files: soft limit raised to {soft}", file=sys.stderr)
    return count if soft == resource.RLIM_INFINITY else min(count, soft - SPARE)


def tunnels(port: int, proxy: int, count: int) -> float:
    """
    Seconds until *count* tunnels are open at one time and each has carried something.
    """
    started = time.perf_counter()
    with ExitStack() as stack:
        peers = [stack.enter_context(connected(port, proxy)) for _ in range(count)]
        for peer in peers:
            peer.sendall(b"0\nping\n")
        for peer in peers:
            assert peer.recv(100) == b"ping\n"
        return time.perf_counter() - started


def main() -> int:
    """
    Prints the figures; ends with 1 where `--check` finds a limit passed.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds and tunnels")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--check", action="store_true", help="end with 1 where a limit is passed")
    parser.add_argument("--role", choices=["server", "proxy"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "server":
        serve()
    if given.role == "proxy":
        anyio.run(relay)
    size, rounds, wanted = (64, 200, 100) if given.quick else (512, 2000, 1000)
    count = let_open(2 * wanted) // 2  # of a tunnel the proxy holds both ends
    if count < wanted:
        print(f"the hard limit of open files allows {count} tunnels of {wanted} (ulimit -Hn)", file=sys.stderr)
    with running("server") as port, running("proxy") as proxy:
        direct, through = (max(throughput(port, way, size) for _ in range(3)) for way in (None, proxy))
        near, far = (min(latency(port, way, rounds) for _ in range(3)) for way in (None, proxy))
        found = {
            "direct MiB/s": direct,
            "proxy MiB/s": through,
            "throughput ratio": through / direct,
            "direct latency p50 ms": near,
            "added latency p50 ms": far - near,
            f"{count} tunnels s": tunnels(port, proxy, count),
        }
    over = [name for name, limit in LIMITS.items() if (found[name] < limit if "ratio" in name else found[name] > limit)]
    if given.json:
        print(json.dumps({"figures": {name: round(value, 3) for name, value in found.items()}, "over": over}))
    else:
        for name, value in found.items():
            print(f"{name:24} {value:10.3f}" + (f"   limit {LIMITS[name]:g}" if name in LIMITS else ""))
    return 1 if given.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
