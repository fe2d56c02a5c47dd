"""
The reader against bash and shfmt, for as long as there is time.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.shell.hidden import hide
from tests.shell.judge import Tally
from tests.shell.oracle import BASH, SHFMT
from tests.shell.test_differential import corpus_texts, disagreements, escapes, least
from tests.shell.texts import abut, damage, jumble, operate, together, write
from tests.shell.traced import trace

from sandboxkit import ExecPolicy

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

AT_ONCE = 100
CORPUS = corpus_texts()
SHFMT_ERRS = re.compile(
    r"(?s)#[^\n]*\\\n|\\\\\\\n|<<.*(?:\blet\b|\[\[|\\\n)|(?:\blet\b|\[\[|\\\n).*<<|<<-?[ \t]*(\w+).*[)}`$]\S?\s?\1(?:\n|$)"
    r"|\]=\S*\[|\}\w*=\S*\[|[:-]\w*=\S*\[|time(?:\s|\\\n|-p)+--\s"
)
"""
What shfmt reads differently from bash, which itself is asked below: a comment that ends in
a backslash goes on for shfmt, a line that goes on right behind an escaped backslash does not
(of which bash makes one word), of a here-document with `let`, `[[` or a joined line in
the same text it loses where it begins, or that its end was quoted, and one ends for it at a
line in which its word stands right behind an expansion. A word of a command that has `}`, `:`,
`-` or a bracket before its `=` it takes for an assignment where a bracket follows. The `--` that
ends the options of `time` it takes for a program.
"""
REFUSED_INSIDE = re.compile(r"(?s)[$<>]\(.*\[\[|=\(.*[<>]\(.*=\(.*\\['\"]")
"""
What bash refuses within substitutions alone: `[[ … ]]` that is not well formed, which elsewhere
is an error of the command, and does nothing; and within lists a list with a quoted quote.
"""

pytestmark = [
    pytest.mark.skipif(BASH is None, reason="bash is not installed"),
    pytest.mark.skipif(SHFMT is None, reason="shfmt is not installed"),
]


def some_text(rng: random.Random) -> str:
    match rng.randrange(9):
        case 0:
            return damage(rng, write(rng))
        case 4:
            return abut(rng)
        case 5:
            return hide(rng)
        case 6:
            return operate(rng)
        case 1:
            return jumble(rng)
        case 2:
            return damage(rng, together(rng, CORPUS))
        case 3:
            return together(rng, CORPUS)
        case _:
            return write(rng)


def test_no_command_is_missed(rounds: Iterator[int], rng: random.Random) -> None:
    tally = Tally()
    found: list[tuple[str, str]] = []
    for _ in rounds:
        texts = [some_text(rng) for _ in range(AT_ONCE)]
        found += disagreements(texts, tally)
    print(tally)
    refused = [text for text, why in found if "bash refuses" in why]
    missed = [(text, why) for text, why in found if text not in refused and not SHFMT_ERRS.search(text)]
    policy = ExecPolicy.default()
    assert [text for text in refused if policy.is_allowed(text) and not REFUSED_INSIDE.search(text)] == []
    assert least(missed) is None


@pytest.mark.requires("bubblewrap")
def test_nothing_runs_unseen(rounds: Iterator[int], rng: random.Random, tmp_path: Path) -> None:
    tally = Tally()
    found: list[tuple[str, str]] = []
    for number in rounds:
        texts = [(write, write, abut, hide)[rng.randrange(4)](rng) for _ in range(AT_ONCE)]
        directory = tmp_path / str(number)
        directory.mkdir()
        found += escapes(texts, trace(texts, directory), tally)
        shutil.rmtree(directory)
    print(tally)
    assert found == []
