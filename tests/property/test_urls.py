"""
The reader of URLs, next to WHATWG's (Ada) and the standard library's: it agrees with both
about the host, or refuses.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxkit import UrlError
from sandboxkit.guard import canonical_url, redirect_url

can_ada = pytest.importorskip("can_ada", reason="the WHATWG reader is compared where it is installed")

CORPUS = Path(__file__).parent.parent / "corpus" / "ssrf.jsonl"
URLS = [json.loads(line)["url"] for line in CORPUS.read_text(encoding="utf-8").splitlines()]
BITS = [
    *"http:// https:// @ : / \\ % %2e %2F %00 [ ] :: ffff: 127.0.0.1 . .. 0x7f 017 localhost xn-- - _ ß ẞ İ Σ ς".split(),
    *"。 ． ａ １ é 日 ı ſ ? # & b.example * 8080 :443 %41 %zz | ^ < { א م 1.1.1.1 0 ﬁ Ⅷ ① ⁵ ٠ ::1 %25".split(),
    *(" ", "\t", "\n", "\x7f", "\x85", "\u200d", "\u00ad", "e\u0301", '"', "'", "\u212a", "\u04c0", "\u10a0", "\u2132"),
]
TEXTS = st.one_of(
    st.lists(st.one_of(st.sampled_from(BITS), st.characters()), max_size=12).map("".join).map("http://".__add__),
    st.tuples(st.sampled_from(URLS), st.integers(0, 40), st.sampled_from(BITS), st.integers(0, 3)).map(
        lambda row: row[0][: row[1]] + row[2] + row[0][row[1] + row[3] :]
    ),
)


def _plain(host: str | None) -> str:
    return (host or "").strip("[]").removesuffix(".")


@given(TEXTS)
@example("http://evil.example\\@127.0.0.1/")
@example("http://a\u10a0.example/")
@example("http://\u212b.example/")
@example("http://xn--a\u1e9e.example/")
@example("http://\u05d0\u0874/")
def test_where_readers_disagree_about_the_host_ours_refuses(text: str) -> None:
    try:
        url = canonical_url(text)
    except UrlError:
        return
    assert _plain(can_ada.parse(text).hostname) == url.host
    if text.isascii():
        assert ":" in url.host or _plain(urlsplit(text).hostname) == url.host


@given(TEXTS)
def test_the_canonical_form_is_read_alike_by_all(text: str) -> None:
    try:
        url = canonical_url(text)
    except UrlError:
        return
    form = str(url)
    assert form.isascii()
    assert canonical_url(form) == url
    assert can_ada.parse(form).href == form
    parts = urlsplit(form)
    assert (parts.scheme, parts.hostname, parts.port or url.port) == (url.scheme, url.host, url.port)
    assert (parts.path, parts.query) == (url.path, url.query or "")


@given(st.lists(st.one_of(st.sampled_from(BITS), st.characters()), max_size=8).map("".join))
def test_redirects_lead_where_whatwg_says_or_nowhere(location: str) -> None:
    base = canonical_url("https://site.example/dir/page?x=1")
    try:
        url = redirect_url(base, location)
    except UrlError:
        return
    assert _plain((can_ada.parse(str(base)) + location).hostname) == url.host


def test_every_character_is_read_alike_or_refused() -> None:
    for code in (*range(0x3400), *range(0xA000, 0xAC00), *range(0xF900, 0x10600), *range(0x1D400, 0x1D800)):
        text = f"http://a{chr(code)}b.example/"
        try:
            host = canonical_url(text).host
        except UrlError:
            continue
        assert can_ada.parse(text).hostname == host, hex(code)
