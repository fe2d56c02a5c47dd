"""
The router: what it runs, where, and what it refuses. Real boxes throughout.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.backends.raw_bwrap import RawBox, RawBwrap, only

import sandboxkit.router._router as room
from sandboxkit.approval import CallbackApprover
from sandboxkit.audit import MemoryAudit
from sandboxkit.backends import Detection, SandboxRegistry
from sandboxkit.errors import (
    ApprovalError,
    CommandDeniedError,
    CommandError,
    EnforcementError,
    IsolationError,
    NoBackendError,
    PluginError,
    ProgramNotFoundError,
    SpecError,
)
from sandboxkit.model import (
    ApprovalReply,
    ApprovalRequest,
    Control,
    EnvironmentPolicy,
    Grade,
    Limits,
    NetworkPolicy,
    PolicyAction,
    SandboxSpec,
    Termination,
)
from sandboxkit.policy import ExecPolicy, PolicyRule
from sandboxkit.router import AutoSandboxRouter, default_router, open_sandbox, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap")]

NOBODY = Detection(False, "user namespaces are off", "set kernel.unprivileged_userns_clone=1")


def policy(**actions: str) -> ExecPolicy:
    """
    The built-in rules, and one for each program: `policy(make="ask")`.
    """
    rows = [{"id": f"user.{name}", "action": action, "prefix": [name]} for name, action in actions.items()]
    return ExecPolicy.from_dict({"rules": rows})


def yes(request: ApprovalRequest) -> ApprovalReply:
    return ApprovalReply(approved=True, reason="looks right")


def events(router: AutoSandboxRouter) -> list[dict[str, Any]]:
    assert isinstance(router.audit, MemoryAudit)
    return [{"kind": event.kind, **event.fields} for event in router.audit.events()]


def unavailable() -> SandboxRegistry:
    registry = SandboxRegistry()
    registry.register(RawBwrap(called="one", found=NOBODY))
    registry.register(RawBwrap(called="two", found=Detection(False, "no daemon", "start docker")))
    return registry


# -- what runs, and where --


async def test_a_command_writes_its_directory_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = f"echo in > made; echo out > {tmp_path}/outside; echo $?"
    routed = await AutoSandboxRouter().route(script, cwd=tmp_path / "work")
    assert (routed.mode, routed.backend) == ("sandbox", "bubblewrap")
    assert (tmp_path / "work" / "made").read_text() == "in\n"
    assert not (tmp_path / "outside").exists()
    assert routed.enforcement.grade(Control.NET_NONE) is Grade.ENFORCED
    assert not routed.enforcement.missing(SandboxSpec().requirements())
    assert routed.evaluation.action is PolicyAction.SANDBOX


async def test_what_is_allowed_only_reads(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    router = AutoSandboxRouter(policy=policy(touch="allow"))
    assert (await router.route(["touch", "made"], cwd=tmp_path)).result.exit_code == 1
    assert (await router.route("cat file", cwd=tmp_path)).result.text() == "text"
    assert not (tmp_path / "made").exists()


async def test_the_callers_spec_is_the_box(tmp_path: Path) -> None:
    spec = SandboxSpec.read_only(tmp_path, limits=Limits(max_output_bytes=4))
    routed = await AutoSandboxRouter().route("touch made; echo 123456", spec=spec, cwd=tmp_path)
    assert routed.result.stdout == b"1234"
    assert routed.result.truncated
    assert not (tmp_path / "made").exists()


async def test_a_text_runs_as_bash_reads_it(tmp_path: Path) -> None:
    script = "printf '%s|' {1..3} $((2+2)) \"$0\"; cat <<< here | tr a-z A-Z"
    routed = await AutoSandboxRouter().route(script, cwd=tmp_path)
    assert routed.result.text().split("|")[:4] == ["1", "2", "3", "4"]
    assert routed.result.text().endswith("HERE\n")


async def test_plain_words_and_lists_reach_no_shell(tmp_path: Path) -> None:
    router = AutoSandboxRouter()
    assert (await router.route(["printf", "%s", "$HOME; `id` *"], cwd=tmp_path)).result.text() == "$HOME; `id` *"
    assert (await router.route("printf %s '$HOME; `id` *'", cwd=tmp_path)).result.text() == "$HOME; `id` *"


async def test_without_bash_a_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxkit.backends._shell._FOLDERS", ("/nowhere",))
    router = AutoSandboxRouter()
    with pytest.raises(ProgramNotFoundError, match="install bash"):
        await router.route("echo a; touch made", cwd=tmp_path)
    assert [event["outcome"] for event in events(router)] == ["refused"]
    assert (await router.explain("echo a; echo b", cwd=tmp_path)).refusals.keys() == {"program"}


async def test_input_output_and_codes(tmp_path: Path) -> None:
    result = (await AutoSandboxRouter().route("cat; echo err >&2; exit 3", stdin=b"in", cwd=tmp_path)).result
    assert (result.stdout, result.stderr, result.exit_code) == (b"in", b"err\n", 3)


async def test_no_input_is_an_empty_input(tmp_path: Path) -> None:
    assert (await AutoSandboxRouter().route(["cat"], cwd=tmp_path)).result.stdout == b""


@pytest.mark.parametrize("bound", ["timeout", "rule", "spec"])
async def test_the_smallest_deadline_counts(tmp_path: Path, bound: str) -> None:
    rule = {"id": "user.sleep", "action": "sandbox", "prefix": ["sleep"], "constraints": {"max_timeout": 0.3}}
    router = AutoSandboxRouter(policy=ExecPolicy.from_dict({"rules": [rule] if bound == "rule" else []}))
    spec = SandboxSpec.read_only(tmp_path, limits=Limits(wall=0.3 if bound == "spec" else 30))
    started = time.monotonic()
    routed = await router.route(["sleep", "20"], spec=spec, cwd=tmp_path, timeout=0.3 if bound == "timeout" else 25)
    assert routed.result.termination is Termination.TIMED_OUT
    assert time.monotonic() - started < 10


async def test_only_listed_variables_are_passed_on(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.write_text("echo trapped")
    environ = {
        "PATH": os.environ["PATH"],
        "SECRET": "hunter2",
        "LC_ALL": "C",
        "BASH_ENV": str(trap),
        "ENV": str(trap),
        "BASH_FUNC_echo%%": "() { printf trapped; }",
    }
    router = AutoSandboxRouter(policy=policy(env="sandbox", printenv="sandbox"), environ=environ)
    spec = SandboxSpec.workspace_write(tmp_path, environment=EnvironmentPolicy(inherit=("*",)))
    plain = (await router.route(["env"], cwd=tmp_path)).result.text()
    assert "SECRET" not in plain
    assert "LC_ALL=C" in plain
    everything = (await router.route("echo hi; env", spec=spec, cwd=tmp_path)).result.text()
    assert everything.startswith("hi\n")
    assert "SECRET=hunter2" in everything
    assert "trap" not in everything


async def test_a_callers_environment_is_taken_when_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    router = AutoSandboxRouter(policy=policy(env="sandbox", printenv="sandbox"))
    monkeypatch.setenv("LC_TEST", "now")
    assert "LC_TEST=now" in (await router.route(["env"], cwd=tmp_path)).result.text()


# -- without a box --


async def test_a_tool_that_opens_nothing_runs_direct(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    router = AutoSandboxRouter()
    routed = await router.route("ls", cwd=tmp_path)
    assert (routed.mode, routed.backend, routed.result.text()) == ("direct", "direct", "file\n")
    assert {control for control, _ in routed.enforcement} == {
        Control.ENV,
        Control.LIMITS_CPU,
        Control.LIMITS_FILE_SIZE,
        Control.LIMITS_MEMORY,
        Control.LIMITS_OUTPUT,
        Control.LIMITS_WALL,
    }
    assert [event["mode"] for event in events(router) if event["kind"] == "decided"] == ["direct"]
    assert not router.should_sandbox("ls", cwd=tmp_path).sandbox


async def test_with_a_spec_nothing_runs_direct(tmp_path: Path) -> None:
    routed = await AutoSandboxRouter().route("ls", spec=SandboxSpec.read_only(tmp_path), cwd=tmp_path)
    assert routed.mode == "sandbox"


@pytest.mark.parametrize("command", ["ls > made", "ls; pwd", "ls $HOME", "./ls", "/tmp/ls"])
async def test_only_plain_trusted_tools_run_direct(tmp_path: Path, command: str) -> None:
    (tmp_path / "ls").write_text("#!/bin/sh\necho fake\n")
    (tmp_path / "ls").chmod(0o755)
    assert AutoSandboxRouter().should_sandbox(command, cwd=tmp_path).sandbox


async def test_a_program_planted_on_path_is_not_the_trusted_one(tmp_path: Path) -> None:
    (tmp_path / "ls").write_text("#!/bin/sh\necho fake\n")
    (tmp_path / "ls").chmod(0o755)
    router = AutoSandboxRouter(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    routed = await router.route("ls", cwd=tmp_path)
    assert (routed.mode, routed.result.text()) == ("direct", "ls\n")


async def test_a_tool_that_is_not_where_it_is_trusted_runs_boxed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "trusted_program", lambda program: None)
    assert (await AutoSandboxRouter().route("ls", cwd=tmp_path)).mode == "sandbox"


async def test_a_rule_with_a_spec_keeps_a_tool_in_its_box(tmp_path: Path) -> None:
    rule = PolicyRule.model_validate(
        {"id": "user.ls", "action": "allow", "prefix": ["ls"], "spec": {"limits": {"wall": 5}}}
    )
    router = AutoSandboxRouter(policy=ExecPolicy.from_dict({"rules": [rule]}))
    assert router.should_sandbox("ls", cwd=tmp_path).sandbox
    assert (await router.route("ls", cwd=tmp_path)).mode == "sandbox"


# -- what is refused --


@pytest.mark.parametrize("command", ["rm -rf /", ["rm", "-rf", "/"], "x" * 20_000])
async def test_a_denied_command_does_not_run(command: Any, tmp_path: Path) -> None:
    router = AutoSandboxRouter()
    with pytest.raises(CommandDeniedError) as caught:
        await router.route(command, cwd=tmp_path)
    assert caught.value.evaluation.action is PolicyAction.DENY
    assert [(event["kind"], event["outcome"]) for event in events(router)] == [("decided", "denied")]
    assert router.should_sandbox(command, cwd=tmp_path).action is PolicyAction.DENY
    assert (await router.explain(command, cwd=tmp_path)).mode == "refused"


async def test_a_question_without_anybody_to_ask_is_a_no(tmp_path: Path) -> None:
    router = AutoSandboxRouter(policy=policy(touch="ask"))
    with pytest.raises(ApprovalError, match="nobody to ask"):
        await router.route("touch made", cwd=tmp_path)
    assert not (tmp_path / "made").exists()
    assert [event["outcome"] for event in events(router)] == ["not approved"]


async def test_what_is_approved_runs_boxed(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> ApprovalReply:
        asked.append(request)
        return yes(request)

    router = AutoSandboxRouter(policy=policy(touch="ask"), approver=CallbackApprover(approve))
    routed = await router.route("touch made", cwd=tmp_path)
    assert routed.mode == "sandbox"
    assert (tmp_path / "made").exists()
    (request,) = asked
    spec = SandboxSpec.workspace_write(tmp_path)
    assert (request.evaluation, request.cwd, request.spec) == (routed.evaluation, os.path.realpath(tmp_path), spec)
    assert (request.command, request.offer.mode, request.offer.remember) == ("touch made", "sandbox", ("once",))
    assert [match.rule_id for match in request.reasons] == ["user.touch"]
    assert request.offer.grant
    assert request.offer.grant.spec == spec
    assert events(router)[0]["approval"] == {
        "approved": True,
        "digest": request.offer.grant.digest,
        "reason": "looks right",
        "origin": "asked",
        "remember": "once",
    }


async def test_an_approval_is_bounded_in_time(tmp_path: Path) -> None:
    async def slow(request: ApprovalRequest) -> ApprovalReply:
        await anyio.sleep(30)
        return yes(request)

    router = AutoSandboxRouter(policy=policy(touch="ask"), approver=CallbackApprover(slow), approval_timeout=0.05)
    with pytest.raises(ApprovalError, match="nobody answered"):
        await router.route("touch made", cwd=tmp_path)


async def test_a_program_that_changes_under_the_approvers_eyes_does_not_run(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho good\n")
    tool.chmod(0o755)

    def swap(request: ApprovalRequest) -> ApprovalReply:
        tool.write_text("#!/bin/sh\necho bad > made\n")
        return yes(request)

    router = AutoSandboxRouter(policy=ExecPolicy.empty(PolicyAction.ASK), approver=CallbackApprover(swap))
    with pytest.raises(ApprovalError, match="changed while approval was awaited; ask again"):
        await router.route(["./tool"], cwd=tmp_path)
    assert not (tmp_path / "made").exists()


async def test_rules_that_change_under_the_approvers_eyes_ask_again(tmp_path: Path) -> None:
    rules = policy(touch="ask")

    def forbid(request: ApprovalRequest) -> ApprovalReply:
        rules.update_rule("user.touch", action="deny")
        return yes(request)

    router = AutoSandboxRouter(policy=rules, approver=CallbackApprover(forbid))
    with pytest.raises(ApprovalError, match="changed while approval was awaited"):
        await router.route("touch made", cwd=tmp_path)
    assert not (tmp_path / "made").exists()


async def test_a_directory_that_is_swapped_under_the_approvers_eyes_asks_again(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "link").symlink_to("one")

    def swap(request: ApprovalRequest) -> ApprovalReply:
        assert request.cwd.endswith("/one")
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("two")
        return yes(request)

    router = AutoSandboxRouter(policy=policy(touch="ask"), approver=CallbackApprover(swap))
    await router.route("touch made", cwd=tmp_path / "link")
    assert (tmp_path / "one" / "made").exists()
    assert not (tmp_path / "two" / "made").exists()


async def test_without_a_backend_nothing_runs(tmp_path: Path) -> None:
    router = AutoSandboxRouter(registry=unavailable())
    with pytest.raises(NoBackendError) as caught:
        await router.route("touch made", cwd=tmp_path)
    assert caught.value.reasons == {
        "one": "user namespaces are off; set kernel.unprivileged_userns_clone=1",
        "two": "no daemon; start docker",
    }
    assert not (tmp_path / "made").exists()
    assert [(event["kind"], event["outcome"]) for event in events(router)] == [("decided", "refused")]
    assert (await router.explain("touch made", cwd=tmp_path)).refusals == caught.value.reasons


async def test_what_no_backend_enforces_does_not_run(tmp_path: Path) -> None:
    registry = SandboxRegistry()
    registry.register(RawBwrap(claim=only(limits_memory=Grade.PARTIAL)))
    router = AutoSandboxRouter(registry=registry)
    spec = SandboxSpec.workspace_write(tmp_path, limits=Limits(memory_bytes=1 << 30))
    with pytest.raises(EnforcementError, match=r"limits\.memory is partial, enforced is required"):
        await router.route("touch made", spec=spec, cwd=tmp_path)
    assert not (tmp_path / "made").exists()


async def test_a_box_that_leaks_is_not_used(tmp_path: Path) -> None:
    registry = SandboxRegistry()
    registry.register(RawBwrap(frozenset({"net"})))
    with pytest.raises(EnforcementError, match="the attack connected to a listener"):
        await AutoSandboxRouter(registry=registry).route("touch made", cwd=tmp_path)
    degraded = SandboxSpec.workspace_write(tmp_path, allow_degraded=frozenset({Control.NET_NONE}))
    routed = await AutoSandboxRouter(registry=registry).route("touch made", spec=degraded, cwd=tmp_path)
    assert routed.enforcement.grade(Control.NET_NONE) is Grade.ABSENT


class BrokenPolicy:
    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def evaluate(self, command: Any, *, context: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize("command", ["touch made", ["touch", "made"]])
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (RecursionError("deep"), "the policy failed (RecursionError: deep)"),
        (KeyError("rule"), "the policy failed (KeyError: 'rule')"),
        (None, "the policy answered with NoneType"),
        (PolicyAction.ALLOW, "the policy answered with PolicyAction"),
    ],
)
async def test_a_policy_that_fails_denies(tmp_path: Path, command: Any, answer: Any, says: str) -> None:
    broken: Any = BrokenPolicy(answer)
    router = AutoSandboxRouter(policy=broken)
    with pytest.raises(CommandDeniedError) as caught:
        await router.route(command, cwd=tmp_path)
    assert says in str(caught.value)
    assert not (tmp_path / "made").exists()
    assert [event["outcome"] for event in events(router)] == ["denied"]


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"command": ""}, CommandError, "empty"),
    ({"command": []}, CommandError, "empty"),
    ({"command": None}, CommandError, "NoneType"),
    ({"command": 3}, CommandError, "int"),
    ({"command": b"ls"}, CommandError, "bytes"),
    ({"command": ["ls", 3]}, CommandError, "item 1"),
    ({"command": "ls\0"}, CommandError, "NUL"),
    ({"stdin": "text"}, CommandError, "its input is of type str; give bytes"),
    ({"cwd": "/nowhere/at/all"}, SpecError, "does not exist; create it"),
    ({"cwd": "/etc/passwd"}, SpecError, "is no directory"),
    ({"cwd": "a\0b"}, SpecError, "NUL"),
    ({"cwd": ""}, SpecError, "cwd"),
    ({"cwd": 3}, SpecError, "cwd is of type int"),
    ({"timeout": 0}, SpecError, "positive number of seconds"),
    ({"timeout": -1}, SpecError, "positive number of seconds"),
    ({"timeout": float("inf")}, SpecError, "positive number of seconds"),
    ({"timeout": float("nan")}, SpecError, "positive number of seconds"),
    ({"timeout": True}, SpecError, "positive number of seconds"),
    ({"timeout": "5"}, SpecError, "positive number of seconds"),
    ({"spec": {"network": "host"}}, SpecError, "give a SandboxSpec"),
]


@pytest.mark.parametrize(("fields", "kind", "says"), WRONG)
async def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], kind: type[Exception], says: str) -> None:
    given = {"command": "ls", **fields}
    with pytest.raises(kind, match=says):
        await AutoSandboxRouter().route(given.pop("command"), **given)


async def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SpecError, match="cwd"):
        await AutoSandboxRouter().route("ls")


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_an_approval_timeout_bounds(timeout: float) -> None:
    with pytest.raises(ValueError, match="positive number"):
        AutoSandboxRouter(approval_timeout=timeout)


class Failing(RawBox):
    async def run(self, *args: Any, **kwargs: Any) -> Any:
        if "touch" not in args[0]:
            return await super().run(*args, **kwargs)
        raise ZeroDivisionError("oops")


class Silent(RawBox):
    async def run(self, *args: Any, **kwargs: Any) -> Any:
        return None if "touch" in args[0] else await super().run(*args, **kwargs)


@pytest.mark.parametrize(
    ("kind", "says"), [(Failing, "it raised ZeroDivisionError: oops"), (Silent, r"run\(\) returned NoneType")]
)
async def test_a_backend_that_breaks_in_a_run_is_named(tmp_path: Path, kind: type[RawBox], says: str) -> None:
    registry = SandboxRegistry()
    registry.register(RawBwrap(box=kind))
    router = AutoSandboxRouter(registry=registry)
    with pytest.raises(PluginError, match=says):
        await router.route("touch made", cwd=tmp_path)
    assert [event["outcome"] for event in events(router)] == ["run", "failed"]


# -- isolation switched off --


def test_isolation_cannot_be_switched_off_by_default() -> None:
    router = AutoSandboxRouter()
    with pytest.raises(IsolationError, match="make the router with may_disable=True"):
        router.set_enabled(False)
    with pytest.raises(IsolationError):
        AutoSandboxRouter(enabled=False)
    router.set_enabled(True)
    assert router.enabled


@pytest.mark.parametrize(
    "name", ["SANDBOXKIT_ENABLED", "AUTO_SANDBOX", "SANDBOXKIT_DISABLE", "CODEBUDDY_AUTO_SANDBOX_FAIL_CLOSED"]
)
async def test_no_variable_weakens_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for value in ("0", "false", "1"):
        monkeypatch.setenv(name, value)
        router = AutoSandboxRouter()
        assert router.enabled
        assert router.should_sandbox("npm install", cwd=tmp_path).sandbox


async def test_switched_off_decisions_still_hold(tmp_path: Path) -> None:
    router = AutoSandboxRouter(policy=policy(touch="ask"), may_disable=True, enabled=False)
    with pytest.raises(CommandDeniedError, match="removes the system"):
        await router.route("rm -rf /", cwd=tmp_path)
    with pytest.raises(ApprovalError, match="nobody to ask"):
        await router.route("touch made", cwd=tmp_path)
    with pytest.raises(IsolationError, match="the spec of this command cannot be kept"):
        await router.route("make", spec=SandboxSpec.workspace_write(tmp_path), cwd=tmp_path)
    assert [event["outcome"] for event in events(router)] == ["denied", "not approved", "refused"]
    explained = await router.explain("make", spec=SandboxSpec.workspace_write(tmp_path), cwd=tmp_path)
    assert explained.refusals.keys() == {"isolation"}


async def test_switched_off_runs_are_recorded_as_such(tmp_path: Path) -> None:
    router = AutoSandboxRouter(registry=unavailable(), may_disable=True)
    router.set_enabled(False)
    advice = router.should_sandbox("make", cwd=tmp_path)
    assert (advice.sandbox, advice.reason) == (False, "isolation is switched off by the application")
    routed = await router.route(f"echo hi > {tmp_path}/made; echo $0", cwd="/")
    assert (routed.mode, routed.backend) == ("unsandboxed", "direct")
    assert (tmp_path / "made").read_text() == "hi\n"
    assert routed.enforcement.grade(Control.FS_WRITE) is Grade.ABSENT
    assert [event.get("mode") for event in events(router)] == ["unsandboxed", None]
    assert router.should_sandbox("rm -rf /", cwd=tmp_path).sandbox
    router.set_enabled(True)
    with pytest.raises(NoBackendError):
        await router.route("make", cwd=tmp_path)


async def test_switched_off_a_program_is_found_on_path(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho found\n")
    (tmp_path / "tool").chmod(0o755)
    router = AutoSandboxRouter(environ={"PATH": f"{tmp_path}:/bin"}, may_disable=True, enabled=False)
    assert (await router.route(["tool"], cwd="/")).result.text() == "found\n"
    assert (await router.route(["./tool"], cwd=tmp_path)).result.text() == "found\n"
    with pytest.raises(ProgramNotFoundError, match="'nothing'"):
        await router.route(["nothing"], cwd="/")


async def test_switched_off_an_approved_command_runs(tmp_path: Path) -> None:
    router = AutoSandboxRouter(
        policy=policy(touch="ask"), approver=CallbackApprover(yes), may_disable=True, enabled=False
    )
    assert (await router.route("touch made", cwd=tmp_path)).mode == "unsandboxed"
    assert (tmp_path / "made").exists()


# -- rules that say more --


async def test_a_rules_spec_bounds_the_box(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("hunter2")
    deny = {"filesystem": {"deny": [os.path.realpath(tmp_path / "secret")]}}
    rules = ExecPolicy.from_dict({"rules": [{"id": "user.cat", "action": "sandbox", "prefix": ["cat"], "spec": deny}]})
    for spec in (None, SandboxSpec.workspace_write(tmp_path)):
        routed = await AutoSandboxRouter(policy=rules).route("cat secret/key", spec=spec, cwd=tmp_path)
        assert "hunter2" not in routed.result.text()
        assert routed.result.exit_code == 1


async def test_a_rule_may_open_the_network_where_the_caller_said_nothing(tmp_path: Path) -> None:
    online = {"network": {"mode": "host"}}
    rules = ExecPolicy.from_dict(
        {"rules": [{"id": "user.readlink", "action": "sandbox", "prefix": ["readlink"], "spec": online}]}
    )
    router = AutoSandboxRouter(policy=rules)
    command = ["readlink", "/proc/self/ns/net"]
    own = (await router.route(command, spec=SandboxSpec.workspace_write(tmp_path), cwd=tmp_path)).result.text().strip()
    hosts = (await router.route(command, cwd=tmp_path)).result.text().strip()
    assert hosts == os.readlink("/proc/self/ns/net") != own
    online_spec = SandboxSpec.workspace_write(tmp_path, network=NetworkPolicy(mode="host"))
    assert (await router.explain(command, spec=online_spec, cwd=tmp_path)).spec.network.mode == "host"


async def test_two_routers_do_not_meet(tmp_path: Path) -> None:
    strict = AutoSandboxRouter(policy=policy(touch="deny"))
    loose = AutoSandboxRouter(policy=policy(touch="sandbox"))
    refused: list[str] = []

    async def denied(number: int) -> None:
        with pytest.raises(CommandDeniedError):
            await strict.route(f"touch strict{number}", cwd=tmp_path)
        refused.append("x")

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(denied, number)
            tasks.start_soon(_touch, loose, tmp_path, number)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"loose{number}" for number in range(6)]
    assert len(refused) == 6
    strict.policy.update_rule("user.touch", action="ask")
    assert loose.should_sandbox("touch a", cwd=tmp_path).action is PolicyAction.SANDBOX
    assert len(events(strict)) == 6
    assert len(events(loose)) == 12


async def _touch(router: AutoSandboxRouter, cwd: Path, number: int) -> None:
    (await router.route(f"touch loose{number}", cwd=cwd)).result.check()


# -- explaining, and the short ways --


async def test_an_explanation_is_complete_and_runs_nothing(tmp_path: Path) -> None:
    router = AutoSandboxRouter()
    found = await router.explain("touch made", cwd=tmp_path)
    assert (found.mode, found.backend, found.refusals) == ("sandbox", "bubblewrap", {})
    assert found.plan
    assert found.plan.confinement
    assert found.plan.confinement.argv == ("touch", "made")
    assert found.plan.confinement.cwd == os.path.realpath(tmp_path)
    assert found.enforcement
    assert found.spec == SandboxSpec.workspace_write(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert events(router) == []
    assert json.loads(json.dumps(found.to_dict()))["plan"]["command"] == ["touch", "made"]


async def test_an_explanation_of_a_text_shows_the_bash_that_runs(tmp_path: Path) -> None:
    found = await AutoSandboxRouter().explain("echo a | cat", cwd=tmp_path)
    assert found.plan
    assert found.plan.confinement
    assert found.plan.confinement.argv[1:] == ("--noprofile", "--norc", "-c", "--", "echo a | cat")


async def test_an_explanation_of_a_direct_run(tmp_path: Path) -> None:
    found = await AutoSandboxRouter().explain("ls", cwd=tmp_path)
    assert (found.mode, found.backend) == ("direct", "direct")
    assert found.plan
    assert found.plan.argv[0].endswith("/ls")
    assert found.plan.argv[0].startswith("/")


async def test_an_explanation_of_a_question_shows_the_box_it_would_get(tmp_path: Path) -> None:
    found = await AutoSandboxRouter(policy=policy(touch="ask")).explain("touch made", cwd=tmp_path)
    assert (found.mode, found.evaluation.action) == ("sandbox", PolicyAction.ASK)


async def test_an_explanation_shows_no_variables_value(tmp_path: Path) -> None:
    spec = SandboxSpec.workspace_write(tmp_path, environment=EnvironmentPolicy(set={"TOKEN": "hunter2"}))
    found = await AutoSandboxRouter().explain("make", spec=spec, cwd=tmp_path)
    assert "hunter2" not in json.dumps(found.to_dict())
    assert "hunter2" not in str(found.plan and found.plan.describe())


async def test_run_uses_one_router_of_the_process(tmp_path: Path) -> None:
    assert default_router() is default_router()
    before = len(events(default_router()))
    result = await run("echo hi; pwd", cwd=tmp_path)
    assert result.text() == f"hi\n{os.path.realpath(tmp_path)}\n"
    assert len(events(default_router())) == before + 2


async def test_run_uses_the_router_it_is_given(tmp_path: Path) -> None:
    router = AutoSandboxRouter(policy=policy(touch="deny"))
    with pytest.raises(CommandDeniedError):
        await run("touch made", router=router, cwd=tmp_path)


async def test_a_session_asks_no_policy(tmp_path: Path) -> None:
    async with open_sandbox(SandboxSpec.workspace_write(tmp_path)) as box:
        assert (await box.run(["rm", "-rf", "/"])).exit_code != 0
        assert (await box.run(["touch", "made"], cwd=str(tmp_path))).ok
    assert (tmp_path / "made").exists()


async def test_a_session_takes_a_registry(tmp_path: Path) -> None:
    with pytest.raises(NoBackendError):
        async with open_sandbox(SandboxSpec.isolated(), registry=unavailable()):
            pytest.fail("it opened")


async def test_advice_has_no_side_effects(tmp_path: Path) -> None:
    router = AutoSandboxRouter(registry=unavailable())
    assert router.should_sandbox("npm install", cwd=tmp_path).sandbox
    assert router.evaluate("npm install", cwd=tmp_path).action is PolicyAction.SANDBOX
    assert events(router) == []


# -- explained --


async def test_a_refusal_is_explained_and_recorded(tmp_path: Path) -> None:
    router = AutoSandboxRouter()
    spec = SandboxSpec.read_only(tmp_path)
    result = (await router.route("touch made", spec=spec, cwd=tmp_path, explain=True)).result
    assert (result.explained, result.explain_gap) == (True, "")
    (found,) = result.violations
    assert (found.kind, found.target, found.spec_line) == (
        "write",
        f"{tmp_path.resolve()}/made",
        f'filesystem.write = ["{tmp_path.resolve()}"]',
    )
    assert json.loads(json.dumps(result.to_dict()))["violations"] == [found.to_dict()]
    assert [event["violations"] for event in events(router) if event["kind"] == "finished"] == [
        [f"write {found.target}"]
    ]


async def test_without_a_box_there_is_nothing_to_explain(tmp_path: Path) -> None:
    routed = await AutoSandboxRouter().route("ls", cwd=tmp_path, explain=True)
    assert (routed.mode, routed.result.explained) == ("direct", False)
    assert "without a box" in routed.result.explain_gap


async def test_a_backend_that_cannot_explain_is_named(tmp_path: Path) -> None:
    registry = SandboxRegistry()
    registry.register(RawBwrap())
    router = AutoSandboxRouter(registry=registry)
    spec = SandboxSpec.read_only(tmp_path, allow_degraded=frozenset(Control))
    result = (await router.route("touch made", spec=spec, cwd=tmp_path, explain=True)).result
    assert (result.explained, result.violations) == (False, ())
    assert result.explain_gap == "backend 'raw-bwrap' does not say what it refuses"
