"""
Workers inside a box of a backend: for where the kernel lets no process confine itself.

The box is the registry's best, as for any command, and what holds is what its backend
says. The evaluators of `worker` and `reuse` are faster and hold more tightly; this is for
machines that cannot have them, as macOS, and for who wants the box's walls instead.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import sys
import threading
import time
import weakref
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxkit.backends import default_registry
from sandboxkit.errors import BackendError, LaunchError, ProgramNotFoundError, SetupError, ShutDownError
from sandboxkit.evaluation._codec import CodecError, loads
from sandboxkit.evaluation._dialogue import clean
from sandboxkit.evaluation._workers import FRAME_FACTOR, FRAME_SPARE, MAX_IDLE, needed
from sandboxkit.model import Control, ControlState, Enforcement, Grade, Limits, ProcessPolicy, SandboxSpec
from sandboxkit.process import Conversation, interpreter, shared_loop, socket_pair

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from sandboxkit.backends import BoxProcess, Sandbox, SandboxRegistry
    from sandboxkit.process import Loop, Work

__all__ = ["NAME", "BoxPool"]

NAME = "evaluation box"
START_SECONDS = 30.0
_CAUSE_SECONDS = 5.0
SPEC = SandboxSpec.isolated(limits=Limits(wall=None), process=ProcessPolicy(allow_ptrace=False))
"""Nothing of the host but the system, no network; each evaluation has a deadline of its own."""
_ENVIRONMENT = {"TZ": "UTC0", "PATH": "/usr/local/bin:/usr/bin:/bin"}
"""Nothing of the caller's: where a system, or an image, has its Python."""
_MODULES = ("_boxed", "_codec", "_tables", "_template", "_worker")
_OF = {"python": ("_evaluate", "_language"), "javascript": ("_javascript",)}
_PACKAGES = ("sandboxkit", "sandboxkit.evaluation", "RestrictedPython")
_BOOT = """
import importlib.util, json, os, sys
def read(count):
    data = bytearray()
    while len(data) < count:
        more = os.read(0, min(count - len(data), 1 << 20))
        if not more:
            os._exit(1)
        data += more
    return data
class Brought:
    def find_spec(self, name, path, target=None):
        if name in sources:
            return importlib.util.spec_from_loader(name, self, is_package=name in packages)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.__file__ = module.__name__
        exec(compile(sources[module.__name__], "<" + module.__name__ + ">", "exec"), module.__dict__)
    def get_data(self, path):
        return sources[path].encode()
order = json.loads(read(int.from_bytes(read(4), "little")))
sources, packages = order["sources"], order["packages"]
sys.meta_path.insert(0, Brought())
from sandboxkit.evaluation._boxed import main
main(order)
"""


@functools.cache
def _brought(language: str) -> dict[str, dict[str, str]]:
    """
    What of ours runs in the box for *language*: `sources`, the texts of modules by name,
    and `extensions`, extension modules in base 64.

    Raises:
        MissingExtraError: What evaluates it is not installed.
    """
    origin, here = needed(language), Path(__file__).parent
    files = {f"sandboxkit.evaluation.{name}": here / f"{name}.py" for name in (*_MODULES, *_OF[language])}
    extensions = {}
    if language == "javascript":
        files["_prelude.js"] = here / "_prelude.js"
        extensions["_quickjs"] = base64.b64encode(origin.read_bytes()).decode()
    else:
        files |= {f"RestrictedPython.{path.stem}": path for path in origin.parent.glob("*.py") if path != origin}
        files["RestrictedPython"] = origin
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    return {"sources": {**dict.fromkeys(_PACKAGES[:2], ""), **texts}, "extensions": extensions}


def _built_for(extension: Path) -> list[int] | None:
    """
    The version of Python that *extension* was built for; None for any, by the stable interface.
    """
    return None if extension.name.endswith((".abi3.so", ".py")) else list(sys.version_info[:2])


