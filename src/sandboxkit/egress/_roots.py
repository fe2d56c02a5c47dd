"""
Which certificate authorities servers are verified by.
"""

from __future__ import annotations

import ssl
from pathlib import Path

__all__ = ["strict", "system_roots", "verifying"]


def system_roots() -> ssl.SSLContext:
    """
    Verifies with what OpenSSL was built to use; `create_default_context` would read the environment.

    Raises:
        FileNotFoundError: The system has no certificate authorities there.
    """
    paths = ssl.get_default_verify_paths()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    found = False
    for name, place in (("cafile", Path(paths.openssl_cafile)), ("capath", Path(paths.openssl_capath))):
        if place.is_file() if name == "cafile" else (place.is_dir() and any(place.iterdir())):
            context.load_verify_locations(**{name: str(place)})
            found = True
    if not found:
        raise FileNotFoundError(
            f"no certificate authorities at {paths.openssl_cafile} or {paths.openssl_capath}; "
            "install ca-certificates or pass ssl_context"
        )
    return context


def verifying(context: ssl.SSLContext) -> ssl.SSLContext:
    """
    *context*, if it verifies a server's certificate and name.

    Raises:
        ValueError: It does not.
    """
    if context.verify_mode != ssl.CERT_REQUIRED or not context.check_hostname:
        raise ValueError("ssl_context must verify servers: verify_mode=CERT_REQUIRED and check_hostname=True")
    return context


def strict(context: ssl.SSLContext) -> ssl.SSLContext:
    """
    *context*, which from now on takes a connection that is cut off for no end of what was
    sent. Python switches that off: whoever sits between could shorten an answer.

    Source: SSL_CTX_set_options(3), SSL_OP_IGNORE_UNEXPECTED_EOF; RFC 8446 section 6.1.
    """
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    return context
