"""
Specs as TOML or JSON: every mistake at once, with its key and line.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sandboxkit.errors import SpecError
from sandboxkit.model._key_lines import KeyLines
from sandboxkit.model._real_path import real_path
from sandboxkit.model._spec_problems import Problem, problems
from sandboxkit.model._unreadable import unreadable
from sandboxkit.model._walk import GLOB, PATTERN_DEPTH, PATTERN_DIRECTORIES, Walk, fixed_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.model._spec import SandboxSpec

__all__ = ["spec_from_dict", "spec_from_file"]

MAX_BYTES = 1 << 20
"""The largest spec file that is read."""

_PATHS = ("read", "write", "deny")


def spec_from_file(model: type[SandboxSpec], path: str | os.PathLike[str]) -> SandboxSpec:
    """
    The *model* that the file at *path* describes.

    Raises:
        SpecError: The file cannot be read, or anything in it is wrong.
    """
    source = os.fspath(path)
    text = _text(source)
    is_json = Path(source).suffix == ".json"
    data = _parsed(text, source, is_json=is_json)
    lines = KeyLines(text, is_json=is_json)
    wrong = [Problem(key, "the key is given twice in one object") for key in lines.repeated]
    spec, more = _checked(model, data, os.path.dirname(os.path.abspath(source)))
    if spec is None or wrong:
        raise SpecError(*_with_lines([*wrong, *more], lines), source=source)
    return spec


def spec_from_dict(
    model: type[SandboxSpec], data: Mapping[str, Any], base: str | os.PathLike[str] | None
) -> SandboxSpec:
    """
    The *model* that *data* describes.

    Raises:
        SpecError: Anything in it is wrong.
    """
    spec, wrong = _checked(model, data, None if base is None else os.path.abspath(base))
    if spec is None:
        raise SpecError(*map(str, wrong))
    return spec


def _text(source: str) -> str:
    if Path(source).suffix not in (".toml", ".json"):
        raise SpecError("its name must end in .toml or .json; rename it", source=source)
    try:
        if not os.path.isfile(source) and os.path.exists(source):
            remedy = (
                "it is a directory; give a file in it" if os.path.isdir(source) else "it is no regular file; give one"
            )
            raise SpecError(remedy, source=source)
        with open(source, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SpecError(f"it is larger than {MAX_BYTES} bytes, so it is no spec; check the name", source=source)
        return content.decode("utf-8-sig")
    except OSError as exc:
        raise SpecError(unreadable(source, exc), source=source) from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"it is no UTF-8 text: {exc}; save it as UTF-8, or check the name", source=source) from exc


def _parsed(text: str, source: str, *, is_json: bool) -> Mapping[str, Any]:
    kind = "JSON" if is_json else "TOML"
    try:
        data = json.loads(text) if is_json else tomllib.loads(text)
    except ValueError as exc:
        other = "TOML, name it .toml" if is_json else "JSON, name it .json"
        raise SpecError(f"it is no {kind}: {exc}; correct it there, or where it is {other}", source=source) from exc
    except RecursionError as exc:
        raise SpecError(
            f"it is no {kind} that can be read: it is nested too deeply; check the name", source=source
        ) from exc
    if not isinstance(data, dict):
        raise SpecError("it must hold one object with the fields of a spec", source=source)
    return data


def _with_lines(wrong: Sequence[Problem], lines: KeyLines) -> list[str]:
    placed = sorted(((lines.line(problem.key) or 0, problem) for problem in wrong), key=lambda pair: pair[0])
    return [f"line {line}: {problem}" if line else str(problem) for line, problem in placed]


def _checked(model: type[SandboxSpec], data: object, base: str | None) -> tuple[SandboxSpec | None, list[Problem]]:
    wrong: list[Problem] = []
    if base is not None and isinstance(data, Mapping) and isinstance(data.get("filesystem"), Mapping):
        data = {**data, "filesystem": _with_real_paths(data["filesystem"], base, wrong)}
    try:
        spec = model.model_validate(data)
    except ValidationError as exc:
        return None, [*wrong, *problems(exc, model)]
    return (None if wrong else spec), wrong


def _with_real_paths(filesystem: Mapping[str, Any], base: str, wrong: list[Problem]) -> dict[str, Any]:
    fields = dict(filesystem)
    for name in _PATHS:
        if not isinstance(fields.get(name), list | tuple):
            continue
        paths: list[Any] = []
        for number, path in enumerate(fields[name]):
            try:
                paths += _real(path, base, is_kept=name == "deny")
            except ValueError as exc:
                wrong.append(Problem(("filesystem", name, number), str(exc)))
                paths.append("/")  # stands in for it, so that the rest is checked too
        fields[name] = paths
    return fields


def _real(path: object, base: str, *, is_kept: bool) -> list[Any]:
    """
    What *path* of a file stands for: itself from the root, or what a pattern matches now.

    Raises:
        ValueError: It can be no path, or a pattern that cannot be followed to its end.
    """
    if not isinstance(path, str | os.PathLike):
        return [path]
    text = os.fspath(path)
    if not text.startswith(GLOB):
        return [real_path(path, base=base, expand_home=True)]
    directory, parts = fixed_part(text.removeprefix(GLOB))
    is_relative = not text.removeprefix(GLOB).startswith(("/", "~"))
    directory = (
        real_path(directory.lstrip("/") or ".", base=base, expand_home=True) if is_relative else _fixed(directory)
    )
    if is_kept:
        return [GLOB + "/".join((directory.rstrip("/"), *parts))]
    walk = Walk(directory, max_depth=PATTERN_DEPTH, max_directories=PATTERN_DIRECTORIES)
    found = list(walk.matches(directory.rstrip("/"), parts))
    if walk.unseen:
        raise ValueError(f"{text!r} cannot be followed to its end: {walk.unseen}; start it deeper")
    return list(dict.fromkeys(map(os.path.realpath, found)))


def _fixed(directory: str) -> str:
    return real_path(directory[1:] if directory.startswith("/~") else directory, expand_home=True)
