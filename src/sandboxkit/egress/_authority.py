"""
A certificate authority of one proxy, for as long as that lives. Imported when it is used.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections import OrderedDict
from typing import final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandboxkit.model import is_literal

__all__ = ["Authority"]

_KEPT = 256
"""Contexts that are kept; a box that asks for more names makes the oldest be signed again."""
_BACKDATED = datetime.timedelta(minutes=1)
"""For clocks that are behind ours."""


@final
class Authority:
    """
    Signs certificates for the hosts a proxy stands in for. Its keys exist in memory only,
    are made anew for each authority, and sign for no longer than *valid_s*.

    Whoever trusts `certificate` trusts the proxy about every host: give it to the box
    alone.

    Args:
        valid_s: Seconds until its certificates expire.

    Source: RFC 5280 sections 4.2.1.3 (key usage), 4.2.1.6 (names), 4.2.1.9 (constraints).
    """

    def __init__(self, valid_s: float) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self._valid = (now - _BACKDATED, now + datetime.timedelta(seconds=valid_s))
        self._key, self._host_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"sandboxkit proxy {os.urandom(8).hex()}")])
        public = self._key.public_key()
        certificate = (
            self._builder(self._name, public)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self._key, SHA256())
        )
        self.certificate = certificate.public_bytes(Encoding.PEM)
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    def context(self, host: str) -> ssl.SSLContext:
        """
        What to be *host* with, a canonical one: TLS 1.2 or newer, HTTP/1.1 alone.
        """
        context = self._contexts.get(host)
        if context is None:
            context = self._contexts[host] = self._made(host)
            if len(self._contexts) > _KEPT:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(host)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._valid[0])
            .not_valid_after(self._valid[1])
        )

    def _made(self, host: str) -> ssl.SSLContext:
        name = x509.IPAddress(ipaddress.ip_address(host)) if is_literal(host) else x509.DNSName(host)
        public = self._host_key.public_key()
        certificate = (
            self._builder(x509.Name([]), public)  # a common name has 64 characters at most, a host more
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        key = self._host_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _load(context, certificate.public_bytes(Encoding.PEM), key)
        return context


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """
    OpenSSL reads from files alone: pipes are files that no disk sees. Both are smaller
    than the least buffer of a pipe, so writing does not wait.
    """
    ends = [_pipe(data) for data in (certificate, key)]
    try:
        context.load_cert_chain(*(f"/dev/fd/{end}" for end in ends))
    finally:
        for end in ends:
            os.close(end)


def _pipe(data: bytes) -> int:
    read, write = os.pipe()
    with open(write, "wb") as file:
        file.write(data)
    return read
