"""
What a run was refused, as `explain` tells it: the kernel's own answers, the paths and
addresses, and lines that make the same command pass.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.model import Control, FilesystemPolicy, Limits, SandboxSpec, Termination
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.backends import SandboxBackend
    from sandboxkit.model import ExecResult, Violation

pytestmark = pytest.mark.anyio

IS_ROOT = os.geteuid() == 0
PYTHON = (interpreter(), "-I", "-S", "-c")
SHARED = frozenset({Control.PROCESS_ISOLATION, *([Control.LIMITS_PROCESSES] if IS_ROOT else [])})


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """
    One event loop: which one it is makes no difference to a tracer.
    """
    return "asyncio"


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest, require: Any) -> SandboxBackend:
    """
    Each backend that runs a launch plan.
    """
    require(request.param)
    return BubblewrapBackend() if request.param == "bubblewrap" else LandlockBackend()


@pytest.fixture
def bubblewrap(require: Any) -> SandboxBackend:
    require("bubblewrap")
    return BubblewrapBackend()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """
    A directory with a workspace, `ws`, and a hidden directory with files, `out`.
    """
    real = tmp_path.resolve()
    (real / "ws").mkdir()
    fill(real / "out")
    return real


def fill(directory: Path) -> None:
    directory.mkdir()
    (directory / "file").write_text("content")
    tool = directory / "tool"
    tool.write_text("#!/bin/sh\necho ran\n")
    tool.chmod(0o755)


def spec_for(backend: SandboxBackend, root: Path, **fields: Any) -> SandboxSpec:
    shared = SHARED if backend.name == "landlock" else frozenset()
    return SandboxSpec.workspace_write(root, allow_degraded=shared, **fields)


async def explained(backend: SandboxBackend, spec: SandboxSpec, argv: Sequence[str], **options: Any) -> ExecResult:
    with anyio.fail_after(50):
        async with backend.open(spec) as box:
            result = await box.run(argv, explain=True, **options)
    assert (result.explained, result.explain_gap) == (True, "")
    return result


def widened(spec: SandboxSpec, lines: Sequence[str | None]) -> SandboxSpec:
    """
    *spec* with *lines* of a spec file added, read as that reads them.
    """
    fields = spec.model_dump(exclude_unset=True)
    for line in lines:
        for table, values in tomllib.loads(line or "").items():
            for key, value in values.items():
                before = fields.setdefault(table, {}).get(key)
                fields[table][key] = (*(before or ()), *value) if isinstance(value, list) else value
    return SandboxSpec(**fields)


def outside(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, capture_output=True, timeout=30, check=False, **options)


def of(result: ExecResult, kind: str) -> list[Violation]:
    return [violation for violation in result.violations if violation.kind == kind]


def only(result: ExecResult, kind: str) -> Violation:
    found = of(result, kind)
    assert len(found) == 1, result.violations
    return found[0]


# --- each kind, with the act outside and the way back ---------------------------------

ACTS = {
    "make a file": ("open(sys.argv[1] + '/out/new', 'x')", "write", "out/new", "write", "out"),
    "write a file": ("open(sys.argv[1] + '/out/file', 'r+')", "write", "out/file", "write", "out/file"),
    "empty a file": ("os.truncate(sys.argv[1] + '/out/file', 0)", "write", "out/file", "write", "out/file"),
    "make a directory": ("os.mkdir(sys.argv[1] + '/out/d')", "write", "out/d", "write", "out"),
    "make a link": ("os.symlink('x', sys.argv[1] + '/out/l')", "write", "out/l", "write", "out"),
    "remove a file": ("os.unlink(sys.argv[1] + '/out/file')", "write", "out/file", "write", "out"),
    "read a file": ("open(sys.argv[1] + '/out/file')", "read", "out/file", "read", "out/file"),
    "list a directory": ("os.listdir(sys.argv[1] + '/out')", "read", "out", "read", "out"),
    "enter a directory": ("os.chdir(sys.argv[1] + '/out')", "read", "out", "read", "out"),
    "by a relative path": (
        "os.chdir(sys.argv[1] + '/ws'); open('../out/file')",
        "read",
        "out/file",
        "read",
        "out/file",
    ),
    "by a descriptor": (
        "d = os.open(sys.argv[1] + '/ws', os.O_RDONLY); os.open('../out/file', os.O_RDONLY, dir_fd=d)",
        "read",
        "out/file",
        "read",
        "out/file",
    ),
    "through a link": ("open(sys.argv[1] + '/ws/link/file')", "read", "out/file", "read", "out/file"),
    "execute a program": ("os.execv(sys.argv[1] + '/out/tool', ['tool'])", "exec", "out/tool", "read", "out/tool"),
    "in a thread": (
        (
            "import _thread\nlock = _thread.allocate_lock(); lock.acquire(); answers = []\n"
            "def act():\n  try: open(sys.argv[1] + '/out/file')\n  except OSError as e: answers.append(e)\n  lock.release()\n"
            "_thread.start_new_thread(act, ()); lock.acquire()\nif answers: raise answers[0]"
        ),
        "read",
        "out/file",
        "read",
        "out/file",
    ),
    "in a session of its own": (
        (
            "pid = os.fork()\nif not pid:\n  os.setsid()\n  if os.fork(): os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
            "  try: open(sys.argv[1] + '/out/file')\n  except OSError: os._exit(1)\n  os._exit(0)\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
        ),
        "read",
        "out/file",
        "read",
        "out/file",
    ),
    "in what vfork started": (
        (
            "pid = os.posix_spawn('/bin/cat', ['cat', sys.argv[1] + '/out/file'], {})\n"
            "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
        ),
        "read",
        "out/file",
        "read",
        "out/file",
    ),
}


@pytest.mark.parametrize("name", ACTS)
async def test_a_refused_file_is_named_with_the_line_that_allows_it(
    name: str, backend: SandboxBackend, place: Path
) -> None:
    script, kind, target, field, path = ACTS[name]
    (place / "ws" / "link").symlink_to("../out")
    argv = [*PYTHON, f"import os, sys\n{script}", str(place)]
    spec = spec_for(backend, place / "ws")
    result = await explained(backend, spec, argv)
    if (backend.name, name) == ("landlock", "enter a directory"):
        assert (result.exit_code, result.violations) == (0, ())  # Landlock does not decide about that
        return
    assert result.exit_code not in (0, None)
    found = [one for one in of(result, kind) if one.target == str(place / target)]
    assert found, (result.violations, result.text("stderr"))
    assert found[0].spec_line == f'filesystem.{field} = ["{place / path}"]'
    lines = [one.spec_line for one in result.violations if one.spec_line and str(place) in one.spec_line]
    again = await explained(backend, widened(spec, lines), argv)
    assert again.exit_code == 0, (lines, again.text("stderr"), again.violations)
    assert [one for one in again.violations if one.target.startswith(str(place))] == []
    shutil.rmtree(place / "out")
    fill(place / "out")
    assert outside(argv).returncode == 0


@pytest.mark.parametrize("between", [False, True])
async def test_a_hidden_interpreter_is_named_and_not_the_script(
    between: bool, bubblewrap: SandboxBackend, place: Path
) -> None:
    # The kernel answers ENOENT for the script, which is there.
    names = ["script", "other"] if between else ["script"]
    for name, named in zip(names, [*(f"{place}/ws/{name}" for name in names[1:]), f"{place}/out/tool"], strict=True):
        (place / "ws" / name).write_text(f"#! {named} -x\n")
        (place / "ws" / name).chmod(0o755)
    argv = ["env", f"{place}/ws/script"]
    spec = spec_for(bubblewrap, place / "ws")
    refused = await explained(bubblewrap, spec, argv)
    assert refused.exit_code == 127
    found = only(refused, "exec")
    assert (found.target, found.call) == (f"{place}/out/tool", "execve")
    assert found.spec_line == f'filesystem.read = ["{place}/out/tool"]'
    allowed = await explained(bubblewrap, widened(spec, [found.spec_line]), argv)
    assert (allowed.exit_code, allowed.text(), allowed.violations) == (0, "ran\n", ())
    assert outside(argv).stdout == b"ran\n"


@pytest.mark.parametrize("line", ["#!/no/such/program", "#!", "#! \n", "no script", "#!" + "x" * 400])
async def test_an_interpreter_that_is_nowhere_is_no_violation(
    line: str, bubblewrap: SandboxBackend, place: Path
) -> None:
    (place / "ws/script").write_text(f"{line}\n")
    (place / "ws/script").chmod(0o755)
    result = await explained(bubblewrap, spec_for(bubblewrap, place / "ws"), ["env", f"{place}/ws/script"])
    assert result.violations == ()


async def test_what_is_missing_everywhere_is_no_violation(backend: SandboxBackend, place: Path) -> None:
    script = f"cat {place}/out/none; ls {place}/ws/none; rm -f {place}/ws/none; {place}/none; true"
    result = await explained(backend, spec_for(backend, place / "ws"), ["/bin/sh", "-c", script])
    assert [one for one in result.violations if "none" in one.target] == []


@pytest.mark.skipif(IS_ROOT, reason="root may do all of this outside")
async def test_what_the_caller_may_not_do_either_is_no_violation(backend: SandboxBackend, place: Path) -> None:
    script = "cat /etc/shadow; echo >/etc/passwd; mkdir /x; chown 0:0 .; kill -9 1; mount -t tmpfs none /usr"
    result = await explained(backend, spec_for(backend, place / "ws"), ["/bin/sh", "-c", script])
    assert [one for one in result.violations if one.kind != "syscall" and one.target != "/dev/tty"] == []


async def test_connections_are_named_by_address(backend: SandboxBackend, place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = (
            "import _socket as s, sys\nc = s.socket(s.AF_INET, s.SOCK_STREAM)\n"
            "try: c.connect(('127.0.0.1', int(sys.argv[1])))\nexcept OSError as e: sys.exit(e.errno)"
        )
        argv = [*PYTHON, script, str(port)]
        assert outside(argv).returncode == 0
        spec = spec_for(backend, place / "ws")
        result = await explained(backend, spec, argv)
        found = only(result, "connect")
        target = "the internet" if found.call == "socket" else f"127.0.0.1:{port}"
        assert (found.target, found.spec_line) == (target, 'network.mode = "host"')
        again = await explained(backend, widened(spec, [found.spec_line]), argv)
        assert (again.exit_code, of(again, "connect")) == (0, [])


async def test_a_network_that_is_not_there_is_named(bubblewrap: SandboxBackend, place: Path) -> None:
    script = "import _socket as s\ns.socket(s.AF_INET, s.SOCK_STREAM).connect(('192.0.2.7', 81))"
    result = await explained(bubblewrap, spec_for(bubblewrap, place / "ws"), [*PYTHON, script])
    found = only(result, "connect")
    assert (found.target, found.error, found.spec_line) == ("192.0.2.7:81", "ENETUNREACH", 'network.mode = "host"')


async def test_a_port_nobody_listens_on_is_no_violation(bubblewrap: SandboxBackend, place: Path) -> None:
    script = "import _socket as s\ns.socket(s.AF_INET, s.SOCK_STREAM).connect(('127.0.0.1', 1))"
    result = await explained(bubblewrap, spec_for(bubblewrap, place / "ws"), [*PYTHON, script])
    assert (result.exit_code, result.violations) == (1, ())


async def test_another_address_than_the_one_somebody_listens_on_is_no_violation(
    bubblewrap: SandboxBackend, place: Path
) -> None:
    with socket.create_server(("127.0.0.2", 0)) as server:
        script = "import _socket as s, sys\ns.socket(s.AF_INET, s.SOCK_STREAM).connect(('127.0.0.1', int(sys.argv[1])))"
        argv = [*PYTHON, script, str(server.getsockname()[1])]
        assert outside(argv).returncode == 1
        result = await explained(bubblewrap, spec_for(bubblewrap, place / "ws"), argv)
    assert (result.exit_code, result.violations) == (1, ())


async def test_on_the_hosts_network_what_that_refuses_is_no_violation(backend: SandboxBackend, place: Path) -> None:
    script = "import _socket as s\ns.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'x', ('255.255.255.255', 9))"
    assert outside([*PYTHON, script]).returncode == 1  # without SO_BROADCAST it is EACCES anywhere
    spec = widened(spec_for(backend, place / "ws"), ['network.mode = "host"'])
    result = await explained(backend, spec, [*PYTHON, script])
    assert (result.exit_code, result.violations) == (1, ())


async def test_an_abstract_socket_of_the_host_is_named(bubblewrap: SandboxBackend, place: Path) -> None:
    name = f"sandboxkit-explain-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        script = "import _socket as s, sys\ns.socket(s.AF_UNIX, s.SOCK_STREAM).connect('\\0' + sys.argv[1])"
        argv = [*PYTHON, script, name]
        assert outside(argv).returncode == 0
        found = only(await explained(bubblewrap, spec_for(bubblewrap, place / "ws"), argv), "connect")
    assert (found.target, found.error, found.spec_line) == (f"@{name}", "ECONNREFUSED", None)


async def test_a_hard_link_gets_no_line(backend: SandboxBackend, place: Path) -> None:
    os.link(place / "out" / "file", place / "out" / "other")
    argv = [*PYTHON, "import sys; open(sys.argv[1])", str(place / "out" / "other")]
    found = only(await explained(backend, spec_for(backend, place / "ws"), argv), "read")
    assert found.spec_line is None
    assert "has other names" in found.detail


async def test_a_socket_of_the_host_is_named_and_no_line_given(backend: SandboxBackend, place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "out" / "s"))
        server.listen()
        script = "import _socket as s, sys\ns.socket(s.AF_UNIX, s.SOCK_STREAM).connect(sys.argv[1])"
        argv = [*PYTHON, script, str(place / "out" / "s")]
        assert outside(argv).returncode == 0
        result = await explained(backend, spec_for(backend, place / "ws"), argv)
        assert result.exit_code == 1
        found = [one for one in result.violations if one.call in ("connect", "socket")]
        assert [one.spec_line for one in found] == [None], result.violations


KEYCTL = "import ctypes; l = ctypes.CDLL(None, use_errno=True); sys.exit(l.syscall(250, 0, -3, 0) < 0)"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of keyctl is that of x86_64")
async def test_a_call_the_filter_refuses_is_named(backend: SandboxBackend, place: Path) -> None:
    argv = [sys.executable, "-c", f"import sys; {KEYCTL}"]
    assert outside(argv).returncode == 0
    result = await explained(backend, spec_for(backend, place / "ws"), argv)
    found = only(result, "syscall")
    assert (result.exit_code, found.target, found.error, found.spec_line) == (1, "keyctl", "ENOSYS", None)


async def test_a_switch_of_the_spec_is_named_where_it_lets_the_call_pass(
    bubblewrap: SandboxBackend, place: Path
) -> None:
    argv = ["/usr/bin/unshare", "--user", "true"]
    spec = spec_for(bubblewrap, place / "ws")
    assert outside(argv).returncode == 0
    found = only(await explained(bubblewrap, spec, argv), "syscall")
    assert (found.target, found.error, found.spec_line) == ("unshare", "EPERM", "process.allow_nested_userns = true")
    again = await explained(bubblewrap, widened(spec, [found.spec_line]), argv)
    assert (again.exit_code, of(again, "syscall")) == (0, [])


async def test_an_existing_protected_name_is_named_and_no_line_given(bubblewrap: SandboxBackend, place: Path) -> None:
    ws = place / "ws"
    subprocess.run(["git", "init", "-q", str(ws)], check=True)
    (ws / ".bashrc").write_text("")
    argv = ["/bin/sh", "-c", "echo >>.git/config; echo >.bashrc; rm .bashrc; mv .git g; true"]
    result = await explained(bubblewrap, spec_for(bubblewrap, ws), argv, cwd=str(ws))
    found = {one.target: one for one in of(result, "write")}
    assert found.keys() == {f"{ws}/.git/config", f"{ws}/.bashrc", f"{ws}/.git -> {ws}/g"}
    assert {one.spec_line for one in found.values()} == {None}
    assert "protected" in found[f"{ws}/.bashrc"].detail
    assert result.violations == tuple(found.values())


async def test_a_missing_protected_name_is_still_found_after_the_run(bubblewrap: SandboxBackend, place: Path) -> None:
    ws = place / "ws"
    result = await explained(bubblewrap, spec_for(bubblewrap, ws), ["touch", f"{ws}/.bashrc"])
    assert [one.kind for one in result.violations] == ["protected-path-created"]


async def test_what_the_spec_denies_gets_no_line(bubblewrap: SandboxBackend, place: Path) -> None:
    ws = place / "ws"
    (ws / "secret").write_text("x")
    (ws / ".env").write_text("x")
    spec = spec_for(bubblewrap, ws)
    named = FilesystemPolicy(write=(str(ws),), deny=(f"{ws}/secret", f"glob:{ws}/*.env"))
    spec = spec.model_copy(update={"filesystem": named})
    result = await explained(bubblewrap, spec, ["cat", f"{ws}/secret", f"{ws}/.env"])
    assert [(one.kind, one.target, one.spec_line) for one in result.violations] == [
        ("read", f"{ws}/secret", None),
        ("read", f"{ws}/.env", None),
    ]
    assert "filesystem.deny" in result.violations[0].detail


async def test_a_credential_gets_no_line(backend: SandboxBackend, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = place / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("key")
    (home / "notes").write_text("x")
    monkeypatch.setenv("HOME", str(home))
    result = await explained(backend, spec_for(backend, place / "ws"), ["/bin/cat", f"{home}/.ssh/id", f"{home}/notes"])
    found = {one.target: one.spec_line for one in of(result, "read")}
    assert found[f"{home}/.ssh/id"] is None
    assert found[f"{home}/notes"] == f'filesystem.read = ["{home}/notes"]'


async def test_what_is_refused_often_is_counted_and_the_list_is_bounded(backend: SandboxBackend, place: Path) -> None:
    for number in range(250):
        (place / "out" / f"f{number}").write_text("")
    script = (
        "import os, sys\nfor n in range(250):\n  for _ in range(3):\n"
        "    try: open(f'{sys.argv[1]}/out/f{n}')\n    except OSError: pass"
    )
    async with backend.open(spec_for(backend, place / "ws")) as box:
        result = await box.run([*PYTHON, script, str(place)], explain=True)
    found = [one for one in of(result, "read") if one.target.startswith(f"{place}/out/f")]
    assert 190 <= len(found) <= 200
    assert found[0].count == 3
    assert not result.explained
    assert "200 different refusals are listed" in result.explain_gap


# --- nothing else changes ---------------------------------------------------------------

ENDS = {
    "code 0": "exit 0",
    "code 1": "exit 1",
    "code 127": "/nonexistent",
    "code 255": "exit 255",
    "a signal": "kill -9 $$",
    "a trap": "trap 'exit 7' TERM; kill -TERM $$; exit 8",
    "SIGTRAP": "kill -TRAP $$",
    "a stop": "(kill -STOP $BASHPID; echo went on) & sleep 0.3; kill -CONT $!; wait $!; echo $?",
    "a stop seen": (
        "exec python3 -c 'import os, time\npid = os.fork()\nif not pid:\n  os.kill(os.getpid(), 19); time.sleep(0.4); os._exit(3)\n"
        "print(os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])); os.kill(pid, 18)\n"
        "print(os.WIFCONTINUED(os.waitpid(pid, os.WCONTINUED)[1])); print(os.waitpid(pid, 0)[1])'"
    ),
    "input": "cat; echo; wc -c",
    "an orphan": "(sleep 0.2; echo late) & exit 4",
    "a flood of children": "for i in $(seq 40); do /bin/true & done; wait; echo $?",
    "a pipe": "seq 1000 | sort -r | head -3",
    "threads that end at once": (
        "exec python3 -c 'import _thread, os, time\n"
        "def spin():\n  while True: os.getppid()\n"
        "for _ in range(20): _thread.start_new_thread(spin, ())\ntime.sleep(0.2); os._exit(6)'"
    ),
    "another program in a thread": (
        "exec python3 -c 'import _thread, os, time\n"
        '_thread.start_new_thread(os.execv, ("/bin/sh", ["sh", "-c", "echo here; exit 5"])); time.sleep(9)\''
    ),
    "children killed while they work": (
        "exec 2>/dev/null; for i in 1 2 3 4 5 6; do (while :; do /bin/true; done) & done; sleep 0.3; kill -9 $(jobs -p); wait; echo $?"
    ),
    "errors": "cat /none; ls /none; cd /none",
}


@pytest.mark.parametrize("name", ENDS)
async def test_a_command_ends_as_it_would_unexplained(name: str, backend: SandboxBackend, place: Path) -> None:
    argv = ["/bin/bash", "--norc", "-c", ENDS[name]]
    environment = {"PATH": "/usr/bin:/bin"}
    async with backend.open(spec_for(backend, place / "ws")) as box:
        plain = await box.run(argv, stdin=b"in", environment=environment)
        traced = await box.run(argv, stdin=b"in", environment=environment, explain=True)
    for result in (plain, traced):
        assert result.termination in (Termination.EXITED, Termination.SIGNALED)
    assert (traced.exit_code, traced.signal, traced.stdout) == (plain.exit_code, plain.signal, plain.stdout)
    assert _without_numbers(traced.stderr) == _without_numbers(plain.stderr)


def _without_numbers(text: bytes) -> bytes:
    return bytes(byte for byte in text if not 48 <= byte <= 57)


async def test_every_exit_code_and_signal_is_the_commands_own(backend: SandboxBackend, place: Path) -> None:
    async with backend.open(spec_for(backend, place / "ws")) as box:
        for code in (*range(0, 256, 15), 126, 127, 128):
            result = await box.run(["/bin/sh", "-c", f"exit {code}"], explain=True)
            assert (result.exit_code, result.signal) == (code, None)
        for number in (1, 2, 3, 6, 8, 9, 11, 13, 14, 15, 31):
            result = await box.run(["/bin/sh", "-c", f"kill -{number} $$"], explain=True)
            assert (result.exit_code, result.signal, result.termination) == (None, number, Termination.SIGNALED)


async def test_limits_and_cancellation_end_it(backend: SandboxBackend, place: Path) -> None:
    spec = spec_for(backend, place / "ws", limits=Limits(max_output_bytes=1 << 16))
    async with backend.open(spec) as box:
        result = await box.run(["/bin/sh", "-c", "trap '' TERM; sleep 60 & sleep 60"], timeout=0.5, explain=True)
        assert (result.termination, result.explained) == (Termination.TIMED_OUT, True)
        result = await box.run(["/usr/bin/yes"], explain=True)
        assert result.termination is Termination.OUTPUT_LIMIT
        started = time.monotonic()
        with anyio.move_on_after(0.5) as scope:
            await box.run(["/bin/sh", "-c", "while :; do /bin/true; done"], explain=True)
        assert scope.cancelled_caught
        assert time.monotonic() - started < 2.5


async def test_a_started_command_is_explained_and_takes_signals(backend: SandboxBackend, place: Path) -> None:
    script = f"trap 'cat {place}/out/file; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    async with (
        backend.open(spec_for(backend, place / "ws")) as box,
        box.start(["/bin/sh", "-c", script], explain=True) as process,
    ):
        assert process.stdout
        assert await process.stdout.receive() == b"ready\n"
        process.send_signal(signal.SIGUSR1)
        result = await process.wait()
    assert (result.exit_code, result.explained) == (5, True)
    assert f"{place}/out/file" in [one.target for one in of(result, "read")]


async def test_a_missing_program_is_an_error_of_ours(backend: SandboxBackend, place: Path) -> None:
    async with backend.open(spec_for(backend, place / "ws")) as box:
        with pytest.raises(FileNotFoundError):
            await box.run(["no-such-program"], explain=True)


async def test_many_at_once(backend: SandboxBackend, place: Path) -> None:
    results: list[ExecResult] = []
    async with backend.open(spec_for(backend, place / "ws")) as box:

        async def one(explain: bool) -> None:
            results.append(await box.run(["/bin/cat", f"{place}/out/file"], explain=explain))

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(one, number % 2 == 0)
    assert {result.exit_code for result in results} == {1}
    assert sorted(len(of(result, "read")) > 0 for result in results) == [False] * 6 + [True] * 6


@pytest.mark.parametrize("with_broker", [False, True], ids=["alone", "with its broker"])
async def test_nothing_is_left_of_a_killed_application(with_broker: bool, backend: SandboxBackend, place: Path) -> None:
    program = (
        "import sys, anyio\nfrom tests.backends.test_explain import *\nfrom sandboxkit.process import broker_pid\n"
        "async def main():\n"
        f"  backend = {type(backend).__name__}()\n"
        "  async with backend.open(spec_for(backend, Path(sys.argv[1]) / 'ws')) as box:\n"
        "    async with box.start(['/bin/sh', '-c', 'echo up; while :; do sleep 0.01; done # ' + sys.argv[2]], explain=True) as p:\n"
        "      await p.stdout.receive(); print(broker_pid(), flush=True); await anyio.sleep(60)\n"
        "anyio.run(main)"
    )
    marker = f"h-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(place), marker], stdout=subprocess.PIPE, env=environment
    ) as application:
        assert application.stdout
        broker = int(application.stdout.readline())
        assert _running(marker)
        if with_broker:
            os.kill(broker, signal.SIGKILL)
        application.kill()
    deadline = time.monotonic() + 3
    while _running(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _running(marker) == []


def _running(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in words:
                found.append(f"{entry.name} {words!r}")
    return found


async def test_a_killed_tracer_takes_the_box_along(backend: SandboxBackend, place: Path) -> None:
    marker = f"t-{os.getpid()}-{time.monotonic_ns()}"
    script = f"echo up; while :; do sleep 0.01; done # {marker}"
    async with (
        backend.open(spec_for(backend, place / "ws")) as box,
        box.start(["/bin/sh", "-c", script], explain=True) as process,
    ):
        assert process.stdout
        await process.stdout.receive()
        command = min(int(line.split()[0]) for line in _running(marker) if "/bin/sh" in line)  # others are to be sleep
        (tracer,) = [
            int(row.split()[1])
            for row in Path(f"/proc/{command}/status").read_text().splitlines()
            if row.startswith("TracerPid")
        ]
        os.kill(tracer, signal.SIGKILL)
        result = await process.wait()
    assert (result.termination, result.explained) == (Termination.KILLED, False)
    assert "ended before it could report" in result.explain_gap
    assert _running(marker) == []


async def test_small_limits_leave_room_for_the_command_as_without(backend: SandboxBackend, place: Path) -> None:
    degraded = frozenset({Control.LIMITS_PROCESSES, Control.LIMITS_MEMORY, Control.PROCESS_ISOLATION})
    limits = Limits(processes=8, memory_bytes=64 << 20)
    spec = spec_for(backend, place / "ws", limits=limits).model_copy(update={"allow_degraded": degraded})
    async with backend.open(spec) as box:
        plain = await box.run(["/bin/sh", "-c", "/bin/true | /bin/true; exit 4"])
        traced = await box.run(["/bin/sh", "-c", "/bin/true | /bin/true; exit 4"], explain=True)
    assert (plain.exit_code, traced.exit_code, traced.explained) == (4, 4, True)
    if plain.usage and plain.usage.tree_processes_peak is not None and traced.usage:
        assert traced.usage.tree_processes_peak is not None
        assert traced.usage.tree_processes_peak <= plain.usage.tree_processes_peak + 1


NONSENSE = """
import ctypes, os, random, sys
libc = ctypes.CDLL(None)
chance = random.Random(int(sys.argv[1]))
values = [0, 1, 3, -1, -100, 8, 1 << 63, (1 << 64) - 1, id(b"x"), ctypes.addressof(ctypes.create_string_buffer(b"/out/" * 900))]
numbers = [n for n in range(470) if n not in (34, 56, 57, 58, 60, 62, 200, 231, 234, 0, 7, 23, 35, 61, 128, 130, 247, 270, 271)]
for _ in range(1500):
    libc.syscall(chance.choice(numbers), *(ctypes.c_long(chance.choice(values)) for _ in range(6)))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers left out are those of x86_64")
