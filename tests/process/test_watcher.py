"""
Where no control group counts the processes of a box together, somebody looks at them.
"""

from __future__ import annotations

import os
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


FILE = """
import os, sys, time
for _ in range(90):
    os.write({file}, b"x" * (1 << 20))
{then}
time.sleep({seconds})
print("all went well")
"""


async def test_a_file_in_memory_that_nobody_maps_counts() -> None:
    made = "fd = os.memfd_create('x')"
    code = f"import os\n{made}\n" + FILE.format(file="fd", then="os.fork()", seconds=30)
    result = await run(code, memory_bytes=64 << 20)
    assert result.termination is Termination.MEMORY_LIMIT
    assert ((result.usage and result.usage.tree_memory_peak_bytes) or 0) >= 64 << 20
    # Several who have it open, and who map it besides, do not make it more.
    mapped = "import mmap; m = mmap.mmap(fd, 0); sum(m[::4096]); os.fork(); os.fork()"
    result = await run(f"import os\n{made}\n" + FILE.format(file="fd", then=mapped, seconds=1), memory_bytes=160 << 20)
    assert result.ok, result


async def test_a_file_in_memory_that_was_handed_in_is_not_its_own() -> None:
    spec = SandboxSpec.isolated(limits=Limits(wall=60, memory_bytes=64 << 20), allow_degraded=ALL)
    given = os.memfd_create("given")
    try:
        code = FILE.format(file=given, then="", seconds=1)
        async with (
            LandlockBackend().open(spec) as box,
            box.start([*SYSTEM_PYTHON, code], pass_fds={given}) as process,
        ):
            assert (await process.wait()).ok
    finally:
        os.close(given)


async def test_who_ends_itself_below_the_limit_was_not_ended_by_it() -> None:
    code = "import os, time\nwhile time.process_time() < 0.7: pass\nos.kill(os.getpid(), 9)"
    result = await run(code, cpu=1.1)  # the kernel's own limit is 2 s
    assert (result.termination, result.signal) == (Termination.SIGNALED, 9)
