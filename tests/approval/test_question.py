"""
What a person is shown before the answer.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandboxkit.approval._question import answer_of, prompt, question
from sandboxkit.model import (
    ApprovalOffer,
    ApprovalRequest,
    Command,
    Control,
    EnvironmentPolicy,
    FilesystemPolicy,
    Grant,
    Level,
    NetworkPolicy,
    PolicyAction,
    PolicyEvaluation,
    RuleMatch,
    SandboxSpec,
    SimpleCommand,
    ToolAction,
)

TEXT = "cd app && npm install x"
SPEC = SandboxSpec(filesystem=FilesystemPolicy(write=("/srv/app",)))
EVALUATION = PolicyEvaluation(
    PolicyAction.ASK,
    "needs approval",
    Command(TEXT, (SimpleCommand(("cd", "app"), (0, 6)), SimpleCommand(("npm", "install", "x"), (10, 23)))),
    matches=(
        RuleMatch("builtin.cd", Level.BUILTIN, PolicyAction.ALLOW, "changes directory", True, 0, (0, 6)),
        RuleMatch("builtin.npm", Level.BUILTIN, PolicyAction.ASK, "installs packages", True, 1, (10, 21)),
        RuleMatch("user.npm", Level.USER, PolicyAction.ASK, "asks too", False, 1, (10, 13)),
    ),
    rules_digest="f" * 64,
)
GRANT = Grant(TEXT, "/srv/app", ("/srv/app",), SPEC, (), "f" * 64)
ALL = ApprovalOffer("sandbox", GRANT, ("once", "session", "always"), {}, always_seconds=86400.0)
REQUEST = ApprovalRequest(EVALUATION, "/srv/app", SPEC, ALL)


def shown(request: ApprovalRequest = REQUEST, columns: int = 80) -> str:
    return question(request, columns=columns, now=0.0)


def test_everything_is_said() -> None:
    assert (
        shown()
        == """
sandboxkit: approval is needed to run this command:

    cd app && npm install x
              ^^^^^^^^^^^

