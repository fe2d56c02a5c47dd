"""
Time, memory, size and count: each has a figure, and what passes it ends with it.
"""

from __future__ import annotations

import contextlib
import decimal
import gc
import os
import re
import select
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import sandboxkit as sk
from sandboxkit.evaluation import SafeEvaluator, _interrupt, _workers

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator

    from sandboxkit.evaluation._evaluator import Isolation
    from sandboxkit.process import Conversation

LATE = 0.5
CONFINED = ["worker", "reuse"]
ENDLESS = {
    "bytecode": ("exec", "while True:\n    pass"),
    "a loop in C": ("expr", "max(range(10**12))"),
    "long numbers": ("expr", "9**9**9"),
    "a sort": ("expr", "[len(sorted(range(10**6, 0, -1))) for i in range(10**6)]"),
    "a pattern": ("expr", "re.search('(a+)+$', 'a' * 40 + 'b')"),
    "except in a loop": (
        "exec",
        "while True:\n    try:\n        while True:\n            pass\n    except:\n        pass",
    ),
}
LARGE = [
    "'9' * 10**9",
    "[0] * 10**9",
    "list(range(10**9))",
    "f'{1:>2000000000}'",
    "bytes(10**10)",
    "'a'.ljust(2 * 10**9)",
]


@pytest.fixture(params=CONFINED)
def evaluator(request: pytest.FixtureRequest) -> Iterator[SafeEvaluator]:
    with SafeEvaluator(isolation=request.param, timeout=0.3, memory_bytes=64 << 20) as made:
        yield made


@pytest.mark.parametrize("name", ENDLESS)
def test_the_deadline_ends_it(name: str, evaluator: SafeEvaluator) -> None:
    mode: Any
    mode, code = ENDLESS[name]
    evaluator.evaluate("1")
    began = time.monotonic()
    with pytest.raises(sk.SafeEvalTimeoutError, match=r"timeout=0\.3") as caught:
        evaluator.evaluate(code, {"re": re}, mode=mode)
    assert 0.3 <= time.monotonic() - began < 0.3 + LATE
    assert (caught.value.limit, caught.value.figure) == ("timeout", 0.3)
    assert isinstance(caught.value, TimeoutError)
    assert SafeEvaluator(timeout=10).evaluate("1 + 1") == 2


def test_the_next_answer_comes_at_once(evaluator: SafeEvaluator) -> None:
    took = []
    for _ in range(5):
        with pytest.raises(sk.SafeEvalTimeoutError):
            evaluator.evaluate("max(range(10**12))")
        began = time.monotonic()
        assert evaluator.evaluate("1 + 1") == 2
        took.append(time.monotonic() - began)
    assert sorted(took)[2] < 0.1


@pytest.mark.parametrize("code", LARGE)
def test_memory_has_an_end(code: str, evaluator: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalMemoryError, match=f"memory_bytes={64 << 20}") as caught:
        evaluator.evaluate(code)
    assert isinstance(caught.value, MemoryError)
    assert SafeEvaluator(memory_bytes=64 << 20, timeout=10).evaluate("len('9' * 10**7)") == 10**7


def test_growing_slowly_has_an_end_too(evaluator: SafeEvaluator) -> None:
    with pytest.raises((sk.SafeEvalMemoryError, sk.SafeEvalTimeoutError)):
        evaluator.evaluate("a = 'ha'\nfor i in range(60):\n    a = a + a\nresult = len(a)", mode="exec")


def test_the_stack_has_an_end(evaluator: SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalError, match="RecursionError"):
        evaluator.evaluate("def f():\n    return f()\nf()", mode="exec")


def test_a_result_has_a_size() -> None:
    with SafeEvaluator(max_result_bytes=1000, timeout=10) as evaluator:
        assert evaluator.evaluate("'a' * 900") == "a" * 900
        for code in (
            "'a' * 1000",
            "[1] * 100",
            "range(10**18)",
            "{n: n for n in range(40)}",
            "[[1] * 9] * 9",
            "1 << 9999",
        ):
            with pytest.raises(sk.SafeEvalForbiddenError, match="larger than 1000 bytes"):
                evaluator.evaluate(code)
        with pytest.raises(sk.SafeEvalForbiddenError, match="larger than 1000 bytes"):
            evaluator.interpolate("{{ 'a' * 500 }}{{ 'a' * 501 }}")


