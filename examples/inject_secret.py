"""
A program that uses a key and never sees it: it holds a placeholder, the proxy puts the key
in for one host, and masks it where the server repeats it.

The server is on loopback, and so is every name: nothing leaves the machine.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.streams.tls import TLSListener, TLSStream

from sandboxkit import EgressPolicy
from sandboxkit.egress import EgressProxy, Injection, Interception
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import ByteStream

    from sandboxkit.egress import ProxyAddress

HOSTS = ("api.example", "other.example")


def certificate(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """
    What the two hosts answer with, and what verifies them: a real proxy uses the system's
    authorities, these names have a certificate of their own.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOSTS[0])])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS]), critical=False)
        .sign(key, SHA256())
    )
    file = directory / "server.pem"
    file.write_bytes(
        signed.public_bytes(Encoding.PEM) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=signed.public_bytes(Encoding.PEM).decode())


async def echo(stream: ByteStream) -> None:
    """
    A server that repeats the credentials it gets.
    """
    async with stream:
        request = (await stream.receive()).decode()
        line = next(line for line in request.splitlines() if line.startswith("Authorization"))
        body = f"you sent: {line}\n".encode()
        print(f"server got:  {line}")
        await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


async def names(_host: str, _port: int) -> Sequence[str]:
    """
    A name service under which every name is this machine. Leave it out to ask the real one.
    """
    return ["127.0.0.1"]


async def fetched(proxy: ProxyAddress, trust: ssl.SSLContext, host: str, port: int, path: str) -> str:
    """
    What a program gets that uses the proxy, as curl would with HTTPS_PROXY and CURL_CA_BUNDLE.
    """
    import base64

    token = base64.b64encode(f"sandboxkit:{proxy.token}".encode()).decode()
    stream = await anyio.connect_tcp(proxy.host, proxy.port)
    target = f"{host}:{port}"
    await stream.send(
        f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {token}\r\n\r\n".encode()
    )
    await stream.receive()
    async with await TLSStream.wrap(stream, hostname=host, ssl_context=trust, standard_compatible=False) as tls:
        await tls.send(
            f"GET {path} HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer <API_KEY>\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join([data async for data in tls]).decode()
    return next(line for line in answer.splitlines() if line.startswith(("you sent", "sandboxkit:")))


async def main(directory: Path) -> None:
    """
    Asks the host of the key, another host, and a path that no rule allows.
    """
    server, roots = certificate(directory)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    secrets = SecretRegistry()
    secrets.add("API_KEY", "s3cr3t-42", hosts=[f"{HOSTS[0]}:{port}"])
    policy = EgressPolicy(
        rules=[{"action": "allow", "to": f"https://{host}/v1", "methods": ["GET"]} for host in HOSTS],
        default="deny",
        permit_networks=["127.0.0.0/8"],
    )
    interception = Interception(
        secrets=secrets,
        injections=(Injection("API_KEY", to=f"{HOSTS[0]}:{port}/v1", methods=("GET",)),),
        ssl_context=roots,  # leave it out to verify by the system's authorities
    )
    proxy = EgressProxy(policy, intercept=interception, resolver=names, own=())
    trust = proxy.trust("/run/box")  # files and variables for the box
    client = ssl.create_default_context(cadata=next(iter(trust.files.values())).decode())
    async with listener, proxy.listening() as address, anyio.create_task_group() as tasks:
        tasks.start_soon(TLSListener(listener, server, standard_compatible=False).serve, echo)
        for host, path in ((HOSTS[0], "/v1/users"), (HOSTS[1], "/v1/users"), (HOSTS[0], "/v2")):
            said = await fetched(address, client, host, port, path)
            print(f"program got: {said}".replace(str(port), "PORT"))
        tasks.cancel_scope.cancel()


with tempfile.TemporaryDirectory() as scratch:
    anyio.run(main, Path(scratch))
