"""
The own words of a wrapper of the table, told from those of the command it starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxkit.model import UNKNOWN, Assignment
from sandboxkit.shell._carried import is_unknown, may_be_several
from sandboxkit.shell._wrappers import WRAPPERS, Wrapper

if TYPE_CHECKING:
    from sandboxkit.model import SimpleCommand

__all__ = ["Options", "read_options"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\(\)|%%|\[.*?\])?)\+?=(.*)", re.DOTALL)
_REPLACES = re.compile(r"-[0rtxop]*[Ii]|--r(?:e(?:p(?:l(?:a(?:ce?)?)?)?)?)?(?:=|$)")
_NULL = re.compile(r"-[rtxop]*0|--nul")
_DELIMITS = re.compile(r"-[rtxop]*[dLl]|--(?:del|max-l)")


@dataclass(slots=True)
class Options:
    """
    The wrapper's own words as they are told apart.

    Attributes:
        at: The index of the first word that is not its own.
        texts: Where text for a shell stands: the index of its word, and the text where
            it is only a part of that word.
        assignments: What it puts into the environment.
        cwd: The directory it changes to, or None.
        stops: Whether it starts nothing.
        splits: The index of a word that holds several (`env -S`), or None.
        replaces: What xargs replaces by its input, or None.
        delimiter: What stands between the items xargs reads; None for blanks.
    """

    at: int = 1
    texts: list[tuple[int, str | None]] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    cwd: str | None = None
    stops: bool = False
    splits: int | None = None
    replaces: str | None = None
    delimiter: str | None = None


def read_options(part: SimpleCommand, name: str, wrapper: Wrapper) -> Options | None:
    """
    The own words of the wrapper *name*, or None where they cannot be told apart.
    """
    found = Options()
    argv = part.argv
    operands = _operands(argv, name, wrapper)
    while found.at < len(argv):
        word = argv[found.at]
        if wrapper.assigns and (assigned := _ASSIGNMENT.fullmatch(word)):
            _assign(part, found, assigned)
            continue
        if found.assignments and name in ("time", "coproc"):
            break  # no option follows an assignment, whatever the word begins with
        if is_unknown(part, found.at) and (not operands or may_be_several(part, found.at)):
            return None if word.startswith("-") or not _surely_operand(part, found.at) else found
        if word == "--":
            found.at = min(found.at + 1 + operands, len(argv))
            break
        if len(word) > 1 and word[0] == "-":
            if not _option(part, found, wrapper, name):
                return None
        elif operands:
            operands -= 1
            found.at += 1
        elif name == "env" and word == "-":
            found.at += 1
        else:
            break
        if found.stops or found.splits is not None:
            break
    if wrapper.assigns:
        _assignments(part, found)
    return found


def _operands(argv: tuple[str, ...], name: str, wrapper: Wrapper) -> int:
    if name == "runuser" and not any(word.startswith(("-u", "--u")) for word in argv):
        return WRAPPERS["su"].operands  # it takes what su takes
    if name == "setarch" and argv[1:2] and argv[1].startswith("-"):
        return 0  # the architecture comes first or not at all
    return wrapper.operands


def _surely_operand(part: SimpleCommand, index: int) -> bool:
    return any(place == index and doubt.known and doubt.known[0] != "-" for place, doubt in part.unknown)


def _assignments(part: SimpleCommand, found: Options) -> None:
    while found.at < len(part.argv) and (assigned := _ASSIGNMENT.fullmatch(part.argv[found.at])):
        _assign(part, found, assigned)


def _assign(part: SimpleCommand, found: Options, assigned: re.Match[str]) -> None:
    known = not is_unknown(part, found.at)
    found.assignments.append(Assignment(assigned[1], assigned[2], known, is_exported=True))
    found.at += 1


def _option(part: SimpleCommand, found: Options, wrapper: Wrapper, name: str) -> bool:
    """
    Takes one option, with its value; False where it is not known.
    """
    argv, word = part.argv, part.argv[found.at]
    if name == "env":
        is_long = word.startswith("--") and "--split-string".startswith(word.partition("=")[0])
        if is_long or re.match(r"-[iv0]*S", word):
            found.splits = found.at
            return True
    if name == "xargs":
        if replaces := _REPLACES.match(word):
            found.replaces = _replaced(argv, found.at, replaces)
        found.delimiter = found.delimiter or _delimiter(word)
    if wrapper.digits and word[1:].lstrip("-+").isdigit():
        found.at += 1
        return True
    if word.startswith("--"):
        return _long(part, found, wrapper)
    return _short(part, found, wrapper)


def _replaced(argv: tuple[str, ...], at: int, found: re.Match[str]) -> str:
    """
    What xargs replaces: `-I` takes the next word where nothing is attached to it.
    """
    word = argv[at]
    if word.startswith("--"):
        return word.partition("=")[2] or "{}"
    attached = word[found.end() :]
    if found[0].endswith("I") and not attached:
        return argv[at + 1] if at + 1 < len(argv) else "{}"
    return attached or "{}"


def _delimiter(word: str) -> str | None:
    """
    What stands between the items that xargs reads, where an option says that it is not
    any blank.
    """
    if _NULL.match(word):
        return "\0"
    return "\n" if _DELIMITS.match(word) else None


def _long(part: SimpleCommand, found: Options, wrapper: Wrapper) -> bool:
    argv = part.argv
    name, attached, value = argv[found.at].partition("=")
    known = wrapper.names | wrapper.valued | wrapper.stops | wrapper.text | wrapper.directory
    matching = [each for each in known if each.startswith("--") and each.startswith(name)]
    exact = name if name in known else matching[0] if len(matching) == 1 else None
    if exact is None:
        return False
    if exact in wrapper.stops:
        found.stops = True
        return True
    takes = exact in wrapper.valued or exact in wrapper.text
    value_at = found.at + 1 if takes and not attached else None
    if exact in wrapper.text:
        found.texts.append((found.at, value) if attached else (found.at + 1, None))
    if exact in wrapper.directory:
        found.cwd = value if attached else argv[value_at] if value_at and value_at < len(argv) else UNKNOWN
    found.at = (value_at or found.at) + 1
    return found.at <= len(argv)


def _short(part: SimpleCommand, found: Options, wrapper: Wrapper) -> bool:
    argv, word = part.argv, part.argv[found.at]
    for place, letter in enumerate(word[1:], 2):
        option = f"-{letter}"
        attached = word[place:]
        if option in wrapper.stops:
            found.stops = True
            return True
        if option in wrapper.text:
            found.texts.append((found.at, attached) if attached else (found.at + 1, None))
            found.at += 1 if attached else 2
            return found.at <= len(argv)
        if letter in wrapper.optional:
            found.at += 1
            return True
        if letter in wrapper.values:
            if option in wrapper.directory:
                found.cwd = attached or (argv[found.at + 1] if found.at + 1 < len(argv) else UNKNOWN)
            found.at += 1 if attached else 2
            return found.at <= len(argv)
        if letter not in wrapper.flags:
            return False
    found.at += 1
    return True
