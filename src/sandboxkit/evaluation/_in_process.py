"""
Evaluation in the caller's own process: for authors one trusts.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio.from_thread
import anyio.to_thread

from sandboxkit.errors import MissingExtraError, SafeEvalTimeoutError
from sandboxkit.evaluation._interrupt import Interrupted, done_by
from sandboxkit.evaluation._workers import called, called_async, close_streams
from sandboxkit.model import Control, ControlState, Enforcement, Grade

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxkit.evaluation._dialogue import Call, Dialogue
    from sandboxkit.evaluation._evaluate import Programs

__all__ = ["ENFORCEMENT", "require_language", "talk", "talk_async"]

_GATE = "only the language gate holds: it runs in the caller's process"
ENFORCEMENT = Enforcement(
    {
        Control.FS_READ: ControlState(Grade.PARTIAL, _GATE),
        Control.FS_WRITE: ControlState(Grade.PARTIAL, _GATE),
        Control.NET_NONE: ControlState(Grade.PARTIAL, _GATE),
        Control.PROCESS_ISOLATION: ControlState(Grade.ABSENT, _GATE),
        Control.SYSCALLS: ControlState(Grade.ABSENT, _GATE),
        Control.LIMITS_WALL: ControlState(
            Grade.PARTIAL,
            "by SIGALRM in the main thread, and not in a loop in C; what is awaited runs on in its thread",
        ),
        Control.LIMITS_CPU: ControlState(Grade.PARTIAL, "as limits.wall"),
        Control.LIMITS_MEMORY: ControlState(Grade.ABSENT, "no process of its own, so no limit of its own"),
        Control.LIMITS_OUTPUT: ControlState(Grade.ENFORCED, "the size of a result is bounded while it is encoded"),
    }
)


def require_language() -> None:
    """
    Loads the language.

    Raises:
        MissingExtraError: RestrictedPython is not installed.
    """
    try:
        import sandboxkit.evaluation._evaluate  # noqa: F401 - loads RestrictedPython
    except ImportError as exc:
        raise MissingExtraError("eval", "evaluation") from exc


def _replied(dialogue: Dialogue, ask: Callable[[dict[str, Any]], object]) -> Any:
    from sandboxkit.evaluation._evaluate import reply

    return dialogue.outcome(reply(dialogue.request, ask, _programs()))


@cache
def _programs() -> Programs:
    from sandboxkit.evaluation._evaluate import Programs

    return Programs()


def talk(dialogue: Dialogue) -> Any:
    """
    Carries *dialogue* out here; blocks.
    """
    from sandboxkit.evaluation._evaluate import LimitError

    dialogue.begin()

    def ask(message: dict[str, Any]) -> object:
        return _answered(dialogue, message, lambda step: called(step, dialogue))

    try:
        return done_by(dialogue.deadline, lambda: _replied(dialogue, ask))
    except Interrupted:
        raise dialogue.late() from None
    except LimitError as exc:
        raise _cause(exc) from None


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ or error


def _answered(
    dialogue: Dialogue, message: dict[str, Any], carry_out: Callable[[Call], tuple[bool, Any]]
) -> dict[str, object]:
    from sandboxkit.evaluation._evaluate import LimitError

    steps = dialogue.answers(message)
    try:
        step = next(steps)
        while True:
            step = steps.send(carry_out(step))
    except SafeEvalTimeoutError as exc:
        raise LimitError from exc  # a snippet could catch the other
    except StopIteration as end:
        answer: dict[str, object] = end.value
        return answer


async def talk_async(dialogue: Dialogue) -> Any:
    """
    Carries *dialogue* out in a thread; functions of the caller's run in the event loop.

    At the deadline the thread is left alone: nothing can end it.
    """
    from sandboxkit.evaluation._evaluate import LimitError

    dialogue.begin()

    def ask(message: dict[str, Any]) -> object:
        return _answered(dialogue, message, lambda step: anyio.from_thread.run(called_async, step, dialogue))

    try:
        with anyio.fail_after(dialogue.deadline - time.monotonic()):
            value = await anyio.to_thread.run_sync(_replied, dialogue, ask, abandon_on_cancel=True)
    except TimeoutError:
        raise dialogue.late() from None
    except LimitError as exc:
        raise _cause(exc) from None
    finally:
        failed = await close_streams(dialogue)
    if failed:
        raise failed
    return value
