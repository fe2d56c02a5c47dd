"""
Registered secrets never come through, however the text is cut.
"""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import threading
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxkit import SecretScopeError
from sandboxkit.secrets import SHAPES, SecretRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE = "p@ss/wörd'42"


def test_a_value_becomes_its_name() -> None:
    assert SecretRegistry({"DB": "hunter2"}).mask("psql --password hunter2 x") == "psql --password ⟦DB⟧ x"


def test_without_secrets_text_stays() -> None:
    assert SecretRegistry().mask("ls -la") == "ls -la"


@pytest.mark.parametrize(
    "spelled",
    [
        VALUE,
        quote(VALUE),
        quote(VALUE, safe=""),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        json.dumps(VALUE),
        html.escape(VALUE),
        html.escape(VALUE).replace("&#x27;", "&#39;"),
        "".join(f"&#{ord(char)};" for char in VALUE),
        "".join(f"&#x{ord(char):x};" for char in VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        shlex.quote(VALUE),
    ],
)
def test_usual_spellings_are_found(spelled: str) -> None:
    masked = SecretRegistry({"DB": VALUE}).mask(f"<{spelled}>")
    assert "⟦DB⟧" in masked
    assert len(masked) < 10


KEY = """k3y~!*/+='"<&>`(x)"""


@pytest.mark.parametrize(
    "spelled",
    [
        # What the languages named write of KEY.
        "k3y~!*%2F%2B%3D'%22%3C%26%3E%60(x)",  # JavaScript's encodeURIComponent
        "k3y~!*/+='%22%3C&%3E%60(x)",  # and encodeURI
        "k3y%7E%21*%2F%2B%3D%27%22%3C%26%3E%60%28x%29",  # URLSearchParams, Java's URLEncoder
        "k3y~%21%2a%2f%2b%3d%27%22%3c%26%3e%60%28x%29",  # small escapes
        "k3y~!*/+=&#039;&quot;&lt;&amp;&gt;`(x)",  # PHP's htmlspecialchars
        "k3y~!*/&#43;=&#39;&#34;&lt;&amp;&gt;`(x)",  # Go's html/template
        "k3y~!*&#x2F;+&#x3D;&#39;&quot;&lt;&amp;&gt;&#x60;(x)",  # Mustache
        "k3y~!*/+&#x3D;&#x27;&quot;&lt;&amp;&gt;&#x60;(x)",  # Handlebars
        "k3y~!*/+='\\\"\\u003c\\u0026\\u003e`(x)",  # Go's encoding/json
        "k3y~!*/\\u002B=\\u0027\\u0022\\u003C\\u0026\\u003E\\u0060(x)",  # .NET's System.Text.Json
    ],
)
def test_spellings_of_other_languages_are_found(spelled: str) -> None:
    assert SecretRegistry({"K": KEY}).mask(f"a {spelled} b") == "a ⟦K⟧ b"


@pytest.mark.parametrize("before", ["", "u", "us", "use"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_found_at_any_offset(before: str, encode: object) -> None:
    text = encode(f"{before}{VALUE}:after".encode()).decode()  # type: ignore[operator]  # one of the two above
    assert "⟦DB⟧" in SecretRegistry({"DB": VALUE}).mask(text)


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz"])
@pytest.mark.parametrize("after", ["", "a", "ab"])
def test_base64_shows_no_character_that_the_value_alone_makes(before: str, after: str) -> None:
    value = "q8#Lm2_zK"
    shown = SecretRegistry({"K": value}).mask(base64.b64encode(f"{before}{value}{after}".encode()).decode())
    left, _, right = shown.rstrip("=").partition("⟦K⟧")
    assert len(left) == -(-8 * len(before) // 6)  # six bits are a character
    assert len(right) == -(-8 * len(before + value + after) // 6) - 8 * len(before + value) // 6


def test_the_longest_of_nested_values_wins() -> None:
    registry = SecretRegistry({"SHORT": "hunter", "LONG": "hunter2-prod"})
    assert registry.mask("hunter2-prod hunter") == "⟦LONG⟧ ⟦SHORT⟧"


def test_overlapping_values_leave_no_rest() -> None:
    assert SecretRegistry({"A": "abcdef", "B": "defghi"}).mask("xabcdefghix") == "x⟦A⟧x"


def test_bytes_that_are_no_text_pass_through() -> None:
    assert SecretRegistry({"DB": "hunter2"}).mask_bytes(b"\xff\x00hunter2\xfe") == "⟦DB⟧".join(
        ["\xff\x00", "\xfe"]
    ).encode("latin-1", "replace").replace(b"?DB?", "⟦DB⟧".encode())


def test_a_lone_surrogate_passes_through() -> None:
    assert SecretRegistry({"DB": "hunter2"}).mask("\udc80hunter2") == "\udc80⟦DB⟧"


def test_a_value_inside_a_markers_name_makes_that_marker_anonymous() -> None:
    registry = SecretRegistry({"WORD": "github"})
    once = registry.mask("github ghp_" + "a1" * 18)
    assert once == "⟦WORD⟧ ⟦***⟧"
    assert registry.mask(once) == once


def test_a_removed_secret_is_forgotten() -> None:
    registry = SecretRegistry({"DB": "hunter2"})
    registry.remove("DB")
    registry.remove("DB")
    assert registry.mask("hunter2") == "hunter2"
    assert registry.names() == ()


def test_a_new_value_replaces_the_old() -> None:
    registry = SecretRegistry({"DB": "hunter2"})
    registry.add("DB", "hunter3")
    assert registry.mask("hunter2 hunter3") == "hunter2 ⟦DB⟧"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("A", "hunt5", "6 to"),
        ("A", "      ", "6 to"),
        ("A", "x" * 70_000, "6 to"),
        ("A", "with⟦mark", "cannot hold"),
        ("", "hunter2", "secret's name"),
        ("1A", "hunter2", "secret's name"),
        ("A\n", "hunter2", "secret's name"),
    ],
)
def test_what_cannot_be_a_secret_is_refused(name: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        SecretRegistry({name: value})
    assert value not in str(caught.value)


def test_swapped_arguments_do_not_show_the_secret() -> None:
    with pytest.raises(ValueError, match="name") as caught:
        SecretRegistry().add("hunter2!", "DB_PASSWORD")
    assert "hunter2" not in str(caught.value)


def test_the_representation_shows_no_value() -> None:
    assert repr(SecretRegistry({"DB": "hunter2"})) == "SecretRegistry(DB)"


def test_threads_may_add_at_once() -> None:
    registry = SecretRegistry()
    threads = [threading.Thread(target=registry.add, args=(f"S{n}", f"value-{n:04}")) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.names()) == 20
    assert registry.mask("value-0007") == "⟦S7⟧"


_TOKENS = [text for shape in SHAPES for text in shape.examples]
_values = st.lists(st.text("abc'/=é ", min_size=6, max_size=9).filter(lambda v: len(v.strip()) >= 6), max_size=4)
_noise = st.text("abc'/=é :@-_⟦⟧S0", max_size=12)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[SecretRegistry, str]:
    values = draw(_values)
    registry = SecretRegistry({f"S{n}": value for n, value in enumerate(values)})
    bits = st.one_of(_noise, st.sampled_from([*values, *_TOKENS, *(value[:-1] for value in values)]))
    return registry, "".join(draw(st.lists(bits, max_size=8)))


@given(_cases())
def test_masking_twice_changes_nothing(case: tuple[SecretRegistry, str]) -> None:
    registry, text = case
    once = registry.mask(text)
    assert registry.mask(once) == once


@given(_cases(), st.data())
def test_pieces_give_what_the_whole_gives(case: tuple[SecretRegistry, str], data: st.DataObject) -> None:
    registry, text = case
    whole = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    masker = registry.masker()
    pieces = [masker.feed(whole[a:b]) for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert b"".join([*pieces, masker.close()]) == registry.mask_bytes(whole)


def test_a_long_stream_flows_and_hides_a_secret_on_a_border() -> None:
    registry = SecretRegistry({"DB": "hunter2"})
    masker = registry.masker()
    text = b"." * 30_000 + b"hunter2" + b"." * 30_000
    out = [masker.feed(text[n : n + 7]) for n in range(0, len(text), 7)]
    assert sum(map(len, out)) > 40_000
    assert b"".join([*out, masker.close()]) == registry.mask_bytes(text)


@given(st.data())
def test_short_lookahead_pieces_give_what_the_whole_gives(data: st.DataObject) -> None:
    from sandboxkit.secrets._masking import Masker, Table

    table = Table.of({b"aabaab": "S", b"abbabb": "T"})
    short = Table(table.values, table.markers, 6, table.needles)
    whole = "".join(data.draw(st.lists(st.sampled_from(["a", "b", "aabaab", "abbabb"]), max_size=30))).encode()
    masker = Masker(short)
    out = b"".join(masker.feed(whole[n : n + 1]) for n in range(len(whole)))
    assert out + masker.close() == short.render(whole, len(whole))[0]


def test_an_alias_is_filled_in_for_the_hosts_of_its_secret() -> None:
    registry = SecretRegistry({"OTHER": "not for anybody"})
    registry.add("KEY", "hunter2", hosts=["api.example.com", "b.example:8443"])
    text = f"Bearer {registry.alias('KEY')}, <unknown> < KEY>"
    assert registry.fill(text, host="api.example.com") == "Bearer hunter2, <unknown> < KEY>"
    assert registry.fill(text, host="b.example", port=8443) == "Bearer hunter2, <unknown> < KEY>"
    for host, port in (("evil.example", 443), ("b.example", 443), ("a.api.example.com", 443)):
        with pytest.raises(SecretScopeError, match=f"the secret KEY is not for {host}") as refused:
            registry.fill(text, host=host, port=port)
        assert "hunter2" not in str(refused.value)
    with pytest.raises(SecretScopeError):
        registry.fill("<OTHER>", host="api.example.com")
    with pytest.raises(KeyError):
        registry.alias("NONE")


def test_a_removed_secret_is_filled_in_no_longer() -> None:
    registry = SecretRegistry()
    registry.add("KEY", "hunter2", hosts=["a.example"])
    registry.remove("KEY")
    assert registry.fill("<KEY>", host="a.example") == "<KEY>"
    registry.add("KEY", "hunter3")
    with pytest.raises(SecretScopeError):
        registry.fill("<KEY>", host="a.example")


def test_a_value_that_looks_like_an_alias_is_not_filled_again() -> None:
    registry = SecretRegistry()
    registry.add("A", "<B>abcdef", hosts=["a.example"])
    registry.add("B", "secret of another", hosts=["b.example"])
    assert registry.fill("<A>", host="a.example") == "<B>abcdef"


@pytest.mark.parametrize("host", ["*.example.com", "**", "http://a.example", "127.1"])
def test_a_secret_is_for_exact_hosts_by_https(host: str) -> None:
    with pytest.raises(ValueError, match=r"one host|octets"):
        SecretRegistry().add("KEY", "hunter2", hosts=[host])


_secret = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc"), exclude_characters="⟦⟧"),
    min_size=8,
    max_size=24,
)
ENCODINGS: dict[str, Callable[[str, int], bytes]] = {
    "plain": lambda text, _: text.encode(),
    "percent": lambda text, _: quote(text, safe="").encode(),
    "percent, slashes kept": lambda text, _: quote(text).encode(),
    "percent, in small letters": lambda text, _: re.sub(
        "%..", lambda found: found[0].lower(), quote(text, safe="")
    ).encode(),
    "form": lambda text, _: quote_plus(text).encode(),
    "base64": lambda text, shift: base64.b64encode(b"x" * shift + text.encode() + b"yz"),
    "base64 for URLs": lambda text, shift: base64.urlsafe_b64encode(b"x" * shift + text.encode() + b"y"),
    "hex": lambda text, _: text.encode().hex().encode(),
    "HEX": lambda text, _: text.encode().hex().upper().encode(),
    "JSON": lambda text, _: json.dumps(text)[1:-1].encode(),
    "JSON beyond ASCII": lambda text, _: json.dumps(text, ensure_ascii=False)[1:-1].encode(),
    "JSON slashes": lambda text, _: json.dumps(text)[1:-1].replace("/", "\\/").encode(),
    "JSON units": lambda text, _: "".join(f"\\u{ord(char):04x}" for char in text).encode(),
    "entities that must be": lambda text, _: html.escape(text).encode(),
    "entities": lambda text, _: "".join(f"&#{ord(char)};" for char in text).encode(),
    "entities in hex": lambda text, _: "".join(f"&#x{ord(char):X};" for char in text).encode(),
}


@pytest.mark.parametrize("how", ENCODINGS)
@given(value=_secret, data=st.data())
def test_no_spelling_comes_through_however_it_is_cut(how: str, value: str, data: st.DataObject) -> None:
    spelled = ENCODINGS[how](value, data.draw(st.integers(0, 3)))
    noise = st.sampled_from([b"", b"a", b"<", b" ", value[:5].encode(), b"QUJD"])
    text = data.draw(noise) + b" " + spelled + b" " + data.draw(noise)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    registry = SecretRegistry({"S": value})
    for only in (None, ["S"]):
        masker = registry.masker(only=only)
        pieces = [masker.feed(text[a:b]) for a, b in pairwise([0, *cuts, len(text)])]
        out = b"".join([*pieces, masker.close()])
        assert "⟦".encode() in out
        # Of base64 the letters at either end may stay: they hold bits of what stands around.
        kept = 14 if "base64" in how else 0
        assert len(out.replace("⟦S⟧".encode(), b"")) <= len(text) - len(spelled) + kept
        assert registry.mask_bytes(out) == out


@given(st.lists(_secret, min_size=2, max_size=5, unique=True), st.data())
def test_a_stream_of_values_alone_is_that_of_the_whole_and_held_back_little(
    values: list[str], data: st.DataObject
) -> None:
    registry = SecretRegistry({f"S{number}": value for number, value in enumerate(values)})
    bits = st.sampled_from([*values, *(value[: len(value) // 2] for value in values), "x", " "])
    text = "".join(data.draw(st.lists(bits, max_size=10))).encode()
    step = data.draw(st.integers(1, 7))
    masker = registry.masker(only=registry.names())
    out = b"".join(masker.feed(text[at : at + step]) for at in range(0, len(text), step)) + masker.close()
    assert out == registry.masker(only=registry.names()).whole(text)
    quiet = registry.masker(only=registry.names())
    assert quiet.feed(b"data: \n\n") == b"data: \n\n"
