"""
Reading rules: from TOML, from JSON, from values. All mistakes are reported at once.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sandboxkit.errors import PolicyError
from sandboxkit.model import Level, PolicyAction
from sandboxkit.policy._problems import Lines, rule_problems, said, set_problems
from sandboxkit.policy._rule import PolicyRule

__all__ = ["MAX_FILE_BYTES", "VERSION", "RuleSource", "from_file", "from_files", "from_mapping"]

MAX_FILE_BYTES = 1024 * 1024
VERSION = 1
"""
The version of the file format.
"""
_KEYS = ("version", "default", "rules")


@dataclass(frozen=True, slots=True)
class RuleSource:
    """
    What one file or mapping says.

    Attributes:
        rules: Its rules, in order.
        default: What it wants done with commands no rule matches, or None.
    """

    rules: tuple[PolicyRule, ...] = ()
    default: PolicyAction | None = None


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
    text = _text(Path(path), source)
    if source.endswith(".json"):
        return from_mapping(_json(text, source), level, source=source)
    return from_mapping(_toml(text, source), level, source=source, lines=Lines.of_toml(text))


def _text(path: Path, source: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise PolicyError(
                f"it is larger than {MAX_FILE_BYTES} bytes; split it by level or remove rules", source=source
            )
        return content.decode("utf-8")
    except OSError as error:
        raise PolicyError(
            f"it cannot be read: {error.strerror or error}; give a readable file or leave the level out", source=source
        ) from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"it is not UTF-8 at byte {error.start}; save it as UTF-8", source=source) from error


def _toml(text: str, source: str) -> object:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyError(f"it is no TOML: {error}", source=source) from error


def _json(text: str, source: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"it is no JSON: {error}", source=source) from error


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # TOML refuses a repeated key by itself; JSON would silently keep the last.
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return table


def from_mapping(data: object, level: Level, *, source: str | None = None, lines: Lines | None = None) -> RuleSource:
    """
    The rules of *data*: a mapping with `rules`, and optionally `default` and `version`.

    Raises:
        PolicyError: It holds a mistake. All mistakes are reported.
    """
    if not isinstance(data, Mapping):
        raise PolicyError(f"it is of type {type(data).__name__}, not a table with the key 'rules'", source=source)
    lines = lines or Lines()
    problems = list(_head_problems(data, level))
    rules, more = _rules(data.get("rules", ()), level, lines)
    problems += more
    if problems:
        raise PolicyError(*problems, source=source)
    default = data.get("default")
    return RuleSource(rules, None if default is None else _action(default))


def _action(value: object) -> PolicyAction:
    return value if isinstance(value, PolicyAction) else PolicyAction.from_name(str(value))


def _head_problems(data: Mapping[str, object], level: Level) -> Iterable[str]:
    for key in data:
        if key not in _KEYS:
            yield f"{key}: there is no such key; a file has {', '.join(_KEYS)}"
    if type(data.get("version", VERSION)) is not int or data.get("version", VERSION) != VERSION:
        yield f"version: {data['version']!r} is not known; this release reads version {VERSION}"
    default = data.get("default")
    if default is not None and not isinstance(default, PolicyAction):
        try:
            PolicyAction.from_name(default if isinstance(default, str) else repr(default))
        except ValueError as error:
            yield f"default: {error}"
    if not isinstance(data.get("rules", ()), (list, tuple)):
        yield "rules: it must be a list of tables ([[rules]] in TOML)"


def _rules(rows: object, level: Level, lines: Lines) -> tuple[tuple[PolicyRule, ...], list[str]]:
    rules: list[PolicyRule] = []
    numbers: list[int] = []
    problems: list[str] = []
    for number, row in enumerate(rows if isinstance(rows, (list, tuple)) else ()):
        rule, found = _rule(row, level)
        problems += (_where(number, row, key, lines) + message for key, message in found)
        if rule is not None:
            rules.append(rule)
            numbers.append(number)
    for index, key, message in set_problems(rules):
        problems.append(_where(numbers[index], rules[index], key, lines) + message)
    return tuple(rules), problems


def _rule(row: object, level: Level) -> tuple[PolicyRule | None, list[tuple[str, str]]]:
    if not isinstance(row, (Mapping, PolicyRule)):
        return None, [("", f"it is of type {type(row).__name__}, not a table")]
    try:
        rule = row if isinstance(row, PolicyRule) else PolicyRule.model_validate(dict(row))
    except ValidationError as error:
        return None, list(said(error))
    return rule, list(rule_problems(rule, level))


def _where(number: int, row: object, key: str, lines: Lines) -> str:
    name = row.id if isinstance(row, PolicyRule) else row.get("id") if isinstance(row, Mapping) else None
    titled = f" {name!r}" if isinstance(name, str) else ""
    return f"rules[{number}]{titled}{lines.place(number, key.partition('.')[0])}: " + (f"{key}: " if key else "")
