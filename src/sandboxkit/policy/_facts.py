"""
What the pattern of a rule tells about the texts it takes, without being run over one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence  # noqa: TC003 - a compiled build looks up what annotates a field of a value
from string import ascii_letters, digits
from typing import TYPE_CHECKING, NamedTuple

from sandboxkit.policy._regex import LinearRegex, linear_regex

if TYPE_CHECKING:
    from sandboxkit.policy._rule import PolicyRule

__all__ = ["Facts"]

_QUOTES = frozenset("'\"")
_USUAL = frozenset(ascii_letters + digits)
_NAME = r"(?:[A-Za-z0-9_/-]|\\.)+"
_LEADING = re.compile(rf"(?:({_NAME})|\(({_NAME}(?:\|{_NAME})*)\))(?= |\( |$)")
"""
The beginning of a glob or regex that names the program, or alternatives of it.
"""
_SECOND = re.compile(rf"(?:{_NAME}|\({_NAME}(?:\|{_NAME})*\)) (?:({_NAME})|\(({_NAME}(?:\|{_NAME})*)\))(?= |$)")
"""
The same for the second word.
"""


class Facts(NamedTuple):
    """
    What is known of a glob or regex before it is run. It takes longer to find out than a
    decision, so the built-in table holds it ready, in JSON's types.

    Attributes:
        programs: The only programs it can match, or None where that is not plain to see.
        seconds: The only second words it can match, or none where that is not plain to see.
        is_usual: Whether the second word may be one of ASCII letters and digits.
        begins: The ASCII characters that a text it takes can begin with, or None.
        needs: A regular expression found in every text it takes, with or without the
            quotes of canonical texts, or None.
    """

    programs: Sequence[str] | None
    seconds: Sequence[str]
    is_usual: bool
    begins: str | None
    needs: str | None

    @classmethod
    def of(cls, rule: PolicyRule) -> Facts:
        """
        Those of the pattern of *rule*.
        """
        pattern = rule.glob or rule.regex or ""
        regex = linear_regex(rule.regex) if rule.regex is not None else None
        may_name = regex is None or not regex.has_alternatives
        programs = _words(_LEADING, pattern, is_glob=regex is None) if may_name else None
        seconds = _words(_SECOND, pattern, is_glob=regex is None) if programs else None
        if regex is None:
            return cls(programs, seconds or (), is_usual=True, begins=None, needs=None)
        begins = "".join(sorted(regex.following("")))
        return cls(programs, seconds or (), _takes_usual(regex, programs), begins, _found_unquoted(regex))


def _words(where: re.Pattern[str], pattern: str, *, is_glob: bool) -> Sequence[str] | None:
    found = where.match(pattern)
    if not found or (found[2] and is_glob):
        return None
    return sorted(set((found[1] or found[2]).replace("\\", "").split("|")))


def _takes_usual(regex: LinearRegex, programs: Sequence[str] | None) -> bool:
    return programs is None or any(not _USUAL.isdisjoint(regex.following(f"{program} ")) for program in programs)


def _found_unquoted(regex: LinearRegex) -> str | None:
    """
    What *regex* needs, where it is found without the quotes of canonical texts too.
    """
    needs = regex.needs.pattern if regex.needs is not None else None
    return None if needs is None or not _QUOTES.isdisjoint(needs) else needs
