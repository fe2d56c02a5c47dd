"""
`sandboxkit egress check` decides and connects to nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sandboxkit.cli import main

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC = ["--address", "93.184.216.34"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["https://EXAMPLE.com/a/../b", *PUBLIC], 0, "https://example.com/b\nallow: no rule is about it"),
        (["https://a.example/", "--address", "10.0.0.1"], 120, "deny: it is in 10.0.0.0/8: private use"),
        (["https://a.example/", "--address", "10.0.0.1", "--permit-network", "10.0.0.0/8"], 0, "allow"),
        (["http://169.254.169.254/", "--permit-network", "0.0.0.0/0"], 120, "no setting lifts this"),
        (["http://localhost/"], 120, "permit_hosts would change it"),
        (["https://a.example/", "--allow", "b.example", "--no-lookup"], 120, "no rule allows it"),
        (["https://a.b.example/", "--allow", "*.b.example", *PUBLIC], 0, "a rule allows *.b.example"),
        (["https://a.example/", "--ask", "a.example", *PUBLIC], 121, "ask: a rule asks about a.example"),
        (["https://a.example/", "--deny", "**", "--no-lookup"], 120, "a rule denies **"),
        (["https://a.example/", "--method", "POST", "--no-lookup"], 0, "allow"),
    ],
)
def test_it_says_what_is_decided(arguments: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["egress", "check", *arguments]) == code
    assert said in capfd.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["http://127.1/"], ["http://u:hunter2@a.example/"], ["https://a.example/", "--allow", "a..b"]]
)
def test_wrong_use_is_told(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["egress", "check", *arguments]) == 119
    told = capfd.readouterr()
    assert told.out == ""
    assert "hunter2" not in told.err
    assert "Traceback" not in told.err


def test_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["egress", "check", "--json", "https://a.example/", "--allow", "**.com", *PUBLIC]) == 120
    record = json.loads(capfd.readouterr().out)
    assert (record["status"], record["action"], record["code"], record["setting"]) == (
        "checked",
        "deny",
        "default",
        "rules",
    )
    assert record["warnings"] == ["allow **.com: it covers every name under .com; name the hosts"]


def test_a_policy_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toml, wrong = tmp_path / "egress.toml", tmp_path / "wrong.json"
    toml.write_text(
        'allow_hosts = ["a.example"]\n[[rules]]\naction = "deny"\nto = "a.example/admin"\nid = "no-admin"\n'
    )
    wrong.write_text('{"allow_hosts": ["127.1"], "nonsense": 1}')
    assert main(["egress", "check", "https://a.example/admin/x", "--policy", str(toml), *PUBLIC]) == 120
    assert main(["egress", "check", "https://a.example/", "--policy", str(toml), *PUBLIC]) == 0
    assert main(["egress", "check", "https://a.example/", "--policy", str(wrong)]) == 119
    told = capfd.readouterr().err
    assert "rules[0].to" in told
    assert "nonsense" in told
    assert main(["egress", "check", "https://a.example/", "--policy", str(tmp_path / "none")]) == 119


def test_the_name_service_is_asked_for_names_that_may_be_reached(capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--permit-host", "localhost", "--permit-network", "127.0.0.0/8", "--permit-network", "::1/128"]
    assert main(["egress", "check", "http://localhost/", *arguments]) == 0
    assert "addresses: " in capfd.readouterr().out
