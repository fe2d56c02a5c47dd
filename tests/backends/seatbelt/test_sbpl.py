"""
The reference evaluator reads what people wrote and measured elsewhere as they say it works.
"""

from __future__ import annotations

import pytest
from tests.backends.seatbelt.sbpl import Query, SbplError, decide, parse

HEAD = "(version 1)(deny default)"


def allows(text: str, operation: str, path: str | None = None, **facts: str) -> bool:
    return decide(HEAD + text, {"W": "/w", "ODD": '/w/a") (allow default) ("'}, Query(operation, path, **facts))


def test_the_last_rule_that_matches_decides() -> None:
    text = '(allow file-read* (subpath "/w"))(deny file-read* (subpath "/w/x"))(allow file-read* (literal "/w/x/y"))'
    assert [allows(text, "file-read-data", path) for path in ("/w/a", "/w/x", "/w/x/y", "/w/x/y/z", "/wx")] == [
        True,
        False,
        True,
        False,
        False,
    ]


def test_the_other_reading_lets_the_closer_operation_win() -> None:
    text = HEAD + '(allow file-read-metadata (literal "/w"))(deny file-read* (literal "/w"))'
    query = Query("file-read-metadata", "/w")
    assert not decide(text, {}, query)
    assert decide(text, {}, query, by="operation")


def test_filters_beside_each_other_are_alternatives_and_metafilters_combine() -> None:
    text = '(allow file-read* (literal "/a") (require-all (subpath "/w") (require-not (literal "/w"))))'
    assert [allows(text, "file-read-data", path) for path in ("/a", "/w", "/w/x", "/b")] == [True, False, True, False]


def test_parameters_are_values_and_never_read() -> None:
    assert allows('(allow file-read* (subpath (param "ODD")))', "file-read-data", '/w/a") (allow default) ("/x')
    assert not allows('(allow file-read* (subpath (param "ODD")))', "file-read-data", "/etc")
    assert allows(
        '(allow file-write* (regex (string-append "^" (regex-quote (param "W")) "/[aA]$")))', "file-write-data", "/w/A"
    )


def test_a_string_may_hold_what_ends_a_form() -> None:
    assert parse(r'(a "x\")" #"^/[)]$") ; (') == (parse(r'(a "x\")" #"^/[)]$")')[0],)


@pytest.mark.parametrize(
    "text",
    ["(allow", ")", "(allow nonsense)", "(allow file-read* (near /w))", '(allow file-read* (literal (param "Q")))'],
)
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(SbplError):
        allows(text, "file-read-data", "/w")


def test_networks() -> None:
    text = '(allow network-outbound (remote ip "localhost:3128"))'
    reached = [
        allows(text, "network-outbound", address=to) for to in ("127.0.0.1:3128", "127.0.0.1:22", "10.0.0.1:3128")
    ]
    assert reached == [True, False, False]
