"""
Ways to a server past a proxy, or through one that should refuse: runs as a program of its
own, in a box and without one, with the standard library alone.

Its argument is JSON: `port` (of the hidden servers, TCP and UDP, IPv4 and IPv6), `open` (of
the listed server, open.example), `abstract`, `path` (of sockets), `proxy` (port), `only` and
`without` (names of ways).
Each way sends its own name, so that the server can tell who arrived. Prints JSON: what
became of each. With `own` they are tried in a network of its own in which they are allowed:
the control of those that need rights which nobody lends on the network of a machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SAID = json.loads(sys.argv[1])
PORT, OPEN, PROXY = SAID["port"], SAID["open"], SAID["proxy"]
WAYS: dict[str, Callable[[str], object]] = {}
LIBC = ctypes.CDLL(None, use_errno=True)


def way(action: Callable[[str], object]) -> Callable[[str], object]:
    WAYS[action.__name__.replace("_", "-")] = action
    return action


def stream(name: str, family: int, address: Any, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> bytes:
    with socket.socket(family, kind, protocol) as client:
        client.settimeout(3)
        client.connect(address)
        client.sendall(name.encode())
        client.shutdown(socket.SHUT_WR)
        return client.recv(100)


def datagram(name: str, family: int, address: Any, prefix: bytes = b"") -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        client.sendto(prefix + name.encode(), address)


def through(data: bytes, more: bytes = b"") -> bytes:
    """
    What the proxy says to *data*; *more* is sent after its first answer.
    """
    with socket.create_connection(("127.0.0.1", PROXY), 3) as client:
        client.sendall(data)
        answer = client.recv(4096)
        if more:
            client.sendall(more)
        client.shutdown(socket.SHUT_WR)
        while part := client.recv(65536):
            answer += part
    return answer


def connect(name: str, target: str, fields: str = "") -> bytes:
    return through(f"CONNECT {target} HTTP/1.1\r\nHost: open.example:{OPEN}\r\n{fields}\r\n".encode(), name.encode())


def get(name: str, host: str, fields: str = "", method: str = "GET") -> bytes:
    line = f"{method} http://{host}/{name} HTTP/1.1\r\n"
    return through(f"{line}Host: open.example:{OPEN}\r\nConnection: close\r\n{fields}\r\n".encode())


def socks(name: str, kind: int, address: bytes, command: int = 1) -> bytes:
    with socket.create_connection(("127.0.0.1", PROXY), 3) as client:
        client.sendall(b"\x05\x01\x00")
        client.recv(2)
        client.sendall(bytes((5, command, 0, kind)) + address + struct.pack("!H", PORT))
        answer = client.recv(10)
        client.sendall(name.encode())
        client.shutdown(socket.SHUT_WR)
        return answer + client.recv(100)


def program(*argv: str, **changed: str) -> None:
    done = subprocess.run(argv, env={**os.environ, **changed}, capture_output=True, timeout=10, check=False)
    if done.returncode:
        raise OSError(5, done.stderr.decode()[-200:])


# --- past the proxy --------------------------------------------------------------------

way_table: dict[str, tuple[int, Any]] = {
    "tcp-loopback": (socket.AF_INET, ("127.0.0.1", PORT)),
    "tcp-short-address": (socket.AF_INET, ("127.1", PORT)),
    "tcp-any-address": (socket.AF_INET, ("0.0.0.0", PORT)),
    "tcp-by-name": (socket.AF_INET, ("localhost", PORT)),
    "tcp-ipv6": (socket.AF_INET6, ("::1", PORT)),
    "tcp-mapped": (socket.AF_INET6, ("::ffff:127.0.0.1", PORT)),
    "unix-abstract": (socket.AF_UNIX, "\0" + SAID["abstract"]),
    "unix-path": (socket.AF_UNIX, SAID["path"]),
}
for key, (family_, address_) in way_table.items():
    WAYS[key] = partial(stream, family=family_, address=address_)


@way
def unix_path_by_proc(name: str) -> object:
    return stream(name, socket.AF_UNIX, "/proc/self/root" + SAID["path"])


@way
def mptcp(name: str) -> object:
    return stream(name, socket.AF_INET, ("127.0.0.1", PORT), protocol=262)


@way
def tcp_fast_open(name: str) -> object:
    with socket.socket() as client:
        client.settimeout(3)
        return client.sendto(name.encode(), 0x20000000, ("127.0.0.1", PORT))


@way
def udp(name: str) -> None:
    datagram(name, socket.AF_INET, ("127.0.0.1", PORT))


@way
def udp_ipv6(name: str) -> None:
    datagram(name, socket.AF_INET6, ("::1", PORT))


@way
def udp_connected(name: str) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", PORT))
        return client.send(name.encode())


@way
def dns_by_udp(name: str) -> None:
    datagram(name, socket.AF_INET, ("127.0.0.1", PORT), b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0")


@way
def dns_by_tcp(name: str) -> object:
    return stream("\0\x20\x12\x34" + name, socket.AF_INET, ("127.0.0.1", PORT))


@way
def quic_initial(name: str) -> None:
    datagram(name, socket.AF_INET, ("127.0.0.1", PORT), b"\xc3\0\0\0\x01\x08" + bytes(1180))


@way
def bash_dev_tcp(name: str) -> None:
    program("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf {name} >&3")


@way
def bash_dev_udp(name: str) -> None:
    program("bash", "-c", f"exec 3<>/dev/udp/127.0.0.1/{PORT}; printf {name} >&3")


@way
def curl_without_proxy(name: str) -> None:
    program("curl", "-sfm3", "--noproxy", "*", f"http://127.0.0.1:{PORT}/{name}")


@way
def variables_unset(name: str) -> None:
    unset = [word for key in os.environ if "proxy" in key.lower() for word in ("-u", key)]
    program("env", *unset, "curl", "-sfm3", f"http://127.0.0.1:{PORT}/{name}")


@way
def curl_resolve(name: str) -> None:
    program(
        "curl", "-sfm3", "--noproxy", "*", "--resolve", f"open.example:{PORT}:127.0.0.1",
        f"http://open.example:{PORT}/{name}",
    )  # fmt: skip


@way
def curl_unix_socket(name: str) -> None:
    program("curl", "-sfm3", "--unix-socket", SAID["path"], f"http://open.example/{name}")


@way
def unix_datagram(name: str) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        return client.sendto(name.encode(), "\0" + SAID["abstract"] + "-datagram")


# These reach no server of ours; that they are refused, or made and answered, is what they tell.


def echo(name: str, family: int, kind: int, protocol: int, request: int, reply: int) -> bytes:
    """
    An echo request, and what answers it: the kernel does, whoever it belongs to.

    Source: RFC 792, RFC 4443 section 4; icmp(7), raw(7).
    """
    data = bytes((request, 0, 0, 0, 0, 7, 0, 1)) + name.encode()
    if family == socket.AF_INET:
        total = sum(struct.unpack(f"!{len(data) // 2 + 1}H", data + bytes(2 - len(data) % 2)))
        total = (total & 0xFFFF) + (total >> 16)
        data = data[:2] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + data[4:]
    with socket.socket(family, kind, protocol) as client:
        client.settimeout(3)
        client.sendto(data, ("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        while True:
            answer = client.recv(1000)
            if family == socket.AF_INET and kind == socket.SOCK_RAW:
                answer = answer[20:]  # the header of IP
            if answer[:1] == bytes((reply,)) and name.encode() in answer:
                return b"answered"


for key, row in {
    "raw-icmp": (socket.AF_INET, socket.SOCK_RAW, 1, 8, 0),
    "raw-icmp-ipv6": (socket.AF_INET6, socket.SOCK_RAW, 58, 128, 129),
    "icmp-datagram": (socket.AF_INET, socket.SOCK_DGRAM, 1, 8, 0),
    "icmp-datagram-ipv6": (socket.AF_INET6, socket.SOCK_DGRAM, 58, 128, 129),
}.items():
    WAYS[key] = partial(lambda name, row: echo(name, *row), row=row)


@way
def ping(_name: str) -> None:
    program("ping", "-c1", "-W1", "127.0.0.1")


@way
def raw_ip(_name: str) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 255).close()


@way
def packet(_name: str) -> None:
    socket.socket(17, socket.SOCK_RAW, 3).close()


@way
def vsock(_name: str) -> None:
    socket.socket(40, socket.SOCK_STREAM).close()


def apart(call: str, *values: int) -> None:
    """
    A call that changes where its process is, in one of its own: the other ways stay here.
    """
    child = os.fork()
    if child == 0:
        try:
            kernel(call, *values)
        except OSError as exc:
            os._exit(exc.errno or 255)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise OSError(code, call)


@way
def new_namespace(_name: str) -> None:
    apart("unshare", 0x50000000)


@way
def hosts_namespace(_name: str) -> None:
    fd = os.open(f"/proc/{SAID['pid']}/ns/net", os.O_RDONLY)
    apart("setns", fd, 0x40000000)


@way
def tunnel_device(_name: str) -> None:
    os.close(os.open("/dev/net/tun", os.O_RDWR))


@way
def new_route(_name: str) -> None:
    # RTM_NEWROUTE of a default route by the loopback device. Source: rtnetlink(7).
    body = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 4, 0, 1, 0) + struct.pack("=HHI", 8, 4, 1)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as client:
        client.settimeout(3)
        client.send(struct.pack("=IHHII", 16 + len(body), 24, 0x605, 1, 0) + body)
        (code,) = struct.unpack("=i", client.recv(100)[16:20])
        if code:
            raise OSError(-code, "")


def kernel(call: str, *values: int) -> None:
    if getattr(LIBC, call)(*values) < 0:
        raise OSError(ctypes.get_errno(), call)


# --- through the proxy -----------------------------------------------------------------

for key, target in {
    "connect-literal": f"127.0.0.1:{PORT}",
    "connect-ipv6": f"[::1]:{PORT}",
    "connect-mapped": f"[::ffff:127.0.0.1]:{PORT}",
    "connect-localhost": f"localhost:{PORT}",
    "connect-unlisted": f"hidden.example:{PORT}",
    "connect-other-port": f"open.example:{PORT}",
    "connect-root-label": f"hidden.example.:{PORT}",
    "connect-inside": f"inside.example:{PORT}",
    "connect-mixed-answer": f"mixed.example:{PORT}",
    "connect-decimal": f"2130706433:{PORT}",
    "connect-hexadecimal": f"0x7f000001:{PORT}",
    "connect-user": f"open.example:{OPEN}@127.0.0.1:{PORT}",
    "connect-full-width": f"hidden\uff0eexample:{PORT}",
}.items():
    WAYS[key] = partial(connect, target=target)
for key, host_ in {
    "get-literal": f"127.0.0.1:{PORT}",
    "get-unlisted": f"hidden.example:{PORT}",
    "get-inside": f"inside.example:{PORT}",
    "get-user": f"open.example:{OPEN}@127.0.0.1:{PORT}",
    "get-backslash": f"open.example:{OPEN}\\@127.0.0.1:{PORT}",
    "get-fragment": f"127.0.0.1:{PORT}#open.example",
}.items():
    WAYS[key] = partial(get, host=host_)


@way
def put_unlisted(name: str) -> object:
    return get(name, f"hidden.example:{PORT}", method="PUT")


@way
def host_header(name: str) -> object:
    return through(
        f"GET http://open.example:{OPEN}/ HTTP/1.1\r\nHost: hidden.example:{PORT}\r\nX: {name}\r\n\r\n".encode()
    )


@way
def server_name(name: str) -> object:
    """
    A tunnel to the listed host in which TLS is asked for another name.
    """
    import ssl

    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="hidden.example")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    request = f"CONNECT open.example:{OPEN} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    return through(request, out.read() + name.encode())


@way
def websocket(name: str) -> object:
    return get(
        name, f"hidden.example:{PORT}", "Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
    )


def second(name: str) -> str:
    return f"GET http://hidden.example:{PORT}/{name} HTTP/1.1\r\nHost: hidden.example\r\n\r\n"


@way
def pipelined(name: str) -> object:
    return through(f"GET http://open.example:{OPEN}/ HTTP/1.1\r\nHost: x\r\n\r\n{second(name)}".encode())


def smuggled(name: str, fields: str) -> bytes:
    return through(f"POST http://open.example:{OPEN}/ HTTP/1.1\r\nHost: x\r\n{fields}{second(name)}".encode())


for key, framing in {
    "smuggled-two-lengths": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "smuggled-two-contents": "Content-Length: 0\r\nContent-Length: 200\r\n\r\n",
    "smuggled-space": "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "smuggled-line-feed": "X: a\n\n",
    "smuggled-sign": "Content-Length: +0\r\n\r\n",
    "smuggled-hexadecimal": "Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    "smuggled-unknown-coding": "Transfer-Encoding: xchunked\r\nContent-Length: 0\r\n\r\n",
    "smuggled-folded": "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
}.items():
    WAYS[key] = partial(smuggled, fields=framing)


@way
def header_injection(name: str) -> object:
    return connect(name, f"open.example:{OPEN} HTTP/1.1\r\nHost: x\r\n\r\nCONNECT hidden.example:{PORT}")


@way
def socks_by_name(name: str) -> object:
    return socks(name, 3, b"\x0ehidden.example")


@way
def socks_literal(name: str) -> object:
    return socks(name, 1, b"\x7f\0\0\x01")


@way
def socks_ipv6(name: str) -> object:
    return socks(name, 4, bytes(15) + b"\x01")


@way
def socks_udp(name: str) -> object:
    return socks(name, 1, b"\x7f\0\0\x01", command=3)


@way
def socks_version_four(name: str) -> object:
    return through(b"\x04\x01" + struct.pack("!H", PORT) + b"\x7f\0\0\x01\0", name.encode())


def own_network() -> None:
    """
    A network namespace with all rights in it, its loopback up, and echo requests for everyone.

    Source: user_namespaces(7), netdevice(7), icmp(7) ping_group_range.
    """
    user, group = os.geteuid(), os.getegid()
    kernel("unshare", 0x40000000 if user == 0 else 0x50000000)
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x49))  # SIOCSIFFLAGS: up, loopback, running
    with open("/proc/sys/net/ipv4/ping_group_range", "w") as file:
        file.write("0 0" if user else f"0 {max(group, 1)}")


def main() -> None:
    answers = {}
    if SAID["own"]:
        is_root = os.geteuid() == 0
        own_network()
        if not is_root:  # whose rights end in the network of its own
            SAID["pid"] = os.getpid()
    for name, action in WAYS.items():
        if (SAID["only"] and name not in SAID["only"]) or name in SAID["without"]:
            continue
        try:
            said = action(f"way-{name}-end")
            answers[name] = said.decode("latin-1")[:60] if isinstance(said, bytes) else "done"
        except (OSError, ValueError, subprocess.TimeoutExpired) as exc:
            answers[name] = f"{type(exc).__name__}: {exc}"
    print(json.dumps(answers))


main()
