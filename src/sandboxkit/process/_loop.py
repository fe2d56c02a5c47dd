"""
One event loop in a thread of its own, for whoever has to wait for what is asynchronous.

Started when first needed and shared by all threads of the process. In a forked child
nothing of the parent's is used: the first need there starts anew.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar, final

import anyio
from anyio.from_thread import BlockingPortal

from sandboxkit.errors import LaunchError, ShutDownError
from sandboxkit.process._client import broker_pid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

__all__ = ["Loop", "Work", "shared_loop"]

T = TypeVar("T")
R = TypeVar("R")
_END_SECONDS = 12.0
"""How long ending an interrupted command may take; the kernel ends its tree much sooner."""


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """
    Something the loop does, and the sign that it is over.
    """

    future: Future[T]
    ended: threading.Event

    def wait(self, result: Future[R]) -> R:
        """
        What comes out of *result*. Where the waiting is interrupted, as by Ctrl-C, the
        work is cancelled and over before the interruption goes on.
        """
        try:
            return result.result()
        except CancelledError:
            raise ShutDownError("the interpreter is ending, and what still ran was ended with it") from None
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """
        Cancels it, and returns when it is over.
        """
        if not self.ended.is_set() and self.future.cancel():
            self.ended.wait(_END_SECONDS)


@final
class _EventLoop(asyncio.SelectorEventLoop):
    """
    A loop that can end while the interpreter does. From Python 3.12 on no thread starts
    then, not even the one that waits for a resolver's; those are ended already.
    """

    async def shutdown_default_executor(self, *timeout: float | None) -> None:
        """
        Waits for the threads of the default executor, if that is still possible.
        """
        with suppress(RuntimeError):
            await super().shutdown_default_executor(*timeout)


@final
class Loop:
    """
    An event loop in a thread of its own, and the process it belongs to.
    """

    def __init__(self) -> None:
        ready: Future[BlockingPortal] = Future()

        async def serve() -> None:
            async with BlockingPortal() as portal:
                ready.set_result(portal)
                await portal.sleep_until_stopped()

        def work() -> None:
            try:
                # In an empty context: one inherited from a running loop would claim that this thread has it.
                Context().run(partial(anyio.run, serve, backend_options={"loop_factory": _EventLoop}))
            except BaseException as exc:
                if ready.done():
                    raise
                ready.set_exception(exc)

        self.thread = threading.Thread(target=work, name="sandboxkit-sync", daemon=True)
        self.thread.start()
        self._portal = ready.result()
        self._pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        """
        Whether it runs in this process rather than in the one this was forked from.
        """
        return self._pid == os.getpid()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """
        What *function* gives when the loop awaits it.

        Raises:
            ShutDownError: The loop has been ended, or belongs to the process this one
                was forked from.
        """
        work = self.start(function)
        return work.wait(work.future)

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """
        What entering *context* on the loop gives; leaving leaves it there.
        """
        opened: Future[tuple[T, anyio.Event]] = Future()

        async def hold() -> None:
            async with context as value:
                leaving = anyio.Event()
                opened.set_result((value, leaving))
                await leaving.wait()

        def fail(done: Future[None]) -> None:
            if not opened.done():
                opened.set_exception(CancelledError() if done.cancelled() else done.exception())

        work = self.start(hold)
        work.future.add_done_callback(fail)
        value, leaving = work.wait(opened)
        try:
            yield value
        finally:
            if self.is_ours:
                with suppress(RuntimeError):  # the loop has ended, and everything on it
                    self._portal.start_task_soon(leaving.set)
                work.wait(work.future)

    def start(self, function: Callable[[], Awaitable[T]]) -> Work[T]:
        """
        Has the loop await *function*, and does not wait.

        Raises:
            ShutDownError: As `call`.
        """
        if not self.is_ours:
            raise ShutDownError("this belongs to the process that this one was forked from; open it anew here")
        if threading.current_thread() is self.thread:
            raise RuntimeError(
                "a box cannot be waited for on the loop that runs it; use `async with sandboxkit.open_sandbox(...)`"
            )
        ended = threading.Event()

        async def awaited() -> T:
            try:
                return await function()
            finally:
                ended.set()

        try:
            return Work(self._portal.start_task_soon(awaited), ended)
        except RuntimeError as exc:
            raise ShutDownError("the interpreter is ending, so nothing is run any more") from exc

    def close(self) -> None:
        """
        Ends the loop and every command that still runs on it.
        """
        if not self.is_ours:
            return
        with suppress(RuntimeError):  # it has ended
            self._portal.start_task_soon(self._portal.stop, True)
        self.thread.join(_END_SECONDS)


class _Shared:
    """
    The loop of this process, and what guards it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: list[Loop] = []

    def loop(self) -> Loop:
        """
        The loop that carries out what this thread asks for, started if there is none.

        What runs on a loop itself, such as an approver, is given the next one: its own
        could not do anything while it waits.

        Raises:
            ShutDownError: The interpreter is ending, so no thread starts any more.
            LaunchError: The process has no descriptors left.
        """
        broker_pid()  # what ends the broker is loaded, and so registered before the loop's own end
        thread = threading.current_thread()
        with self._lock:
            place = next((place for place, loop in enumerate(self._loops, start=1) if loop.thread is thread), 0)
            if place == len(self._loops):
                try:
                    self._loops.append(Loop())
                except RuntimeError as exc:
                    raise ShutDownError("the interpreter is ending, so nothing is run any more") from exc
                except OSError as exc:
                    raise LaunchError(f"the event loop did not start: {exc.strerror}") from exc
                # Registered later than the broker's end, so it comes earlier: commands are cancelled while a broker can end them.
                atexit.register(self._loops[place].close)
            return self._loops[place]


_shared = _Shared()
_inherited: list[_Shared] = []


def _drop_after_fork() -> None:
    # The thread stayed in the parent. Its loop is kept and not collected: that would warn of a loop left open.
    global _shared
    _inherited.append(_shared)
    _shared = _Shared()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_after_fork)


def shared_loop() -> Loop:
    """
    The loop that carries out what this thread asks for; see `_Shared.loop`.

    Raises:
        ShutDownError: The interpreter is ending.
        LaunchError: The process has no descriptors left.
    """
    return _shared.loop()