def test_a_source_has_a_length_and_is_not_sent_beyond_it() -> None:
    began = time.monotonic()
    with pytest.raises(sk.SafeEvalForbiddenError, match="20000 is the most"):
        sk.safe_eval("[" + "x," * 10**7 + "]", {"x": 1}, timeout=0.5)
    with pytest.raises(sk.SafeEvalForbiddenError, match="200000 is the most"):
        sk.safe_interpolate("{{ x }}" * 10**6, {"x": 1}, timeout=0.5)
    assert time.monotonic() - began < LATE


@pytest.mark.parametrize("limit", ["timeout", "memory_bytes", "max_result_bytes", "max_host_calls", "recycle_after"])
def test_a_limit_is_a_number_that_can_be_kept(limit: str) -> None:
    for value in (0, -1, 1 << 80):
        with pytest.raises(ValueError, match=f"^{limit} is "):
            SafeEvaluator(**{limit: value})  # type: ignore[arg-type]  # a limit is a number
    for wrong in ("1", None, decimal.Decimal(1), *(() if limit == "timeout" else (1.5, float("inf")))):
        with pytest.raises(TypeError, match=f"^{limit} is "):
            SafeEvaluator(**{limit: wrong})
    with pytest.raises(ValueError, match="timeout is too large"):
        SafeEvaluator(timeout=float("inf"))
    with pytest.raises(ValueError, match="timeout is nan"):
        SafeEvaluator(timeout=float("nan"))


def test_the_deadline_holds_while_values_are_taken_along() -> None:
    laughs: list[object] = []
    for _ in range(60):
        laughs = [laughs, laughs]
    names = "abcdefghijklmnopqrst"  # together they would take more than 10 s
    with SafeEvaluator(timeout=0.3) as evaluator:
        evaluator.evaluate("1")
        began = time.monotonic()
        with pytest.raises(sk.SafeEvalTimeoutError, match=r"timeout=0\.3"):
            evaluator.evaluate(f"'{names}'", dict.fromkeys(names, laughs))
        assert time.monotonic() - began < 5
        assert evaluator.condition(f"'{names}'", dict.fromkeys(names, laughs)) is False
        assert evaluator.refusals == 1
    with (
        SafeEvaluator(timeout=0.3, max_result_bytes=1 << 40) as evaluator,
        pytest.raises(sk.SafeEvalTimeoutError, match=r"timeout=0\.3"),
    ):
        evaluator.evaluate("f()", {"f": lambda: laughs})  # which would take forever


# -- functions of the caller's -----------------------------------------------------------------


def test_functions_are_called_here_with_copies() -> None:
    seen: list[object] = []

    def note(*given: object, **named: object) -> object:
        seen.append((os.getpid(), given, named))
        return {"a": (1, 2)}

    assert sk.safe_eval("note([1], k={'a': 2})['a'][1]", {"note": note}, timeout=10) == 2
    assert sk.safe_eval("note()", functions={"note": note}, timeout=10) == {"a": (1, 2)}
    assert seen == [(os.getpid(), ([1],), {"k": {"a": 2}}), (os.getpid(), (), {})]


def test_what_a_function_raises_is_told_by_its_type_only() -> None:
    def fail() -> None:
        raise KeyError("the secret")

    with pytest.raises(sk.SafeEvalError) as caught:
        sk.safe_eval("fail()", {"fail": fail}, timeout=10)
    assert (caught.value.kind, caught.value.problem) == ("HostError", "fail raised KeyError")
    code = "try:\n    fail()\nexcept RuntimeError as e:\n    result = str(e)"
    assert sk.safe_eval(code, {"fail": fail}, mode="exec", timeout=10) == "fail raised KeyError"


def test_a_function_cannot_be_given_a_function() -> None:
    with pytest.raises(sk.SafeEvalForbiddenError, match="argument"):
        sk.safe_eval("f(lambda: 1)", {"f": str}, functions={"f": lambda v: v}, timeout=10)


