"""
Commands that need this and that, and the spec that is found for them. Real boxes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sandboxkit as sk

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap")]


@pytest.fixture(name="area")
def _area() -> Iterator[Path]:
    """
    A directory outside /tmp and the home, which a box shows only where a spec says so.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandboxkit-learn-") as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        for part in ("work", "data"):
            (place / part).mkdir()
        (place / "data" / "numbers").write_text("3\n1\n")
        yield place


class Answers:
    """
    Approves what *yes* says, and keeps what it was asked.
    """

    def __init__(self, yes: bool | str = True) -> None:
        self.yes = yes
        self.asked: list[str] = []

    async def approve(self, request: sk.ApprovalRequest) -> sk.ApprovalReply:
        assert request.action is not None
        line = request.action.arguments[0]
        self.asked.append(line)
        approved = self.yes if isinstance(self.yes, bool) else self.yes in line
        return sk.ApprovalReply(approved=approved, reason="as the test says")


async def test_it_finds_what_a_command_needs_and_no_more(area: Path) -> None:
    script = f"cat {area}/other 2>/dev/null; sort {area}/data/numbers >sorted && mkdir made && cp sorted made/again"
    (area / "other").write_text("not needed")
    answers = Answers()
    lesson = await sk.learn_spec(["sh", "-c", script], approver=answers, cwd=area / "work")
    assert lesson.passed
    assert set(lesson.lines) == {
        f'filesystem.write = ["{area}/work"]',
        f'filesystem.read = ["{area}/data/numbers"]',
    }
    assert f'filesystem.read = ["{area}/other"]' not in lesson.lines
    assert os.listdir(area / "work") == [], "what the runs wrote was thrown away"
    async with sk.open_sandbox(lesson.spec) as box:
        assert (await box.run(["sh", "-c", script], cwd=str(area / "work"))).exit_code == 0
    assert (area / "work" / "made" / "again").read_text() == "1\n3\n"


async def test_an_approved_line_that_is_not_needed_is_left_out(area: Path) -> None:
    # Fails at first for the one, and reports the other last.
    script = f"echo x >a; s=$?; cat {area}/data/numbers; exit $s"
    lesson = await sk.learn_spec(["sh", "-c", script], approver=Answers(), cwd=area / "work")
    assert lesson.passed
    assert lesson.lines == (f'filesystem.write = ["{area}/work"]',)
    assert lesson.spared == (f'filesystem.read = ["{area}/data/numbers"]',)


async def test_what_is_declined_is_not_asked_again(area: Path) -> None:
    answers = Answers(yes="data")
    script = f"cat {area}/data/numbers && echo x >a"
    lesson = await sk.learn_spec(["sh", "-c", script], approver=answers, cwd=area / "work")
    assert not lesson.passed
    assert len(answers.asked) == len(set(answers.asked)) == 2
    assert list(lesson.declined) == [f'filesystem.write = ["{area}/work"]']
    assert lesson.declined[f'filesystem.write = ["{area}/work"]'].endswith("as the test says")
    assert lesson.spec.filesystem.write == ()


async def test_a_command_that_needs_nothing_is_asked_nothing(area: Path) -> None:
    answers = Answers(yes=False)
    lesson = await sk.learn_spec(["true"], approver=answers, cwd=area / "work")
    assert (lesson.passed, lesson.lines, lesson.runs, answers.asked) == (True, (), 1, [])


async def test_credentials_protected_names_and_the_network_are_never_proposed(area: Path) -> None:
    work = area / "work"
    (work / ".git" / "hooks").mkdir(parents=True)
    script = f"""
import os, socket, sys
failed = 0
for act in (
    lambda: open({str(work / ".git" / "hooks" / "pre-commit")!r}, "w"),
    lambda: open(os.path.expanduser("~/.ssh/id_ed25519")),
    lambda: socket.create_connection(("192.0.2.1", 80), 1),
):
    try:
        act()
    except OSError:
        failed = 1
sys.exit(failed)
"""
    (work / "act.py").write_text(script)
    answers = Answers()
    lesson = await sk.learn_spec(["python3", "act.py"], approver=answers, cwd=work)
    assert not lesson.passed
    assert not any("network" in line or ".ssh" in line or "hooks" in line for line in answers.asked)
    assert {found.kind for found in lesson.open} >= {"write", "connect"}


async def test_a_line_of_the_text_of_a_command_is_read_by_bash(area: Path) -> None:
    lesson = await sk.learn_spec(
        f"for i in 1 2; do cat {area}/data/numbers || exit 3; done", approver=Answers(), cwd=area
    )
    assert lesson.passed


async def test_it_gives_up_after_so_many_runs(area: Path) -> None:
    seen: list[int] = []
    lesson = await sk.learn_spec(
        ["sh", "-c", f"cat {area}/data/numbers && echo x >a"],
        approver=Answers(),
        cwd=area / "work",
        max_runs=2,
        on_run=lambda number, _: seen.append(number),
    )
    assert (lesson.passed, lesson.runs, seen) == (False, 2, [1, 2])


async def test_what_the_policy_denies_is_not_run(area: Path) -> None:
    with pytest.raises(sk.CommandDeniedError):
        await sk.learn_spec("rm -rf /", approver=Answers(), cwd=area)


async def test_wrong_arguments_are_said(area: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sk.SpecError, match="max_runs is 0; give at least 1"):
        await sk.learn_spec("true", approver=Answers(), cwd=area, max_runs=0)
    with pytest.raises(sk.SpecError, match="does not exist; create it first"):
        await sk.learn_spec("true", approver=Answers(), cwd=area / "missing")
    (area / "gone").mkdir()
    monkeypatch.chdir(area / "gone")
    (area / "gone").rmdir()
    with pytest.raises(sk.SpecError, match="is gone; name another with cwd"):
        await sk.learn_spec("true", approver=Answers())


async def test_hosts_that_were_refused_are_proposed_where_the_base_lists_hosts(area: Path) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    script = "curl -sf http://127.0.0.4:8099/ --noproxy no; curl -sf http://learned.example/; exit 1"
    base = sk.SandboxSpec.read_only(area / "work", network=sk.NetworkPolicy(mode="listed"))
    answers = Answers(yes=False)
    lesson = await sk.learn_spec(["sh", "-c", script], approver=answers, base=base, cwd=area / "work")
    assert answers.asked == ['network.allow_hosts = ["learned.example:80"]']
    assert list(lesson.declined) == answers.asked
    assert [found.target for found in lesson.open if found.kind == "egress"] == ["http://127.0.0.4:8099/"]
    widened = sk.SandboxSpec.from_dict({"network": {"mode": "listed", "allow_hosts": ["learned.example:80"]}})
    assert widened.network.allow_hosts == ("learned.example:80",)


async def test_without_a_list_no_host_is_proposed(area: Path) -> None:
    answers = Answers()
    lesson = await sk.learn_spec(["curl", "-sf", "http://learned.example/"], approver=answers, cwd=area / "work")
    assert not [line for line in answers.asked if "network" in line]
    assert lesson.spec.network.mode == "none"
