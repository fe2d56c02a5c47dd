"""
The question as it is put to a person. Pure.
"""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sandboxkit.approval._visible import foreign_letters, marked, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandboxkit.model import ApprovalOffer, ApprovalRequest, Remember, RuleMatch, SandboxSpec

__all__ = ["MAX_CHARS", "NO_WORDS", "answer_of", "asked_text", "prompt", "question"]

MAX_CHARS = 20_000
"""Longer commands are not put to a person: nobody reads them."""
_LONG_LINES = 20
_NAMED_LETTERS = 4

NO_WORDS = frozenset({"", "n", "no"})

_WORDS: dict[str, Remember] = {
    "y": "once",
    "yes": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
}


def answer_of(line: str) -> Remember | None:
    """
    The yes that *line* is, or None: whatever is no word of the prompt is a no.
    """
    return _WORDS.get(line.strip(" \t\r\n").lower())


def asked_text(request: ApprovalRequest) -> str:
    """
    What is asked about, as one text: words are quoted as a shell would need them.
    """
    command = request.command
    return command if isinstance(command, str) else shlex.join(command)


def question(request: ApprovalRequest, *, columns: int, now: float) -> str:
    """
    Everything a person needs to know, on as many lines as it takes.

    Args:
        request: What is asked about.
        columns: How wide the terminal is.
        now: Seconds since the epoch, for dates.
    """
    return "\n".join(_lines(request, columns, now))


def _lines(request: ApprovalRequest, columns: int, now: float) -> Iterator[str]:
    text, spans = asked_text(request), _spans(request)
    shown = list(marked(text, spans, columns=columns - 4))
    yield ""
    yield "sandboxkit: approval is needed to " + ("run this command:" if request.action is None else "do this:")
    yield ""
    yield from (f"    {line}" for line in shown)
    yield ""
    yield from _reasons(request, text)
    if request.action is None:
        yield from _box(request)
    else:
        yield from (f"{visible(name):<10} {number:g}" for name, number in sorted(request.action.numbers.items()))
    yield from _remarks(text, shown)
    yield from _grants(request.offer, now)


def _spans(request: ApprovalRequest) -> list[tuple[int, int]]:
    if not isinstance(request.command, str) or request.command != request.evaluation.command.source:
        return []  # they are places in the source text
    return [match.span for match in request.reasons if match.span]


def _reasons(request: ApprovalRequest, text: str) -> Iterator[str]:
    rules, opaque = request.reasons, request.evaluation.command.opaque
    if opaque:
        yield f"unread     it cannot be read to the end: {visible(opaque)}"
    if not rules:
        yield f"because    {visible(request.evaluation.reason)}"
    for name, match in zip(("because", *[""] * len(rules)), rules, strict=False):
        yield f"{name:<11}{visible(match.reason or match.rule_id)} ({visible(_source(match, text))})"


def _source(match: RuleMatch, text: str) -> str:
    where = f": {text[slice(*match.span)][:60]}" if match.span else ""
    return f"{match.level} rule {match.rule_id}{where}"


def _box(request: ApprovalRequest) -> Iterator[str]:
    yield f"directory  {visible(request.cwd)}"
    if request.offer.mode != "sandbox":
        yield "box        NONE: it may do whatever you may do"
        return
    spec = request.spec
    yield f"may write  {_listed(spec.filesystem.write)}"
    yield f"may read   {_listed(('the system', *spec.filesystem.read))}"
    yield f"network    {_network(spec)}"
    for extra in _extras(request):
        yield f"also       {extra}"


def _network(spec: SandboxSpec) -> str:
    network = spec.network
    if network.mode == "none":
        return "none"
    if network.mode == "host":
        return "host: unfiltered, as your own"
    allowed = [*network.allow_hosts, *(rule.to for rule in network.rules if rule.action == "allow")]
    asked = [*network.ask_hosts, *(rule.to for rule in network.rules if rule.action == "ask")]
    shown = [*map(visible, allowed), *(f"{visible(to)} (asks again)" for to in asked)]
    return f"only {', '.join(shown) or 'a proxy that lets nothing through'}"


def _extras(request: ApprovalRequest) -> Iterator[str]:
    spec, grant = request.spec, request.offer.grant
    if spec.environment.set:
        yield f"sets the variables {_listed(tuple(spec.environment.set))}"
    if spec.allow_degraded:
        yield f"may hold less well than required: {_listed(tuple(sorted(map(str, spec.allow_degraded))))}"
    if spec.process.allow_nested_userns:
        yield "may make user namespaces of its own"
    if spec.filesystem.allow_host_interpreter_writes:
        yield "may write the interpreter that runs this application"
    if grant and grant.stdin_digest:
        yield f"reads an input you are not shown (sha256 {grant.stdin_digest[:16]}…)"
    if grant and grant.not_found:
        yield f"programs that are not on this machine: {_listed(grant.not_found)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(visible(name) for name in names) if names else "nothing of the host"


def _remarks(text: str, shown: Sequence[str]) -> Iterator[str]:
    if text != visible(text, keep="\n"):
        yield "note       characters that cannot be seen are shown by their number, as in \\x1b"
    letters = foreign_letters(text)
    if letters:
        more = f" and {len(letters) - _NAMED_LETTERS} more" if len(letters) > _NAMED_LETTERS else ""
        yield f"note       not ASCII: {', '.join(letters[:_NAMED_LETTERS])}{more}"
    if len(shown) > _LONG_LINES:
        yield f"note       the command is {len(shown)} lines long; scroll up and read all of it"


def _grants(offer: ApprovalOffer, now: float) -> Iterator[str]:
    yield ""
    where = "in this box" if offer.mode == "sandbox" else "WITHOUT A BOX"
    exactly = "exactly this" if offer.grant is None else f"exactly this, {where},"
    for choice in offer.remember:
        match choice:
            case "once":
                yield f"  y  {exactly} once"
            case "session":
                yield f"  s  {exactly} until this application ends"
            case "always":
                yield f"  a  {exactly} {_until(offer, now)}"
    if "always" in offer.refused and "session" not in offer.refused:  # both, where nobody remembers anything
        yield f"     not on offer: always, because {visible(offer.refused['always'])}"
    yield "  anything else is a no"


def _until(offer: ApprovalOffer, now: float) -> str:
    if offer.always_seconds is None:
        return "from now on"
    end = datetime.fromtimestamp(now, tz=UTC) + timedelta(seconds=offer.always_seconds)
    return f"until {end:%Y-%m-%d %H:%M} UTC"


def prompt(offer: ApprovalOffer) -> str:
    """
    The last line, with the answers on offer.
    """
    keys = {"once": "y", "session": "s", "always": "a"}
    return f"Approve? [{'/'.join(keys[choice] for choice in offer.remember)}/N] "
