"""
Evaluation inside a box of a backend: what a registry offers carries it, says what holds,
and holds. Here it offers bubblewrap, told that this kernel has no Landlock.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from tests.evaluation import contexts

import sandboxkit as sk
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.evaluation import _boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sandboxkit.backends import Detection

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.timeout(240)]
PLAIN = """

def reply(request, ask, programs):
    names = {"result": None}
    try:
        exec(request["code"], names)
        return {"value": names["result"]}
    except BaseException as error:
        return {"value": f"{type(error).__name__} {getattr(error, 'errno', None)}"}
"""


class WithoutLandlock(BubblewrapBackend):
    """
    Bubblewrap on a kernel that offers no Landlock.
    """

    async def detect(self, spec: sk.SandboxSpec | None = None) -> Detection:
        found = await super().detect(spec)
        return replace(found, facts=replace(found.facts, landlock_abi=0))  # type: ignore[call-arg]  # its facts have the field


@pytest.fixture(scope="module")
def offered() -> sk.SandboxRegistry:
    registry = sk.SandboxRegistry()
    registry.register(WithoutLandlock())
    return registry


@pytest.fixture
def boxed(offered: sk.SandboxRegistry) -> Iterator[sk.SafeEvaluator]:
    with sk.SafeEvaluator(isolation="box", registry=offered, timeout=2) as evaluator:
        yield evaluator


def test_it_evaluates_and_says_what_holds(boxed: sk.SafeEvaluator) -> None:
    assert boxed.evaluate("x + y", {"x": 1, "y": 2}) == 3
    assert boxed.evaluate("result = f(2)", {"f": lambda x: x * 21}, mode="exec") == 42
    assert boxed.interpolate("{{ x:.2f }}", {"x": 1}) == "1.00"
    assert boxed.condition("x > 1", {"x": 2})
    held = boxed.enforcement()
    for control in (sk.Control.FS_READ, sk.Control.FS_WRITE, sk.Control.NET_NONE, sk.Control.SYSCALLS):
        assert held.grade(control) is sk.Grade.ENFORCED
        assert held.reason(control).startswith("bubblewrap: ")
        assert "Landlock ABI" not in held.reason(control)
    assert held.grade(sk.Control.PROCESS_ISOLATION) is sk.Grade.PARTIAL
    assert held.grade(sk.Control.LIMITS_MEMORY) is sk.Grade.PARTIAL
    assert held.grade(sk.Control.LIMITS_WALL) is sk.Grade.ENFORCED


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_it_awaits(boxed: sk.SafeEvaluator, loop: str) -> None:
    async def plus(x: int) -> int:
        await anyio.lowlevel.checkpoint()
        return x + 1

    async def call() -> object:
        return await boxed.evaluate_async("await plus(x) + 1", {"x": 1, "plus": plus})

    assert anyio.run(call, backend=loop) == 3


def test_each_evaluation_starts_clean_and_a_failure_costs_itself_only(boxed: sk.SafeEvaluator) -> None:
    with pytest.raises(sk.SafeEvalMemoryError):
        boxed.evaluate("'a' * 10**9")
    began = time.monotonic()
    with pytest.raises(sk.SafeEvalTimeoutError):
        boxed.evaluate("max(range(10**12))")
    assert time.monotonic() - began < 3
    with pytest.raises(sk.SafeEvalForbiddenError):
        boxed.evaluate("(1).__class__")
    assert boxed.evaluate("1 + 1") == 2


def test_threads_have_workers_of_their_own(boxed: sk.SafeEvaluator) -> None:
    found: list[object] = []
    threads = [threading.Thread(target=lambda n=n: found.append(boxed.evaluate("n * 2", {"n": n}))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=repr) == [0, 10, 2, 4, 6, 8]


def test_nothing_of_the_corpus_escapes(offered: sk.SandboxRegistry) -> None:
    with sk.SafeEvaluator(isolation="box", registry=offered, timeout=0.3) as evaluator:
        rows = [row for row in contexts.escapes() if row["mode"] != "async" and row["goal"] in contexts.QUICK_GOALS]
        assert len(rows) > 200
        calls: dict[str, Callable[..., object]] = {
            "condition": evaluator.condition,
            "template": evaluator.interpolate,
            "expr": evaluator.evaluate,
        }
        for row in rows[::2]:
            context = contexts.hostile_context()
            before = contexts.snapshot(context)
            said, value = "", None
            try:
                if row["mode"] == "exec":
                    value = evaluator.evaluate(row["code"], context, mode="exec")
                else:
                    value = calls[row["mode"]](row["code"], context)
            except sk.SafeEvalError as error:
                said = str(error)
            assert contexts.CANARY not in said, row
            assert "\x1b" not in said, row
            assert said or contexts.is_plain(value), row
            assert contexts.snapshot(context) == before, row


# -- JavaScript ----------------------------------------------------------------------------


@pytest.fixture
def javascript(offered: sk.SandboxRegistry) -> Iterator[sk.SafeEvaluator]:
    if importlib.util.find_spec("_quickjs") is None and not os.environ.get("CI"):
        pytest.skip("the extra js is not installed")
    with sk.SafeEvaluator(language="javascript", isolation="box", registry=offered, timeout=2) as evaluator:
        yield evaluator


def test_javascript_is_evaluated_in_the_box_too(javascript: sk.SafeEvaluator) -> None:
    async def plus(x: int) -> int:
        await anyio.lowlevel.checkpoint()
        return x + 1

    assert javascript.evaluate("x.map(v => v * 2)", {"x": [1, 2]}) == [2, 4]
    assert javascript.evaluate("const result = f(2)", {"f": lambda x: x * 21}, mode="exec") == 42
    assert javascript.interpolate("{{ x:.2f }} {{ `${x}` }}", {"x": 1}) == "1.00 1"
    assert javascript.condition("x > 1", {"x": 2})
    assert anyio.run(javascript.evaluate_async, "await plus(x) + 1", {"x": 1, "plus": plus}) == 3
    javascript.evaluate("globalThis.left = 1; const result = 0", mode="exec")
    assert javascript.evaluate("typeof left") == "undefined"
    with pytest.raises(sk.SafeEvalMemoryError):
        javascript.evaluate("new Array(2 ** 26).fill(1)")
    with pytest.raises(sk.SafeEvalTimeoutError):
        javascript.evaluate("(() => { for (;;); })()")
    with pytest.raises(sk.SafeEvalError) as caught:
        javascript.evaluate("\nv.a.b", {"v": {}})
    assert (caught.value.kind, caught.value.line) == ("TypeError", 2)
    held = javascript.enforcement()
    assert held.grade(sk.Control.FS_READ) is sk.Grade.ENFORCED
    assert held.grade(sk.Control.PROCESS_ISOLATION) is sk.Grade.PARTIAL


def test_nothing_of_the_javascript_corpus_escapes(javascript: sk.SafeEvaluator) -> None:
    tried = 0
    for row in contexts.rows("safe_eval_js_escapes.jsonl")[::2]:
        if row["goal"] not in contexts.QUICK_GOALS or row["mode"] not in ("expr", "exec"):
            continue
        context = contexts.hostile_context()
        before = contexts.snapshot(context)
        said, value = "", None
        try:
            value = javascript.evaluate(row["code"], context, mode=row["mode"])
        except sk.SafeEvalError as error:
            said = str(error)
        assert contexts.CANARY not in said, row
        assert "\x1b" not in said, row
        assert said or contexts.is_plain(value), row
        assert contexts.snapshot(context) == before, row
        tried += 1
    assert tried > 50


def test_an_engine_of_another_machine_is_told(
    offered: sk.SandboxRegistry, javascript: sk.SafeEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert javascript.evaluate("1") == 1
    brought = {**_boxes._brought("javascript"), "extensions": {"_quickjs": base64.b64encode(b"MZ\x90").decode()}}
    monkeypatch.setattr(_boxes, "_brought", lambda _: brought)
    with (
        sk.SafeEvaluator(language="javascript", isolation="box", registry=offered) as evaluator,
        pytest.raises(sk.SetupError, match=r"does not load in the box of bubblewrap \(ImportError.*; use a backend"),
    ):
        evaluator.evaluate("1")


def test_an_engine_of_another_python_is_told(
    offered: sk.SandboxRegistry, javascript: sk.SafeEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert javascript.evaluate("1") == 1
    monkeypatch.setattr(_boxes, "_built_for", lambda _: [3, 5])
    with (
        sk.SafeEvaluator(language="javascript", isolation="box", registry=offered) as evaluator,
        pytest.raises(sk.SetupError, match=r"it was built for Python 3\.5"),
    ):
        evaluator.evaluate("1")


# -- what holds where the language does not -----------------------------------------------


@pytest.fixture
def ungated(offered: sk.SandboxRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[sk.SafeEvaluator]:
    brought = _boxes._brought("python")
    sources = dict(brought["sources"])
    sources["sandboxkit.evaluation._evaluate"] += PLAIN
    monkeypatch.setattr(_boxes, "_brought", lambda _: {**brought, "sources": sources})
    with sk.SafeEvaluator(isolation="box", registry=offered, timeout=5) as evaluator:
        yield evaluator


def outside(code: str) -> Any:
    """
    What the same gives without a box.
    """
    program = f"exec({code!r})\nprint(repr(result))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    return eval(done.stdout)


def acts(place: Path, port: int) -> dict[str, str]:
    return {
        "read": f"result = open({str(place / 'secret')!r}).read()",
        "write": f"open({str(place / 'secret')!r}, 'a').close(); result = 'secret'",
        "connect": f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); result = 'secret'",
        "signal": f"import os; os.kill({os.getpid()}, 0); result = 'secret'",
        "fork": "import os; pid = os.fork()\nif not pid: os._exit(0)\nresult = 'secret'",
    }


@pytest.mark.parametrize("act", ["read", "write", "connect", "signal", "fork"])
def test_the_box_holds_where_the_language_does_not(act: str, ungated: sk.SafeEvaluator, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = acts(tmp_path, server.getsockname()[1])[act]
        assert outside(code) == "secret"
        assert ungated.evaluate("result = 1 + 1", mode="exec") == 2
        said = ungated.evaluate(textwrap.dedent(code), mode="exec")
        assert said.split()[0] in (
            "FileNotFoundError",
            "PermissionError",
            "OSError",
            "ConnectionRefusedError",
            "ProcessLookupError",
            "BlockingIOError",
        ), said


# -- what is refused ------------------------------------------------------------------------


def test_without_a_backend_it_refuses() -> None:
    with sk.SafeEvaluator(isolation="box", registry=sk.SandboxRegistry()) as evaluator:
        with pytest.raises(sk.NoBackendError):
            evaluator.evaluate("1")
        with pytest.raises(sk.NoBackendError):
            evaluator.condition("True")
        with pytest.raises(sk.NoBackendError):
            evaluator.enforcement()


def test_what_does_not_go_together_is_said() -> None:
    with pytest.raises(ValueError, match='isolation="box" with a registry'):
        sk.SafeEvaluator(registry=sk.SandboxRegistry())
    with pytest.raises(ValueError, match='use isolation="worker", "reuse" or "box"'):
        sk.SafeEvaluator(language="javascript", isolation="in-process")


def test_nothing_is_left_after_it(offered: sk.SandboxRegistry) -> None:
    def used() -> int:
        with sk.SafeEvaluator(isolation="box", registry=offered) as evaluator:
            assert evaluator.evaluate("1") == 1
            evaluator.close()
            assert evaluator.evaluate("2") == 2
        return len(os.listdir("/proc/self/fd"))

    used()  # the broker and the loop stay
    deadline, before = time.monotonic() + 10, threading.active_count()
    fds = {used() for _ in range(3)}
    while len(os.listdir("/proc/self/fd")) > min(fds) and time.monotonic() < deadline:
        time.sleep(0.05)  # the loop lets go of a box's ends a moment later
    assert len(os.listdir("/proc/self/fd")) <= min(fds)
    assert threading.active_count() <= before + 1


@pytest.mark.parametrize("isolation", ["box", "reuse"])
def test_a_forked_child_has_workers_of_its_own(isolation: str) -> None:
    program = """
import os, sys, sandboxkit as sk
evaluator = sk.SafeEvaluator(isolation=sys.argv[1], timeout=20)
assert evaluator.evaluate("1") == 1
child = os.fork()
assert evaluator.evaluate("2") == 2
if child:
    assert os.waitpid(child, 0)[1] == 0
print("done", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, isolation],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["done", "done"], "")
