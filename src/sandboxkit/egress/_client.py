"""
Makes guarded clients; httpx2 is imported only here, when one is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandboxkit.errors import MissingExtraError

if TYPE_CHECKING:
    from sandboxkit.egress._guarded import GuardedClient, GuardedTransport
    from sandboxkit.egress._guarded_sync import GuardedSyncClient
    from sandboxkit.guard import EgressPolicy

__all__ = ["guarded_client", "guarded_sync_client", "guarded_transport"]


def guarded_client(policy: EgressPolicy, *, options: dict[str, Any] | None = None, **transport: Any) -> GuardedClient:
    """
    An `httpx2.AsyncClient` that reaches what *policy* allows: every request and every hop
    of a redirect is decided about, every connection goes to an address that was checked,
    environment proxies are ignored, and answers have bounds.

    Redirects are followed where the caller asks for it (`follow_redirects=True`), at most
    five. To another origin, http instead of https included, only harmless header fields go
    along; none is followed that would send a body there.

    Args:
        policy: Decides.
        options: For `httpx2.AsyncClient`: `headers`, `cookies`, `auth`, `follow_redirects`
            and `params`.
        transport: As `GuardedTransport` takes them: `identity`, `ask`, `limits`,
            `on_event`, `resolver`, `ssl_context`, `http2`.

    Raises:
        MissingExtraError: The extra `egress` is not installed.
        TypeError: An option that could lead around the guard.
    """
    checked = _checked(options)
    inner = guarded_transport(policy, **transport)
    from sandboxkit.egress._guarded import GuardedClient

    return GuardedClient(inner, **checked)


def guarded_sync_client(
    policy: EgressPolicy, *, options: dict[str, Any] | None = None, **transport: Any
) -> GuardedSyncClient:
    """
    `guarded_client` for code that blocks: an `httpx2.Client`. Its connections live in an
    event loop of their own, in a thread that ends when the client is closed; `ask`,
    `on_event` and `resolver` are called there.

    Raises:
        MissingExtraError: The extra `egress` is not installed.
        TypeError: An option that could lead around the guard.
    """
    checked = _checked(options)
    _require_httpx2()
    from sandboxkit.egress._guarded_sync import GuardedSyncClient, GuardedSyncTransport

    return GuardedSyncClient(GuardedSyncTransport(policy, **transport), **checked)


def _checked(options: dict[str, Any] | None) -> dict[str, Any]:
    given = dict(options or {})
    unknown = given.keys() - {"headers", "cookies", "auth", "follow_redirects", "params"}
    if unknown:
        raise TypeError(f"a guarded client takes no option {min(unknown)!r}")
    return given


def guarded_transport(policy: EgressPolicy, **transport: Any) -> GuardedTransport:
    """
    The transport of `guarded_client`, for an `httpx2.AsyncClient` of your own. Such a client
    follows redirects itself: each is decided about, but which header fields go along is its choice.

    Args:
        policy: Decides.
        transport: As `GuardedTransport` takes them.

    Raises:
        MissingExtraError: The extra `egress` is not installed.
    """
    _require_httpx2()
    from sandboxkit.egress._guarded import GuardedTransport

    return GuardedTransport(policy, **transport)


def _require_httpx2() -> None:
    try:
        import httpcore2  # noqa: F401 - whether they are there
        import httpx2  # noqa: F401 - likewise
    except ImportError:
        raise MissingExtraError("egress", "sandboxkit.egress.guarded_client") from None
