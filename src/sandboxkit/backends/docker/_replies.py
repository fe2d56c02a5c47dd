"""
What the first process of a container says, checked before it is believed. Pure.

It is read by a Python of the image, whose commands have its uid: what it says about its own
container is all that can be had, but its form is ours, and nothing else is taken.
"""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any, Final, NoReturn

from sandboxkit.model import Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MOST_BYTES", "checked_report", "count", "end", "failure", "listener", "report"]

MOST_BYTES: Final = 1 << 24
"""
In one frame: all that is longer is none.
"""
_ENDED_BY_US = tuple(
    ended.value
    for ended in (Termination.TIMED_OUT, Termination.OUTPUT_LIMIT, Termination.CPU_LIMIT, Termination.KILLED)
)
_STEPS = ("setup", "cwd", "limits", "exec", "listener")
_MOST_ERRNO, _MOST_PORT = 4095, 65535
_CODES, _SIGNALS = range(256), range(1, 128)
_COUNT = struct.Struct("!I")
_HEX = frozenset("0123456789abcdef")


def _is_whole(found: object) -> bool:
    return type(found) is int and found.bit_length() <= 64


def _is_count(found: object) -> bool:
    return found is None or (type(found) is int and _is_whole(found) and found >= 0)


def _is_number(found: object) -> bool:
    return isinstance(found, (int, float)) and not isinstance(found, bool) and -math.inf < found < math.inf


def _is_seconds(found: object) -> bool:
    return isinstance(found, (int, float)) and _is_number(found) and found >= 0


def _is_text(found: object) -> bool:
    return isinstance(found, str)


def _is_flag(found: object) -> bool:
    return isinstance(found, bool)


def _is_bits(found: object) -> bool:
    """
    Whether it is a set of capabilities as proc_pid_status(5) has it, or nothing.
    """
    return isinstance(found, str) and len(found) <= 16 and _HEX.issuperset(found)


def _is_names(found: object) -> bool:
    return isinstance(found, list) and all(map(_is_text, found))


_REPORT: Final[Mapping[str, Callable[[object], bool]]] = {
    "CapEff": _is_bits,
    "CapBnd": _is_bits,
    "NoNewPrivs": _is_text,
    "Seccomp": _is_text,
    "kernel": _is_text,
    "pid": _is_whole,
    "interfaces": _is_names,
    "memory": lambda found: found is None or _is_whole(found),
    "swap": lambda found: found is None or _is_whole(found),
    "is_v2": _is_flag,
    "processes": lambda found: found is None or _is_whole(found),
    "cpus": lambda found: found is None or _is_number(found),
    "counts_cpu": _is_flag,
    "rootfs": _is_flag,
}
_END: Final[Mapping[str, Callable[[object], bool]]] = {
    "code": lambda found: found is None or (_is_whole(found) and found in _CODES),
    "signal": lambda found: found is None or (_is_whole(found) and found in _SIGNALS),
    "ended": lambda found: found is None or found in _ENDED_BY_US,
    "user_s": _is_seconds,
    "system_s": _is_seconds,
    "rss_bytes": _is_count,
    "cpu_s": lambda found: found is None or _is_seconds(found),
    "oom": lambda found: found is None or _is_whole(found),
    "refused": lambda found: found is None or _is_whole(found),
}


def report(content: bytes, places: int) -> Mapping[str, Any]:
    """
    What is in force, from the agent's first answer.

    Args:
        content: The answer.
        places: Of how many paths the place was asked.

    Raises:
        ValueError: It is none.
    """
    found = _object(content)
    if not _is_text(found.get("shut")):
        raise ValueError("it does not say whether it reached the socket of its way out")
    return checked_report(found, places)


def checked_report(found: Mapping[str, Any], places: int) -> Mapping[str, Any]:
    """
    *found*, if it says all that is asked, in the form it is asked in.

    Raises:
        ValueError: It does not.
    """
    _check(found, _REPORT)
    rows = found.get("places")
    if not isinstance(rows, list) or len(rows) != places or not all(map(_is_place, rows)):
        raise ValueError("it does not say what is where")
    return found


def _is_place(found: object) -> bool:
    return found is None or (isinstance(found, list) and len(found) == 2 and all(map(_is_whole, found)))


def end(content: bytes) -> Mapping[str, Any]:
    """
    How a command ended.

    Raises:
        ValueError: It does not say.
    """
    found = _object(content)
    _check(found, _END)
    if (found["code"] is None) is (found["signal"] is None):
        raise ValueError("a command ends by a code or by a signal")
    return found


def failure(content: bytes) -> tuple[str, int, str]:
    """
    The step that failed, its errno, and the interpreter that a script named in vain.

    Raises:
        ValueError: It does not say.
    """
    found = _object(content)
    step, number, interpreter = found.get("step"), found.get("errno"), found.get("interpreter", "")
    if step not in _STEPS or not isinstance(interpreter, str):
        raise ValueError("it names no step")
    if not isinstance(number, int) or not 0 < number <= _MOST_ERRNO:
        raise ValueError(f"errno {str(number)[:20]} is none")
    return step, number, interpreter


def listener(content: bytes) -> Mapping[str, int]:
    """
    The port of a listener, or the errno that stood against it.

    Raises:
        ValueError: It says neither.
    """
    found = _object(content)
    if "port" not in found:
        return {"errno": failure(content)[1]}
    if not _is_whole(found["port"]) or not 0 < found["port"] <= _MOST_PORT:
        raise ValueError("a listener's port is none")
    return {"port": found["port"]}


def count(content: bytes) -> int:
    """
    How many bytes of its input a command has taken.

    Raises:
        ValueError: It does not say.
    """
    if len(content) != _COUNT.size:
        raise ValueError("it counts nothing")
    (found,) = _COUNT.unpack(content)
    return int(found)


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content, parse_constant=_no_constant)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _check(found: Mapping[str, Any], fields: Mapping[str, Callable[[object], bool]]) -> None:
    for name, is_right in fields.items():
        if name not in found or not is_right(found[name]):
            raise ValueError(f"{name} is missing or of no form that is known")
