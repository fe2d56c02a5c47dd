"""
Two readers that are not ours: bash says whether a text is bash at all, and shfmt which
simple commands stand in it. Tests compare our own reader with both.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BASH", "SHFMT", "Seen", "is_bash", "is_bash_all", "seen", "seen_all"]

BASH = shutil.which("bash")
SHFMT = shutil.which("shfmt", path=str(Path(sys.executable).parent)) or shutil.which("shfmt")
ENVIRONMENT = {"PATH": "/nonexistent", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
TIMEOUT_S = 10

Node: TypeAlias = dict[str, "object"]


@dataclass(frozen=True, slots=True)
class Seen:
    """
    A simple command, or what stands for one, as shfmt sees it.

    Attributes:
        words: Program and arguments after quote removal; None stands for any number of
            words that only the shell will know. Empty for assignments or redirections alone.
        assigned: The names it assigns in front of the program or on its own.
        redirects: Operator and file; the file is None where it is text or not literal.
    """

    words: tuple[str | None, ...] = ()
    assigned: tuple[str, ...] = ()
    redirects: tuple[tuple[str, str | None], ...] = ()


def is_bash(text: str) -> bool:
    """
    Whether bash accepts *text*. Nothing of it runs: `-n` only reads; and where that never
    ends, as bash 5.2 does over a few texts, it is no answer either.
    """
    assert BASH
    argv = [BASH, "--noprofile", "--norc", "-n", "-c", "--", text]
    nothing = subprocess.DEVNULL
    try:
        result = subprocess.run(
            argv, env=ENVIRONMENT, stdin=nothing, stdout=nothing, stderr=nothing, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return False
    return result.returncode == 0


def is_bash_all(texts: Sequence[str]) -> list[bool]:
    """
    `is_bash` of each of *texts*, several at a time.
    """
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(is_bash, texts))


def seen(text: str) -> list[Seen] | None:
    """
    Every simple command of *text*, inner ones included, or None where shfmt refuses it.

    Not seen: a substitution in single quotes within a double-quoted expansion
    (`"${x:-'$(a)'}"`), which shfmt takes for text and bash runs.
    """
    assert SHFMT
    result = subprocess.run(
        [SHFMT, "--to-json", "-ln=bash"],
        input=text.encode("utf-8", "surrogateescape"),
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return None if result.returncode else list(_commands(json.loads(result.stdout)))


def seen_all(texts: Sequence[str]) -> list[list[Seen] | None]:
    """
    `seen` of each of *texts*, several at a time.
    """
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(seen, texts))


_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=", re.ASCII)


# -- from the tree to commands --------------------------------------------------------


def _nodes(value: object) -> Iterator[Node]:
    """
    *value* and everything below it, outer nodes first.
    """
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)


def _children(node: Node, key: str) -> list[Node]:
    found = node.get(key, [])
    assert isinstance(found, list)
    return found


def _child(node: Node, key: str) -> Node:
    found = node.get(key, {})
    assert isinstance(found, dict)
    return found


def _commands(tree: Node) -> Iterator[Seen]:
    for node in _nodes(tree):
        if node.get("Type") == "CoprocClause":
            _give_back(node)
        # Only statements have both; a case item, for one, has a position alone.
        if "Cmd" in node or "Redirs" in node:
            found = _statement(node)
            if found != Seen():
                yield found


def _give_back(coproc: Node) -> None:
    """
    Makes words of a simple command what shfmt takes for a coprocess's name, and for
    assignments although they stand behind the program; and assignments the words in front
    that are some: bash starts no program named `a=1`.
    """
    command = _child(_child(coproc, "Stmt"), "Cmd")
    while command.get("Type") == "BinaryCmd":
        command = _child(_child(command, "X"), "Cmd")
    if command.get("Type") != "CallExpr":
        return
    name = _child(coproc, "Name")
    is_program = name and "=" not in (_literal(name) or "=")
    words = [*([name] if is_program else []), *_children(command, "Args")]
    assigns = _children(command, "Assigns")
    first: list[Node] = []
    while words and (assigned := _ASSIGNED.match(_begin(words[0]))):
        first.append({"Name": {"Value": assigned[1]}})
        del words[0]
    if first:
        command["Assigns"] = assigns = first + assigns
    elif words and assigns and _offset(assigns[0]) > _offset(words[0]):
        words.insert(1, {"Parts": [{"Type": "ParamExp"}]})
        del command["Assigns"]
    command["Args"] = words


def _begin(word: Node) -> str:
    """
    The plain text that *word* begins with.
    """
    parts = _children(word, "Parts")
    return str(parts[0].get("Value", "")) if parts and parts[0]["Type"] == "Lit" else ""


def _offset(node: object) -> int:
    assert isinstance(node, dict)
    offset = _child(node, "Pos").get("Offset", 0)
    assert isinstance(offset, int)
    return offset


def _statement(node: Node) -> Seen:
    command = _child(node, "Cmd")
    words: tuple[str | None, ...] = ()
    match command.get("Type"):
        case "CallExpr":
            words = tuple(_literal(word) for word in _children(command, "Args"))
        case "DeclClause":
            words = (str(_child(command, "Variant")["Value"]), None)
        case "LetClause":
            words = ("let", None)
    assigned = () if command.get("Type") == "DeclClause" else tuple(_assigned(command))
    return Seen(words, assigned, tuple(_redirects(node)))


def _assigned(command: Node) -> Iterator[str]:
    for assign in _children(command, "Assigns"):
        yield str(_child(assign, "Name")["Value"])


def _redirects(statement: Node) -> Iterator[tuple[str, str | None]]:
    for redirect in _children(statement, "Redirs"):
        operator = str(redirect["Op"])
        if operator.startswith("<<"):
            yield operator, None
            continue
        target = _literal(_child(redirect, "Word"))
        is_copy = operator in {"<&", ">&"} and target is not None and re.fullmatch(r"\d*-?", target)
        if not is_copy:
            yield operator, target


# -- quote removal --------------------------------------------------------------------

_SPECIAL = re.compile(r"[*?]|\[.*\]|\{.*(,|\.\.).*\}|(^|[=:])~", re.DOTALL)
"""Names, braces and homes that the shell expands, in the unquoted characters of a word."""

_QUOTED = "_"
"""Stands for a quoted character in the unquoted ones."""


class _DynamicError(Exception):
    """
    A word has no literal value.
    """


def _literal(word: Node) -> str | None:
    value = bytearray()
    bare: list[str] = []
    try:
        for part in _children(word, "Parts"):
            _add(part, value, bare)
    except _DynamicError:
        return None
    if _SPECIAL.search("".join(bare)):
        return None
    return value.decode("utf-8", "surrogateescape")


def _add(part: Node, value: bytearray, bare: list[str]) -> None:
    text = str(part.get("Value", ""))
    match part["Type"]:
        case "Lit":
            if "`" in text:
                raise _DynamicError  # in backquotes this is a third level, which shfmt does not read
            bare.append(re.sub(r"\\.", _QUOTED, text, flags=re.DOTALL))
            value += _bytes(re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL))
        case "SglQuoted":
            bare.append(_QUOTED)
            value += _ansi_c(text) if part.get("Dollar") else _bytes(text)
        case "DblQuoted":
            bare.append(_QUOTED)
            for inner in _children(part, "Parts"):
                if inner["Type"] != "Lit":
                    raise _DynamicError
                value += _bytes(re.sub(r'\\([$`"\\])', r"\1", str(inner["Value"])))
        case _:
            raise _DynamicError


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_ESCAPE = re.compile(
    r"""\\(?: (?P<octal>[0-7]{1,3}) | x(?P<hex>[0-9a-fA-F]{1,2})
            | u(?P<u>[0-9a-fA-F]{1,4}) | U(?P<long>[0-9a-fA-F]{1,8}) | (?P<char>.) )""",
    re.VERBOSE | re.DOTALL,
)
_CONTROLS = dict(zip("abeEfnrtv\\'\"?", b"\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def _ansi_c(text: str) -> bytes:
    """
    The value of `$'text'`. Source: bash(1), "QUOTING".
    """
    value, done = bytearray(), 0
    for escape in _ESCAPE.finditer(text):
        value += _bytes(text[done : escape.start()]) + _escaped(escape)
        done = escape.end()
    value += _bytes(text[done:])
    if 0 in value:
        raise _DynamicError  # it ends there, but what of the rest of the word?
    return bytes(value)


def _escaped(escape: re.Match[str]) -> bytes:
    if escape["octal"]:
        return bytes([int(escape["octal"], 8) & 0xFF])
    if escape["hex"]:
        return bytes([int(escape["hex"], 16)])
    if code := escape["u"] or escape["long"]:
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise _DynamicError
        return chr(number).encode()
    char = escape["char"]
    if char in "cxuU":
        raise _DynamicError  # control characters and forms nobody documents
    return bytes([_CONTROLS[char]]) if char in _CONTROLS else _bytes("\\" + char)
