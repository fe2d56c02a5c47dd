"""
The blocking client is the guarded client, through one more door.
"""

from __future__ import annotations

import ssl
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from anyio.from_thread import start_blocking_portal
from tests.egress.servers import local_policy, names
from tests.egress.test_client import answering, ok, to

from sandboxkit import EgressDeniedError, EgressLimitError, EgressPolicy, EgressTimeoutError, UrlError
from sandboxkit.egress import ClientLimits, guarded_sync_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("httpx2", reason="the client is the extra egress")

CONTEXT = ssl.create_default_context()


@contextmanager
def server(answer: bytes | Callable[[str], bytes]) -> Iterator[tuple[int, list[str]]]:
    """
    `answering` in a thread.
    """
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(answering(answer)) as served:
        yield served


def client(policy: EgressPolicy | None = None, **more: Any) -> Any:
    return guarded_sync_client(policy or local_policy(), resolver=names(), own=(), ssl_context=CONTEXT, **more)


def test_an_allowed_request_is_answered_and_the_thread_ends() -> None:
    before = threading.active_count()
    with server(ok()) as (port, heads):
        with client() as http:
            assert http.get(f"http://A.example:{port}/x/../y").text == "hello"
            assert http.post(f"http://a.example:{port}/", content=b"body").status_code == 200
            with http.stream("GET", f"http://a.example:{port}/") as answer:
                assert b"".join(answer.iter_bytes()) == b"hello"
        assert heads[0].startswith("GET /y HTTP/1.1")
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)  # the server's thread ends on its own
    assert threading.active_count() == before


@pytest.mark.parametrize("url", ["http://localhost/", "http://10.0.0.1/", "http://127.1/", "http://a.example:22/"])
def test_what_is_refused_stays_refused(url: str) -> None:
    with client() as http, pytest.raises((EgressDeniedError, UrlError)):
        http.get(url)


def test_redirects_and_bounds_are_the_same() -> None:
    with server(lambda asked: to(f"http://b.example:{port}/") if "a.example" in asked else ok()) as (port, heads):
        with client() as http:
            got = http.get(f"http://a.example:{port}/", headers={"X-API-Key": "y"}, follow_redirects=True)
            assert (got.text, len(got.history)) == ("hello", 1)
        assert "x-api-key" not in heads[1].lower()
        with client(limits=ClientLimits(body_bytes=3)) as http, pytest.raises(EgressLimitError):
            http.get(f"http://b.example:{port}/")
    with server(to("http://localhost/")) as (port, _), client() as http, pytest.raises(EgressDeniedError):
        http.get(f"http://a.example:{port}/", follow_redirects=True)
    with server(to("/again")) as (port, heads), client() as http, pytest.raises(EgressLimitError, match="5 times"):
        http.get(f"http://a.example:{port}/", follow_redirects=True)


def test_the_deadline_is_the_same() -> None:
    bounded = ClientLimits(total_timeout=0.3)
    with (
        server(b"HTTP/1.1 200 OK\r\n") as (port, _),
        client(limits=bounded) as http,
        pytest.raises(EgressTimeoutError),
    ):
        http.get(f"http://a.example:{port}/")