@pytest.mark.parametrize("seed", range(4))
async def test_calls_without_sense_do_not_end_the_tracer(seed: int, backend: SandboxBackend, place: Path) -> None:
    async with backend.open(spec_for(backend, place / "ws")) as box:
        result = await box.run([*PYTHON, NONSENSE, str(seed)], timeout=10, explain=True)
    assert result.termination is not Termination.KILLED
    assert "ended before" not in result.explain_gap


async def test_a_program_sees_no_tracer(bubblewrap: SandboxBackend, place: Path) -> None:
    result = await explained(bubblewrap, spec_for(bubblewrap, place / "ws"), ["grep", "TracerPid", "/proc/self/status"])
    assert result.text().split() == ["TracerPid:", "0"]


async def test_a_debugger_inside_is_what_does_not_work(bubblewrap: SandboxBackend, place: Path) -> None:
    script = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)"
    async with bubblewrap.open(spec_for(bubblewrap, place / "ws")) as box:
        plain = await box.run([*PYTHON, script])
        traced = await box.run([*PYTHON, script], explain=True)
    assert (plain.exit_code, traced.exit_code) == (0, 1)
    assert traced.violations == ()  # the box did not refuse it


async def test_where_tracing_is_refused_the_command_runs_and_the_result_says_so(
    bubblewrap: SandboxBackend, place: Path
) -> None:
    program = (
        "import sys, anyio\nfrom tests.backends.test_explain import *\nimport pyseccomp\n"
        "refuse = pyseccomp.SyscallFilter(pyseccomp.ALLOW)\n"
        "refuse.add_rule(pyseccomp.ERRNO(1), 'ptrace')\nrefuse.load()\n"
        "async def main():\n"
        "  backend = BubblewrapBackend()\n"
        "  async with backend.open(spec_for(backend, Path(sys.argv[1]) / 'ws')) as box:\n"
        "    r = await box.run(['/bin/sh', '-c', 'cat ' + sys.argv[1] + '/out/file; exit 3'], explain=True)\n"
        "    print(r.exit_code, r.explained, r.violations, r.explain_gap)\n"
        "anyio.run(main)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))}
    done = outside([sys.executable, "-W", "ignore", "-c", program, str(place)], env=environment)
    text = done.stdout.decode()
    assert text.startswith("3 False () processes may not be traced here (Operation not permitted"), (text, done.stderr)


TOOLS = {
    "git": "git init -q r && cd r && git status && git log; echo $?",
    "python": 'python3 -c \'import json, subprocess; print(subprocess.run(["id", "-u"], stdout=-1).returncode)\'',
    "make": "printf 'all: a b\\na b:\\n\\ttouch $@\\n' >Makefile && make -j4 && ls",
    "gcc": "printf 'int main(){return 3;}' >m.c && gcc -static m.c -o m && ./m; echo $?",
    "loops": "i=0; while [ $i -lt 50 ]; do i=$((i+1)); x=$(echo $i); done; echo $x",
}


@pytest.mark.parametrize("name", TOOLS)
async def test_ordinary_tools_say_the_same(name: str, bubblewrap: SandboxBackend, place: Path) -> None:
    if name not in ("loops", "python") and not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    texts = []
    for explain in (False, True):
        ws = place / "ws" / "same"
        shutil.rmtree(ws, ignore_errors=True)
        ws.mkdir()
        async with bubblewrap.open(spec_for(bubblewrap, ws)) as box:
            result = await box.run(["/bin/sh", "-c", TOOLS[name]], cwd=str(ws), explain=explain)
        texts.append((result.exit_code, sorted(result.stdout.splitlines()), result.stderr))
    assert texts[0] == texts[1]
    assert texts[0][0] == 0
