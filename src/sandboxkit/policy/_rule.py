"""
`PolicyRule`: one row of a rule file. Text enters here, so these are pydantic models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sandboxkit.model import Described, PolicyAction, SandboxSpec
from sandboxkit.policy._regex import MAX_PATTERN, linear_regex

__all__ = ["BAKED", "PolicyRule", "RuleConstraints"]

BAKED = object()
"""
The context of a row whose regex was checked when the built-in table was baked: to read it
takes longer than a decision.
"""

_NUMBER = re.compile(r"[a-z][a-z0-9_]{0,49}")
_ID = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?")


def _action(value: object) -> object:
    if isinstance(value, str):
        return PolicyAction.from_name(value)
    if not isinstance(value, PolicyAction):
        raise ValueError("an action is one of allow, sandbox, ask, deny")
    return value


ActionField = Annotated[PolicyAction, BeforeValidator(_action), PlainSerializer(str, return_type=str)]
"""
An action, written as its name.
"""


def _pattern(text: str) -> str:
    if not text or "\0" in text or len(text) > MAX_PATTERN:
        raise ValueError(f"a pattern has 1 to {MAX_PATTERN} characters and no NUL byte")
    return text


def _alternatives(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if not value:
        raise ValueError("a word of a prefix is a string or a list of at least one string")
    if isinstance(value, tuple) and len(set(value)) < len(value):
        raise ValueError("an alternative is listed twice")
    return value


_Pattern = Annotated[str, AfterValidator(_pattern)]
_Patterns = tuple[_Pattern, ...]
_Words = Annotated[_Pattern | tuple[_Pattern, ...], AfterValidator(_alternatives)]
_Example = _Pattern | Annotated[tuple[str, ...], Field(min_length=1)]
_Line = Annotated[str, Field(max_length=500)]


def _directory(path: str) -> str:
    if not (path.startswith(("/", "~/")) or path == "~"):
        raise ValueError(f"{path!r} is a relative path; begin it with / or ~")
    return path


def _number_name(name: str) -> str:
    if not _NUMBER.fullmatch(name):
        raise ValueError(f"{name!r} names no number; use small letters, digits and '_', beginning with a letter")
    return name


_NumberName = Annotated[str, AfterValidator(_number_name)]
_Bound = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_Directory = Annotated[_Pattern, AfterValidator(_directory)]


class _Model(Described):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RuleConstraints(_Model):
    """
    Where a rule applies beyond its matcher. A rule whose constraints do not hold says
    nothing about the command, so the next rule or the default decides.

    What cannot be known (a relative path with no working directory) counts against
    a rule that allows or sandboxes, and does not spare a command from one that asks
    or denies.
    """

    allowed_arguments: _Patterns | None = None
    """
    Every argument must be in this list; an empty list takes no argument at all.

    Options are named: `-x`, `--name`, with a trailing `=` where a value follows,
    attached or as the next argument, and a trailing `[=]` where one may only be
    attached (`--color[=]`). `-#` is any number (`-50`). Short options may stand in a
    cluster, and `--` ends the options. Abbreviated options are not in the list: another
    release of the tool may know an option of just that name.

    `-word` and `-word=` are options like those of find. With one of them, or `* = *`, in
    the list every argument is compared as a whole, and `--` does not end the options.

    Anything else is a glob for operands; with ` **` behind it (`* **`) all further
    arguments are in the list too, as for tools whose options end at the first operand.
    `* = *` is that word with any argument on either side. An option may be a glob as
    well (`-W*`). `**` is any argument.
    """
    unknown_arguments: StrictBool = False
    """
    With `allowed_arguments`: words that only the shell will know, say an unset variable,
    may stand where they could be any option. For tools with no option that writes, runs
    or reaches out. Without it such a word is in the list only behind `--`, as the value
    of an option, or where it certainly begins like an operand.
    """
    denied_arguments: _Patterns = ()
    """
    No argument may be in this list. Here abbreviations of long options, letters in
    a cluster and attached values count too.
    """
    max_operands: Annotated[StrictInt, Field(ge=0)] | None = None
    """With `allowed_arguments`: how many arguments may be neither options nor their values."""
    allowed_directories: tuple[_Directory, ...] = ()
    """The working directory and every path in the arguments must lie in one of these."""
    denied_directories: tuple[_Directory, ...] = ()
    """None of them may lie in, and no path in the arguments may contain, one of these."""
    more_than: Mapping[_NumberName, _Bound] = Field(default_factory=dict)
    """
    Every number named here must be greater than what is given for it. `arguments` and
    `urls` behind the prefix are counted, and `parts`, the programs of the whole command;
    others come from the caller, in `EvaluationContext.numbers`. A number nobody gave
    cannot be known.
    """
    max_timeout: Annotated[float, Field(gt=0, le=365 * 86400, allow_inf_nan=False)] | None = None
    """Seconds the command may run where this rule decides. Never keeps the rule from applying."""

    @model_validator(mode="after")
    def _operands_need_a_list(self) -> Self:
        if self.max_operands is not None and self.allowed_arguments is None:
            raise ValueError(
                "max_operands needs allowed_arguments: without the list, values of options look like operands"
            )
        if self.unknown_arguments and self.allowed_arguments is None:
            raise ValueError("unknown_arguments needs allowed_arguments: without the list, any argument is allowed")
        return self


class PolicyRule(_Model):
    """
    What is to be done with the commands it matches.

    Exactly one of `prefix`, `glob` and `regex` is the matcher; `match` and
    `not_match` are examples that are checked when the rule is taken.
    """

    id: str
    """Names the rule: small letters, digits, `.`, `_`, `-`. `builtin.` and `floor.` are taken."""
    name: _Line = ""
    """A title for people."""
    prefix: tuple[_Words, ...] | None = None
    """
    The first words of a program and its arguments; a list in place of a word holds
    alternatives. A program without a slash means the one in the trusted directories:
    rules that ask or deny also take any path that ends in it. A program with a slash is
    compared as it is written.
    """
    glob: _Pattern | None = None
    """One program with all its words as one line; `*` is any characters, `?` one."""
    regex: _Pattern | None = None
    """
    One program with all its words as one line. Linear time: no anchors, look-around or
    back-references. Not in project files.
    """
    action: ActionField
    """`allow` (in a read-only box without network, unasked), `sandbox`, `ask` or `deny`."""
    priority: Annotated[StrictInt, Field(ge=-1000, le=1000)] | None = None
    """
    The greater decides within a level, the strictest among equals. By default the
    number of words of the prefix, so the longest comes first; 0 for globs and regexes.
    """
    enabled: StrictBool = True
    """A disabled rule is kept and never matches."""
    reason: _Line = ""
    """Why, in words for whoever reads the decision."""
    tags: tuple[Annotated[str, Field(max_length=100)], ...] = ()
    """Labels, for example the category."""
    constraints: RuleConstraints = RuleConstraints()
    """Where the rule applies beyond its matcher."""
    spec: SandboxSpec | None = None
    """
    The box: the base where the caller gives no spec, otherwise a ceiling. It never
    widens a caller's spec. Not in project files.
    """
    direct: StrictBool = False
    """
    The tool opens no file that arguments or configuration name, so it may run outside
    a box. Only in the built-in table.
    """
    match: tuple[_Example, ...] = ()
    """Commands the rule matches, as plain text or as lists of words."""
    not_match: tuple[_Example, ...] = ()
    """Commands it does not match."""

    @field_validator("id", mode="after")
    @classmethod
    def _well_formed(cls, value: str) -> str:
        if not _ID.fullmatch(value):
            raise ValueError(
                "an id has 1 to 100 small letters, digits, '.', '_' or '-', and begins and ends with a letter or digit"
            )
        return value

    @field_validator("regex", mode="after")
    @classmethod
    def _linear(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.context is not BAKED:
            linear_regex(value)
        return value

    @model_validator(mode="after")
    def _one_matcher(self) -> Self:
        given = [name for name in ("prefix", "glob", "regex") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a rule has exactly one of prefix, glob and regex; this one has {' and '.join(given) or 'none'}"
            )
        if self.prefix is not None and not self.prefix:
            raise ValueError("a prefix has at least one word")
        if self.direct and self.action is not PolicyAction.ALLOW:
            raise ValueError("only a rule that allows can be direct")
        return self

    @property
    def rank(self) -> int:
        """
        The priority that counts: the given one, or the number of words of the prefix.
        """
        return self.priority if self.priority is not None else len(self.prefix or ())

    def to_dict(self) -> dict[str, object]:
        """
        A JSON-ready form that holds only what was given; `PolicyRule(**…)` takes it back.
        """
        given = {
            key: value for key, value in self.model_dump(mode="json", exclude_unset=True).items() if value is not None
        }
        if "constraints" in given:
            # Here None is what leaving the key out says; in a spec it lifts a limit.
            given["constraints"] = {key: value for key, value in given["constraints"].items() if value is not None}
        return given