@dataclass(frozen=True, slots=True)
class _Open:
    """
    A box, and the event loop it lives on.

    Attributes:
        loop: The loop.
        box: The box.
        name: Its backend's.
        held: What holds its workers open.
        end: Ends them, then the box.
    """

    loop: Loop
    box: Sandbox
    name: str
    held: list[Work[None]]
    end: Callable[[], object]

    def worker(self, python: str) -> tuple[socket.socket, Callable[[], object], Work[None]]:
        """
        Our end of the conversation with a new process in the box, what kills it, and what
        holds it open.
        """
        ours, theirs = socket_pair()
        started: Future[BoxProcess] = Future()

        async def hold() -> None:
            argv = (python, "-I", "-S", "-B", "-W", "ignore", "-c", _BOOT)
            fd = theirs.fileno()
            try:
                async with self.box.start(argv, stdin=fd, stdout=fd, stderr=None, environment=_ENVIRONMENT) as process:
                    started.set_result(process)
                    await process.wait()
            except BaseException as exc:
                if started.done():
                    raise
                started.set_exception(exc)
            finally:
                theirs.close()  # so that we see its end

        work = self.loop.start(hold)
        self.held[:] = [*(other for other in self.held if not other.ended.is_set()), work]
        try:
            process = work.wait(started)
        except BaseException:
            ours.close()
            raise
        return ours, functools.partial(_kill, self.loop, process), work


async def _killed(process: BoxProcess) -> None:
    process.kill()


def _kill(loop: Loop, process: BoxProcess) -> None:
    with contextlib.suppress(ShutDownError):  # the loop has ended, and everything on it
        loop.start(functools.partial(_killed, process))


def _cause(work: Work[None]) -> BaseException | None:
    """
    What ended *work*, whose process is gone; None where it says nothing.
    """
    with contextlib.suppress(TimeoutError, CancelledError):
        return work.future.exception(_CAUSE_SECONDS)
    return None


def _end(loop: Loop, held: list[Work[None]], stack: contextlib.ExitStack) -> None:
    for work in held if loop.is_ours else ():
        work.stop()  # before the box, whose descriptors they wait for
    with contextlib.suppress(ShutDownError):
        stack.close()