def test_what_a_function_gives_has_a_size() -> None:
    with SafeEvaluator(max_result_bytes=1000, timeout=10) as evaluator:
        with pytest.raises(sk.SafeEvalError, match="larger than 1000 bytes"):
            evaluator.evaluate("f()", {"f": _large})
        with pytest.raises(sk.SafeEvalForbiddenError, match="larger than 1000 bytes"):
            evaluator.evaluate("f('a' * 1000)", {"f": _large})


def _large(*_: object) -> str:
    return "a" * 1000


def test_calls_are_counted() -> None:
    calls: list[int] = []

    def count() -> None:
        calls.append(1)

    with SafeEvaluator(max_host_calls=5, timeout=10) as evaluator:
        evaluator.evaluate("[count() for i in range(5)]", {"count": count})
        with pytest.raises(sk.SafeEvalTimeoutError, match="max_host_calls=5"):
            evaluator.evaluate(
                "while True:\n    try:\n        count()\n    except:\n        pass", {"count": count}, mode="exec"
            )
    assert len(calls) == 10


def _pattern() -> object:
    return re.search("(a+)+$", "a" * 40 + "b")


def _loop() -> None:
    while True:
        pass


def _swallow() -> None:
    while True:
        with contextlib.suppress(Exception):
            time.sleep(60)


@pytest.mark.parametrize("function", [_pattern, _loop, _swallow])
def test_the_deadline_reaches_a_function_of_the_callers(function: Any) -> None:
    began = time.monotonic()
    with pytest.raises(sk.SafeEvalTimeoutError):
        sk.safe_eval("f()", {"f": function}, timeout=0.3)
    assert time.monotonic() - began < 0.3 + LATE


def test_an_alarm_of_the_applications_is_put_back() -> None:
    rung = threading.Event()
    previous, timer = signal.signal(signal.SIGALRM, lambda *_: rung.set()), signal.setitimer(signal.ITIMER_REAL, 0.8)
    try:
        assert sk.safe_eval("f()", {"f": lambda: 5}, timeout=0.5) == 5
        assert not rung.is_set()
        deadline = time.monotonic() + 3
        while not rung.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rung.is_set()
    finally:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.mark.parametrize("name", ["done_by", "_acting"])
