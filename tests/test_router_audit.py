"""
Two records a run, and no run without the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.audit import JsonlAudit, MemoryAudit, verify
from sandboxkit.errors import AuditError, CommandDeniedError, NoBackendError, SpecError
from sandboxkit.model import AuditEvent, EnvironmentPolicy, FilesystemPolicy, NetworkPolicy, SandboxSpec
from sandboxkit.policy import ExecPolicy
from sandboxkit.router import AutoSandboxRouter
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap")]


class Sink:
    """
    Takes the records of the kinds it is told to, and fails on others.
    """

    def __init__(self, *fails: str, error: Exception | None = None) -> None:
        self._fails = fails
        self._error = error or AuditError("sink", "No space left on device")
        self.kept: list[AuditEvent] = []

    @property
    def name(self) -> str:
        return "sink"

    def write(self, event: AuditEvent) -> None:
        if event.kind in self._fails:
            raise self._error
        self.kept.append(event)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_run_leaves_two_records(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    work = tmp_path / "work"
    work.mkdir()
    router = AutoSandboxRouter(audit=JsonlAudit(log))
    await router.route("touch made; echo hi; exit 3", cwd=work, stdin=b"in")
    first, second = lines(log)
    assert first["run_id"] == second["run_id"]
    assert (first["kind"], second["kind"]) == ("decided", "finished")
    assert {key: first[key] for key in ("command", "cwd", "action", "outcome", "mode", "backend")} == {
        "command": "touch made; echo hi; exit 3",
        "cwd": str(work.resolve()),
        "action": "sandbox",
        "outcome": "run",
        "mode": "sandbox",
        "backend": "bubblewrap",
    }
    assert first["rules_digest"] == router.policy.rules_digest
    assert first["spec"] == {"filesystem": {"write": [str(work.resolve())]}}
    assert {key: second[key] for key in ("outcome", "exit_code", "termination", "stdout_bytes", "truncated")} == {
        "outcome": "finished",
        "exit_code": 3,
        "termination": "exited",
        "stdout_bytes": 3,
        "truncated": False,
    }
    assert second["max_rss_bytes"] > 0
    assert verify(log) == 2


async def test_records_are_masked_and_bounded(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    sink = JsonlAudit(log, secrets=SecretRegistry({"DB": "hunter2"}), max_field_chars=200)
    spec = SandboxSpec.workspace_write(tmp_path, environment=EnvironmentPolicy(set={"KEY": "other-secret"}))
    command = ["printf", "%s", "hunter2", "ghp_" + "a1" * 18, "x" * 5000]
    await AutoSandboxRouter(audit=sink).route(command, spec=spec, cwd=tmp_path)
    text = log.read_text()
    for secret in ("hunter2", "ghp_", "other-secret", "x" * 300):
        assert secret not in text
    assert "KEY" in text
    assert lines(log)[0]["command"].startswith("printf %s ⟦DB⟧ ⟦github-token⟧ xxx")


async def test_a_run_that_cannot_be_recorded_is_refused(tmp_path: Path) -> None:
    router = AutoSandboxRouter(audit=Sink("decided"))
    with pytest.raises(AuditError, match="No space left on device; free the disk"):
        await router.route("touch made", cwd=tmp_path)
    assert not (tmp_path / "made").exists()


async def test_unless_the_application_says_otherwise(tmp_path: Path) -> None:
    router = AutoSandboxRouter(audit=Sink("decided", "finished"), audit_required=False)
    assert (await router.route("touch made", cwd=tmp_path)).result.ok
    assert (tmp_path / "made").exists()


async def test_whatever_a_sink_raises_refuses_the_run(tmp_path: Path) -> None:
    router = AutoSandboxRouter(audit=Sink("decided", error=KeyError("column")))
    with pytest.raises(AuditError, match=r"audit sink sink: KeyError: 'column'"):
        await router.route("touch made", cwd=tmp_path)
    assert not (tmp_path / "made").exists()


async def test_an_end_that_cannot_be_recorded_keeps_the_result(tmp_path: Path) -> None:
    router = AutoSandboxRouter(audit=Sink("finished"))
    with pytest.raises(
        AuditError, match="the command has run and exited with code 0, and this could not be recorded"
    ) as caught:
        await router.route("echo hi; touch made", cwd=tmp_path)
    assert caught.value.result
    assert caught.value.result.text() == "hi\n"
    assert (tmp_path / "made").exists()


async def test_a_denial_that_cannot_be_recorded_is_still_a_denial(tmp_path: Path) -> None:
    router = AutoSandboxRouter(audit=Sink("decided"))
    with pytest.raises(CommandDeniedError) as caught:
        await router.route("rm -rf /", cwd=tmp_path)
    assert "No space left" in "".join(caught.value.__notes__)


_LIMITED = """
import resource, sys
import anyio
import sandboxkit as sk

