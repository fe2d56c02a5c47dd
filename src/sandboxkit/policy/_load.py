"""
Reading rules: from TOML, from JSON, from values. All mistakes are reported at once.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sandboxkit.errors import PolicyError
from sandboxkit.model import KeyLines, Level, PolicyAction
from sandboxkit.model._unreadable import unreadable
from sandboxkit.policy._problems import Problem, located, rule_problems, said, set_problems
from sandboxkit.policy._rule import PolicyRule
from sandboxkit.policy._rule_source import RuleSource

if TYPE_CHECKING:
    from sandboxkit.policy._trial import RuleTest

__all__ = [
    "KEYS",
    "MAX_FILE_BYTES",
    "VERSION",
    "from_file",
    "from_files",
    "from_mapping",
    "read_file",
    "read_mapping",
]

MAX_FILE_BYTES = 1024 * 1024
VERSION = 1
"""
The version of the file format.
"""
_LOOKED_INTO = 500
"""
Of so many rules of a file it is found out whether their patterns can match anything: a
file may come from somebody who wants to keep us busy.
"""
KEYS = ("version", "default", "rules", "tests", "$schema")


def from_files(files: Mapping[Level, str | os.PathLike[str] | None]) -> dict[Level, RuleSource]:
    """
    The rules of the named files; a level without a file has none.

    Raises:
        PolicyError: Any file cannot be read or holds a mistake. All are reported.
    """
    read: dict[Level, RuleSource] = {}
    errors: list[PolicyError] = []
    for level, path in files.items():
        try:
            read[level] = RuleSource() if path is None else from_file(path, level)
        except PolicyError as error:
            errors.append(error)
    if len(errors) > 1:
        problems = [f"{error.source}: {problem}" for error in errors for problem in error.problems]
        raise PolicyError(*problems, source=", ".join(str(error.source) for error in errors))
    if errors:
        raise errors[0]
    return read


def from_file(path: str | os.PathLike[str], level: Level) -> RuleSource:
    """
    The rules of one file: JSON where its name ends in `.json`, otherwise TOML.

    Raises:
        PolicyError: The file cannot be read, is larger than a mebibyte, or holds a
            mistake. All mistakes are reported.
    """
    source = os.fspath(path)
    file = read_file(source, level)
    if file.problems:
        raise PolicyError(*map(str, file.problems), source=source)
    return file.found


@dataclass(frozen=True, slots=True)
class RuleFile:
    """
    A file as it was read, with all its mistakes.

    Attributes:
        found: What it says, as far as it is right.
        problems: Everything that is wrong with it.
        numbers: For each rule of `found`, its number in the file.
        lines: Where its keys stand.
    """

    found: RuleSource
    problems: tuple[Problem, ...]
    numbers: tuple[int, ...]
    lines: KeyLines


def read_file(source: str, level: Level) -> RuleFile:
    """
    The file *source*, read for *level*.

    Raises:
        PolicyError: The file cannot be read, is larger than a mebibyte, or is no TOML
            or JSON at all.
    """
    text = _text(Path(source), source)
    is_json = source.endswith(".json")
    data, repeats = _json(text, source) if is_json else (_toml(text, source), [])
    lines = KeyLines(text, is_json=is_json)
    found, problems, numbers = read_mapping(data, level, lines)
    return RuleFile(found, (*_repeated(repeats, lines), *problems), numbers, lines)


def _text(path: Path, source: str) -> str:
    try:
        if _is_named_pipe(path):
            raise PolicyError("it is a pipe, which may keep whoever reads it waiting; give a file", source=source)
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise PolicyError(
                f"it is larger than {MAX_FILE_BYTES} bytes; split it by level or remove rules", source=source
            )
        return content.decode("utf-8")
    except OSError as error:
        raise PolicyError(unreadable(path, error), source=source) from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"it is not UTF-8 at byte {error.start}; save it as UTF-8", source=source) from error


def _is_named_pipe(path: Path) -> bool:
    """
    Whether *path* leads to a pipe in a directory, where somebody may have left it; not
    one that a shell opened for us (`/dev/fd/63`).
    """
    try:
        return stat.S_ISFIFO(os.lstat(os.path.realpath(path)).st_mode)
    except FileNotFoundError:
        return False  # what is missing is said when it is opened


def _toml(text: str, source: str) -> object:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyError(
            f"it is no TOML: {error}; correct it there, or name it .json where it is JSON", source=source
        ) from error


def _json(text: str, source: str) -> tuple[object, list[str]]:
    """
    What *text* holds, and the keys that one of its objects has twice: TOML refuses
    those by itself; JSON would silently keep the last.
    """
    repeats: list[str] = []

    def table(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = Counter(name for name, _ in pairs)
        repeats.extend(name for name, count in names.items() if count > 1)
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=table), repeats
    except (ValueError, RecursionError) as error:
        raise PolicyError(
            f"it is no JSON: {error}; correct it there, or name it .toml where it is TOML", source=source
        ) from error


def _repeated(names: Sequence[str], lines: KeyLines) -> Iterator[Problem]:
    message = "it is given twice in one object"
    placed = lines.repeated if len(lines.repeated) == len(names) else ()
    for path in placed:
        yield Problem(message, ".".join(map(str, path)), line=lines.line(path))
    for name in names if not placed else ():
        yield Problem(message, name)


def from_mapping(data: object, level: Level) -> RuleSource:
    """
    The rules of *data*: a mapping with `rules`, and optionally `default` and `version`.

    Raises:
        PolicyError: It holds a mistake. All mistakes are reported.
    """
    found, problems, _ = read_mapping(data, level)
    if problems:
        raise PolicyError(*map(str, problems))
    return found


def read_mapping(
    data: object, level: Level, lines: KeyLines | None = None
) -> tuple[RuleSource, list[Problem], tuple[int, ...]]:
    """
    The rules of *data* that are right, everything that is wrong with it, and the number
    of each rule that is right.
    """
    if not isinstance(data, Mapping):
        message = f"it is of type {type(data).__name__}, not a table with the key 'rules'"
        return RuleSource(), [Problem(message)], ()
    problems = [
        Problem(message, key, line=lines.line((key,)) if lines else None) for key, message in _head_problems(data)
    ]
    rules, more, numbers = _rules(data.get("rules", ()), level, lines)
    tests, others = _tests(data.get("tests", ()), lines)
    default = data.get("default") if not any(problem.key == "default" for problem in problems) else None
    action = None if default is None else _action(default)
    return RuleSource(rules, action, tests), [*problems, *more, *others], numbers


def _action(value: object) -> PolicyAction:
    return value if isinstance(value, PolicyAction) else PolicyAction.from_name(str(value))


def _head_problems(data: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for key in data:
        if key not in KEYS:
            yield str(key), f"there is no such key; a file has {', '.join(KEYS)}"
    if type(data.get("version", VERSION)) is not int or data.get("version", VERSION) != VERSION:
        yield "version", f"{data['version']!r} is not known; this release reads version {VERSION}"
    default = data.get("default")
    if default is not None and not isinstance(default, PolicyAction):
        try:
            PolicyAction.from_name(default if isinstance(default, str) else repr(default))
        except ValueError as error:
            yield "default", str(error)
    if not isinstance(data.get("$schema", ""), str):
        yield "$schema", "it must be the address of a schema, for editors; it is not looked at"
    for key in ("rules", "tests"):
        if not isinstance(data.get(key, ()), (list, tuple)):
            yield key, f"it must be a list of tables ([[{key}]] in TOML)"


def _rules(
    rows: object, level: Level, lines: KeyLines | None
) -> tuple[tuple[PolicyRule, ...], list[Problem], tuple[int, ...]]:
    rules: list[PolicyRule] = []
    numbers: list[int] = []
    problems: list[Problem] = []
    for number, row in enumerate(rows if isinstance(rows, (list, tuple)) else ()):
        rule, found = _rule(row, level, looks_into=number < _LOOKED_INTO)
        problems += (located(number, row, key, message, lines) for key, message in found)
        if rule is not None:
            rules.append(rule)
            numbers.append(number)
    for index, key, message in set_problems(rules, level):
        problems.append(located(numbers[index], rules[index], key, message, lines))
    return tuple(rules), problems, tuple(numbers)


def _tests(rows: object, lines: KeyLines | None) -> tuple[tuple[RuleTest, ...], list[Problem]]:
    from sandboxkit.policy._trial import RuleTest

    tests: list[RuleTest] = []
    problems: list[Problem] = []
    for number, row in enumerate(rows if isinstance(rows, (list, tuple)) else ()):
        if isinstance(row, RuleTest):
            tests.append(row)
            continue
        try:
            tests.append(RuleTest.model_validate(row))
        except ValidationError as error:
            problems += (located(number, row, key, message, lines, table="tests") for key, message in said(error))
    return tuple(tests), problems


def _rule(row: object, level: Level, *, looks_into: bool) -> tuple[PolicyRule | None, list[tuple[str, str]]]:
    if not isinstance(row, (Mapping, PolicyRule)):
        return None, [("", f"it is of type {type(row).__name__}, not a table")]
    try:
        rule = row if isinstance(row, PolicyRule) else PolicyRule.model_validate(dict(row))
    except ValidationError as error:
        meant = _without_unknown(row, error)
        more = [] if meant is None else rule_problems(meant, level, looks_into=looks_into)
        return None, [*said(error), *more]
    return rule, list(rule_problems(rule, level, looks_into=looks_into))


def _without_unknown(row: object, error: ValidationError) -> PolicyRule | None:
    """
    The rule that *row* would be without the keys nobody knows, if those are all that is
    wrong with it: its other mistakes are reported with them.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if any(problem["type"] != "extra_forbidden" or len(problem["loc"]) > 1 for problem in found):
        return None
    unknown = {problem["loc"][0] for problem in found}
    known = {key: value for key, value in row.items() if key not in unknown} if isinstance(row, Mapping) else {}
    try:
        return PolicyRule.model_validate(known)
    except ValidationError:
        return None
