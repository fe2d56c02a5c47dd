"""
Writing rules: as TOML, as JSON, into a file that is whole or not there.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxkit.errors import PolicyError
from sandboxkit.model import toml_value
from sandboxkit.policy._load import VERSION
from sandboxkit.policy._replace import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandboxkit.model import PolicyAction
    from sandboxkit.policy._rule import PolicyRule

__all__ = ["as_json", "as_toml", "save"]


def as_json(rules: Iterable[PolicyRule], default: PolicyAction | None = None) -> str:
    """
    *rules*, and the *default* where there is one, as the text of a JSON file.
    """
    head = {"version": VERSION} | ({} if default is None else {"default": str(default)})
    return json.dumps({**head, "rules": [rule.to_dict() for rule in rules]}, indent=2, ensure_ascii=False) + "\n"


def as_toml(rules: Iterable[PolicyRule], default: PolicyAction | None = None, *, version: int | None = VERSION) -> str:
    """
    *rules*, and the *default* where there is one, as the text of a TOML file; without a
    *version*, as a part of one.

    Raises:
        PolicyError: A spec lifts a limit with None, which TOML cannot say.
    """
    head = [] if version is None else [f"version = {version}\n"]
    blocks = ["".join((*head, *([] if default is None else [f'default = "{default}"\n'])))]
    for rule in rules:
        lines = [f"{key} = {_value(value, f'rule {rule.id!r}: {key}')}\n" for key, value in rule.to_dict().items()]
        blocks.append("[[rules]]\n" + "".join(lines))
    return "\n".join(blocks)


def _value(value: object, where: str) -> str:
    try:
        return toml_value(value, where)
    except ValueError as exc:
        raise PolicyError(f"{exc}; save as JSON") from None


def save(text: str, path: str | os.PathLike[str]) -> None:
    """
    Writes *text* to *path*: readable by the owner only, wholly or not at all.

    Raises:
        PolicyError: The file cannot be written; what was there is untouched.
    """
    target = Path(path)
    temporary = f".{target.name}.{secrets.token_hex(4)}.tmp"
    try:
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_file(folder, target.name, text.encode("utf-8"), temporary=temporary)
        finally:
            os.close(folder)
    except (OSError, UnicodeEncodeError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise PolicyError(f"it cannot be written: {problem}", source=os.fspath(path)) from error
