"""
`sandboxkit doctor`, `backends` and `demo`.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Cli, record

if TYPE_CHECKING:
    from pathlib import Path


def test_doctor_shows_the_machine_and_the_backends(cli: Cli) -> None:
    done = cli("doctor")
    out = done.stdout.decode()
    found = record(cli("doctor", "--json"))
    features = {feature["name"]: feature for feature in found["machine"]}
    assert features.keys() == {
        "kernel",
        "user",
        "user namespaces",
        "seccomp",
        "landlock",
        "cgroup",
        "tracing",
        "python",
    }
    assert platform.release() in features["kernel"]["state"]
    assert [name for name in features if name not in out] == []
    assert [backend["name"] for backend in found["backends"] if backend["name"] not in out] == []
    assert done.returncode == (
        0 if any(backend["available"] and not backend["missing"] for backend in found["backends"]) else 1
    )
    assert [backend for backend in found["backends"] if not backend["available"] and not backend["remedy"]] == []
    keeps = [backend["name"] for backend in found["backends"] if backend["available"] and not backend["missing"]]
    assert found["default_backend"] == next(iter(keeps), None)
    assert (found["status"], done.returncode) == (("done", 0) if keeps else ("found_wanting", 1))
    if keeps:
        assert out.splitlines()[-1] == f"a default spec runs in {keeps[0]}: commands can be run in a box here"


@pytest.mark.requires("bubblewrap")
def test_doctor_attacks_a_box_of_listed_hosts(cli: Cli) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    shown = "only the listed server was reached, and only through the proxy"
    said = cli("doctor").stdout.decode().splitlines()
    assert f"net.allowlist was attacked, enforced: {shown}" in said
    backends = {backend["name"]: backend for backend in record(cli("doctor", "--json"))["backends"]}
    assert backends["bubblewrap"]["verified"]["net.allowlist"] == {"grade": "enforced", "reason": shown}
    # A backend that does not claim it is not attacked, and that is said.
    assert "net.allowlist" not in backends["landlock"]["verified"]
    if backends["landlock"]["available"]:
        assert "net.allowlist was not attacked, because it is not claimed" in said


@pytest.mark.requires("bubblewrap")
def test_doctor_shows_nothing_of_listed_hosts_without_the_extra() -> None:
    code = (
        "import importlib.util as util, sys; find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'h11' else find(name, *rest)\n"
        "from sandboxkit.cli import main; sys.exit(main(['doctor', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=50)
    (backend,) = (each for each in record(done)["backends"] if each["name"] == "bubblewrap")
    assert "net.allowlist" not in backend["verified"]
    assert backend["enforcement"]["net.allowlist"]["grade"] == "absent"
    assert "pip install 'sandboxkit[egress]'" in backend["enforcement"]["net.allowlist"]["reason"]


@pytest.mark.requires("bubblewrap")
def test_doctor_ends_with_1_where_no_backend_keeps_every_spec(cli: Cli) -> None:
    needed = sorted({sys.prefix, sys.base_prefix, *filter(os.path.isdir, sys.path)})
    reads = [word for path in needed for word in ("--read", path)]
    code = f"import sys; sys.path[:] = {sys.path!r}; from sandboxkit.cli import main; sys.exit(main(['doctor']))"
    done = cli("run", *reads, "--", sys.executable, "-c", code)  # in a box no box can be made
    assert (done.returncode, done.stderr) == (1, b"")
    *rest, said = done.stdout.splitlines()
    whys = [line for line in rest if line.startswith(b"a default spec does not run in ")]
    names = [why.partition(b":")[0].rpartition(b" ")[2] for why in whys]
    assert names == [b"bubblewrap", b"landlock", b"docker", b"podman"]
    only = b"commands can be run here only under a spec with allow_degraded = ['process.isolation'"
    assert said.startswith((only, b"no backend is available, so nothing will be run here"))  # a kernel without Landlock


def test_doctor_warns_of_code_of_ours_in_the_working_directory(cli: Cli, tmp_path: Path) -> None:
    assert "is what this program runs from" not in cli("doctor").stdout.decode()
    found = record(cli("doctor", "--json", cwd=os.path.dirname(sys.prefix)))
    assert any(sys.prefix in warning and "is what this program runs from" in warning for warning in found["warnings"])


def test_doctor_warns_of_secrets_that_others_can_read(cli: Cli, tmp_path: Path) -> None:
    texts = {
        "token.toml": '[environment]\nset = { X = "ghp_' + "a1" * 18 + '" }\n',
        "key.json": '{"api_key": "hunter2-prod"}',
        "plain.toml": 'name = "x"\ntoken = "<TOKEN>"\npassword = "$PASSWORD"\n# secret = "not set"\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    paths = [str(tmp_path / name) for name in (*texts, "missing.toml")]
    warnings = [text for text in record(cli("doctor", "--json", *paths))["warnings"] if str(tmp_path) in text]
    assert [text.partition(str(tmp_path))[2] for text in warnings] == [
        "/token.toml holds a secret (github-token) and has the mode 0644: chmod 0600 it",
        "/key.json holds a secret (api_key) and has the mode 0644: chmod 0600 it",
        "/missing.toml cannot be looked at: No such file or directory; nothing is said about its secrets",
    ]
    assert "hunter2" not in str(warnings)
    for name in texts:
        (tmp_path / name).chmod(0o600)
    assert str(tmp_path) not in str(record(cli("doctor", "--json", *paths[:3]))["warnings"])


def test_doctor_does_not_pass_a_file_it_cannot_look_at(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text("x" * (2 << 20))
    (tmp_path / "plain").write_text("name = 1\n")
    found = record(cli("doctor", "--json", "plain"))
    assert found["exit_code"] == (0 if found["default_backend"] else 1)  # the control
    found = record(cli("doctor", "--json", "plain", "missing", "pipe", ".", "large"))
    assert found["exit_code"] == 1
    assert [text for text in found["warnings"] if "cannot be looked at" in text] == [
        f"{name} cannot be looked at: {why}; nothing is said about its secrets"
        for name, why in (
            ("missing", "No such file or directory"),
            ("pipe", "it is no file"),
            (".", "it is no file"),
            ("large", "it has more than 1048576 characters"),
        )
    ]


def test_backends_are_listed_by_priority(cli: Cli) -> None:
    found = record(cli("backends", "--json"))["backends"]
    assert [backend["priority"] for backend in found] == sorted(
        (backend["priority"] for backend in found), reverse=True
    )
    assert cli("backends").stdout.decode().startswith("backend")


@pytest.mark.requires("bubblewrap")
def test_the_demo_holds_and_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = cli("demo", env={**os.environ, "TMPDIR": str(scratch)})
    out = done.stdout.decode()
    assert done.returncode == 0, out
    assert "everything held" in out
    assert "fs.write" in out
    assert list(scratch.iterdir()) == []


@pytest.mark.requires("bubblewrap")
def test_the_demo_shows_every_kind_of_end(cli: Cli) -> None:
    found = record(cli("demo", "--json"))
    rows = found["rows"]
    assert all(row["held"] for row in rows), rows
    assert 8 <= len(rows) <= 10
    assert {row["decision"] for row in rows} == {"allow", "sandbox", "ask", "deny"}
    assert any("deadline" in row["outcome"] for row in rows)
    assert found["enforcement"]["net.none"]["grade"] == "enforced"


@pytest.mark.requires("bubblewrap")
def test_the_demo_notices_what_does_not_hold() -> None:
    code = (
        "import os, sys; from sandboxkit.model import SandboxSpec\n"
        "def open_box(*roots, **fields):\n"
        "    return SandboxSpec(filesystem={'write': list(map(os.path.dirname, roots))}, network={'mode': 'host'}, **fields)\n"
        "SandboxSpec.workspace_write = staticmethod(open_box)\n"
        "from sandboxkit.cli import main; sys.exit(main(['demo', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    wanting = [row["shows"] for row in record(done)["rows"] if not row["held"]]
    assert wanting == ["nothing outside of it can", "the network is off"]
