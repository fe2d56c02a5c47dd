"""
Where no control group counts the processes of a box together, somebody looks at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.backends.landlock.conftest import SYSTEM_PYTHON

from sandboxkit import Control, Grade, Limits, SandboxSpec, Termination
from sandboxkit.backends.landlock import LandlockBackend, _plan

if TYPE_CHECKING:
    from sandboxkit.model import ExecResult

pytestmark = [pytest.mark.anyio, pytest.mark.requires("landlock")]

ALL = tuple(Control)
SHARED = """
import os, time
held = bytearray(40 << 20)
for _ in range({children}):
    if os.fork() == 0:
        {each}
        time.sleep({seconds})
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print("all went well")
"""
TAKING = "more = bytearray(b'x' * (40 << 20))"


async def run(code: str, **limits: float) -> ExecResult:
    spec = SandboxSpec.isolated(limits=Limits(wall=60, **limits), allow_degraded=ALL)  # type: ignore[arg-type]  # a table of both kinds
    async with LandlockBackend().open(spec) as box:
        return await box.run([*SYSTEM_PYTHON, code])


async def test_children_that_together_use_too_much_time_end() -> None:
    code = "import os\nfor _ in range(7):\n    if not os.fork(): break\nwhile True: pass"
    result = await run(code, cpu=3)
    assert result.termination is Termination.CPU_LIMIT
    assert result.usage is not None
    assert result.usage.tree_cpu_s is not None
    assert 3 <= result.usage.tree_cpu_s < 8
    assert "processor time" in result.outcome


async def test_what_a_child_used_that_has_ended_counts() -> None:
    code = (
        "import os, time\n"
        "while True:\n"
        "    if not os.fork():\n"
        "        while time.process_time() < 0.4: pass\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    result = await run(code, cpu=2)
    assert result.termination is Termination.CPU_LIMIT


async def test_children_that_together_hold_too_much_memory_end() -> None:
    result = await run(SHARED.format(children=8, each=TAKING, seconds=30), memory_bytes=160 << 20)
    assert result.termination is Termination.MEMORY_LIMIT
    assert result.usage is not None
    assert (result.usage.tree_memory_peak_bytes or 0) >= 160 << 20


async def test_without_a_look_they_would_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plan, "watched_limits", lambda _: ())
    result = await run(SHARED.format(children=8, each=TAKING, seconds=1), memory_bytes=160 << 20)
    assert (result.exit_code, result.stdout) == (0, b"all went well\n"), result


async def test_each_of_them_alone_is_let_be() -> None:
    result = await run(SHARED.format(children=1, each=TAKING, seconds=1), memory_bytes=160 << 20)
    assert (result.exit_code, result.stdout) == (0, b"all went well\n"), result


async def test_memory_they_share_counts_once() -> None:
    result = await run(SHARED.format(children=8, each="held[0]", seconds=2), memory_bytes=160 << 20)
    assert (result.exit_code, result.stdout) == (0, b"all went well\n"), result


async def test_it_is_no_more_than_partial() -> None:
    result = await run("print()", cpu=3, memory_bytes=160 << 20)
    for control in (Control.LIMITS_CPU, Control.LIMITS_MEMORY):
        assert result.enforcement.grade(control) is Grade.PARTIAL
        assert "all together are looked at" in dict(result.enforcement)[control].reason
