"""
`sandboxkit run`: output, exit codes and bad input.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import PROGRAM, Cli, record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.requires("bubblewrap")


def test_output_passes_through_as_bytes(cli: Cli) -> None:
    done = cli("run", "--", "bash", "-c", r"printf '\x00\xff\n'; printf '\xfe' >&2")
    assert (done.stdout, done.stderr, done.returncode) == (b"\0\xff\n", b"\xfe", 0)


def test_one_argument_is_a_command_line_and_several_are_words(cli: Cli) -> None:
    assert cli("run", "--", "echo a   b | tr a-z A-Z").stdout == b"A B\n"
    assert cli("run", "--", "echo", "a   b | tr").stdout == b"a   b | tr\n"
    assert cli("run", "echo", "no", "dashes").stdout == b"no dashes\n"
    assert cli("run", "echo", "a", "--", "b").stdout == b"a -- b\n"
    assert cli("run", "--", "echo", "--json").stdout == b"--json\n"


@pytest.mark.parametrize("code", [0, 1, 2, 42, 117, 126, 127, 130, 255])
def test_the_commands_own_code_is_passed_on(cli: Cli, code: int) -> None:
    done = cli("run", "--", "bash", "-c", f"exit {code}")
    assert (done.returncode, done.stderr) == (code, b"")


@pytest.mark.parametrize("code", [118, 119, 120, 121, 122, 123, 124, 125])
def test_a_code_that_is_ours_is_never_the_commands(cli: Cli, code: int) -> None:
    done = cli("run", "--", "bash", "-c", f"exit {code}")
    assert done.returncode == 118
    assert done.stderr.startswith(b"sandboxkit: the command exited with code %d," % code)
    found = record(cli("run", "--json", "--", "bash", "-c", f"exit {code}"))
    assert (found["status"], found["result"]["exit_code"]) == ("ran", code)


def test_a_signal_is_128_and_its_number(cli: Cli) -> None:
    done = cli("run", "--", "python3", "-c", "import os; os.kill(os.getpid(), 15)")
    assert done.returncode == 128 + signal.SIGTERM
    assert (
        record(cli("run", "--json", "--", "python3", "-c", "import os; os.kill(os.getpid(), 11)"))["result"]["signal"]
        == signal.SIGSEGV
    )


def test_a_timeout_is_said(cli: Cli) -> None:
    done = cli("run", "--timeout", "0.3", "--", "bash", "-c", "echo early; sleep 60")
    assert (done.returncode, done.stdout) == (124, b"early\n")
    assert b"sandboxkit: the command was ended by its deadline after 0.3" in done.stderr
    assert record(cli("run", "--timeout", "0.3", "--json", "--", "sleep", "60"))["status"] == "limit"


def test_denied_is_not_run(cli: Cli) -> None:
    done = cli("run", "--", "rm -rf /")
    assert (done.returncode, done.stdout) == (120, b"")
    assert done.stderr.startswith(b"sandboxkit: denied: ")
    found = record(cli("run", "--json", "--", "rm -rf /"))
    assert found["status"] == "denied"
    assert found["error"]["type"] == "CommandDeniedError"
    assert found["evaluation"]["matches"]


def test_what_needs_approval_is_not_run(cli: Cli) -> None:
    done = cli("run", "--", "git push --force")
    assert done.returncode == 121
    assert b"approv" in done.stderr
    assert record(cli("run", "--json", "--", "git push --force"))["status"] == "approval"


def test_what_nothing_enforces_is_not_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text('[require]\n"fs.overlay" = "enforced"\n')
    done = cli("run", "--spec", "box.toml", "--", "touch", "/tmp/x")
    assert done.returncode == 122
    assert b"fs.overlay is absent" in done.stderr
    assert record(cli("run", "--spec", "box.toml", "--json", "--", "true"))["error"]["type"] == "EnforcementError"


@pytest.mark.parametrize("command", [["no-such-program-anywhere"], ["./missing"], ["./plain"], ["./plain/x"]])
def test_a_program_that_cannot_be_executed_is_ours_to_say(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "plain").write_text("not marked executable")
    done = cli("run", "--", *command)
    assert done.returncode == 123
    assert done.stderr.startswith(b"sandboxkit: program ")


def test_a_shell_that_finds_no_program_is_theirs(cli: Cli) -> None:
    done = cli("run", "--", "no-such-program-anywhere; exit $?")
    assert done.returncode == 127
    assert b"sandboxkit:" not in done.stderr


# --- input -----------------------------------------------------------------------------


def test_input_is_handed_over(cli: Cli) -> None:
    assert cli("run", "--", "cat", input=b"a\0b").stdout == b"a\0b"


def test_a_file_is_handed_over(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(b"from a file")
    with (tmp_path / "given").open("rb") as stdin:
        assert cli("run", "--", "cat", stdin=stdin).stdout == b"from a file"


def test_a_terminal_is_not_handed_over(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"typed\n")
        done = cli("run", "--", "bash", "-c", "cat; test -t 0 || echo no terminal", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout == b"no terminal\n"


def test_waiting_for_input_that_does_not_come_is_said(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "run", "--", "cat"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        assert program.stderr
        assert program.stderr.readline().startswith(b"sandboxkit: waiting for standard input to end")
        assert program.communicate(b"late")[0] == b"late"


def test_closed_streams_lead_nowhere(tmp_path: Path) -> None:
    words = " ".join(PROGRAM)
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(
            f"exec {words} run -- bash -c 'echo hello; exit 7' {closed}",
            shell=True,
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 7, closed
        assert done.stdout == (b"" if ">&-" in closed.replace("2>&-", "") else b"hello\n"), closed


def test_an_input_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with (tmp_path / "written").open("wb") as written:
        done = subprocess.run(
            [*PROGRAM, "run", "--", "true"], cwd=tmp_path, stdin=written, capture_output=True, check=False
        )
    assert done.returncode == 119
    assert done.stderr.startswith(b"sandboxkit: the sandbox spec is wrong: standard input cannot be read: Bad file")


@pytest.mark.parametrize("home", [None, "", "relative/home", "/nonexistent/home", "/etc/passwd", "/"])
def test_any_home_will_do(cli: Cli, home: str | None) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = cli("run", "--", "echo", "hello", env=environ if home is None else {**environ, "HOME": home})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")


@pytest.mark.parametrize(
    ("limit", "remedy"), [("-n 16", b"ulimit -n 1024"), ("-f 0", b"ulimit -f unlimited"), ("-v 70000", b"ulimit -v")]
)
def test_a_limit_of_the_caller_that_is_too_low_is_said(tmp_path: Path, limit: str, remedy: bytes) -> None:
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    command = f"ulimit {limit}; exec {' '.join(PROGRAM)} run -- true"
    done = subprocess.run(command, shell=True, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert done.returncode in (122, 125)  # without memory it depends on how far it came
    assert remedy in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("delay", [0.02, 0.05, 0.1, 0.2, 0.3, 0.4])
def test_ctrl_c_at_any_moment_is_no_failure(tmp_path: Path, delay: float) -> None:
    code = "import sys; from sandboxkit.cli import main; print('ready', flush=True); sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "run", "--", "sleep", "60"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout
        assert program.stdout.readline() == "ready\n"
        time.sleep(delay)
        program.send_signal(signal.SIGINT)
        said = program.communicate(timeout=20)[1]
    # An interpreter that was interrupted in code that it compiled itself ends by the signal.
    assert program.returncode in (130, -signal.SIGINT)
    assert said in ("", "sandboxkit: interrupted; what was started has been ended\n")


# --- the box ---------------------------------------------------------------------------


def test_the_working_directory_can_be_read_and_not_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "here").write_text("content")
    assert cli("run", "--", "cat", "here").stdout == b"content"
    assert cli("run", "--", "touch", "new").returncode == 1
    assert not (tmp_path / "new").exists()


def test_write_makes_it_writable(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    done = cli("run", "--write", "link", "--", "bash", "-c", "touch real/new; touch beside")
    assert done.returncode == 1
    assert (tmp_path / "real" / "new").exists()
    assert not (tmp_path / "beside").exists()


def test_read_shows_more(cli: Cli, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "file"
    other.write_text("elsewhere")
    assert cli("run", "--", "cat", str(other)).returncode == 1
    assert cli("run", "--read", str(other), "--", "cat", str(other)).stdout == b"elsewhere"


def test_the_home_is_not_shown_by_standing_in_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "home" / "work").mkdir(parents=True)
    (tmp_path / "home" / "letter").write_text("private")
    environ = {**os.environ, "HOME": str(tmp_path / "home")}
    for place in (tmp_path, tmp_path / "home"):
        done = cli("run", "--", "true", cwd=place, env=environ)
        assert done.returncode == 119
        assert b"is or holds your home" in done.stderr
    assert cli("run", "--read", "work", "--", "ls", "..", cwd=tmp_path / "home", env=environ).stdout == b"work\n"
    assert cli("run", "--read", ".", "--", "cat", "letter", cwd=tmp_path / "home", env=environ).stdout == b"private"
    assert cli("run", "--", "cat", "../letter", cwd=tmp_path / "home" / "work", env=environ).returncode == 1


def test_a_spec_file_is_the_base(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text(
        '[filesystem]\nwrite = ["."]\n[environment]\nset = { A = "b" }\n[limits]\nwall = 0.3\n'
    )
    assert cli("run", "--spec", "box.toml", "--", "bash", "-c", "echo $A > out").returncode == 0
    assert (tmp_path / "out").read_text() == "b\n"
    assert cli("run", "--spec", "box.toml", "--timeout", "50", "--", "sleep", "60").returncode == 124


def test_the_network_is_off_unless_asked_for(cli: Cli) -> None:
    script = "import socket; print(sorted(name for _, name in socket.if_nameindex()))"
    assert cli("run", "--", "python3", "-c", script).stdout == b"['lo']\n"
    inside = cli("run", "--network", "host", "--", "python3", "-c", script).stdout
    assert inside == subprocess.run(["python3", "-c", script], capture_output=True, check=True).stdout


# --- wrong use -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "a command is missing"),
        (["run", "--"], "a command is missing"),
        (["run", "--", ""], "empty"),
        (["run", "--timeout", "0", "--", "true"], "'0' is no number of seconds"),
        (["run", "--timeout", "nan", "--", "true"], "'nan' is no number of seconds"),
        (["run", "--network", "some", "--", "true"], "invalid choice: 'some'"),
        (["run", "--nonsense", "--", "true"], "unrecognized arguments: --nonsense"),
        (["run", "--status-fd", "77", "--", "true"], "descriptor 77 is not open"),
        (["run", "--write", "missing", "--", "true"], "--write: 'missing' does not exist"),
        (["run", "--read", "loop/x", "--", "true"], "is a loop of symbolic links"),
        (
            ["run", "--spec", "missing.toml", "--", "true"],
            "the sandbox spec in missing.toml is wrong: it cannot be read",
        ),
        (["run", "--nonsense", "--", "true"], "usage: sandboxkit run [options] -- CMD"),
        (["run", "--spec", "", "--", "true"], "argument --spec: '' is no name of a file"),
        (["run", "--ask", "--grants", "", "--", "true"], "argument --grants: '' is no name of a file"),
        (["run", "--grants", "file", "--", "true"], "--grants goes with --ask"),
        (["run", "--policy", "organization=a.toml", "--", "true"], "'organization' is no level; use organisation,"),
        (["check", "--policy", "missing.toml", "--", "true"], "check the name: "),
        (["policy", "lint", ""], "argument FILE: '' is no name of a file"),
        (["audit", "tail", ""], "argument LOG: '' is no name of a file"),
        (["nonsense"], "invalid choice: 'nonsense'"),
        ([], "a verb is missing"),
    ],
)
def test_wrong_use_is_119(cli: Cli, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = cli(*arguments)
    assert (done.returncode, done.stdout) == (119, b"")
    assert said in done.stderr.decode()
    if arguments:
        at = 2 if arguments[0] in ("policy", "audit") else 1
        found = record(cli(*arguments[:at], "--json", *arguments[at:]))
        assert found["status"] == "usage"
        assert said in found["error"]["message"]


def test_a_descriptor_that_is_only_read_is_said_before_anything_runs(cli: Cli) -> None:
    reader, writer = os.pipe()
    done = cli("run", "--status-fd", str(reader), "--", "echo", "ran", pass_fds=[reader])
    assert (done.returncode, done.stdout) == (119, b"")
    assert f"descriptor {reader} is open to read only" in done.stderr.decode()
    os.close(reader)
    os.close(writer)


def test_ten_mistakes_of_a_spec_file_are_listed_at_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text(
        'a = 1\nb = 2\n[filesystem]\nread = [1, 2]\nbase = "x"\n[limits]\nwall = 0\ncpu = 0\nprocesses = 0\n[network]\nmode = "x"\n[process]\ntty = 7\n'
    )
    done = cli("run", "--spec", "box.toml", "--", "true")
    assert done.returncode == 119
    lines = done.stderr.decode().splitlines()
    assert lines[0] == "sandboxkit: the sandbox spec in box.toml is wrong, 10 problems:"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        f"line {number}" for number in (1, 2, 4, 4, 5, 7, 8, 9, 11, 13)
    ]
    assert len(record(cli("run", "--json", "--spec", "box.toml", "--", "true"))["error"]["problems"]) == 10


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    words = " ".join(PROGRAM)
    done = subprocess.run(
        f"mkdir {gone} && cd {gone} && rmdir {gone} && {words} run -- true",
        shell=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 119
    assert b"the working directory, which is gone" in done.stderr


def test_an_unreadable_workspace_is_said(cli: Cli, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (tmp_path / "closed").mkdir(mode=0)
    done = cli("run", "--write", "closed", "--", "true")
    assert done.returncode == 119
    assert b"cannot be read" in done.stderr


# --- reports ----------------------------------------------------------------------------


def test_json_says_everything_at_once(cli: Cli) -> None:
    found = record(cli("run", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 3"))
    assert found["status"] == "ran"
    assert found["mode"] == "sandbox"
    assert (found["result"]["stdout"], found["result"]["stderr"], found["result"]["exit_code"]) == ("out\n", "err\n", 3)
    assert found["result"]["enforcement"]["fs.write"]["grade"] == "enforced"
    assert found["evaluation"]["action"] == "sandbox"


def test_the_status_descriptor_says_it_beside_the_output(cli: Cli) -> None:
    reader, writer = os.pipe()
    done = cli("run", "--status-fd", str(writer), "--", "bash", "-c", "echo out; exit 125", pass_fds=[writer])
    os.close(writer)
    with open(reader, "rb") as stream:
        found = json.loads(stream.read())
    assert (done.returncode, done.stdout) == (118, b"out\n")
    assert (found["exit_code"], found["result"]["exit_code"]) == (118, 125)
    assert "stdout" not in found["result"]


def test_control_characters_of_a_command_are_escaped(cli: Cli) -> None:
    done = cli("run", "--", "\x1b[2Jevil\u202e")
    assert done.returncode in (121, 123)
    assert b"\x1b" not in done.stderr
    assert "\u202e".encode() not in done.stderr


# --- interrupted -------------------------------------------------------------------------


def test_ctrl_c_ends_the_command(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "run", "--write", ".", "--", "bash", "-c", "touch started; sleep 62"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
    ) as program:
        deadline = time.monotonic() + 20
        while not (tmp_path / "started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        program.send_signal(signal.SIGINT)
        err = program.communicate(timeout=10)[1]
    assert program.returncode == 130
    assert err == b"sandboxkit: interrupted; what was started has been ended\n"
    assert subprocess.run(["pgrep", "-f", "sleep 62"], stdout=subprocess.DEVNULL, check=False).returncode == 1


def test_a_reader_that_goes_away_is_no_failure_of_ours(tmp_path: Path) -> None:
    words = " ".join(PROGRAM)
    for unbuffered in ("", "1"):
        done = subprocess.run(
            ["bash", "-c", f"{words} run -- seq 300000 | head -n 1; echo ${{PIPESTATUS[0]}}"],
            cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, capture_output=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (b"1\n141\n", b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_long_output_is_whole(cli: Cli, unbuffered: str) -> None:
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    wanted = "".join(f"{number}\n" for number in range(1, 300_001))
    assert cli("run", "--", "seq", "300000", env=environ).stdout.decode() == wanted
    assert record(cli("run", "--json", "--", "seq", "300000", env=environ))["result"]["stdout"] == wanted


def test_a_pipe_that_does_not_block_takes_everything(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with subprocess.Popen(
        [*PROGRAM, "run", "--", "seq", "300000"], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=writer
    ) as program:
        os.close(writer)
        time.sleep(1)
        with open(reader, "rb") as stream:
            content = stream.read()
    assert program.returncode == 0
    assert content.endswith(b"\n300000\n")


def test_an_output_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*PROGRAM, "run", "--", "echo", "x"],
            cwd=tmp_path,
            stdout=full,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 125
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_explain_says_what_was_refused_and_the_line_that_allows_it(cli: Cli, tmp_path: Path) -> None:
    here = tmp_path.resolve()
    done = cli("run", "--explain", "--", "/bin/sh", "-c", "echo x >made")
    assert done.returncode == 2
    said = done.stderr.decode()
    assert (
        f"sandboxkit: refused write: {here}/made: openat by /usr/bin/dash got EROFS: the box may only read it\n" in said
    )
    assert f'  to allow it: filesystem.write = ["{here}"]\n' in said
    spec = tmp_path / "box.toml"
    spec.write_text(f'filesystem.write = ["{here}"]\n')
    done = cli("run", "--explain", "--spec", "box.toml", "--", "/bin/sh", "-c", "echo x >made")
    assert (done.returncode, done.stderr) == (0, b"sandboxkit: it was refused nothing that you may do yourself\n")
    assert (tmp_path / "made").read_text() == "x\n"


def test_explain_as_json_carries_every_refusal(cli: Cli, tmp_path: Path) -> None:
    found = record(cli("run", "--json", "--explain", "--", "/bin/sh", "-c", "echo x >made"))["result"]
    assert (found["explained"], found["explain_gap"]) == (True, "")
    (violation,) = found["violations"]
    assert violation == {
        "kind": "write",
        "target": f"{tmp_path.resolve()}/made",
        "detail": "openat by /usr/bin/dash got EROFS: the box may only read it",
        "spec_line": f'filesystem.write = ["{tmp_path.resolve()}"]',
        "call": "openat",
        "error": "EROFS",
        "program": "/usr/bin/dash",
        "count": 1,
    }
    plain = record(cli("run", "--json", "--", "/bin/sh", "-c", "echo x >made"))["result"]
    assert (plain["explained"], plain["explain_gap"], plain["violations"]) == (False, "", [])


def test_a_run_is_added_to_a_log(cli: Cli, tmp_path: Path) -> None:
    log = str(tmp_path / "runs.jsonl")
    assert cli("run", "--audit", log, "--", "echo", "hi").returncode == 0
    assert cli("run", "--audit", log, "--", "rm -rf /").returncode == 120
    assert cli("audit", "verify", log).returncode == 0
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert kinds == ["decided", "finished", "decided"]


def test_a_log_with_a_key_needs_it(cli: Cli, tmp_path: Path) -> None:
    log, key = tmp_path / "runs.jsonl", tmp_path / "key"
    key.write_text("5f" * 32)
    key.chmod(0o600)
    assert cli("run", "--audit", str(log), "--audit-key", str(key), "--", "true").returncode == 0
    assert cli("audit", "verify", str(log), "--key-file", str(key)).returncode == 0
    done = cli("run", "--audit", str(log), "--", "touch", "never")
    assert (done.returncode, b"no key was given" in done.stderr) == (119, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--audit", "missing/runs.jsonl"), b"create the directory"),
        (("--audit", "/dev/null"), b"it is no regular file"),
        (("--audit-key", "key"), b"--audit-key goes with --audit"),
        (("--audit", "runs.jsonl", "--audit-key", "missing"), b"missing"),
    ],
)
def test_what_cannot_be_recorded_is_not_run(cli: Cli, options: tuple[str, ...], said: bytes) -> None:
    done = cli("run", *options, "--", "echo", "ran")
    assert (done.returncode, done.stdout, said in done.stderr) == (119, b"", True), done.stderr


def test_a_log_that_goes_away_meanwhile_hides_no_output(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "logs"
    place.mkdir()
    command = [*PROGRAM, "run", "--audit", str(place / "runs.jsonl"), "--", "sh", "-c", "echo ran; sleep 2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        while not ((place / "runs.jsonl").exists() and (place / "runs.jsonl").read_bytes().endswith(b"\n")):
            time.sleep(0.01)
        place.rename(tmp_path / "elsewhere")
        out, error = process.communicate()
    assert (process.returncode, out, b"create the directory" in error) == (125, b"ran\n", True), error


def test_hosts_are_listed_one_by_one(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    (tmp_path / "fetch.py").write_text(
        "import urllib.request as u\ntry: u.urlopen('http://c.example/')\nexcept u.HTTPError as e: print(e.read().decode())\n"
    )
    hosts = ("--allow-host", "a.example", "--allow-host", "*.b.example:443")
    done = cli("run", *hosts, "--", "python3", "fetch.py")
    assert b"no rule allows it" in done.stdout
    assert b"refused egress: http://c.example/: GET by http was refused to python3" in done.stderr
    assert b'to allow it: network.allow_hosts = ["c.example:80"]' in done.stderr


def test_listed_hosts_of_a_spec_file_stay_beside_those_of_the_command_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text('network.allow_hosts = ["file.example"]\nnetwork.deny_hosts = ["c.example"]\n')
    done = cli("explain", "--json", "--spec", "box.toml", "--allow-host", "line.example", "--", "true")
    network = record(done)["spec"]["network"]
    assert (network["mode"], network["allow_hosts"]) == ("listed", ["file.example", "line.example"])
    assert network["deny_hosts"] == ["c.example"]


@pytest.mark.parametrize("mode", ["none", "host"])
def test_a_list_needs_a_network_of_lists(cli: Cli, mode: str) -> None:
    done = cli("run", "--network", mode, "--allow-host", "a.example", "--", "true")
    assert b"has no list of hosts" in done.stderr
    assert done.returncode != 0


def test_a_host_that_is_none_is_said(cli: Cli) -> None:
    done = cli("run", "--allow-host", "a b", "--", "true")
    assert b"allow_hosts[0]" in done.stderr


SECRET = "k3y-of-the-test-0123"


def test_a_secret_stays_out_of_the_box(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    environ = {**os.environ, "API_KEY": SECRET}
    (tmp_path / "look.py").write_text(
        "import os\nfor name, text in os.environ.items(): print(f'{name}={text}')\n"
        "print(open('/proc/self/environ').read())\n"
        "print(open(os.environ.get('SSL_CERT_FILE', '/dev/null')).read())\n"
    )
    look = ("--", "python3", "look.py")
    inject = ("--inject", "API_KEY=api.example/v1")
    done = cli("run", *inject, "--audit", "log.jsonl", *look, env=environ)
    assert b"API_KEY=<API_KEY>\n" in done.stdout
    assert b"SSL_CERT_FILE=/dev/sandboxkit-ca.pem\n" in done.stdout
    assert b"BEGIN CERTIFICATE" in done.stdout
    told = (done, cli("run", "--json", *inject, *look, env=environ), cli("explain", *inject, *look, env=environ))
    assert [one.returncode for one in told] == [0, 0, 0], told
    shown = b"".join(one.stdout + one.stderr for one in told) + (tmp_path / "log.jsonl").read_bytes()
    assert SECRET.encode() not in shown
    lists = f'filesystem.read = ["{tmp_path}"]\nenvironment.inherit = ["API_KEY", "PATH"]\n'
    (tmp_path / "box.toml").write_text(lists)  # the control
    assert f"API_KEY={SECRET}\n".encode() in cli("run", "--spec", "box.toml", *look, env=environ).stdout


def test_rules_of_a_spec_file_hold_for_https(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("h11", reason="the proxy is the extra egress")
    (tmp_path / "box.toml").write_text(
        'filesystem.read = ["."]\n'
        'network.rules = [{ action = "allow", to = "https://a.example/v1", methods = ["GET"] }]\n'
    )
    (tmp_path / "fetch.py").write_text(
        "import urllib.request as u\ntry: u.urlopen('https://a.example/v2')\nexcept u.URLError as e: print(e)\n"
    )
    ask = ("--", "python3", "fetch.py")
    seen = cli("run", "--spec", "box.toml", "--intercept", *ask)
    assert b"403" in seen.stdout, seen
    assert b"https://a.example/v2: GET by https was refused to python3" in seen.stderr
    unseen = cli("run", "--spec", "box.toml", *ask)
    assert b"a.example:443: by connect was refused to python3" in unseen.stderr


@pytest.mark.parametrize(
    ("arguments", "environ", "says"),
    [
        (("--inject", "API_KEY"), SECRET, b"write NAME=HOST[:PORT][/PATH]"),
        (("--inject", "API_KEY=*.example"), SECRET, b"must be one host"),
        (("--inject", "API_KEY=http://a.example"), SECRET, b"no host pattern"),
        (("--inject", f"{SECRET}!=a.example"), SECRET, b"a secret's name is"),
        (("--inject", "API_KEY=a.example"), None, b"the variable API_KEY is not set"),
        (("--inject", "API_KEY=a.example"), "short", b"a value needs 6 to"),
        (("--inject", "API_KEY=a.example", "--network", "none"), SECRET, b"--inject: --network none has no list"),
        (("--intercept", "--network", "host"), SECRET, b"--intercept: --network host has no list"),
    ],
)
def test_what_is_wrong_with_a_secret_is_said(
    cli: Cli, arguments: tuple[str, ...], environ: str | None, says: bytes
) -> None:
    given = {name: text for name, text in os.environ.items() if name != "API_KEY"}
    done = cli("run", *arguments, "--", "true", env=given if environ is None else {**given, "API_KEY": environ})
    assert says in done.stderr
    assert SECRET.encode() not in done.stderr
    assert done.returncode == 119
