"""
How programs are told which certificate authorities to believe. Pure.
"""

from __future__ import annotations

__all__ = ["trusting"]

_TRUSTING = (
    "SSL_CERT_FILE",  # OpenSSL, Python's ssl, Ruby, Go, rustls-native-certs, uv
    "REQUESTS_CA_BUNDLE",  # Python's requests
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "NIX_SSL_CERT_FILE",
    "PERL_LWP_SSL_CA_FILE",
)
"""Variables that name a file of authorities. Source: the documentation of each."""


def trusting(path: str) -> dict[str, str]:
    """
    The variables by which the usual programs take the authorities in the file at *path*
    for theirs.
    """
    return dict.fromkeys(_TRUSTING, path)
