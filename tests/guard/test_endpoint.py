"""
An application reaches its own back ends alone, whatever somebody configured.
"""

from __future__ import annotations

import pytest

from sandboxkit import EgressDeniedError, EndpointGuard, PolicyError, UrlError

GUARD = EndpointGuard(["api.example.com", "Example.com"])


def test_an_endpoint_is_returned_in_canonical_form() -> None:
    assert str(GUARD.check("HTTPS://API.example.com./v1")) == "https://api.example.com/v1"
    assert GUARD.decide("https://example.com/").allowed


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com/",
        "https://api.example.com:8443/",
        "https://api.example.com.evil.example/",
        "https://a.api.example.com/",
        "https://localhost/",
        "https://127.0.0.1/",
    ],
)
def test_everything_else_is_refused(url: str) -> None:
    with pytest.raises(EgressDeniedError) as refused:
        GUARD.check(url)
    assert not refused.value.verdict.allowed
    with pytest.raises(PermissionError):
        GUARD.check(url)


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(UrlError):
        GUARD.check("https://api.example.com@evil.example/")


def test_loopback_needs_the_development_switch() -> None:
    guard = EndpointGuard(["api.example.com"], development=True)
    for url in ("http://localhost:3000/", "http://127.0.0.1/", "https://[::1]:8443/"):
        assert guard.decide(url).allowed
        assert not GUARD.decide(url).allowed
    assert not guard.decide("http://api.example.com/").allowed
    assert not guard.decide("http://127.0.0.2/").allowed


@pytest.mark.parametrize("host", ["*.example.com", "127.0.0.1", "localhost", "a..example", "https://a.example"])
def test_a_host_is_a_full_name(host: str) -> None:
    with pytest.raises(PolicyError):
        EndpointGuard([host])


def test_no_hosts_are_no_endpoints() -> None:
    assert not EndpointGuard([]).decide("https://example.com/").allowed