router = sk.AutoSandboxRouter(audit=sk.JsonlAudit(sys.argv[1]))

async def main():
    await router.route("touch one", cwd=sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
    try:
        await router.route("touch two", cwd=sys.argv[2])
    except sk.AuditError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await router.route("touch three", cwd=sys.argv[2])

anyio.run(main)
"""


def test_a_disk_that_is_full_refuses_and_loses_nothing(tmp_path: Path) -> None:
    log, work = tmp_path / "audit.jsonl", tmp_path / "work"
    work.mkdir()
    sizing = tmp_path / "sizing.jsonl"
    anyio.run(lambda: AutoSandboxRouter(audit=JsonlAudit(sizing)).route("touch one", cwd=work))
    room = sizing.stat().st_size + 200
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, log, work, str(room)], capture_output=True, text=True, check=True
    )
    assert "File too large" in done.stdout or "bytes fitted" in done.stdout
    assert sorted(path.name for path in work.iterdir()) == ["one", "three"]
    assert verify(log) == 4


async def test_a_cancelled_run_is_recorded(tmp_path: Path) -> None:
    sink = MemoryAudit()
    router = AutoSandboxRouter(audit=sink)
    with anyio.move_on_after(0.5) as scope:
        await router.route(["sleep", "30"], cwd=tmp_path)
    assert scope.cancelled_caught
    assert [event.fields["outcome"] for event in sink.events()] == ["run", "cancelled"]


async def test_a_cancelled_decision_is_recorded(tmp_path: Path) -> None:
    from sandboxkit.approval import CallbackApprover
    from sandboxkit.model import ApprovalReply, ApprovalRequest, PolicyAction

    async def slow(request: ApprovalRequest) -> ApprovalReply:
        await anyio.sleep(30)
        return ApprovalReply(approved=True)

    sink = MemoryAudit()
    router = AutoSandboxRouter(policy=ExecPolicy.empty(PolicyAction.ASK), approver=CallbackApprover(slow), audit=sink)
    with anyio.move_on_after(0.1) as scope:
        await router.route("touch made", cwd=tmp_path)
    assert scope.cancelled_caught
    assert [event.fields["outcome"] for event in sink.events()] == ["cancelled"]
    assert not (tmp_path / "made").exists()


async def test_a_run_that_fails_to_start_is_recorded(tmp_path: Path) -> None:
    sink = MemoryAudit()
    with pytest.raises(FileNotFoundError):
        await AutoSandboxRouter(audit=sink).route(["no-such-program"], cwd=tmp_path)
    run, end = sink.events()
    assert run.fields["outcome"] == "run"
    assert end.fields["outcome"] == "failed"
    assert end.fields["error"].startswith("ProgramNotFoundError")


async def test_a_spec_that_is_wrong_is_recorded(tmp_path: Path) -> None:
    sink = MemoryAudit()
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(tmp_path / "nothing"),)))
    with pytest.raises(SpecError):
        await AutoSandboxRouter(audit=sink).route("make", spec=spec, cwd=tmp_path)
    assert [event.fields["outcome"] for event in sink.events()] == ["refused"]


async def test_the_records_are_out_of_a_boxs_reach(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    router = AutoSandboxRouter(audit=JsonlAudit(log))
    attacks = [
        "echo '{}' >> audit.jsonl",
        "truncate -s 0 audit.jsonl",
        "rm -f audit.jsonl",
        "mv audit.jsonl other",
        "chmod 666 audit.jsonl",
        "cp /dev/null audit.jsonl",
        "ln audit.jsonl linked && echo bad >> linked",
    ]
    for attack in attacks:
        result = (await router.route(f"{attack}; touch seen", cwd=tmp_path)).result
        assert result.stderr, attack
    assert verify(log) == 2 * len(attacks)
    assert (log.stat().st_mode & 0o777) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.jsonl", "seen"]
    explained = await router.explain("make", cwd=tmp_path)
    assert explained.spec.filesystem.read == (str(log.resolve()),)


async def test_the_directory_of_the_records_stays_in_place(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "deep" / "audit.jsonl"
    log.parent.mkdir(parents=True)
    router = AutoSandboxRouter(audit=JsonlAudit(log))
    for attack in ("mv logs other", "mv logs/deep logs/other", "rm -rf logs"):
        assert not (await router.route(["bash", "-c", attack], cwd=tmp_path)).result.ok
    assert (await router.route("touch logs/deep/beside", cwd=tmp_path)).result.ok
    assert verify(log) == 8


async def test_without_the_router_the_same_acts_succeed(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    JsonlAudit(log)
    result = (await AutoSandboxRouter().route("echo '{}' >> audit.jsonl; mv audit.jsonl other", cwd=tmp_path)).result
    assert result.ok
    assert (tmp_path / "other").read_text() == "{}\n"


async def test_a_spec_that_names_the_records_themselves_does_not_open_them(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    router = AutoSandboxRouter(audit=JsonlAudit(log))
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=(str(tmp_path.resolve()), str(log.resolve()))))
    result = (await router.route("echo '{}' >> audit.jsonl", spec=spec, cwd=tmp_path)).result
    assert not result.ok
    assert verify(log) == 2


async def test_without_a_backend_the_refusal_is_recorded(tmp_path: Path) -> None:
    from sandboxkit.backends import SandboxRegistry

    sink = MemoryAudit()
    with pytest.raises(NoBackendError):
        await AutoSandboxRouter(registry=SandboxRegistry(), audit=sink).route("make", cwd=tmp_path)
    (event,) = sink.events()
    assert event.fields["outcome"] == "refused"
    assert event.fields["error"].startswith("NoBackendError")


async def test_connections_of_a_box_with_listed_hosts_are_recorded(tmp_path: Path) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    log, secrets = tmp_path / "audit.jsonl", SecretRegistry({"DB": "hunter2-hunter2"})
    spec = SandboxSpec.isolated(network=NetworkPolicy(mode="listed"))
    router = AutoSandboxRouter(policy=ExecPolicy.empty(), audit=JsonlAudit(log, secrets=secrets))
    await router.route("curl -sS http://a.example/hunter2-hunter2", spec=spec)
    first, second, third = lines(log)
    assert [record["kind"] for record in (first, second, third)] == ["decided", "egress", "finished"]
    assert len({record["run_id"] for record in (first, second, third)}) == 1
    assert (second["action"], second["code"], second["protocol"]) == ("deny", "default", "http")
    assert "hunter2" not in json.dumps(second)
    assert "destination" in second["masked"]
    assert third["connections"] == 1
    assert verify(log) == 3


async def test_of_many_connections_the_first_are_recorded_and_all_are_counted() -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    audit = MemoryAudit()
    spec = SandboxSpec.isolated(network=NetworkPolicy(mode="listed"))
    urls = " ".join(f"http://h{number}.example/" for number in range(230))
    await AutoSandboxRouter(policy=ExecPolicy.empty(), audit=audit).route(f"curl -sS {urls}", spec=spec)
    kinds = [event.kind for event in audit.events()]
    assert kinds == ["decided", *["egress"] * 200, "finished"]
    assert audit.events()[-1].fields["connections"] == 230


async def test_a_connection_that_cannot_be_recorded_is_an_error_with_the_result() -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    spec = SandboxSpec.isolated(network=NetworkPolicy(mode="listed"))
    with pytest.raises(AuditError) as caught:
        await AutoSandboxRouter(policy=ExecPolicy.empty(), audit=Sink("egress")).route(
            "curl -sS http://a.example/", spec=spec
        )
    assert caught.value.result is not None
    await AutoSandboxRouter(policy=ExecPolicy.empty(), audit=Sink("egress"), audit_required=False).route(
        "curl -sS http://a.example/", spec=spec
    )