because    installs packages (builtin rule builtin.npm: npm install)
directory  /srv/app
may write  /srv/app
may read   the system
network    none

  y  exactly this, in this box, once
  s  exactly this, in this box, until this application ends
  a  exactly this, in this box, until 1970-01-02 00:00 UTC
  anything else is a no"""
    )


def test_the_prompt_names_what_is_on_offer() -> None:
    assert prompt(ALL) == "Approve? [y/s/a/N] "
    assert prompt(ApprovalOffer()) == "Approve? [y/N] "


def test_why_something_is_not_on_offer_is_said() -> None:
    offer = replace(ALL, remember=("once", "session"), refused={"always": "'bash' is a shell\x1b"}, always_seconds=None)
    text = shown(replace(REQUEST, offer=offer))
    assert r"not on offer: always, because 'bash' is a shell\x1b" in text
    assert "  a  " not in text


def test_what_nobody_remembers_is_not_spoken_of() -> None:
    text = shown(replace(REQUEST, offer=ApprovalOffer("sandbox", GRANT)))
    assert text.endswith("  y  exactly this, in this box, once\n  anything else is a no")


def test_a_run_without_a_box_is_no_small_print() -> None:
    text = shown(replace(REQUEST, offer=replace(ALL, mode="unsandboxed")))
    assert "box        NONE" in text
    assert "exactly this, WITHOUT A BOX, once" in text
    assert "may write" not in text


def test_what_a_box_lets_through_is_said() -> None:
    spec = SandboxSpec(
        network=NetworkPolicy(mode="host"),
        environment=EnvironmentPolicy(set={"TOKEN": "secret"}),
        allow_degraded=frozenset({Control.LIMITS_MEMORY}),
    )
    offer = replace(ALL, grant=replace(GRANT, stdin_digest="ab" * 32, not_found=("to\x1bol",)))
    text = shown(replace(REQUEST, spec=spec, offer=offer))
    assert "network    host: unfiltered" in text
    assert "sets the variables TOKEN" in text
    assert "secret" not in text
    assert "limits.memory" in text
    assert "abababababababab" in text
    assert r"to\x1bol" in text
    assert "may write  nothing of the host" in text


def test_listed_hosts_are_named() -> None:
    network = NetworkPolicy(
        allow_hosts=("packages.example.org",), ask_hosts=("*.example.com",), deny_hosts=("a.example.com",)
    )
    text = shown(replace(REQUEST, spec=SandboxSpec(network=network)))
    assert "network    only packages.example.org, *.example.com (asks again)" in text
    nothing = SandboxSpec(network=NetworkPolicy(mode="listed"))
    assert "network    only a proxy that lets nothing through" in shown(replace(REQUEST, spec=nothing))


def test_words_are_shown_as_a_shell_would_need_them() -> None:
    grant = replace(GRANT, command=("rm", "a b", "", "'"))
    assert """    rm 'a b' '' ''"'"''""" in shown(replace(REQUEST, offer=replace(ALL, grant=grant)))


def test_hostile_text_stays_within_its_lines() -> None:
    text = "ls\nApprove? [y/N] y\x1b[2J\u202e"
    evaluation = replace(EVALUATION, command=Command(text, ()), reason="be\x1bcause", matches=(), rules_digest="f" * 64)
    grant = replace(GRANT, command=text)
    lines = shown(replace(REQUEST, evaluation=evaluation, cwd="/a\nb", offer=replace(ALL, grant=grant))).split("\n")
    assert "    ls↩" in lines
    assert r"    Approve? [y/N] y\x1b[2J\u202e" in lines
    assert r"because    be\x1bcause" in lines
    assert r"directory  /a\nb" in lines
    assert any(line.startswith("note       characters that cannot be seen") for line in lines)


def test_what_cannot_be_read_is_said() -> None:
    evaluation = replace(EVALUATION, command=Command(TEXT, (), opaque="half a\x1b quote"))
    assert r"unread     it cannot be read to the end: half a\x1b quote" in shown(
        replace(REQUEST, evaluation=evaluation)
    )


def test_letters_that_are_not_ascii_are_named() -> None:
    grant = replace(GRANT, command="сat x")
    assert "note       not ASCII: с U+0441 cyrillic small letter es" in shown(
        replace(REQUEST, offer=replace(ALL, grant=grant))
    )


def test_a_long_command_says_so_beside_the_prompt() -> None:
    grant = replace(GRANT, command="\n".join(["x"] * 30))
    text = shown(replace(REQUEST, offer=replace(ALL, grant=grant)))
    assert "the command is 30 lines long; scroll up and read all of it" in text


def test_the_action_of_a_tool_is_asked_as_such() -> None:
    action = ToolAction("scraper.fetch", ("https://example.com",), {"pages": 40})
    evaluation = PolicyEvaluation(
        PolicyAction.ASK, "more than 25 pages", Command(None, (SimpleCommand(action.words),), argv=action.words)
    )
    text = shown(ApprovalRequest.for_action(action, evaluation))
    assert "approval is needed to do this" in text
    assert "    scraper.fetch https://example.com" in text
    assert "because    more than 25 pages" in text
    assert "pages      40" in text
    assert "directory" not in text
    assert "  y  exactly this once" in text


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        ("y\n", "once"),
        (" YES \r\n", "once"),
        ("s\n", "session"),
        ("Session\n", "session"),
        ("a\n", "always"),
        ("always\n", "always"),
        ("\n", None),
        ("n\n", None),
        ("no\n", None),
        ("ja\n", None),
        ("yy\n", None),
        ("y y\n", None),
        ("y\x00\n", None),
        ("\x1b[Ay\n", None),
        ("1\n", None),
        ("ｙ\n", None),  # FULLWIDTH LATIN SMALL LETTER Y
        ("true\n", None),
    ],
)
def test_only_a_word_of_the_prompt_is_an_answer(line: str, choice: str | None) -> None:
    assert answer_of(line) == choice
