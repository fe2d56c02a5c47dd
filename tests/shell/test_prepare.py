"""
The pass before the parser: what it takes away, and that positions map back.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.shell._prepare import HereDocument, prepare
from sandboxkit.shell._unsure import TooMuchError, UnsureError

UNCHANGED = [
    "ls -la",
    "echo 'a\\\nb'",
    "ls # a comment \\",
    "echo 'a << b' \"<<c\" \\<",
    "echo $((1 << 2))",
    "echo '<>'",
    "cat <(a) >(b)",
]
"""Text in which nothing is joined, no document begins and no operator is replaced."""


@pytest.mark.parametrize("text", UNCHANGED)
def test_text_that_stays_as_it_is(text: str) -> None:
    prepared = prepare(text)
    assert prepared.text == text
    assert prepared.documents == {}
    assert prepared.operators == {}
    assert [prepared.original(place) for place in range(len(text))] == list(range(len(text)))


JOINED = [
    ("a\\\nb", "ab"),
    ("a \\\n b", "a  b"),
    ('"a\\\nb"', '"ab"'),
    ("a\\\\\nb", "a\\\\\nb"),
    ("'a\\\nb' c\\\nd", "'a\\\nb' cd"),
    ("$'a\\\nb' c\\\nd", "$'a\\\nb' cd"),
    ("a # b\\\nc", "a # b\\\nc"),
    ("a#\\\nb", "a#b"),
    ("$(a\\\nb)", "$(ab)"),
    ("\"$(a\\\nb 'c\\\nd')\"", "\"$(ab 'c\\\nd')\""),
    ("`a\\\nb`", "`ab`"),
    ("${x:-a\\\nb}", "${x:-ab}"),
    ("\"${x:-'a\\\nb'}\"", "\"${x:-'ab'}\""),
    ("\\\n", ""),
    ("a\\\n\\\n\\\nb", "ab"),
    ("a \\\\\\\nb", "a \\\\b"),
]


@pytest.mark.parametrize(("text", "joined"), JOINED)
def test_lines_that_go_on_are_joined(text: str, joined: str) -> None:
    assert prepare(text).text == joined


DOCUMENTS = [
    ("cat <<E\na\nE\nb", "cat <here0\nb", [HereDocument("a\n", False, 8)]),
    ("cat <<E\na\nE", "cat <here0\n", [HereDocument("a\n", False, 8)]),
    ("cat <<'E'\na\nE\n", "cat <here0\n", [HereDocument("a\n", True, 10)]),
    ('cat << "E" | b\na\nE\n', "cat <here0 | b\n", [HereDocument("a\n", True, 15)]),
    ("cat <<\\E\na\nE\n", "cat <here0\n", [HereDocument("a\n", True, 9)]),
    ("cat <<E''F\na\nEF\n", "cat <here0\n", [HereDocument("a\n", True, 11)]),
    ("cat <<-E\n\ta\n\t\tE\n", "cat <here0\n", [HereDocument("a\n", False, 9)]),
    ("cat <<E\nE\n", "cat <here0\n", [HereDocument("", False, 8)]),
    ("cat <<E\na\\\nb\nE\n", "cat <here0\n", [HereDocument("ab\n", False, 8)]),
    ("cat <<'E'\na\\\nb\nE\n", "cat <here0\n", [HereDocument("a\\\nb\n", True, 10)]),
    (
        "a <<E; b <<F\n1\nE\n2\nF\n",
        "a <here0; b <here1\n",
        [HereDocument("1\n", False, 13), HereDocument("2\n", False, 17)],
    ),
    ("$(cat <<E\na\nE\n)", "$(cat <here0\n)", [HereDocument("a\n", False, 10)]),
    ("cat <<E # <<F\na\nE\n", "cat <here0 # <<F\n", [HereDocument("a\n", False, 14)]),
    ("here0 <<E\na\nE\n", "here0 <here0x\n", [HereDocument("a\n", False, 10)]),
]


@pytest.mark.parametrize(("text", "prepared", "documents"), DOCUMENTS)
def test_here_documents_are_set_aside(text: str, prepared: str, documents: list[HereDocument]) -> None:
    result = prepare(text)
    assert result.text == prepared
    assert list(result.documents.values()) == documents
    assert all(text.startswith(each.body[:1], each.start) or each.body[:1] == "a" for each in documents)


OPERATORS = [
    ("a <<< b", "a < b", {2: "<<<"}),
    ("a <> b", "a > b", {2: "<>"}),
    ("a <<E\nE\n", "a <here0\n", {2: "<<"}),
    ("a 3<>b <<<c", "a 3>b <c", {3: "<>", 6: "<<<"}),
    ("a <<< '<>' <> b", "a < '<>' > b", {2: "<<<", 9: "<>"}),
]


@pytest.mark.parametrize(("text", "prepared", "operators"), OPERATORS)
def test_operators_are_made_simple(text: str, prepared: str, operators: dict[int, str]) -> None:
    result = prepare(text)
    assert result.text == prepared
    assert result.operators == operators


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cat <<E", "does not end"),
        ("cat <<E\na\n E\n", "does not end"),
        ("cat <<-E\n E\n", "does not end"),
        ("cat <<$x\n$x\n", "cannot be told"),
        ("cat <<`x`\n", "cannot be told"),
        ("cat <<\n", "cannot be told"),
        ("cat <<'E\n'", "cannot be told"),
        ("echo \\\n 'a", "not closed"),
        ("(( a << 2 ))", "within parentheses"),
        ("a <>(b)", r"'\(' behind '<>'"),
        ("a <<<(b)", r"'\(' behind '<<<'"),
        ("a <>\\\n(b)", r"'\(' behind '<>'"),
    ],
)
def test_what_cannot_be_told(text: str, reason: str) -> None:
    with pytest.raises(UnsureError, match=reason):
        prepare(text)


def test_only_so_many_documents_are_read() -> None:
    with pytest.raises(TooMuchError, match="more than 20"):
        prepare(" ".join(f"a <<E{number}" for number in range(21)))


KEYWORDS = [
    ("time { a; }", " { a; }"),
    ("time -p (a)", " (a)"),
    ("coproc N { a; }", " { a; }"),
    ("! [[ a ]]", " [[ a ]]"),
    ("a; time if b; then c; fi", "a;  if b; then c; fi"),
    ("(time (a))", "( (a))"),
    ("$(! (a))", "$( (a))"),
    ("$(time (a))", "$(time (a))"),
    ("<( time { a; })", "<( time { a; })"),
    ("echo time { a", "echo time { a"),
    ("'time' { a", "'time' { a"),
    ("{ time (a); }", "{  (a); }"),
    ("({ time (a); })", "({  (a); })"),
    ("a{ time (a)", "a{ time (a)"),
    ("a >& time (a)", "a >& time (a)"),
    ("a >| time (a)", "a >| time (a)"),
    ("dotime (a)", "dotime (a)"),
    ("a |& time (a)", "a |& time (a)"),
    ("{ time -p &>f a; }", "{  &>f a; }"),
    ("{ time -p; }", "{ time -p; }"),
    ("{ time -- a; }", "{  a; }"),
    ("{ time -p -- a; }", "{  a; }"),
    ("{ time -p --; }", "{ time -p --; }"),
    ("{ time -- do; }", "{ time -- do; }"),
    ("{ time -px a; }", "{  -px a; }"),
    ("time -- (a)", " (a)"),
    ("time -p -- time -- (a)", "  (a)"),
    ("time -- -p a", "time -- -p a"),
    ("time -p -p a", "time -p -p a"),
]


@pytest.mark.parametrize(("text", "prepared"), KEYWORDS)
def test_keywords_are_taken_away_only_where_asked(text: str, prepared: str) -> None:
    assert prepare(text, simpler=True).text == prepared
    assert prepare(text).text == text


BEHIND_JOINED_LINES = [
    ("v1=a \\\ntime -p (a)", "v1=a time -p (a)"),
    ("a \\\n! (a)", "a ! (a)"),
    ("a | \\\n! (a)", "a | ! (a)"),
    ("$(\\\ntime (a))", "$(time (a))"),
    ("a\n\\\n\\\ntime (a)", "a;\n (a)"),
    ("\\\n \\\n! (a)", "  (a)"),
    ("# \\\n! (a)", "# \\\n (a)"),
    ("if a; then \\\n\n(a); fi", "if a; then \n(a); fi"),
    (f"a {' ' * 60}time (a)", f"a {' ' * 60}time (a)"),
    ("time time -p\\\n a", "  a"),
    ("ti\\\nme \\\n\\\n -\\\np\\\n a", " a"),
    ("! time -p -\\\n- a", "  a"),
    ("time -p\\\nx a", " -px a"),
    ("time d\\\no", "time do"),
    ("time a\\\nb\\\n=\\\n(c)", "time ab=(c)"),
    ("coproc N\\\nM \\\n i\\\nf a; then b; fi", " if a; then b; fi"),
    ("coproc i\\\nf a; then b; fi", " if a; then b; fi"),
    ("time -p\\\n (a)", " (a)"),
    ("ti\\\nme\\\n -\\\np \\\n-\\\n- (a)", " (a)"),
    ("time -p \\\n-p a", "time -p -p a"),
    ("time -p\\\n'' (a)", " -p'' (a)"),
    ("time \\\ndo\\\n", "time do"),
    ("co\\\nproc N\\\nM\\\n { a; }", " { a; }"),
]
"""A line that was joined is no beginning of a command; nor is what is too far away to be seen."""


@pytest.mark.parametrize(("text", "prepared"), BEHIND_JOINED_LINES)
def test_keywords_behind_joined_lines(text: str, prepared: str) -> None:
    assert prepare(text, simpler=True).text == prepared


@given(st.text(alphabet="ab \\\n'\"$(){}<>E#`;", max_size=40))
def test_positions_map_back(text: str) -> None:
    try:
        prepared = prepare(text)
    except (UnsureError, TooMuchError):
        return
    originals = [prepared.original(place) for place in range(len(prepared.text))]
    assert originals == sorted(originals)
    assert all(0 <= place <= len(text) for place in originals)
    if not prepared.documents and not prepared.operators:
        assert "".join(text[place] for place in originals) == prepared.text
