"""
Whatever a command holds, what is printed about it is safe to print and to the point.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sandboxkit.errors import CommandError
from sandboxkit.policy import ExecPolicy, diagnostic
from sandboxkit.policy._excerpt import Mark, columns, excerpt

POLICY = ExecPolicy.default()
CHARS = st.one_of(st.sampled_from(list("ab /;|&$(){}<>'\"\\\n\t-~*=\x1b\u202e\u200b日é\u0301")), st.characters())
TEXTS = st.one_of(
    st.text(CHARS, min_size=1, max_size=200),
    st.lists(
        st.sampled_from(
            ["rm -rf /", "ls", "sudo id", "$(curl x)", "cat ~/.ssh/id_rsa", ";", "&&", "|", "\n", "x" * 150, "日" * 60]
        ),
        min_size=1,
        max_size=12,
    ).map(" ".join),
)


@given(TEXTS, st.integers(0, 200))
@example("rm -rf /" * 100, 80)
@example("\udc80 rm -rf /", 80)
def test_every_decision_can_be_shown(text: str, width: int) -> None:
    try:
        evaluation = POLICY.evaluate(text)
    except CommandError:
        return
    shown = diagnostic(evaluation, width=width)
    lines = shown.split("\n")
    assert lines[0].startswith(f"{evaluation.action}: ")
    assert all(line.isprintable() for line in lines)
    assert any("^" in line for line in lines)


@given(st.text(CHARS, min_size=1, max_size=300), st.data())
def test_a_line_that_fits_is_shown_whole_and_a_longer_one_is_cut(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    mark = Mark(start, data.draw(st.integers(start + 1, len(text))), ())
    above, below = list(excerpt(text, [mark], width=100))[1:3]
    whole, carets = list(excerpt(text, [mark], width=10**6))[1:3]
    assert columns(above) <= 130
    if columns(whole) <= 100:
        assert (above, below) == (whole, carets)


@given(st.text(st.sampled_from("ab\t日\x1b\u0301\u202e "), max_size=60), st.text("xy", min_size=1, max_size=20))
def test_a_place_behind_anything_has_carets_of_its_width(before: str, place: str) -> None:
    above, below = list(excerpt(before + place, [Mark(len(before), len(before) + len(place), ())], width=10_000))[1:3]
    assert columns(above) == len(below)
    assert below.endswith(" " + "^" * len(place))