class BoxPool:
    """
    Hands out workers in one box, a process for each evaluation that runs at the same time;
    it forks for every evaluation. What `WorkerPool` does, for a box.

    Args:
        language: What they evaluate.
        memory_bytes: What an evaluation may take.
        max_result_bytes: How large its result may be.
        timeout: After how many seconds it is killed.
        registry: Where the backend comes from; None is the process's own.
    """

    def __init__(
        self,
        language: str,
        memory_bytes: int,
        max_result_bytes: int,
        timeout: float,
        registry: SandboxRegistry | None,
    ) -> None:
        order = {
            **_brought(language),
            "language": language,
            "packages": _PACKAGES,
            "built_for": _built_for(needed(language)),
            "memory_bytes": memory_bytes,
            "seconds": timeout,
        }
        self._order = json.dumps(order).encode()
        self._max_frame = FRAME_FACTOR * max_result_bytes + FRAME_SPARE
        self._registry = registry
        self._idle: deque[Conversation] = deque()
        self._lock = threading.Lock()
        self._open: _Open | None = None

    def is_started(self) -> bool:
        """
        Whether a worker waits.
        """
        return bool(self._idle)

    def start(self) -> None:
        """
        Has a worker started, and the box, where none waits.

        Raises:
            NoBackendError: No backend is available.
            EnforcementError: None holds enough.
            SetupError: It does not come up.
        """
        if not self._idle:
            self._idle.append(self._made())

    def borrow(self) -> Conversation:
        """
        A worker for one evaluation; it may have ended unseen while it waited.
        """
        with contextlib.suppress(IndexError):
            worker = self._idle.pop()
            worker.is_waiting = True
            return worker
        return self._made()

    def look_ahead(self) -> None:
        """
        Nothing: a worker forks ahead by itself.
        """

    def give_back(self, worker: Conversation, *, is_good: bool, is_over: bool) -> None:
        """
        Takes *worker* back, or ends it with everything it may have started. The fork that
        answered has ended, whatever its answer was.
        """
        worker.uses += 1
        if is_over and self._open and len(self._idle) < MAX_IDLE:
            self._idle.append(worker)
        else:
            worker.end()

    def close(self) -> None:
        """
        Ends the workers and the box.
        """
        while self._idle:
            self._idle.pop().end()
        with self._lock:
            found, self._open = self._open, None
        if found:
            found.end()

    def enforcement(self) -> Enforcement:
        """
        What holds: what the backend says of the box, and what is this room's.
        """
        opened = self._opened()
        name = opened.name
        states = {
            control: ControlState(state.grade, f"{name}: {state.reason}") for control, state in opened.box.enforcement
        }
        states[Control.LIMITS_WALL] = ControlState(Grade.ENFORCED, "killed by the caller at the deadline")
        states[Control.LIMITS_CPU] = ControlState(Grade.ENFORCED, "no longer than the deadline, with all it started")
        states[Control.LIMITS_OUTPUT] = ControlState(Grade.ENFORCED, "the size of a message is bounded when it is read")
        found = Enforcement(states)
        for control, reason in (
            (Control.PROCESS_ISOLATION, "one evaluation could reach what the next is forked from, in the same box"),
            (Control.LIMITS_MEMORY, "RLIMIT_AS of the evaluation; what breaks the language has the limit of the box"),
        ):
            found = found.lowered(control, Grade.PARTIAL, f"{name}: {reason}")
        return found

    def _opened(self) -> _Open:
        with self._lock:
            if self._open is None or not self._open.loop.is_ours:
                self._open = self._newly_opened()
            return self._open

    def _newly_opened(self) -> _Open:
        loop = shared_loop()
        selection = loop.call(lambda: (self._registry or default_registry()).active(SPEC))
        with contextlib.ExitStack() as stack:
            box = stack.enter_context(loop.entered(selection.open(SPEC)))
            held: list[Work[None]] = []
            end = weakref.finalize(self, _end, loop, held, stack.pop_all())
            return _Open(loop, box, selection.backend.name, held, end)

    def _made(self) -> Conversation:
        opened = self._opened()
        try:
            with contextlib.suppress(ProgramNotFoundError):  # an image brings its own
                return self._ready(*opened.worker(interpreter()), opened.name)
            return self._ready(*opened.worker("python3"), opened.name)
        except ProgramNotFoundError as exc:
            raise SetupError(
                NAME, f"there is no Python in the box of {opened.name}; use an image with python3, 3.11 or later"
            ) from exc
        except BackendError as exc:
            if type(exc) is not BackendError:
                raise
            raise SetupError(
                NAME,
                f"the box of {opened.name} holds no process open ({exc}); use another backend, or an image with "
                "python3, 3.11 or later",
            ) from exc

    def _ready(self, end: socket.socket, kill: Callable[[], object], work: Work[None], name: str) -> Conversation:
        worker = Conversation(end, self._max_frame, kill)
        deadline = time.monotonic() + START_SECONDS
        try:
            worker.send(self._order, deadline)
            said = loads(worker.receive(deadline))
            if not isinstance(said, dict):
                raise CodecError("no message")
        except (CodecError, EOFError, TimeoutError) as exc:
            worker.end()
            # Some backends know only when it ends that it never began.
            if isinstance(exc, EOFError) and isinstance(cause := _cause(work), LaunchError):
                raise cause from None
            raise SetupError(
                NAME, f"Python in the box of {name} does not answer ({type(exc).__name__}); it needs 3.11 or later"
            ) from exc
        if "error" in said:
            worker.end()
            raise SetupError(
                NAME,
                f"the language does not load in the box of {name} ({clean(said['error'])}); use a backend whose box "
                "has this machine's kind of system, as an image with another C library has not",
            )
        return worker
