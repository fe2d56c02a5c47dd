"""
URLs have one form, or none.
"""

from __future__ import annotations

import pytest

from sandboxkit import UrlError
from sandboxkit.guard import MAX_URL_LENGTH, Url, canonical_url, redirect_url

CANONICAL = [
    ("http://example.com", "http://example.com/"),
    ("HTTPS://EXAMPLE.com:443/", "https://example.com/"),
    ("http://example.com:443/", "http://example.com:443/"),
    ("https://example.com./a", "https://example.com/a"),
    ("https://example.com:/a", "https://example.com/a"),
    ("https://example.com:0008443/a", "https://example.com:8443/a"),
    ("https://example.com?x=1", "https://example.com/?x=1"),
    ("https://example.com/?", "https://example.com/?"),
    ("https://example.com/#@127.0.0.1", "https://example.com/"),
    ("https://example.com/a/./b/../c", "https://example.com/a/c"),
    ("https://example.com/../../a", "https://example.com/a"),
    ("https://example.com/a/%2e%2E/b/%2e", "https://example.com/b/"),
    ("https://example.com/a/..", "https://example.com/"),
    ("https://example.com/.a/..b/...", "https://example.com/.a/..b/..."),
    ("https://example.com//a//b", "https://example.com//a//b"),
    ("https://example.com/%7euser/%41%2f%zz%", "https://example.com/~user/A%2F%25zz%25"),
    ("https://example.com/%252e%252e/a", "https://example.com/%252e%252e/a"),
    ("https://example.com/日本?q=日", "https://example.com/%E6%97%A5%E6%9C%AC?q=%E6%97%A5"),
    (
        "https://example.com/a?q=%2e%2f../[x]{y}|^`'\"<>",
        "https://example.com/a?q=%2e%2f../%5Bx%5D%7By%7D%7C%5E%60%27%22%3C%3E",
    ),
    ("https://example.com/it's?it's", "https://example.com/it's?it%27s"),
    ("https://example.com/a?b?c", "https://example.com/a?b?c"),
    ("https://münchen.example/", "https://xn--mnchen-3ya.example/"),
    ("https://MÜNCHEN.example/", "https://xn--mnchen-3ya.example/"),
    ("https://mu\u0308nchen.example/", "https://xn--mnchen-3ya.example/"),
    ("https://faß.example/", "https://xn--fa-hia.example/"),
    ("https://\u05d0\u05d1.example/", "https://xn--4dbc.example/"),
    ("https://_dmarc.a-b.example/", "https://_dmarc.a-b.example/"),
    ("http://1.1.1.1/", "http://1.1.1.1/"),
    ("http://[2606:4700:0:0:0:0:0:1111]:8080/", "http://[2606:4700::1111]:8080/"),
    ("http://[::FFFF:8.8.8.8]/", "http://[::ffff:808:808]/"),
    ("http://[1:0:0:2:0:0:0:3]/", "http://[1:0:0:2::3]/"),
    ("http://[1:0:2:3:4:5:6:7]/", "http://[1:0:2:3:4:5:6:7]/"),
    ("http://127.0.0.1.example.com/", "http://127.0.0.1.example.com/"),
]

