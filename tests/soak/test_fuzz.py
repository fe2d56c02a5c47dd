"""
Whatever text or rule file comes, the deciding part answers: it does not raise, hang, or
allow what it could not read.
"""

from __future__ import annotations

import json
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from tests.shell.hidden import hide
from tests.shell.oracle import is_bash_all
from tests.shell.texts import AROUND, JOINS, PIECES, abut, damage, jumble, write

import sandboxkit as sk

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

CORPUS = Path(__file__).parent.parent / "corpus"
KNOWN = [
    row["command"]
    for name in ("policy_ok.jsonl", "policy_bypass.jsonl")
    for row in map(json.loads, (CORPUS / name).read_text(encoding="utf-8").splitlines())
    if "command" in row
]
SLOWEST_S = 2.0
"""Many times what the longest text takes; finding out takes more than chance noise."""
AT_ONCE = 50
"""How many texts bash is asked about together."""


def some_text(rng: random.Random) -> str:
    match rng.randrange(8):
        case 0:
            return write(rng)
        case 1:
            return damage(rng, write(rng))
        case 2:
            return damage(rng, rng.choice(KNOWN))
        case 3:
            return f"{rng.choice(KNOWN)}{rng.choice(PIECES)}{rng.choice(KNOWN)}"
        case 4:
            return rng.choice(PIECES) * rng.randrange(1, 3000)
        case 5:
            return jumble(rng)
        case 6:
            return hide(rng)
        case _:
            return abut(rng)


def test_the_policy_answers_to_anything(rounds: Iterator[int], rng: random.Random) -> None:
    policy = sk.ExecPolicy.default()
    context = sk.EvaluationContext(cwd="/srv/w", home="/home/u", workspace_roots=("/srv/w",))
    allowed: list[str] = []
    for _ in rounds:
        text = some_text(rng)
        start = time.process_time()
        try:
            evaluation = policy.evaluate(text, context=context)
        except sk.CommandError:
            continue
        finally:
            assert time.process_time() - start < SLOWEST_S, text
        assert "the policy failed" not in evaluation.reason, text
        assert evaluation.command.opaque is None or evaluation.action > sk.PolicyAction.ALLOW, text
        assert not evaluation.is_direct or evaluation.action is sk.PolicyAction.ALLOW, text
        if evaluation.action is sk.PolicyAction.ALLOW:
            allowed.append(text)
        if len(allowed) == AT_ONCE:
            bash_takes(allowed)
            allowed.clear()
    bash_takes(allowed)


def bash_takes(texts: list[str]) -> None:
    assert [text for text, valid in zip(texts, is_bash_all(texts), strict=True) if not valid] == []


KEYWORDS = ("time", "time -p", "!", "coproc", "coproc N", "exec", "command", "builtin")
BODIES = (
    *("ls", "{ ls; }", "( ls )", "[[ a ]]", "((1))", "if ls; then ls; fi", "while ls; do ls; done", "[ a ]", ""),
    *("f() { ls; }", "function f { ls; }", "x=1", "x=(a)", "x=(! a)", "x=1 ls", ">f", "ls >f", "{ x=(! a); }"),
    *("for x in a; do ls; done", "case a in a) ls;; esac", "for ((;;)) { ls; }", "{ ls; } 2>&1", "{ }", "()", "{ ls }"),
)


def test_bash_takes_the_keywords_in_front_of_what_is_allowed(rounds: Iterator[int], rng: random.Random) -> None:
    policy = sk.ExecPolicy.default()
    allowed: list[str] = []
    for _ in rounds:
        words = (*rng.choices(KEYWORDS, k=rng.randrange(5)), rng.choice(BODIES))
        text = rng.choice((*AROUND, "{b}", "{b}")).format(a="ls", b=" ".join(words))
        if text and policy.evaluate(text).action is sk.PolicyAction.ALLOW:
            allowed.append(text)
        if len(allowed) == AT_ONCE:
            bash_takes(allowed)
            allowed.clear()
    bash_takes(allowed)


APART = ("{a} | {b}", "{b} | {a}", "{a} & {b}")
"""What runs one in a shell of its own, so that its `cd` does not move what follows."""


def test_larger_text_is_as_strict(rounds: Iterator[int], rng: random.Random) -> None:
    policy = sk.ExecPolicy.default()
    looser = []
    for _ in rounds:
        one, other = rng.choice(KNOWN), write(rng) if rng.randrange(3) == 0 else rng.choice(KNOWN)
        form = rng.choice((*JOINS, *AROUND))
        whole = form.format(a=one, b=other)
        try:
            before = max(policy.evaluate(part).action for part in ((one, other) if "{a}" in form else (other,)))
            after = policy.evaluate(whole).action
        except sk.CommandError:
            continue
        # What one leaves for the other may rightly make it harmless: a variable, an open quote
        # or comment, a directory.
        changes = set("=#<\\") & set(one + other) or "\n" in other or (form in APART and "cd" in whole)
        if after < before and not changes and all(is_bash_all([one, other, whole])):
            looser.append((whole, str(before), str(after)))
    assert looser == []


def rule_files() -> list[str]:
    """
    The built-in rules and some that use every key.
    """
    data = resources.files("sandboxkit.policy") / "data"
    everything = {
        "version": 1,
        "default": "ask",
        "rules": [
            {"id": "a", "prefix": ["a", ["b", "c"]], "action": "allow", "priority": 3, "match": ["a b"], "tags": ["x"]},
            {"id": "g", "glob": "k delete*", "action": "deny", "enabled": False, "reason": "no", "not_match": [["k"]]},
            {"id": "r", "regex": "x (y|z)+.*", "action": "sandbox", "spec": {"network": {"mode": "none"}}},
            {
                "id": "c",
                "prefix": ["t"],
                "action": "ask",
                "constraints": {"denied_arguments": ["-p"], "max_operands": 2},
            },
        ],
    }
    return [
        *(file.read_text("utf-8") for file in data.iterdir() if file.name.endswith(".toml")),
        json.dumps(everything),
    ]


def test_rule_files_are_taken_or_refused(rounds: Iterator[int], rng: random.Random, tmp_path: Path) -> None:
    files, pieces = (
        rule_files(),
        ['"', "[", "]", "{", "}", "=", ",", "\n", "-1", "1e9", "true", "null", "(a*)*", "**", "\\", "é"],
    )
    pieces += [
        "\0",
        "[[rules]]\n",
        "\udc80",
        "(?=x)",
        "x{99999}",
        "id = 1\n",
        "'''",
        "#",
        "[a-",
        "((((",
        "\u202e",
        "0x",
        "..",
        "~",
    ]
    for _ in rounds:
        text = rng.choice(files)
        start = rng.randrange(len(text))
        text = text[start:][: rng.randrange(1, 3000)] if rng.randrange(3) == 0 else text
        for _ in range(rng.randrange(1, 5)):
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice(pieces) * rng.choice((1, 1, 1, 500)) + text[place + rng.randrange(4) :]
        path = tmp_path / rng.choice(("rules.toml", "rules.json"))
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        begin = time.process_time()
        try:
            policy = sk.ExecPolicy.from_files(**{rng.choice(("user", "project", "organisation")): path})
            policy.evaluate("a b -p; k delete x; x yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy")
        except sk.PolicyError:
            pass
        assert time.process_time() - begin < SLOWEST_S, text
