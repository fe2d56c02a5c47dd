"""
A container carries evaluation, by descriptors that are read and written while somebody
waits for the end.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from typing import TYPE_CHECKING, Literal

import anyio
import anyio.lowlevel
import pytest

import sandboxkit as sk
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandboxkit.backends.docker import DockerBackend
    from sandboxkit.model import SandboxSpec

pytestmark = pytest.mark.requires("docker")


@pytest.mark.anyio
async def test_what_is_read_wakes_whom_it_is_for(backend: DockerBackend, spec: SandboxSpec) -> None:
    # Three wait on one stream of the container's: for output, for room, and for the end.
    code = "import os\nwhile data := os.read(0, 65536):\n    os.write(1, b'%d' % len(data))"
    ours, theirs = socket.socketpair()
    with ours, theirs, anyio.fail_after(40):
        async with (
            backend.open(spec) as box,
            box.start([interpreter(), "-c", code], stdin=theirs.fileno(), stdout=theirs.fileno()) as process,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(process.wait)
            ours.setblocking(False)
            for size in range(1, 40):
                ours.send(b"x" * size)
                await anyio.wait_readable(ours)
                assert int(ours.recv(100)) == size
            process.kill()


def test_evaluation(backend: DockerBackend) -> None:
    registry = sk.SandboxRegistry()
    registry.register(backend)
    with sk.SafeEvaluator(isolation="box", registry=registry, timeout=10) as evaluator:
        assert evaluator.evaluate("len(f('a' * n))", {"f": lambda text: text * 2, "n": 100_000}) == 200_000
        with pytest.raises(sk.SafeEvalForbiddenError):
            evaluator.evaluate("(1).__class__")
        with pytest.raises(sk.SafeEvalMemoryError):
            evaluator.evaluate("'a' * 10**9")
        assert evaluator.enforcement().reason(sk.Control.FS_READ).startswith(f"{backend.name}: ")
    with sk.SafeEvaluator(isolation="box", registry=registry, timeout=0.5) as evaluator:
        with pytest.raises(sk.SafeEvalTimeoutError):
            evaluator.evaluate("max(range(10**12))")
        assert evaluator.evaluate("result = 1 + 1", mode="exec") == 2


def require_engine() -> None:
    if importlib.util.find_spec("_quickjs") is None and not os.environ.get("CI"):
        pytest.skip("the extra js is not installed")


def test_evaluation_of_javascript(backend: DockerBackend) -> None:
    # The engine comes along over the conversation: the image has Python, and nothing of ours.
    require_engine()
    registry = sk.SandboxRegistry()
    registry.register(backend)

    async def later(x: int) -> int:
        await anyio.lowlevel.checkpoint()
        return x + 1

    with sk.SafeEvaluator(language="javascript", isolation="box", registry=registry, timeout=10) as evaluator:
        assert evaluator.evaluate("f('a'.repeat(n)).length", {"f": lambda text: text * 2, "n": 100_000}) == 200_000
        assert evaluator.interpolate("{{ x:.2f }} {{ [x] }}", {"x": 1}) == "1.00 [1]"
        assert anyio.run(evaluator.evaluate_async, "await later(x)", {"x": 1, "later": later}) == 2
        assert evaluator.evaluate("[typeof require, typeof process, typeof std, typeof os]") == ["undefined"] * 4
        with pytest.raises(sk.SafeEvalMemoryError):
            evaluator.evaluate("new Array(2 ** 26).fill(1)")
        with pytest.raises(sk.SafeEvalError, match="TypeError"):
            evaluator.evaluate("null.a")
        assert evaluator.enforcement().reason(sk.Control.FS_READ).startswith(f"{backend.name}: ")


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_an_image_brings_python_and_nothing_else(
    language: Literal["python", "javascript"], make: Callable[..., DockerBackend], python_image: str
) -> None:
    require_engine()
    registry = sk.SandboxRegistry()
    registry.register(make(python_image))
    with sk.SafeEvaluator(language=language, isolation="box", registry=registry, timeout=10) as evaluator:
        assert evaluator.evaluate("[x, f(x)]", {"x": 1, "f": lambda x: x + 1}) == [1, 2]
        with pytest.raises(sk.SafeEvalError):
            evaluator.evaluate("open('/etc/passwd')")


def test_an_image_without_python_is_told_with_the_remedy(make: Callable[..., DockerBackend], shell_image: str) -> None:
    registry = sk.SandboxRegistry()
    registry.register(make(shell_image))
    told = f"box of {make().name}.*; use .*an image with python3, 3.11 or later"
    with sk.SafeEvaluator(isolation="box", registry=registry, timeout=10) as evaluator:
        with pytest.raises(sk.SetupError, match=told):
            evaluator.evaluate("1")
        with pytest.raises(sk.SetupError, match=told):
            evaluator.condition("1 == 1")