REFUSED = [
    ("", "only http"),
    ("example.com/a", "only http"),
    ("file:///etc/passwd", "only http"),
    ("http\u017f://example.com/", "only http"),
    ("httpx://example.com/", "only http"),
    ("http:example.com", "a host must follow"),
    ("http:/example.com", "a host must follow"),
    ("http:///example.com", "a host must follow"),
    ("http://?a", "a host must follow"),
    ("http://user@example.com/", "user name or password"),
    ("http://a:b@example.com/", "user name or password"),
    ("http://example.com:80:90/", "colon and a decimal port"),
    ("http://::1/", "need brackets"),
    ("http://[::1]a/", "colon and a decimal port"),
    ("http://example.com:8o/", "colon and a decimal port"),
    ("http://example.com:٨٠/", "colon and a decimal port"),
    ("http://example.com:0/", "1 to 65535"),
    ("http://example.com:65536/", "1 to 65535"),
    ("http://example.com:" + "9" * 5000 + "/", "1 to 65535"),
    ("http://exa mple.com/", "escape it"),
    ("http://example.com/a b", "escape it"),
    ("http://example.com\\@127.0.0.1/", "escape it"),
    ("http://example.com/\u200b", "escape it"),
    ("http://example.com/\ud800", "escape it"),
    ("http://example.com/\x85", "escape it"),
    ("http://example.com\r\nHost: a", "escape it"),
    ("http://%31.example/", "percent escapes"),
    ("http://./", "the host is empty"),
    ("http://example..com/", "an empty label"),
    ("http://.example.com/", "an empty label"),
    ("http://example.com../", "an empty label"),
    ("http://-a.example/", "labels of 1 to 63"),
    ("http://a-.example/", "labels of 1 to 63"),
    (f"http://{'a' * 64}.example/", "labels of 1 to 63"),
    (f"http://{'a.' * 130}example/", "at most 253"),
    ("http://a" + "\u0301\u0323" * 4000 + "/", "at most 253"),
    ("http://*.example.com/", "labels of 1 to 63"),
    ("http://127.1/", "four decimal octets"),
    ("http://0x7f000001/", "four decimal octets"),
    ("http://0x/", "four decimal octets"),
    ("http://2130706433/", "four decimal octets"),
    ("http://010.8.8.8/", "four decimal octets"),
    ("http://1.2.3.256/", "four decimal octets"),
    ("http://1.2.3.4./", "four decimal octets"),
    ("http://a.b.1/", "four decimal octets"),
    ("http://１27.0.0.1/", "no valid internationalised name"),
    ("http://127。0.0.1/", "looks like a dot"),
    ("http://a／b.example/", "becomes a delimiter"),
    ("http://a\u1e9e.example/", "capital letter"),
    ("http://\u04c0.example/", "capital letter"),
    ("http://\u212bngstrom.example/", "duplicate of another character"),
    ("http://\u05d0\u0874.example/", "from right to left"),
    ("http://xn--4db66k.example/", "begins with xn--"),
    ("http://xn--a/", "begins with xn--"),
    ("http://xn--a-.example/", "labels of 1 to 63"),
    ("http://XN--MNCHEN-3YA9.example/", "begins with xn--"),
    ("http://[fe80::1%25eth0]/", "without zone id"),
    ("http://[v1.a]/", "without zone id"),
    ("http://[1:2]/", "no valid IPv6"),
    ("http://[]/", "without zone id"),
    ("http://[127.0.0.1]/", "no valid IPv6"),
    ("http://[::ffff:127.0.0.01]/", "no valid IPv6"),
    ("http://example.com/" + "a" * MAX_URL_LENGTH, "longer than"),
    ("http://example.com/" + "日" * (MAX_URL_LENGTH // 8), "escaped, it is longer"),
]


@pytest.mark.parametrize(("text", "form"), CANONICAL)
def test_a_url_has_one_form(text: str, form: str) -> None:
    assert str(canonical_url(text)) == form
    assert str(canonical_url(form)) == form


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=[ascii(text)[:40] for text, _ in REFUSED])
def test_what_readers_disagree_about_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UrlError, match=problem) as refused:
        canonical_url(text)
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 400


def test_the_parts_of_a_url() -> None:
    url = canonical_url("http://[::1]:8080/a?b")
    assert url == Url("http", "::1", 8080, "/a", "b")
    assert (url.authority, url.origin, url.target) == ("[::1]:8080", "http://[::1]:8080", "/a?b")
    assert str(url.address) == "::1"
    assert canonical_url("http://1.2.3.4/").address is not None
    assert canonical_url("http://a1.example/").address is None


def test_a_password_is_not_repeated() -> None:
    for text in (
        "http://user:hunter2@example.com/",
        "https://user:hunter2@example.com:8o/",
        "http://" + "u" * 150 + ":hunter2@example.com/",
        "http://u:hunter2" + "x" * 150 + "@example.com/",
    ):
        with pytest.raises(UrlError) as refused:
            canonical_url(text)
        assert "hunter2" not in str(refused.value), text


BASE = canonical_url("https://site.example/dir/page?x=1")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/ok", "https://site.example/ok"),
        ("ok?x=2", "https://site.example/dir/ok?x=2"),
        ("../up", "https://site.example/up"),
        ("?y", "https://site.example/dir/page?y"),
        ("", "https://site.example/dir/page?x=1"),
        ("#frag", "https://site.example/dir/page?x=1"),
        ("//other.example/a", "https://other.example/a"),
        ("HTTP://OTHER.EXAMPLE/UP", "http://other.example/UP"),
        ("./a:b", "https://site.example/dir/a:b"),
    ],
)
def test_a_redirect_leads_to_one_url(location: str, target: str) -> None:
    assert str(redirect_url(BASE, location)) == target


@pytest.mark.parametrize(
    "location",
    [
        "http:ok",
        "https:/ok",
        "///127.0.0.1/",
        "\\\\127.0.0.1\\",
        "/\\127.0.0.1",
        "file:///a",
        "javascript:a",
        "a:b",
        "a b",
        "/a\tb",
    ],
)
def test_a_redirect_that_readers_follow_differently_is_refused(location: str) -> None:
    with pytest.raises(UrlError):
        redirect_url(BASE, location)
