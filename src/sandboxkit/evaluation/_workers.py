"""
Where an evaluation runs: workers, and the two doors to them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import time
import types
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.to_thread

from sandboxkit.confine import ABI, landlock_rules, narrow_filters
from sandboxkit.errors import BackendUnavailableError, MissingExtraError, SetupError
from sandboxkit.evaluation._awaited import Awaited
from sandboxkit.evaluation._interrupt import Interrupted, done_by
from sandboxkit.model import Control, ControlState, Enforcement, Grade
from sandboxkit.process import Zygote

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from sandboxkit.errors import SafeEvalError
    from sandboxkit.evaluation._dialogue import Call, Dialogue
    from sandboxkit.process import Conversation

__all__ = ["NAME", "Pool", "WorkerPool", "needed", "talk", "talk_async", "zygote"]

NAME = "evaluation worker"
REMEDY = (
    'use isolation="box" (--isolation box), which evaluates in a box of a backend, a kernel that has it, or '
    'isolation="in-process" for authors you trust'
)
UNUSED_ID = 1_900_000_000
"""
What a worker of a root caller runs as: a uid and gid no system hands out, above those of
systemd (524288-1879048191).
"""
FRAME_FACTOR, FRAME_SPARE = 6, 1 << 16
"""A control character takes one byte of the limit and six of JSON; besides, an error has its texts."""
MAX_IDLE = 8
AHEAD_SECONDS = 1.0
"""How long a worker that was forked ahead waits to be needed."""
_CLOSING_SECONDS = 0.2


_made: dict[str, Zygote] = {}


def zygote(language: str = "python") -> Zygote:
    """
    The one of this process for *language*; nothing is started yet.

    Raises:
        MissingExtraError: What evaluates it is not installed.
        BackendUnavailableError: This is not Linux, or a machine without a table of its
            system calls.
    """
    # Of two threads at once both make one, and both get the first; none has started.
    return _made.get(language) or _made.setdefault(language, _zygote(language))


def _zygote(language: str) -> Zygote:
    if sys.platform != "linux":
        raise BackendUnavailableError(NAME, f"{sys.platform} has no seccomp", REMEDY)
    machine = os.uname().machine
    try:
        wide, narrow = narrow_filters(machine)
    except LookupError as exc:
        raise BackendUnavailableError(NAME, str(exc), REMEDY) from exc
    domains = []
    for level in ABI:
        rules = landlock_rules(level.abi, handle_tcp=True)
        if rules is not None:
            domains.append((rules.handled_fs, rules.handled_net, rules.scoped, level.abi))
    order = {
        "language": language,
        "libraries": _libraries(language),
        "wide": wide.hex(),
        "narrow": narrow.hex(),
        "landlock": domains,
        "uid": UNUSED_ID,
    }
    return Zygote(NAME, Path(__file__).with_name("_worker.py"), order, REMEDY)


_NEEDS = {"python": ("RestrictedPython", "eval", "evaluation"), "javascript": ("_quickjs", "js", "JavaScript")}
"""By language what it needs: the module, the extra that has it, and what it is for."""


def needed(language: str) -> Path:
    """
    The file of what evaluates *language*: an extension module, or a package's `__init__`.

    Raises:
        MissingExtraError: It is not installed.
    """
    module, extra, feature = _NEEDS[language]
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise MissingExtraError(extra, feature)
    return Path(found.origin).resolve()


def _libraries(language: str) -> str:
    origin = needed(language)
    return str(origin.parent.parent if origin.stem == "__init__" else origin.parent)


class Pool(Protocol):
    """
    What hands out workers; see `WorkerPool`.
    """

    def is_started(self) -> bool:
        """
        Whether a worker can be had without much waiting.
        """

    def start(self) -> None:
        """
        Sees to it.
        """

    def borrow(self) -> Conversation:
        """
        A worker for one evaluation.
        """

    def look_ahead(self) -> None:
        """
        Prepares the next one.
        """

    def give_back(self, worker: Conversation, *, is_good: bool, is_over: bool) -> None:
        """
        Takes it back, after an evaluation that succeeded, or that was answered.
        """

    def close(self) -> None:
        """
        Ends those that wait.
        """

    def enforcement(self) -> Enforcement:
        """
        What holds for them.
        """


class WorkerPool:
    """
    Hands out workers: a new one for each evaluation, or one that is used again.

    Args:
        language: What they evaluate.
        memory_bytes: What each may take.
        max_result_bytes: How large their results may be.
        timeout: After how many seconds an evaluation is killed.
        is_reusing: Whether a worker goes on after an evaluation that succeeded.
        recycle_after: After how many evaluations it is replaced all the same.
    """

    def __init__(
        self,
        language: str,
        memory_bytes: int,
        max_result_bytes: int,
        timeout: float,
        *,
        is_reusing: bool,
        recycle_after: int,
    ) -> None:
        self._zygote = zygote(language)
        self._header = {
            "memory_bytes": memory_bytes,
            "seconds": None if is_reusing else timeout,
            "stays": is_reusing,
            "waits": None if is_reusing else AHEAD_SECONDS,
        }
        self._max_frame = FRAME_FACTOR * max_result_bytes + FRAME_SPARE
        self._is_reusing = is_reusing
        self._recycle_after = recycle_after
        self._idle: deque[Conversation] = deque()

    def is_started(self) -> bool:
        """
        Whether what workers are forked from is there.
        """
        return self._zygote.pid is not None

    def start(self) -> None:
        """
        Starts what workers are forked from, where it is not there.

        Raises:
            SetupError: It does not come up.
        """
        self._zygote.report()

    def enforcement(self) -> Enforcement:
        """
        What holds for its workers; starts what they are forked from likewise.
        """
        return _enforced(self._zygote.report(), is_reusing=self._is_reusing)

    def borrow(self) -> Conversation:
        """
        A worker for one evaluation. While it `is_waiting` it may have ended unseen: where
        it refuses the first message, borrow another.
        """
        if not self._is_reusing:
            worker = self._zygote.take(self._header, self._max_frame)
            worker.is_waiting = True  # a new one too, no longer than the others: this process may be stopped until then
            return worker
        try:
            worker = self._idle.pop()
        except IndexError:
            return self._zygote.converse(self._header, self._max_frame)
        worker.is_waiting = True
        return worker

    def look_ahead(self) -> None:
        """
        Has the worker of the next evaluation forked while this one runs. It ends by itself
        where nobody needs it within `AHEAD_SECONDS`.
        """
        if not self._is_reusing:
            with contextlib.suppress(SetupError):  # the next one will say it
                self._zygote.fork_ahead(self._header, self._max_frame)

    def give_back(self, worker: Conversation, *, is_good: bool, is_over: bool) -> None:
        """
        Takes *worker* back, or ends it: after a failure nobody knows what is left in it.
        """
        worker.uses += 1
        if self._is_reusing and is_good and worker.uses < self._recycle_after and len(self._idle) < MAX_IDLE:
            self._idle.append(worker)
        else:
            worker.end()

    def close(self) -> None:
        """
        Ends the workers that wait.
        """
        while self._idle:
            self._idle.pop().end()


def _enforced(report: Mapping[str, Any], *, is_reusing: bool) -> Enforcement:
    landlock = f", Landlock ABI {report['landlock_abi']}" if report["landlock_abi"] else ", no Landlock on this kernel"
    none = "seccomp: no call that opens, connects or starts anything" + landlock
    full = {
        Control.FS_READ: none,
        Control.FS_WRITE: none,
        Control.NET_NONE: none,
        Control.PROCESS_KILL_TREE: "a worker cannot fork; it is killed by pidfd and dies with what it was forked from",
        Control.PROCESS_NESTED_USERNS: none,
        Control.SYSCALLS: "seccomp: an allow-list, reading and writing on one descriptor",
        Control.ENV: "a worker has no environment of the caller's",
        Control.LIMITS_WALL: "killed by the caller at the deadline"
        + ("" if is_reusing else ", and by a timer of the kernel"),
        Control.LIMITS_CPU: "no longer than the deadline: a worker is one thread",
        Control.LIMITS_MEMORY: "RLIMIT_AS of the worker, which is one process",
        Control.LIMITS_PROCESSES: "seccomp: none can be made",
        Control.LIMITS_FILE_SIZE: "seccomp: no file can be opened",
        Control.LIMITS_OUTPUT: "the size of a result is bounded while it is encoded, and of a message when it is read",
    }
    states = {control: ControlState(Grade.ENFORCED, reason) for control, reason in full.items()}
    states[Control.PROCESS_ISOLATION] = _isolated(report["uid"], is_reusing=is_reusing)
    return Enforcement(states)


def _isolated(uid: int, *, is_reusing: bool) -> ControlState:
    if uid == 0:
        return ControlState(Grade.PARTIAL, "the worker runs as root: this user namespace has no other uid to give it")
    if is_reusing:
        return ControlState(Grade.PARTIAL, "one evaluation could leave something in the worker for the next")
    return ControlState(Grade.ENFORCED, "a fork for each evaluation; it can reach no other process")


def talk(dialogue: Dialogue, pool: Pool) -> Any:
    """
    Has a worker of *pool* carry *dialogue* out; blocks.
    """
    pool.start()
    dialogue.begin()
    worker, is_good = pool.borrow(), False
    steps: Generator[bytes | Call, Any, Any] = dialogue.steps()
    given: Any = None
    try:
        step = next(steps)
        while True:
            if isinstance(step, bytes):
                while not _is_sent(step, worker, dialogue):
                    worker = pool.borrow()
                if given is None:
                    pool.look_ahead()
                given = worker.receive(dialogue.deadline)
            else:
                given = called(step, dialogue)
            step = steps.send(given)
    except StopIteration as end:
        is_good = True
        return end.value
    except TimeoutError as exc:
        raise _typed(exc, dialogue) from None
    except EOFError:
        raise dialogue.gone() from None
    finally:
        pool.give_back(worker, is_good=is_good, is_over=dialogue.is_over)


def _is_sent(body: bytes, worker: Conversation, dialogue: Dialogue) -> bool:
    try:
        worker.send(body, dialogue.deadline)
    except EOFError:
        if not _may_another(worker, dialogue):
            raise
        return False
    worker.is_waiting = False
    return True


def _may_another(worker: Conversation, dialogue: Dialogue) -> bool:
    """
    Whether *worker*, which is gone, may have ended before it was asked, and there is time
    to ask another.
    """
    may = worker.is_waiting and time.monotonic() < dialogue.deadline
    if may:
        worker.end()
    return may


def _typed(error: TimeoutError, dialogue: Dialogue) -> TimeoutError:
    from sandboxkit.errors import SafeEvalTimeoutError

    return error if isinstance(error, SafeEvalTimeoutError) else dialogue.late()


def called(step: Call, dialogue: Dialogue) -> tuple[bool, Any]:
    """
    What a function of the caller's gives, within the deadline.

    Raises:
        TimeoutError: It passed.
    """
    try:
        value = done_by(dialogue.deadline, lambda: step.function(*step.arguments, **step.named))
    except Interrupted:
        raise dialogue.late() from None
    except Exception as exc:  # noqa: BLE001 - the caller's function; the snippet is told its type
        return False, exc
    if time.monotonic() >= dialogue.deadline:
        raise dialogue.late()
    if type(value) is types.CoroutineType:  # not what says that it is one
        value.close()  # nobody awaits it
        if step.is_async:
            return False, RuntimeError("a coroutine function needs safe_eval_async()")
    return True, value


async def talk_async(dialogue: Dialogue, pool: Pool) -> Any:
    """
    As `talk`, for an event loop: coroutine functions of the caller's run in it.
    """
    while not pool.is_started():  # another task may be faster
        await anyio.to_thread.run_sync(pool.start)
    dialogue.begin()
    worker, is_good = pool.borrow(), False
    steps = dialogue.steps()
    try:
        with anyio.fail_after(dialogue.deadline - time.monotonic()):
            step = next(steps)
            while not await _is_sent_async(step, worker, dialogue):
                worker = pool.borrow()
            pool.look_ahead()
            value = await _carry_out(steps, worker, dialogue)
        is_good = True
    except TimeoutError as exc:
        raise _typed(exc, dialogue) from None
    except EOFError:
        raise dialogue.gone() from None
    finally:
        pool.give_back(worker, is_good=is_good, is_over=dialogue.is_over)
        failed = await close_streams(dialogue)
    if failed:
        raise failed
    return value


async def _is_sent_async(body: bytes | Call, worker: Conversation, dialogue: Dialogue) -> bool:
    try:
        await worker.asend(body)  # type: ignore[arg-type]  # the first step is to send
    except EOFError:
        if not _may_another(worker, dialogue):
            raise
        return False
    worker.is_waiting = False
    return True


async def _carry_out(steps: Generator[bytes | Call, Any, Any], worker: Conversation, dialogue: Dialogue) -> Any:
    given: Any = await worker.areceive()
    while True:
        try:
            step = steps.send(given)
        except StopIteration as end:
            return end.value
        if isinstance(step, bytes):
            await worker.asend(step)
            given = await worker.areceive()
        else:
            given = await called_async(step, dialogue)


async def called_async(step: Call, dialogue: Dialogue) -> tuple[bool, Any]:
    """
    As `called`, and awaits what the function gives.
    """
    if not step.is_async:
        return called(step, dialogue)
    try:
        return True, await Awaited(step.function(*step.arguments, **step.named))
    except (Exception, StopAsyncIteration) as exc:  # noqa: BLE001 - the caller's function; the snippet is told its type
        return False, exc


async def close_streams(dialogue: Dialogue) -> SafeEvalError | None:
    """
    Closes the async generators a snippet did not read to their end; gives what one of them
    raised meanwhile. One that hangs in its `finally` delays the answer by a fifth of a
    second, and so do a thousand of them.
    """
    deadline, failed = anyio.current_time() + _CLOSING_SECONDS, None
    for stream in dialogue.streams.values():
        try:
            with anyio.CancelScope(deadline=deadline, shield=True):
                await stream.aclose()  # type: ignore[attr-defined]  # an async generator, by its kind
        except Exception as exc:  # noqa: BLE001 - the caller's; the others are to be closed as well
            failed = dialogue.unclosed(exc)
    return failed
