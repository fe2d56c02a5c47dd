"""
How a call of `sandboxkit` went, for people on stderr or for programs as JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sandboxkit.cli._output import note, say, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.cli._exit import Exit

__all__ = ["Report"]


class Report:
    """
    Where the outcome goes.

    Args:
        is_json: Print it to stdout as one object, and nothing else.
        status_fd: Also write it, without the command's output, to this descriptor.
    """

    def __init__(self, *, is_json: bool, status_fd: int | None = None) -> None:
        self.is_json = is_json
        self._status_fd = status_fd

    def done(self, code: int, status: str, fields: Mapping[str, Any]) -> int:
        """
        Reports the outcome *status* with its *fields*, and gives back *code*.
        """
        record = {"status": status, "exit_code": int(code), **fields}
        if self._status_fd is not None:
            write(self._status_fd, json.dumps(_without_output(record)).encode() + b"\n")
        if self.is_json:
            say(json.dumps(record, indent=2))
        return code

    def failed(self, code: Exit, exc: BaseException, text: str) -> int:
        """
        Reports that *exc* stood in the way, in the words of *text*.
        """
        error = {
            "type": type(exc).__name__.lstrip("_"),
            "message": text,
            "problems": list(getattr(exc, "problems", ())),
        }
        evaluation = getattr(exc, "evaluation", None)
        if not self.is_json:
            note(text)
        return self.done(
            code, code.status, {"error": error, "evaluation": evaluation.to_dict() if evaluation else None}
        )


def _without_output(record: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in record.get("result", {}).items() if name not in ("stdout", "stderr")}
    return {**record, "result": result} if result else dict(record)
