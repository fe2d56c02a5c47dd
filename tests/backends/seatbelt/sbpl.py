"""
A reference evaluator for the part of Seatbelt's profile language that this library uses:
what would a kernel that reads the text decide?

It refuses every form it does not know, so that a profile can use nothing that was not
thought about here. It is independent of what writes the profiles.

Source: Apple Sandbox Guide v1.0 (reverse.put.as, 2011): profiles are Scheme, filters
beside each other are alternatives, the last rule that matches decides. `by="operation"`
is the other reading, which was observed: a rule for one operation beats one for many.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Query", "SbplError", "decide", "parse"]

Reading = Literal["order", "operation"]


class SbplError(Exception):
    """
    The text is no profile, or uses what is not known here.
    """


@dataclass(frozen=True)
class Text:
    """
    A string of the profile; symbols are plain `str`.
    """

    value: str


_TOKEN = re.compile(r'\s+|;[^\n]*|(?P<raw>#"[^"]*")|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[()])|(?P<word>[^\s()";#]+)')


def _tokens(text: str) -> Iterator[object]:
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise SbplError(f"nothing begins with {text[place : place + 20]!r}")
        place = match.end()
        if match["raw"]:
            yield Text(match["raw"][2:-1])
        elif match["string"]:
            yield Text(re.sub(r"\\(.)", r"\1", match["string"][1:-1], flags=re.DOTALL))
        elif match["mark"] or match["word"]:
            yield match["mark"] or match["word"]


def parse(text: str) -> tuple[object, ...]:
    """
    The forms of *text*.

    Raises:
        SbplError: A parenthesis is missing.
    """
    stack: list[list[object]] = [[]]
    for token in _tokens(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise SbplError("a ) without its (")
            done = tuple(stack.pop())
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1:
        raise SbplError("a ( without its )")
    return tuple(stack[0])


@dataclass(frozen=True)
class Query:
    """
    One operation on one object.

    Attributes:
        operation: For example `file-write-create`.
        path: Of a file operation, real; or of a socket.
        address: Of a network operation, as `host:port`.
        transport: Of a network operation, `tcp` or `udp`.
        name: Of a service or kernel variable.
        vnode: What kind of file it is.
        target: `same-sandbox` or `others`, for operations on processes.
        domain: Of a new socket.
    """

    operation: str
    path: str | None = None
    address: str | None = None
    name: str | None = None
    vnode: str = "REGULAR-FILE"
    target: str = "others"
    domain: str = ""
    transport: str = "tcp"


@dataclass(frozen=True)
class _Rule:
    action: str
    operations: tuple[str, ...]
    filters: tuple[object, ...] = field(default=())


OPERATIONS = frozenset(
    """
    default file-read* file-write* file-write-unlink file-write-create file-write-data file-read-metadata
    file-map-executable file-ioctl process-exec* process-fork process-info* signal mach-lookup mach-host*
    mach-priv-task-port sysctl-read sysctl-write iokit-open user-preference-read ipc-posix-sem
    ipc-posix-shm-read-data ipc-posix-shm-write-create ipc-posix-shm-write-data ipc-posix-shm-write-unlink
    system-socket network-outbound network-inbound network-bind pseudo-tty
    """.split()
)


@cache
def rules(text: str) -> tuple[_Rule, ...]:
    """
    The rules of *text*.

    Raises:
        SbplError: It is no profile of version 1, or has an unknown action or operation.
    """
    forms = parse(text)
    if forms[:2] != (("version", "1"), ("deny", "default")):
        raise SbplError("it does not begin with (version 1) (deny default)")
    found = []
    for form in forms[1:]:
        if not isinstance(form, tuple) or not form or form[0] not in ("allow", "deny"):
            raise SbplError(f"no rule: {form!r}")
        operations = tuple(word for word in form[1:] if isinstance(word, str))
        filters = tuple(word for word in form[1:] if isinstance(word, tuple))
        if len(operations) + len(filters) + 1 != len(form) or not operations:
            raise SbplError(f"no operations and filters: {form!r}")
        if not OPERATIONS.issuperset(operations):
            raise SbplError(f"unknown: {set(operations) - OPERATIONS}")
        found.append(_Rule(str(form[0]), operations, filters))
    return tuple(found)


def _covers(pattern: str, operation: str) -> bool:
    return (
        pattern == "default" or pattern == operation or (pattern.endswith("*") and operation.startswith(pattern[:-1]))
    )


def decide(text: str, parameters: Mapping[str, str], query: Query, by: Reading = "order") -> bool:
    """
    Whether the profile *text* with *parameters* allows *query*.
    """
    best: tuple[int, int, bool] = (-1, -1, False)
    for place, rule in enumerate(rules(text)):
        covering = [pattern for pattern in rule.operations if _covers(pattern, query.operation)]
        if not covering or (rule.filters and not any(_matches(one, parameters, query) for one in rule.filters)):
            continue
        closeness = max(0 if one == "default" else len(one) for one in covering) if by == "operation" else 0
        best = max(best, (closeness, place, rule.action == "allow"))
    return best[2]


def _text(form: object, parameters: Mapping[str, str]) -> str:
    """
    The string an expression stands for.
    """
    match form:
        case Text(value):
            return value
        case ("param", Text(name)):
            if name not in parameters:
                raise SbplError(f"no parameter {name!r}")
            return parameters[name]
        case ("string-append", *parts):
            return "".join(_text(part, parameters) for part in parts)
        case ("regex-quote", part):
            return re.escape(_text(part, parameters))
    raise SbplError(f"no string: {form!r}")


def _is_below(path: str, top: str) -> bool:
    return path == top or top == "/" or path.startswith(top + "/")


def _matches(form: object, parameters: Mapping[str, str], query: Query) -> bool:
    match form:
        case ("literal", one):
            return query.path == _text(one, parameters)
        case ("subpath", one):
            return query.path is not None and _is_below(query.path, _text(one, parameters))
        case ("regex", one):
            return query.path is not None and re.search(_text(one, parameters), query.path) is not None
        case ("ipc-posix-name-regex", one):
            return query.name is not None and re.search(_text(one, parameters), query.name) is not None
        case ("require-all", *parts):
            return all(_matches(part, parameters, query) for part in parts)
        case ("require-any", *parts):
            return any(_matches(part, parameters, query) for part in parts)
        case ("require-not", part):
            return not _matches(part, parameters, query)
        case ("vnode-type", str(kind)):
            return query.vnode == kind
        case ("target", str(who)):
            return query.target == who
        case ("global-name" | "sysctl-name" | "iokit-registry-entry-class", one):
            return query.name == _text(one, parameters)
        case ("sysctl-name-prefix", one):
            return query.name is not None and query.name.startswith(_text(one, parameters))
        case ("socket-domain", str(domain)):
            return query.domain == domain
        case ("socket-protocol", "2"):
            return True
        case ("local" | "remote", "unix-socket", inner):
            return query.path is not None and _matches(inner, parameters, query)
        case ("local" | "remote", "ip", one):
            return query.address is not None and _is_address(query.address, _text(one, parameters))
        case ("remote", "tcp4", one):
            is_meant = query.address is not None and not query.address.startswith("[") and query.transport == "tcp"
            return is_meant and _is_address(query.address or "", _text(one, parameters))
    raise SbplError(f"unknown filter: {form!r}")


def _is_address(address: str, pattern: str) -> bool:
    """
    A host is `*` or `localhost`: Seatbelt takes no other.
    """
    host, _, port = pattern.rpartition(":")
    if host not in ("*", "localhost"):
        raise SbplError(f"no host Seatbelt takes: {pattern!r}")
    asked, _, number = address.rpartition(":")
    return (host == "*" or asked in ("127.0.0.1", "[::1]")) and port in ("*", number)