def test_an_alarm_that_comes_too_early_or_too_late_leaves_nothing_behind(name: str) -> None:
    before = signal.getsignal(signal.SIGALRM)
    lines = set()

    def alarm(frame: types.FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != _interrupt.__file__ or frame.f_code.co_name not in (name, "done_by"):
            return None
        if event == "line" and signal.getsignal(signal.SIGALRM) is _interrupt._interrupt:
            lines.add(frame.f_lineno)
            signal.raise_signal(signal.SIGALRM)
        return alarm

    tracing, got = sys.gettrace(), []
    sys.settrace(alarm)
    try:
        with contextlib.suppress(_interrupt.Interrupted):
            nested = _interrupt.done_by(time.monotonic() + 30, lambda: _interrupt.done_by(time.monotonic() + 20, int))
            got.append(nested)
    finally:
        sys.settrace(tracing)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[1] == 0
    assert got == ([0] if name == "done_by" else [])  # and what runs inside is interrupted
    assert len(lines) >= 4


# -- in process ------------------------------------------------------------------------------------


def test_in_process_a_loop_ends_in_the_main_thread() -> None:
    began = time.monotonic()
    with pytest.raises(sk.SafeEvalTimeoutError):
        sk.safe_eval(
            "while True:\n    try:\n        while True:\n            pass\n    except:\n        pass",
            mode="exec",
            timeout=0.3,
            isolation="in-process",
        )
    assert time.monotonic() - began < 0.3 + LATE


def test_in_process_calls_are_counted() -> None:
    calls: list[int] = []
    code = "while True:\n    try:\n        count()\n    except:\n        pass"
    evaluator = SafeEvaluator(max_host_calls=5, timeout=10, isolation="in-process")
    with pytest.raises(sk.SafeEvalTimeoutError, match="max_host_calls=5"):
        evaluator.evaluate(code, {"count": lambda: calls.append(1)}, mode="exec")
    assert len(calls) == 5


def test_enforcement_says_what_holds() -> None:
    control, grade = sk.Control, sk.Grade
    held = SafeEvaluator().enforcement()
    assert held.grade(control.LIMITS_MEMORY) == held.grade(control.SYSCALLS) == grade.ENFORCED
    assert held.grade(control.PROCESS_ISOLATION) == grade.ENFORCED
    assert SafeEvaluator(isolation="reuse").enforcement().grade(control.PROCESS_ISOLATION) == grade.PARTIAL
    weak = SafeEvaluator(isolation="in-process").enforcement()
    assert weak.grade(control.LIMITS_MEMORY) == weak.grade(control.SYSCALLS) == grade.ABSENT
    assert weak.grade(control.LIMITS_WALL) == grade.PARTIAL


@pytest.mark.parametrize(
    "code",
    [
        "{n * (2 ** 61 - 1): 0 for n in range(3000)}",
        "{n * (2 ** 61 - 1): 0 for n in range(3000)} | {n: 0 for n in range(4000)}",
        "{n * (2 ** 61 - 1) for n in range(3000)} | {n for n in range(4000)}",
    ],
)
def test_keys_that_collide_cost_the_caller_nothing(code: str) -> None:
    with SafeEvaluator(timeout=10) as evaluator:
        began = time.process_time()
        with pytest.raises(sk.SafeEvalError):
            evaluator.evaluate(code)
        assert time.process_time() - began < 0.1
        assert len(evaluator.evaluate("{n * 7: 0 for n in range(-1500, 1500)}")) == 3000


def test_a_decimal_has_an_end() -> None:
    with pytest.raises(sk.SafeEvalForbiddenError, match="exponent"):
        sk.safe_eval("d ** 9999", {"d": decimal.Decimal("1e9")}, timeout=10)


# -- nothing is left -----------------------------------------------------------------------------


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def workers() -> list[str]:
    pid = _workers.zygote().pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_no_descriptor_and_no_process_is_left(evaluator: SafeEvaluator) -> None:
    evaluator.evaluate("1")
    before = descriptors()
    for code in ["1"] * 100 + ["1 +", "1 / 0", "'9' * 10**9"] * 5:
        with contextlib.suppress(sk.SafeEvalError):
            evaluator.evaluate(code)
    evaluator.close()
    assert descriptors() <= before
    deadline = time.monotonic() + 2
    while workers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers() == []


@pytest.mark.parametrize("isolation", ["worker", "reuse"])
def test_threads_share_what_workers_are_forked_from(isolation: Isolation) -> None:
    patient = SafeEvaluator(isolation=isolation, timeout=30)
    with patient, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda n: patient.evaluate("n * 2", {"n": n}), range(100))) == [n * 2 for n in range(100)]


def test_a_killed_worker_loses_only_its_own_call(reusing: SafeEvaluator) -> None:
    assert reusing.evaluate("1") == 1
    (idle,) = workers()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(reusing.evaluate, "sum(range(2 * 10**8))")
        time.sleep(0.1)
        os.kill(int(idle), signal.SIGKILL)
        with pytest.raises(sk.SafeEvalError, match="worker ended"):
            running.result()
    assert reusing.evaluate("1") == 1


def test_what_workers_are_forked_from_is_started_again(reusing: SafeEvaluator) -> None:
    for _ in range(2):
        assert reusing.evaluate("1") == 1
        pid = _workers.zygote().pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    assert reusing.evaluate("1") == 1
    sk.shutdown()
    assert _workers.zygote().pid is None
    assert reusing.evaluate("1") == 1


def waiting() -> list[int]:
    """
    The worker that waits, once the others have ended.
    """
    deadline = time.monotonic() + 0.5
    while len(found := workers()) != 1 and time.monotonic() < deadline:
        time.sleep(0.002)
    return [int(pid) for pid in found]


def test_the_next_worker_is_forked_ahead_and_ends_when_nobody_needs_it() -> None:
    with SafeEvaluator(timeout=30) as evaluator:
        seen = []
        for _ in range(10):
            evaluator.evaluate("1")
            seen.append(len(waiting()))
        assert 1 in seen
        before = descriptors()
        for n in range(20):
            assert evaluator.evaluate("n", {"n": n}) == n
        assert descriptors() <= before
    deadline = time.monotonic() + 5
    while workers() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert workers() == []
    assert evaluator.evaluate("1 + 1") == 2


