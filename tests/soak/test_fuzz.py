"""
Whatever text comes, the deciding part answers: it does not raise, hang, or allow what
it could not read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import sandboxkit as sk

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

PIECES = (
    *(
        "ls",
        "rm",
        "-rf",
        "/",
        "~",
        "$HOME",
        "sudo",
        "env",
        "A=1",
        "sh",
        "-c",
        "bash",
        "eval",
        "xargs",
        "find",
        "-exec",
        "{}",
        "+",
    ),
    *(
        "curl",
        "http://x/",
        "git",
        "status",
        "python3",
        "cat",
        "/etc/shadow",
        ".",
        "..",
        "*",
        "?",
        "[a-z]",
        "{a,b}",
        "é",
        "\u202e",
    ),
    *(
        "'",
        '"',
        "\\",
        "\n",
        "\t",
        " ",
        ";",
        "&",
        "&&",
        "||",
        "|",
        "|&",
        ">",
        ">>",
        "<",
        "<<EOF\n",
        "EOF\n",
        "<<<",
        "2>&1",
        "<(",
        ">(",
    ),
    *(
        "$(",
        ")",
        "`",
        "$((",
        "))",
        "${",
        "}",
        "$'",
        "\\x41",
        "(",
        "{ ",
        "; }",
        "if ",
        "; then ",
        "; fi",
        "for i in ",
        "do ",
        "done",
    ),
    *(
        "case ",
        " in ",
        "esac",
        "function f ",
        "!",
        "#",
        "\r",
        "coproc ",
        "time ",
        "[[",
        "]]",
        "\\\n",
        "~root",
        "%1",
        "=",
        ":",
        "exec ",
    ),
)
SLOWEST_S = 2.0
"""Many times what the longest text takes; finding out takes more than chance noise."""


def test_the_policy_answers_to_anything(rounds: Iterator[int], rng: random.Random) -> None:
    policy = sk.ExecPolicy.default()
    context = sk.EvaluationContext(cwd="/srv/w", home="/home/u", workspace_roots=("/srv/w",))
    for _ in rounds:
        glue = rng.choice(("", " "))
        text = "x" + glue.join(rng.choices(PIECES, k=rng.randrange(1, 60)))
        start = time.monotonic()
        evaluation = policy.evaluate(text, context=context)
        assert time.monotonic() - start < SLOWEST_S, text
        assert evaluation.command.opaque is None or evaluation.action > sk.PolicyAction.ALLOW, text
        assert not evaluation.is_direct or evaluation.action is sk.PolicyAction.ALLOW, text


def test_a_denial_in_front_or_behind_stays_a_denial(rounds: Iterator[int], rng: random.Random) -> None:
    policy = sk.ExecPolicy.default()
    for _ in rounds:
        text = "x " + " ".join(rng.choices(PIECES, k=rng.randrange(1, 30)))
        if policy.evaluate(text).command.opaque is None:
            assert policy.evaluate(f"rm -rf / ; {text}").action is sk.PolicyAction.DENY, text
