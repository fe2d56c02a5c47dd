"""
The registry picks the preferred backend that really holds, and says why not others.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.backends.raw_bwrap import BOLD, RawBwrap, only

import sandboxkit.backends._default as default_room
from sandboxkit.backends import (
    Detection,
    Facts,
    Sandbox,
    SandboxBackend,
    SandboxRegistry,
    Verification,
    _registry,
    get_active_sandbox_backend,
    list_sandbox_backends,
    register_sandbox_backend,
    sandbox_execute,
)
from sandboxkit.errors import CommandError, EnforcementError, NoBackendError, PluginError, SetupError, SpecError
from sandboxkit.model import Control, Enforcement, Grade, Limits, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio

ABSENT = Detection(False, "bwrap was not found", "install bubblewrap")


def backend(
    called: str = "raw-bwrap", *holes: str, claim: Enforcement = BOLD, found: Detection | None = None
) -> RawBwrap:
    made = RawBwrap(frozenset(holes), claim, called)
    made.found = found or made.found
    return made


def registry(*backends: RawBwrap | tuple[RawBwrap, int], detect_timeout: float = 10.0) -> SandboxRegistry:
    made = SandboxRegistry(detect_timeout=detect_timeout)
    for row in backends:
        made.register(*row) if isinstance(row, tuple) else made.register(row)
    return made


async def test_the_greatest_priority_is_preferred() -> None:
    low, high = backend("low"), backend("high")
    found = await registry((low, 10), (high, 20)).active()
    assert found.backend is high
    assert found.enforcement == BOLD
    assert low.opened == []


async def test_among_equals_the_earlier_is_preferred() -> None:
    first, second = backend("first"), backend("second")
    assert (await registry(first, second).active()).backend is first


async def test_an_unavailable_backend_is_passed_over() -> None:
    gone, there = backend("gone", found=ABSENT), backend("there")
    assert (await registry((gone, 10), there).active()).backend is there


async def test_without_backends_nothing_is_available() -> None:
    with pytest.raises(NoBackendError, match="no backend is registered") as caught:
        await SandboxRegistry().active()
    assert caught.value.reasons == {}


async def test_every_reason_and_remedy_is_listed() -> None:
    with pytest.raises(NoBackendError) as caught:
        await registry(
            backend("one", found=ABSENT), backend("two", found=Detection(False, "no daemon", "start docker"))
        ).active()
    assert caught.value.reasons == {"one": "bwrap was not found; install bubblewrap", "two": "no daemon; start docker"}
    assert "one: bwrap was not found; install bubblewrap" in str(caught.value)


async def test_a_backend_that_holds_too_little_is_no_quiet_step_down() -> None:
    weak = backend("weak", claim=only(syscalls=Grade.PARTIAL, limits_memory=Grade.PARTIAL))
    gone = backend("gone", found=ABSENT)
    with pytest.raises(EnforcementError) as caught:
        await registry((gone, 10), weak).active()
    assert caught.value.reasons["gone"] == "bwrap was not found; install bubblewrap"
    assert caught.value.reasons["weak"] == (
        "syscalls is partial, enforced is required (so it says); "
        "list a control in allow_degraded where less will do, or use another backend"
    )


async def test_a_weaker_backend_is_taken_where_the_spec_allows() -> None:
    weak = backend("weak", claim=only(syscalls=Grade.PARTIAL))
    spec = SandboxSpec(allow_degraded=frozenset({Control.SYSCALLS}))
    assert (await registry(weak).active(spec)).backend is weak


async def test_the_spec_decides_among_backends() -> None:
    strong, weak = backend("strong"), backend("weak", claim=only(limits_memory=Grade.PARTIAL))
    made = registry((weak, 10), strong)
    assert (await made.active()).backend is weak
    assert (await made.active(SandboxSpec(limits=Limits(memory_bytes=1 << 30)))).backend is strong


async def test_a_lie_is_found_out_and_the_next_is_taken() -> None:
    liar, honest = backend("liar", "net"), backend("honest")
    made = registry((liar, 10), honest)
    assert (await made.active()).backend is honest
    first, second = await made.list()
    assert first.missing == (
        "net.none is absent, enforced is required (the attack connected to a listener on the host's loopback)",
    )
    assert first.enforcement
    assert first.enforcement.grade(Control.NET_NONE) is Grade.ABSENT
    assert second.missing == ()


async def test_the_attack_runs_once_for_many_tasks() -> None:
    made = backend()
    reg = registry(made)
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(reg.active)
    assert len(made.opened) == 1
    assert made.detections.count(None) == 1


async def test_the_attack_runs_once_for_many_threads_and_loops() -> None:
    made = backend()
    reg = registry(made)
    names: list[str] = []

    def choose(loop: str) -> None:
        names.append(anyio.run(reg.active, backend=loop).backend.name)

    threads = [threading.Thread(target=choose, args=(loop,)) for loop in ("asyncio", "trio") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)
    assert names == ["raw-bwrap"] * 6
    assert len(made.opened) == 1


async def test_paths_are_looked_at_for_every_spec(tmp_path: Path) -> None:
    made = backend()
    reg = registry(made)
    specs = [SandboxSpec.read_only(tmp_path), SandboxSpec.workspace_write(tmp_path)]
    for spec in specs:
        await reg.active(spec)
    assert [spec for spec in made.detections if spec in specs] == specs


async def test_forgetting_looks_again() -> None:
    made = backend()
    reg = registry(made)
    await reg.active()
    reg.forget()
    await reg.active()
    assert (len(made.opened), made.detections.count(None)) == (2, 2)


async def test_registering_detects_again_and_attacks_no_second_time() -> None:
    made = backend()
    reg = registry(made)
    await reg.active()
    reg.register(backend("other"), 1)
    reg.register(backend("third", found=ABSENT), 2)
    assert [status.name for status in await reg.list()] == ["third", "other", "raw-bwrap"]
    assert (len(made.opened), made.detections.count(None)) == (1, 2)


async def test_unavailability_is_not_believed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "_RETRY_SECONDS", 0.0)
    made = backend(found=ABSENT)
    reg = registry(made)
    with pytest.raises(NoBackendError):
        await reg.active()
    made.found = Detection(True, "it is there now")
    assert (await reg.active()).backend is made


async def test_a_cancelled_detection_is_taken_over() -> None:
    class Slow(RawBwrap):
        async def detect(self, spec: SandboxSpec | None = None) -> Detection:
            if not self.detections:
                self.detections.append(spec)
                await anyio.sleep(60)
            return await super().detect(spec)

    reg = registry(Slow())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reg.active)
        await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
    assert (await reg.active()).backend.name == "raw-bwrap"


async def test_a_forked_child_starts_anew() -> None:
    made = backend()
    reg = registry(made)
    await reg.active()
    entry = reg._entries[0]
    entry.detection._pid = entry.verification._pid = os.getpid() + 1  # as the child sees it
    await reg.active()
    assert (len(made.opened), made.detections.count(None)) == (2, 2)


class Raises(RawBwrap):
    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        raise ZeroDivisionError("oops")


class Hangs(RawBwrap):
    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        await anyio.sleep(60)
        raise AssertionError


class Blocks(RawBwrap):
    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        time.sleep(3)
        raise AssertionError


class Exits(RawBwrap):
    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        raise SystemExit(3)


class ExitsInTheBox(RawBwrap):
    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        raise SystemExit(3)
        yield


class Answers(RawBwrap):
    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        return True  # type: ignore[return-value]  # what a careless author may do


class Claims(RawBwrap):
    def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
        raise KeyError("fs")


class Opens(RawBwrap):
    @asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        raise ZeroDivisionError("oops")
        yield


BROKEN: list[tuple[type[RawBwrap], str]] = [
    (Raises, "detect() raised ZeroDivisionError: oops"),
    (Hangs, "detect() did not answer within 0.2 s"),
    (Blocks, "detect() did not answer within 0.2 s"),
    (Exits, "detect() raised SystemExit: 3"),
    (ExitsInTheBox, "the backend ends the process"),
    (Answers, "detect() returned bool"),
    (Claims, "the backend raised KeyError: 'fs'"),
    (Opens, "the attack that verifies it could not be carried out: the backend raised ZeroDivisionError: oops"),
]


@pytest.mark.parametrize(("kind", "reason"), BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
async def test_a_broken_backend_never_breaks_others(kind: type[RawBwrap], reason: str) -> None:
    broken, sound = kind(called="broken"), backend("sound")
    made = registry((broken, 10), sound, detect_timeout=0.2)
    assert (await made.active()).backend is sound
    status = (await made.list())[0]
    assert (status.name, status.available) == ("broken", False)
    assert reason in status.reason
    assert status.remedy


async def test_a_claim_that_breaks_after_the_attack_is_unavailable() -> None:
    class Later(RawBwrap):
        def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
            if self.opened:
                raise KeyError("fs")
            return BOLD

    with pytest.raises(NoBackendError, match=r"enforcement\(\) raised KeyError"):
        await registry(Later()).active()


async def test_a_machine_in_the_way_is_named_with_its_remedy() -> None:
    class Refused(RawBwrap):
        def open(self, spec: SandboxSpec) -> Any:
            raise SetupError("refused", "[Errno 2] No such file or directory: 'bwrap'")

    with pytest.raises(NoBackendError, match=r"\(bwrap is not installed\); install it \(apt install bubblewrap"):
        await registry(Refused()).active()


async def test_a_wrong_spec_is_the_callers_error() -> None:
    class Picky(RawBwrap):
        async def detect(self, spec: SandboxSpec | None = None) -> Detection:
            if spec and "/nowhere" in spec.filesystem.write:
                raise SpecError("filesystem.write: '/nowhere' does not exist; create it")
            return self.found

    made = registry(Picky())
    spec = SandboxSpec(filesystem={"write": ["/nowhere"]})  # type: ignore[arg-type]  # pydantic reads it
    with pytest.raises(SpecError, match="create it"):
        await made.active(spec)
    (status,) = await made.list(spec)
    assert not status.available
    assert "create it" in status.reason


@dataclass(frozen=True, slots=True)
class OwnFacts(Facts):
    abi: int = 7

    def to_dict(self) -> dict[str, Any]:
        return {"abi": self.abi}


async def test_a_status_is_complete_and_json_ready() -> None:
    import json

    made = backend(found=Detection(True, "it is there", facts=OwnFacts(), warnings=("old",)))
    (status,) = await registry((made, 5)).list()
    shown = json.loads(json.dumps(status.to_dict()))
    assert {
        key: shown[key] for key in ("name", "priority", "available", "reason", "remedy", "facts", "warnings", "missing")
    } == {
        "name": "raw-bwrap",
        "priority": 5,
        "available": True,
        "reason": "it is there",
        "remedy": "",
        "facts": {"abi": 7},
        "warnings": ["old"],
        "missing": [],
    }
    assert shown["verified"]["net.none"]["grade"] == "enforced"
    assert shown["enforcement"]["fs.read"] == {"grade": "enforced", "reason": "so it says"}


async def test_results_of_a_lowered_box_say_so() -> None:
    made = backend("leaky", "net")
    spec = SandboxSpec.isolated(allow_degraded=frozenset({Control.NET_NONE}))
    async with registry(made).open(spec) as box:
        assert box.spec is spec
        assert box.enforcement.grade(Control.NET_NONE) is Grade.ABSENT
        result = await box.run(["/bin/echo", "hi"])
    assert result.text() == "hi\n"
    assert result.enforcement.grade(Control.NET_NONE) is Grade.ABSENT
    assert result.enforcement.grade(Control.FS_READ) is Grade.ENFORCED


async def test_a_box_that_opens_weaker_than_claimed_is_refused() -> None:
    class Slips(RawBwrap):
        def enforcement(self, spec: SandboxSpec, facts: Facts) -> Enforcement:
            return BOLD

    made = Slips(claim=only(env=Grade.PARTIAL))
    with pytest.raises(EnforcementError, match="env is partial"):
        async with registry(made).open(SandboxSpec.isolated()):
            pytest.fail("it opened")


@pytest.mark.parametrize("name", ["", "Big", "1a", "a b", "direct", "a" * 70, "a\n", 3])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(PluginError, match="a backend's name is"):
        SandboxRegistry().register(backend(name))


def test_a_taken_name_is_refused() -> None:
    made = registry(backend("one"))
    with pytest.raises(PluginError, match="'one': a backend of this name is registered already"):
        made.register(backend("one"))


@pytest.mark.parametrize(("thing", "called"), [(object(), "object"), (RawBwrap, "RawBwrap itself"), (None, "NoneType")])
def test_what_is_no_backend_is_refused(thing: Any, called: str) -> None:
    with pytest.raises(PluginError, match=f"'{called}': it is no SandboxBackend object"):
        SandboxRegistry().register(thing)


@pytest.mark.parametrize("priority", ["high", 1.5, True, None])
def test_a_priority_is_a_whole_number(priority: Any) -> None:
    with pytest.raises(PluginError, match="no whole number"):
        SandboxRegistry().register(backend(), priority)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_detection_timeout_bounds(timeout: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        SandboxRegistry(detect_timeout=timeout)


@pytest.fixture
def own_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_room._shared, "registry", SandboxRegistry())


@pytest.mark.usefixtures("own_default")
async def test_the_conveniences_share_one_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = backend()
    register_sandbox_backend(made, 3)
    assert await get_active_sandbox_backend() is made
    assert [status.priority for status in await list_sandbox_backends()] == [3]
    assert (await sandbox_execute(["/bin/echo", "a  b"])).text() == "a  b\n"
    assert (await sandbox_execute("echo $((1+2))", cwd="/")).text() == "3\n"
    assert made.opened[-1] == SandboxSpec.workspace_write(tmp_path)
    assert (await sandbox_execute(["cat"], stdin=b"in", spec=SandboxSpec.isolated())).stdout == b"in"


@pytest.mark.usefixtures("own_default")
@pytest.mark.parametrize("command", ["", []])
async def test_no_command_is_an_error(command: Any) -> None:
    with pytest.raises(CommandError, match="empty"):
        await sandbox_execute(command)


@pytest.mark.usefixtures("own_default")
async def test_without_a_backend_nothing_is_executed(tmp_path: Path) -> None:
    with pytest.raises(NoBackendError):
        await sandbox_execute(["touch", str(tmp_path / "made")])
    assert list(tmp_path.iterdir()) == []


def test_a_verification_never_raises_a_grade() -> None:
    from sandboxkit.backends import Finding

    weak = only(env=Grade.ABSENT)
    found = Verification((Finding(Control.ENV, Grade.ENFORCED, "seen"), Finding(Control.ENV, Grade.PARTIAL, "seen")))
    assert found.apply(weak) == weak


def test_the_default_registry_shares_what_was_found_out() -> None:
    one, two = SandboxRegistry.default(), SandboxRegistry.default()
    builtin = ["bubblewrap", "landlock", "docker", "podman"]
    assert [entry.name for entry in one._entries] == builtin
    assert one._entries[0] is two._entries[0]
    two.register(backend("mine"), 500)
    assert [entry.name for entry in one._entries] == builtin
    assert [entry.name for entry in two._entries] == ["mine", *builtin]


def test_the_contract_cannot_be_half_kept() -> None:
    with pytest.raises(TypeError, match="abstract"):
        SandboxBackend()  # type: ignore[abstract]  # that is the point
