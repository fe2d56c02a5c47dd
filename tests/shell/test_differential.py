"""
Our reader against three judges: `bash -n` says what is bash at all, shfmt which commands
stand in a text, and bash itself, in a box, which ones run.

Every disagreement must be on the strict side: opaque, or more than the others saw.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.shell.hidden import hide
from tests.shell.judge import Tally, fits, may_run_more, shortened, uncovered
from tests.shell.oracle import BASH, SHFMT, is_bash_all, seen_all
from tests.shell.texts import ONCE_WRONG, damage, jumble, operate, together, write
from tests.shell.traced import HOME, Trace, trace

from sandboxkit.errors import CommandError
from sandboxkit.model import PolicyAction
from sandboxkit.policy import ExecPolicy
from sandboxkit.shell import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.model import Command

LEAST_READ = 0.4
"""The share of valid generated text that our reader must read rather than call opaque."""
LEAST_READ_OF_CORPUS = 0.9
"""Likewise of the commands people write."""
TRACED = 150
COMPARED = 400
SEED = 20_260_101

CORPUS = Path(__file__).parent.parent / "corpus"
PROBE = ExecPolicy.from_dict(
    {
        "default": "sandbox",
        "rules": [
            {"id": "harmless", "action": "allow", "prefix": [["p1", "p2", "p3", "p4", "p5", "p6", "p9"]]},
            {"id": "harmful", "action": "deny", "prefix": [["p7", "p8"]]},
        ],
    }
)
"""Denies two of the programs of generated text, and knows the others."""

pytestmark = [
    pytest.mark.skipif(BASH is None, reason="bash is not installed"),
    pytest.mark.skipif(SHFMT is None, reason="shfmt is not installed"),
]


def corpus_texts() -> list[str]:
    rows = [
        json.loads(line)
        for name in ("policy_ok.jsonl", "policy_bypass.jsonl")
        for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()
    ]
    return [row["command"] for row in rows if "command" in row]


def read(text: str) -> Command | None:
    """
    The command, or None where the text is none at all.
    """
    try:
        return parse(text)
    except CommandError:
        return None


def disagreements(texts: Sequence[str], tally: Tally) -> Iterator[tuple[str, str]]:
    """
    What our reader gets wrong about *texts* by `bash -n` and shfmt: each text, and the problem.
    """
    commands = [read(text) for text in texts]
    valid = is_bash_all(texts)
    # shfmt takes a carriage return for a part of the line's end; bash does not.
    asked = [
        index
        for index, command in enumerate(commands)
        if valid[index] and command and command.opaque is None and "\r" not in texts[index]
    ]
    theirs = dict(zip(asked, seen_all([texts[index] for index in asked]), strict=True))
    for index, (text, command) in enumerate(zip(texts, commands, strict=True)):
        if command is None:
            continue
        if not valid[index]:
            tally.refused += 1
            if command.opaque is None:
                yield text, "bash refuses it, and it is not opaque"
        elif command.opaque is not None:
            tally.note_opaque(command.opaque, text)
        elif (commands_seen := theirs.get(index)) is None:
            tally.unseen += 1
        else:
            tally.compared += 1
            if problems := uncovered(commands_seen, command):
                yield text, "; ".join(problems)


def escapes(texts: Sequence[str], traces: Sequence[Trace], tally: Tally) -> Iterator[tuple[str, str]]:
    """
    What bash did with *texts* that our reader did not see, or a policy did not stop.
    """
    for text, traced in zip(texts, traces, strict=True):
        if (command := read(text)) is None:
            continue
        yield from _loosened(text, traced)
        if command.opaque is not None:
            tally.note_opaque(command.opaque, text)
            continue
        tally.compared += 1
        # The home directory stays a tilde in our words, quoted or not: the strict reading of both.
        ran = [tuple(word.replace(HOME, "~") for word in words) for words in traced.ran]
        unseen = [words for words in ran if not any(fits(words, part) for part in command.parts)]
        if unseen and may_run_more(command):
            tally.excused += 1
        elif unseen:
            yield text, f"bash ran {unseen[0]}"
        targets = [each for part in command.parts for each in part.redirects if each.writes]
        if all(each.is_known for each in targets) and not may_run_more(command):
            for file in set(traced.files) - {each.target for each in targets}:
                yield text, f"bash wrote {file}"


def _loosened(text: str, traced: Trace) -> Iterator[tuple[str, str]]:
    action = PROBE.evaluate(text).action
    ran = [words[0] for words in traced.ran]
    if action is PolicyAction.ALLOW and ("p7" in ran or "p8" in ran):
        yield text, "bash ran a denied program, and it is allowed"


def least(found: Sequence[tuple[str, str]]) -> str | None:
    """
    The shortest of what was *found*, made shorter as long as anything is wrong with it.
    """
    if not found:
        return None
    text = shortened(min((text for text, _ in found), key=len), lambda text: any(disagreements([text], Tally())))
    return f"{len(found)} texts; {text!r}: {'; '.join(problem for _, problem in disagreements([text], Tally()))}"


def compare(texts: Sequence[str]) -> Tally:
    tally = Tally()
    assert least(list(disagreements(texts, tally))) is None
    print(tally)
    return tally


def test_commands_people_write() -> None:
    assert compare(corpus_texts()).read_share >= LEAST_READ_OF_CORPUS


def test_commands_people_write_put_together() -> None:
    rng, texts = random.Random(SEED), corpus_texts()
    assert compare([together(rng, texts) for _ in range(COMPARED)]).read_share >= LEAST_READ_OF_CORPUS


def test_text_that_was_once_read_wrongly() -> None:
    compare(ONCE_WRONG)


def test_generated_text() -> None:
    rng = random.Random(SEED)
    assert compare([write(rng) for _ in range(COMPARED)]).read_share >= LEAST_READ


def test_broken_text() -> None:
    rng = random.Random(SEED)
    texts = [damage(rng, write(rng)) for _ in range(COMPARED)]
    texts += [kind(rng) for kind in (jumble, operate) for _ in range(COMPARED)]
    assert compare(texts).refused


@pytest.mark.requires("bubblewrap")
def test_what_bash_runs(tmp_path: Path) -> None:
    rng, tally = random.Random(SEED), Tally()
    texts = [*ONCE_WRONG, *(write(rng) for _ in range(TRACED))]
    traces = trace(texts, tmp_path)
    assert sum(bool(traced.ran) for traced in traces) > TRACED / 2
    found = list(escapes(texts, traces, tally))
    print(tally)
    assert found == []
    assert tally.read_share >= LEAST_READ


@pytest.mark.requires("bubblewrap")
def test_what_hides(tmp_path: Path) -> None:
    rng, tally = random.Random(SEED), Tally()
    texts = [hide(rng) for _ in range(TRACED)]
    traces = trace(texts, tmp_path)
    assert sum(("p8", "z") in traced.ran for traced in traces) > TRACED / 10
    assert list(escapes(texts, traces, tally)) == []
