"""
Every example runs as a program of its own and shows what it is there to show.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.extras import missing_extra

EXAMPLES = Path(__file__).parent.parent / "examples"

SHOWN = {
    "quickstart.py": [
        "hello - exited with code 0",
        "touch: ",
        "denied: ",
        "held by ",
        "fs.write                enforced",
    ],
    "agent_tool.py": [
        "42",
        "not run: denied: ",
        "approval was declined",
        "not run, and not because of the command: program 'no-such-program'",
    ],
    "approve.py": [
        "> touch a\n  asked: makes files; answer: yes, always\n  exited with code 0\n> touch a\n  exited with code 0",
        "answer: yes, session\n  not for good: 'sh' is a shell or an interpreter",
        "kept for good: touch a, touch b",
    ],
    "judge.py": [
        "right               accepted",
        "wrong               wrong answer on case 2",
        "not a program       compile error",
        "crashes             runtime error",
        "never ends          time limit exceeded",
        "takes all memory    memory limit exceeded",
        "talks too much      output limit exceeded",
        "wants the network   runtime error",
    ],
    "audit_log.py": [
        "1 decided run touch made",
        "as it was written:                whole, 3 records",
        "a command was changed:            BROKEN, line 3 was changed",
        "the end was cut off:              whole, 2 records",
        "the same, with the head:          BROKEN, the expected head",
    ],
    "evaluate.py": [
        "large order    True",
        "broken         does not count: line 1: AttributeError: 'dict' has no attribute 'totl' here",
        "hostile        does not count: line 1: an attribute is not allowed",
        "endless        does not count: ended by timeout=0.5",
        "Dear Alice: 120.50 less 10% is 108.45.",
    ],
    "explain.py": [
        "attempt 1: 2 refused",
        'write ./sorted/numbers: EROFS\n    would be allowed by: filesystem.write = ["./sorted"]',
        "attempt 2: 1 refused",
        "write ./.git/hooks/pre-commit: EROFS\n    would be allowed by: nothing",
        "made: ['1', '2', '3']",
    ],
    "egress.py": [
        "http://good.example:PORT/: hello",
        "http://evil.example:PORT/: sandboxkit: http://evil.example:PORT/: refused: no rule allows it",
        "recorded: deny, no rule allows it, dialed None",
    ],
    "listed_hosts.py": [
        "good.example: hello",
        "evil.example: sandboxkit: http://evil.example:PORT/: refused: no rule allows it",
        'to allow it: network.allow_hosts = ["evil.example:PORT"]',
        "asked: may python3 reach asked.example:PORT?",
        "asked.example: sandboxkit: http://asked.example:PORT/: refused: a rule asks about asked.example",
        "past the proxy: Connection refused",
    ],
    "inject_secret.py": [
        "server got:  Authorization: Bearer s3cr3t-42\nprogram got: you sent: Authorization: Bearer ⟦API_KEY⟧",
        "server got:  Authorization: Bearer <API_KEY>\nprogram got: you sent: Authorization: Bearer <API_KEY>",
        "program got: sandboxkit: https://api.example:PORT/v2: refused: no rule allows it",
    ],
    "custom_rules/show.py": ["sandbox -> ask", "ask -> deny", "deny -> deny", "make test: in a box"],
}


def test_every_example_is_listed() -> None:
    own_package = EXAMPLES / "backend_plugin"  # installed and tested by the session that tries the wheel
    programs = {path for path in EXAMPLES.rglob("*.py") if own_package not in path.parents}
    assert {str(path.relative_to(EXAMPLES)) for path in programs} == SHOWN.keys()


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_should(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    if extra := missing_extra(name):
        assert f"pip install 'sandboxkit[{extra}]'" in done.stderr
        return
    assert (done.returncode, done.stderr) == (0, "")
    assert [text for text in SHOWN[name] if text not in done.stdout] == [], done.stdout
    assert list(tmp_path.iterdir()) == []