def kill_and_see(pid: int) -> None:
    """
    Kills *pid* and waits until it has gone: one that is still dying takes a call.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while str(pid) in workers() and time.monotonic() < deadline:
        time.sleep(0.001)


@pytest.mark.parametrize("size", [1, 500_000])
def test_one_that_is_killed_while_it_waits_loses_nothing(size: int) -> None:
    with SafeEvaluator(timeout=30) as evaluator:
        for n in range(5):
            assert evaluator.evaluate("len(text) + n", {"n": n, "text": "a" * size}) == size + n
            for pid in waiting():
                kill_and_see(pid)
            time.sleep(0.01 * n)


class Stopped(_workers.WorkerPool):
    """
    Hands a new worker out after it ended because nothing came, as to a process that was
    stopped meanwhile, as often as *times*.
    """

    times = 2
    handed_out = 0

    def borrow(self) -> Conversation:
        """
        The worker.
        """
        worker = super().borrow()
        self.handed_out += 1
        if self.handed_out <= self.times:
            hung_up = select.poll()
            hung_up.register(worker._sock, 0)
            assert hung_up.poll(10_000)
        return worker


@pytest.mark.parametrize("door", ["blocking", "asyncio", "trio"])
@pytest.mark.parametrize(("times", "timeout"), [(2, 30), (10**6, 0.3)])
def test_a_new_one_that_nobody_asked_in_time_loses_nothing(door: str, times: int, timeout: float) -> None:
    with SafeEvaluator(timeout=timeout) as evaluator:
        pool = Stopped("python", 64 << 20, 1 << 20, timeout, is_reusing=False, recycle_after=1)
        pool.times, pool._header["waits"] = times, 0.02
        evaluator._pool = pool

        def call() -> object:
            if door == "blocking":
                return evaluator.evaluate("x + 1", {"x": 1})
            return anyio.run(evaluator.evaluate_async, "x + 1", {"x": 1}, backend=door)

        if times == 2:
            assert call() == 2
            assert pool.handed_out >= 3  # on a busy machine the third hears of it too late as well
        else:
            with pytest.raises(sk.SafeEvalTimeoutError):
                call()


def test_those_that_wait_are_few_and_each_has_its_own_limits() -> None:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(SafeEvaluator(timeout=30, memory_bytes=(32 + n) << 20)) for n in range(8)]
        for _ in range(2):
            for evaluator in made:
                assert evaluator.evaluate("1 + 1") == 2
        assert len(_workers.zygote()._ahead) <= 4
        small, large = SafeEvaluator(timeout=30, memory_bytes=8 << 20), SafeEvaluator(timeout=30)
        for _ in range(3):
            with pytest.raises(sk.SafeEvalMemoryError):
                small.evaluate("len('9' * 2 * 10**7)")
            assert large.evaluate("len('9' * 2 * 10**7)") == 2 * 10**7


def test_what_is_idle_ends_and_no_call_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    sk.shutdown()
    zygote = _workers.zygote()
    monkeypatch.setattr(zygote, "_order", zygote._order.replace(b'"idle_seconds": 60.0', b'"idle_seconds": 0.05'))
    monkeypatch.setattr(_workers, "AHEAD_SECONDS", 0.03)
    with SafeEvaluator(timeout=30) as evaluator:
        pids = set()
        for n in range(60):
            assert evaluator.evaluate("n + 1", {"n": n}) == n + 1
            pids.add(zygote.pid)
            time.sleep(0.03 * (n % 6))
    assert len(pids) > 1
    with SafeEvaluator(timeout=30, isolation="reuse") as evaluator:
        assert evaluator.evaluate("1") == 1
        pid = zygote.pid
        time.sleep(0.3)  # it stays while a worker waits
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text()
    sk.shutdown()


def test_a_worker_is_recycled() -> None:
    with SafeEvaluator(isolation="reuse", recycle_after=3, timeout=10) as evaluator:
        seen = []
        for _ in range(7):
            evaluator.evaluate("1")
            seen += workers()
    assert 1 < len(set(seen)) <= 3


def test_a_forked_process_has_workers_of_its_own() -> None:
    assert sk.safe_eval("1", timeout=10) == 1
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert _workers.zygote().pid is None
            code = 0 if sk.safe_eval("1 + 1", timeout=20) == 2 else 1
            sk.shutdown()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert sk.safe_eval("1", timeout=10) == 1
