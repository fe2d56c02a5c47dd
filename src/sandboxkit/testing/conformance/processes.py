"""
What a box must not do to processes, or learn from them, and the same acts outside.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from sandboxkit.errors import CommandError, ProgramNotExecutableError, ProgramNotFoundError
from sandboxkit.model import EnvironmentPolicy, FilesystemPolicy, ProcessPolicy, SandboxSpec, Termination
from sandboxkit.process import interpreter, shutdown
from sandboxkit.testing.conformance._acts import BOXED, IS_ROOT, PYTHON, REFUSED, Act, gone, importable, running
from sandboxkit.testing.conformance._behaviours import exported, needs_root
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what the behaviours ask for
from sandboxkit.testing.conformance._fixtures import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.testing.conformance._acts import Boxes


# --- how a command ends ------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 42, 125, 126, 127, 128, 137, 139, 255])
async def test_an_exit_code_is_the_commands_own(boxes: Boxes, ws: Path, code: int) -> None:
    """
    Commands exit with codes that shells and wrappers use for themselves; each is reported
    as it is.

    Control: none: the code was chosen by the test.
    """
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", f"exit {code}"])
    assert (result.exit_code, result.signal, result.termination) == (code, None, Termination.EXITED)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP]
)
async def test_a_signal_is_no_exit_code(boxes: Boxes, ws: Path, number: signal.Signals) -> None:
    """
    Commands end by signals; the signal is reported, and no exit code.

    Control: none: the signal was chosen by the test.
    """
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", f"kill -{int(number)} $$"])
    assert (result.exit_code, result.signal, result.termination) == (None, number, Termination.SIGNALED)


async def test_a_missing_program_of_the_shell_and_of_ours(boxes: Boxes, ws: Path) -> None:
    """
    A program the shell does not find is its exit code 127; one the caller names and the box
    lacks, or cannot execute, is a typed error.

    Control: none: outside it is missing as well.
    """
    spec = SandboxSpec.workspace_write(ws)
    shell = await boxes.run(spec, ["sh", "-c", "no-such-program"])
    assert (shell.exit_code, shell.termination) == (127, Termination.EXITED)
    for missing in ("no-such-program", str(ws / "no-such-program"), "/dev/null/x"):
        with pytest.raises(ProgramNotFoundError):
            await boxes.run(spec, [missing])
    (ws / "plain").write_text("echo plain\n")
    with pytest.raises(ProgramNotExecutableError):
        await boxes.run(spec, [str(ws / "plain")])


async def test_words_reach_the_program_unchanged(boxes: Boxes, ws: Path) -> None:
    """
    JSON, pipes, substitutions, options, empty words and control characters are arguments; a
    NUL byte is refused.

    Control: the words are compared with those that were sent.
    """
    words = ['{"a": [1, "b"]}', "a | b > c", "$(id) `id` $HOME", "", "-", "--", "-n", "ünï\n\tcode", "*", "'\"\\"]
    argv = [*PYTHON, "import json, sys; print(json.dumps(sys.argv[1:]))", *words]
    result = await boxes.run(SandboxSpec.workspace_write(ws), argv)
    assert json.loads(result.text()) == words
    with pytest.raises(CommandError, match="NUL"):
        await boxes.run(SandboxSpec.workspace_write(ws), ["echo", "a\0b"])


@pytest.mark.usefixtures("confined")
async def test_killing_everything_inside_leaves_a_right_result(boxes: Boxes, ws: Path) -> None:
    """
    The command kills and stops the first process, and all others; what it does afterwards
    is reported right.

    Control: none: the same would end the host's session.
    """
    spec = SandboxSpec.workspace_write(ws)
    # A first process takes no signal from inside its namespace that it has no handler for.
    result = await boxes.run(spec, ["sh", "-c", "kill -9 1; sleep 0.1; kill -STOP 1; sleep 0.1; exit 3"])
    assert (result.exit_code, result.termination) == (3, Termination.EXITED)
    result = await boxes.run(spec, ["sh", "-c", "sleep 60 & kill -9 -1; wait; exit 4"], timeout=20)
    assert (result.exit_code, result.termination) == (4, Termination.EXITED)
    result = await boxes.run(spec, ["sh", "-c", "(kill -9 -1); exit 5"], timeout=20)
    assert (result.signal, result.termination) == (signal.SIGKILL, Termination.SIGNALED)
    result = await boxes.run(
        spec, ["sh", "-c", "trap '' TERM INT HUP; kill -TERM -1 1; kill -INT 1; exit 6"], timeout=20
    )
    assert (result.exit_code, result.termination) == (6, Termination.EXITED)


async def test_orphans_are_collected(boxes: Boxes, ws: Path) -> None:
    """
    20 grandchildren lose their parents and end; nothing of them stays, not even a zombie.

    Control: none: outside, the host's init does the same.
    """
    script = """
ours, theirs = os.pipe()
for _ in range(20):
    if not os.fork():
        if os.fork():
            os._exit(0)
        os.write(theirs, b"%8d" % os.getpid())
        time.sleep(0.05)
        os._exit(0)
    os.wait()
orphans = {os.read(ours, 8).decode().strip() for _ in range(20)}
deadline = time.monotonic() + 5
while orphans & set(os.listdir("/proc")) and time.monotonic() < deadline:
    time.sleep(0.02)
answers["orphans"] = len(orphans)
answers["left"] = sorted(orphans & set(os.listdir("/proc")))
"""
    assert await boxes.act(SandboxSpec.workspace_write(ws), Act(script)) == {"orphans": 20, "left": []}


# --- processes outlive nothing --------------------------------------------------------------


SLEEP = f"{interpreter()} -I -S -c 'import time; time.sleep(60)'"


@pytest.mark.parametrize(
    "script",
    [
        f"{SLEEP} MARKER & exit 0",
        f"(setsid nohup {SLEEP} MARKER > /dev/null 2>&1 < /dev/null &) ; exit 0",
        f"(trap '' HUP TERM INT; setsid sh -c \"trap '' TERM; {SLEEP} MARKER\" > /dev/null 2>&1 < /dev/null &) ; exit 0",
    ],
    ids=["background", "new session", "deaf"],
)
async def test_background_processes_end_with_the_command(boxes: Boxes, ws: Path, script: str) -> None:
    """
    A command leaves a background process, one in a session of its own, and one deaf to
    signals; all are gone when it returns.

    Control: without a box they outlive it.
    """
    marker = f"marker-{os.getpid()}-{abs(hash(script))}"
    argv = ["sh", "-c", script.replace("MARKER", marker)]
    result = await boxes.run(SandboxSpec.workspace_write(ws), argv, timeout=20)
    assert (result.exit_code, result.duration_s < 10, gone(marker)) == (0, True, True)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 5
    # One look finds it: during an exec a process shows no words.
    while not (left := running(marker)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left, "outside, it outlives the command"


async def test_a_deadline_ends_what_is_deaf_to_sigterm(boxes: Boxes, ws: Path) -> None:
    """
    A tree that ignores signals passes its deadline; nothing of it is left.

    Control: without a box it survives SIGTERM.
    """
    marker = f"marker-{os.getpid()}-deaf"
    script = f"trap '' TERM INT HUP; (trap '' TERM; {SLEEP} {marker}) & echo begun; while :; do sleep 0.05; done"
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", script], timeout=0.7)
    assert (result.termination, result.exit_code, result.text()) == (Termination.TIMED_OUT, None, "begun\n")
    assert (result.duration_s < 5, gone(marker)) == (True, True)
    outside = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert outside.stdout is not None
    assert outside.stdout.readline() == b"begun\n"
    os.killpg(outside.pid, signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        outside.wait(0.3)
    os.killpg(outside.pid, signal.SIGKILL)
    outside.communicate()


async def test_the_end_of_a_pipe_a_background_process_holds_is_not_waited_for(boxes: Boxes, ws: Path) -> None:
    """
    A background process keeps stdout open; the run returns with the command.

    Control: none: the time it takes is the proof.
    """
    started = time.monotonic()
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", "sleep 30 & echo out"], timeout=25)
    assert (result.text(), time.monotonic() - started < 10) == ("out\n", True)


# --- the host's processes ---------------------------------------------------------------------

REACH = Act(
    """
pid = arguments["pid"]
attempt("signal", os.kill, pid, 0)
attempt("by pidfd", lambda: kernel("syscall", 424, os.pidfd_open(pid), 0, None, 0))
attempt("environment", read, "/proc/%d/environ" % pid)
attempt("memory", open, "/proc/%d/mem" % pid, "r+b", 0)
attempt("trace", kernel, "ptrace", 0x4206, pid, 0, 0)
attempt("namespace", os.readlink, "/proc/%d/ns/mnt" % pid)
attempt("priority", os.setpriority, os.PRIO_PROCESS, pid, 19)
"""
)


@contextlib.contextmanager
def victim() -> Iterator[int]:
    """
    A process that lets anyone of its user trace it.
    """
    source = "import ctypes, sys, time; ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([interpreter(), "-I", "-S", "-c", source, "victim"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


async def test_processes_of_the_host_cannot_be_reached(boxes: Boxes, ws: Path) -> None:
    """
    A process of the host is signalled, opened, traced and reniced by its number.

    Control: without a box each of them succeeds.
    """
    with victim() as pid:
        inside = await boxes.act(SandboxSpec.workspace_write(ws), REACH, pid=pid)
        assert set(REACH.outside(pid=pid).values()) == {"done"}
    # pidfd_open of a process id too large for the namespace answers EINVAL.
    assert set(inside.values()) <= REFUSED | {"ESRCH", "EINVAL"}, inside


async def test_processes_of_the_host_are_not_seen(boxes: Boxes, ws: Path) -> None:
    """
    /proc is listed: the box has its own processes in it, and no other.

    Control: a process of the host is listed without a box.
    """
    script = "answers['pids'] = sorted(int(name) for name in os.listdir('/proc') if name.isdigit()); answers['parent'] = os.getppid()"
    with victim() as pid:
        inside = await boxes.act(SandboxSpec.workspace_write(ws), Act(script))
        outside = Act(script).outside()
    assert inside == {"pids": [1, 2], "parent": 1}
    assert pid in outside["pids"]


INIT = Act(
    """
pid = arguments["pid"]
attempt("environment", read, "/proc/%d/environ" % pid)
attempt("memory", open, "/proc/%d/mem" % pid, "r+b", 0)
attempt("descriptors", os.listdir, "/proc/%d/fd" % pid)
attempt("root", os.listdir, "/proc/%d/root/" % pid)
attempt("working directory", os.readlink, "/proc/%d/cwd" % pid)
attempt("program", os.readlink, "/proc/%d/exe" % pid)
attempt("maps", read, "/proc/%d/maps" % pid)
attempt("trace", kernel, "ptrace", 0x4206, pid, 0, 0)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
local = Vector(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
remote = Vector(id(None), 8)
attempt("read its memory", kernel, "process_vm_readv", pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
fd = os.pidfd_open(pid)
attempt("take a descriptor", kernel, "syscall", 438, fd, 0, 0)
"""
)


@pytest.mark.usefixtures("confined")
async def test_the_boxs_first_process_gives_nothing_away(boxes: Boxes, ws: Path) -> None:
    """
    The box's first process is opened, read, written, traced, and robbed of a descriptor.

    Control: without a box the same is done to a process of one's own.
    """
    inside = await boxes.act(SandboxSpec.workspace_write(ws), INIT, pid=1)
    assert set(inside.values()) <= {"EACCES", "EPERM"}, inside
    with victim() as pid:
        control = INIT.outside(pid=pid)
    assert {answer for what, answer in control.items() if what != "read its memory"} == {"done"}


KERNEL_FILES = Act(
    """
for path in arguments["paths"]:
    attempt(path, lambda: os.close(os.open(path, os.O_WRONLY)))
"""
)
SETTINGS = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sysrq-trigger",
)


async def test_settings_of_the_kernel_are_not_opened_for_writing(boxes: Boxes, ws: Path) -> None:
    """
    core_pattern, modprobe, sysrq and other settings are opened for writing.

    Control: as root, core_pattern opens without a box.
    """
    paths = [path for path in SETTINGS if Path(path).exists()]
    # Opened, and nothing written.
    assert set((await boxes.act(SandboxSpec.workspace_write(ws), KERNEL_FILES, paths=paths)).values()) <= {
        "EROFS",
        "EACCES",
    }
    if IS_ROOT:
        assert KERNEL_FILES.outside(paths=paths)["/proc/sys/kernel/core_pattern"] == "done"


# --- descriptors and environment ------------------------------------------------------------------

DESCRIPTORS = Act(
    """
answers["open"] = sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name))
answers["leads to"] = [name for name in map(os.readlink, ("/proc/self/fd/%d" % fd for fd in answers["open"])) if "secret" in name]
"""
)


async def test_no_descriptor_is_inherited(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    The application holds a secret file and a directory open, inheritable; the command has
    three descriptors.

    Control: a child of the application inherits them.
    """
    (outside / "secret").write_text("secret")
    fds = [os.open(outside / "secret", os.O_RDWR), os.open(outside, os.O_RDONLY | os.O_DIRECTORY)]
    high = fcntl.fcntl(fds[0], fcntl.F_DUPFD, 57)  # a free one: the application may hold many open
    try:
        for fd in fds:
            os.set_inheritable(fd, True)
        shutdown()  # the broker that starts boxes is itself started with these open
        inside = await boxes.act(SandboxSpec.workspace_write(ws), DESCRIPTORS)
        control = subprocess.run(DESCRIPTORS.argv({}), capture_output=True, text=True, close_fds=False, check=True)
    finally:
        for fd in (*fds, high):
            os.close(fd)
    assert inside == {"open": [0, 1, 2], "leads to": []}
    assert high in json.loads(control.stdout)["open"]
    assert len(json.loads(control.stdout)["leads to"]) == 2


SECRETS = (
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
    "SSH_AUTH_SOCK",
    "BASH_ENV",
    "ENV",
    "LD_PRELOAD_X",
)
LOOK = Act(
    """
texts = [str(dict(os.environ))]
for entry in os.listdir("/proc"):
    for name in ("environ", "cmdline", "auxv", "stack"):
        try:
            texts.append(str(read("/proc/%s/%s" % (entry, name))))
        except OSError:
            pass
answers["seen"] = sum(arguments["needle"][::-1] in text for text in texts)
answers["names"] = sorted(os.environ)
"""
)


async def test_secrets_of_the_environment_do_not_enter(boxes: Boxes, ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Tokens stand in the application's environment; the command looks for them in its own and
    in all of /proc.

    Control: a child of the application finds them.
    """
    secret = f"hunter2-{os.getpid()}"
    for name in SECRETS:
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("LC_MESSAGES", "C")
    shutdown()  # the broker, too, is started with them
    inside = await boxes.act(SandboxSpec.workspace_write(ws), LOOK, needle=secret[::-1])
    assert inside["seen"] == 0
    assert set(inside["names"]) <= {
        "CI",
        "HOME",
        "LANG",
        "LC_MESSAGES",
        "LC_ALL",
        "LC_CTYPE",
        "NODE_OPTIONS",
        "PATH",
        "TERM",
        "TMPDIR",  # a backend may have a directory of its own for it
        "TZ",
    }
    assert "LC_MESSAGES" in inside["names"]
    control = LOOK.outside(needle=secret[::-1])
    assert (control["seen"] > 0, set(SECRETS) <= set(control["names"])) == (True, True)


PRELOADED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void append(const char *path, const char *text) {
    FILE *file = fopen(path, "a");
    if (file) { fputs(text, file); fclose(file); }
}
__attribute__((constructor)) static void ran(void) {
    char line[256], text[512];
    int has_privileges = 1, is_filtered = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        if (!strncmp(line, "NoNewPrivs:\t1", 13)) has_privileges = 0;
        if (!strncmp(line, "Seccomp:\t2", 10)) is_filtered = 1;
    }
    snprintf(text, sizeof text, "pid %d privileges %d filtered %d\n", getpid(), has_privileges, is_filtered);
    append(WS "/log", text);
    append(OUTSIDE "/log", text);
}
"""


async def test_a_preloaded_library_runs_in_the_command_only(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    The spec sets LD_PRELOAD and LD_AUDIT to a library of the workspace; it runs
    unprivileged and filtered, never in the box's first process, and writes nothing outside.

    Control: without a box it writes outside.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("not applicable: there is no C compiler here")
    places = [f'-DWS="{ws}"', f'-DOUTSIDE="{outside}"']
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-xc", *places, "-o", ws / "evil.so", "-"], input=PRELOADED.encode(), check=True
    )
    preload = {"LD_PRELOAD": str(ws / "evil.so"), "LD_LIBRARY_PATH": str(ws), "LD_AUDIT": str(ws / "evil.so")}
    spec = SandboxSpec.workspace_write(ws, environment=EnvironmentPolicy(set=preload))
    (await boxes.run(spec, ["sh", "-c", "/bin/true; exit 0"])).check()
    lines = (ws / "log").read_text().splitlines()
    assert lines
    assert all(line.endswith("privileges 0 filtered 1") and not line.startswith("pid 1 ") for line in lines), lines
    assert not (outside / "log").exists()
    subprocess.run(["/bin/true"], env=preload, check=True)
    assert (outside / "log").exists()


async def test_pythons_own_hooks_do_not_reach_the_supervisor(boxes: Boxes, ws: Path, outside: Path) -> None:
    """
    Modules of the workspace bear the names of the standard library's and PYTHONPATH leads
    to them; none is imported by what makes the box.

    Control: without a box Python imports them.
    """
    hook = f"import os\nfor d in ({str(ws)!r}, {str(outside)!r}):\n    try: open(d + '/log', 'a').write(f'{{os.getpid()}}\\n')\n    except OSError: pass\n"
    for name in ("sitecustomize.py", "marshal.py", "resource.py", "os.py"):
        (ws / name).write_text(hook if name != "os.py" else "raise SystemExit(77)\n")
    hooks = {
        "PYTHONPATH": str(ws),
        "PYTHONSTARTUP": str(ws / "sitecustomize.py"),
        "PYTHONHOME": "/nonexistent",
        "PYTHONINSPECT": "1",
    }
    spec = SandboxSpec.workspace_write(ws, environment=EnvironmentPolicy(set=hooks))
    assert (await boxes.run(spec, ["sh", "-c", "pwd; echo ran"])).check().text() == f"{ws}\nran\n"
    assert not (ws / "log").exists()
    (ws / "os.py").unlink()
    plain = SandboxSpec.workspace_write(ws, environment=EnvironmentPolicy(set={"PYTHONPATH": str(ws)}))
    await boxes.run(plain, [interpreter(), "-c", "pass"])
    assert "1" not in (ws / "log").read_text().split()
    assert not (outside / "log").exists()
    subprocess.run([interpreter(), "-c", "pass"], env={"PYTHONPATH": str(ws)}, check=True)
    assert (outside / "log").exists()


# --- privileges ------------------------------------------------------------------------------------

STATUS = Act(
    """
for line in open("/proc/self/status"):
    key, _, value = line.partition(":")
    if key.startswith(("Cap", "NoNewPrivs", "Seccomp")) and key != "Seccomp_filters":
        answers[key] = int(value, 16)
answers["ids"] = sorted({*os.getresuid(), *os.getresgid()})
answers["groups"] = os.getgroups()
"""
)


async def test_the_command_has_no_privileges(boxes: Boxes, ws: Path) -> None:
    """
    Capabilities, no_new_privs and the filter are read back.

    Control: without a box there is no filter and capabilities can be had.
    """
    inside = await boxes.act(SandboxSpec.workspace_write(ws), STATUS)
    held = {name: inside[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")}
    assert held == {**dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapAmb"), 0), "NoNewPrivs": 1, "Seccomp": 2}
    control = STATUS.outside()
    assert (control["NoNewPrivs"], control["Seccomp"], control["CapBnd"] > 0, control["CapEff"] > 0) == (
        0,
        0,
        True,
        IS_ROOT,
    )


async def test_the_host_sees_an_unprivileged_user(boxes: Boxes, ws: Path) -> None:
    """
    While a command runs, the host looks at its user and groups: never root's, whoever
    called.

    Control: for a plain user they are the caller's own.
    """
    marker = f"marker-{os.getpid()}-user"
    (ws / "go").touch()
    waiting = "while test -e go; do sleep 0.01; done"
    owners: set[str] = set()

    async def look() -> None:
        with anyio.fail_after(10):
            while not (pids := running(marker)):  # noqa: ASYNC110 - the box has no event of ours to set
                await anyio.sleep(0.01)
        for pid in pids:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            owners.update(word for line in lines if line.startswith(("Uid:", "Gid:")) for word in line.split()[1:])
        (ws / "go").unlink()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        (await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", waiting, marker], timeout=20)).check()
    assert "0" not in owners
    assert IS_ROOT or owners == {str(os.getuid()), str(os.getgid())}


async def test_no_capability_can_be_had_again(boxes: Boxes, ws: Path) -> None:
    """
    The bounding set, which is the most any program could ever be given, is read back; it is
    empty.

    Control: without a box it is not.
    """
    assert (await boxes.act(SandboxSpec.workspace_write(ws), STATUS))["CapBnd"] == 0
    assert STATUS.outside()["CapBnd"] > 0


async def test_the_command_is_not_root_to_itself(boxes: Boxes, ws: Path) -> None:
    """
    User and group ids and the groups are read back; none is 0.

    Control: as root, the ids are 0 without a box.
    """
    inside = await boxes.act(SandboxSpec.workspace_write(ws), STATUS)
    assert 0 not in (*inside["ids"], *inside["groups"])
    assert (0 in STATUS.outside()["ids"]) == IS_ROOT


NAMESPACES = Act(
    """
def in_child(action):
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        number = 0
        try:
            action()
        except OSError as error:
            number = error.errno
        os.write(theirs, b"%d" % number)
        os._exit(0)
    os.waitpid(pid, 0)
    number = int(os.read(ours, 9))
    if number:
        raise OSError(number, "")
NEWUSER, NEWNS = 0x10000000, 0x20000
attempt("user namespace", in_child, lambda: kernel("unshare", NEWUSER))
attempt("user and mount namespace", in_child, lambda: kernel("unshare", NEWUSER | NEWNS))
def mounts():
    kernel("unshare", NEWUSER | NEWNS)
    kernel("mount", b"none", arguments["where"].encode(), b"tmpfs", 0, None)
    kernel("umount2", arguments["where"].encode(), 0)
attempt("mount in them", in_child, mounts)
attempt("clone", in_child, lambda: kernel("syscall", arguments["clone"], NEWUSER | 17, 0, 0, 0, 0) or os._exit(0))
"""
)


async def test_no_namespace_is_made(boxes: Boxes, ws: Path) -> None:
    """
    User namespaces are made by unshare and clone, and something is mounted in them.

    Control: without a box that is done.
    """
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), NAMESPACES, where=str(ws), clone=number)
    assert set(inside.values()) <= {"EPERM", "ENOSPC"}, inside
    control = NAMESPACES.outside(where=str(ws), clone=number)
    assert control["user namespace"] == control["mount in them"] == "done"


async def test_a_namespace_is_made_where_the_spec_allows_it(boxes: Boxes, ws: Path) -> None:
    """
    A spec allows user namespaces inside; one is made by unshare.

    Control: a box whose spec does not say so refuses it.
    """
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    spec = SandboxSpec.workspace_write(ws, process=ProcessPolicy(allow_nested_userns=True))
    assert (await boxes.act(spec, NAMESPACES, where=str(ws), clone=number))["user namespace"] == "done"
    refused = await boxes.act(SandboxSpec.workspace_write(ws), NAMESPACES, where=str(ws), clone=number)
    assert refused["user namespace"] in ("EPERM", "ENOSPC")


MOUNTS = Act(
    """
where = arguments["where"].encode()
attempt("tmpfs", kernel, "mount", b"none", where, b"tmpfs", 0, None)
attempt("bind", kernel, "mount", b"/usr", where, None, 0x1000, None)
attempt("remount", kernel, "mount", None, b"/usr", None, 0x1020, None)
attempt("umount /proc", kernel, "umount2", b"/proc", 2)
attempt("umount a pin", kernel, "umount2", where, 2)
attempt("pivot_root", kernel, "syscall", arguments["pivot_root"], where, where)
attempt("chroot", os.chroot, where)
attempt("hostname", kernel, "sethostname", b"x", 1)
attempt("join a namespace", kernel, "setns", os.open("/proc/self/ns/mnt", os.O_RDONLY), 0)
"""
)


@pytest.mark.usefixtures("confined")
async def test_nothing_is_mounted_or_unmounted(boxes: Boxes, ws: Path) -> None:
    """
    Mounts are made, changed and removed, the root is changed, and a namespace is joined.

    Control: in the namespaces of `no_namespace_is_made` a mount succeeds without a box.
    """
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), MOUNTS, where=str(ws), pivot_root=number)
    assert set(inside.values()) == {"EPERM"}


@needs_root
async def test_a_setuid_program_in_the_workspace_gains_nothing(boxes: Boxes, ws: Path) -> None:
    """
    A set-user-id program of root's lies in the workspace and is run.

    Control: without a box it gives another user root's id.
    """
    shutil.copy(shutil.which("id") or "/usr/bin/id", ws / "id")
    (ws / "id").chmod(0o4755)
    result = await boxes.run(SandboxSpec.workspace_write(ws), [str(ws / "id"), "-u"])
    # Who is root already gains nothing by it: the id must be the one the box has anyway.
    assert result.check().text() == (await boxes.run(SandboxSpec.workspace_write(ws), ["id", "-u"])).check().text()
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        reachable = Path(directory) / "id"
        shutil.move(ws / "id", reachable)
        reachable.chmod(0o4755)
        outside = subprocess.run(
            [reachable, "-u"], user=4242, group=4242, extra_groups=[], capture_output=True, check=True
        )
    assert outside.stdout == b"0\n"


async def test_a_setuid_program_of_the_system_gains_nothing(boxes: Boxes, ws: Path) -> None:
    """
    su is run with a loader that shows whether it has more rights than its caller.

    Control: as a plain user, it has without a box.
    """
    su = shutil.which("su")
    if su is None or not os.stat(su).st_mode & 0o4000:
        pytest.skip("not applicable: there is no setuid su here")
    # The loader shows the auxiliary vector of a program unless it runs with more rights than its caller.
    argv = ["env", "LD_SHOW_AUXV=1", su, "--version"]
    inside = (await boxes.run(SandboxSpec.workspace_write(ws), argv)).check().text()
    secure = next(line.split()[-1] for line in inside.splitlines() if "AT_SECURE" in line)
    assert int(secure, 0) == 0
    if not IS_ROOT:
        assert "AT_SECURE" not in subprocess.run(argv, capture_output=True, text=True, check=True).stdout


async def test_every_mount_is_without_setuid_and_devices(boxes: Boxes, ws: Path) -> None:
    """
    The mounts of the box are read back: nosuid all, nodev all but a few devices.

    Control: none: what a host mounts is its own business.
    """
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["cat", "/proc/self/mountinfo"])
    rows = {row.split()[4]: row.split()[5].split(",") for row in result.check().text().splitlines()}
    assert [path for path, options in rows.items() if "nosuid" not in options] == []
    devices = {path for path, options in rows.items() if "nodev" not in options}
    assert devices <= {
        f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "pts", "console")
    }


# --- terminals ---------------------------------------------------------------------------------------

TERMINAL = """
import fcntl, os, pty, sys, termios
pid, terminal = pty.fork()
if not pid:
    os.execv(sys.argv[1], sys.argv[1:])
output = b""
while True:
    try:
        chunk = os.read(terminal, 1000)
    except OSError:
        break
    if not chunk:
        break
    output += chunk
os.waitpid(pid, 0)
sys.stdout.write(output.decode().replace("\\r", ""))
"""
TYPE = """
import fcntl, errno, os
for name, path in (("terminal", "/dev/tty"), ("output", "/dev/stdout")):
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(fd, 0x5412, b"x")
        print(name, "typed")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
"""


async def test_nothing_is_typed_into_the_callers_terminal(boxes: Boxes, ws: Path) -> None:
    """
    The application has a terminal; the command opens it and types into it.

    Control: a plain child opens it.
    """
    typing = [*PYTHON, TYPE]
    run = [sys.executable, "-c", TERMINAL]
    plain = subprocess.run([*run, *typing], capture_output=True, text=True, check=True, timeout=30)
    # EIO: dev.tty.legacy_tiocsti is 0, the default of many distributions since Linux 6.2.
    assert plain.stdout.splitlines()[-1].split()[-1] in ("typed", "EIO")
    assert "terminal ENXIO" not in plain.stdout
    boxed = boxes.program(BOXED, str(ws), *typing)
    inside = subprocess.run([*run, *boxed], capture_output=True, text=True, check=True, env=importable(), timeout=30)
    name, answer = inside.stdout.split()[:2]
    assert (name, answer in REFUSED | {"ENXIO"}) == ("terminal", True), inside
    assert "typed" not in inside.stdout


async def test_nothing_is_typed_into_a_terminal_of_its_own(boxes: Boxes, ws: Path) -> None:
    """
    The command makes a terminal of its own and types into it, as for one it was handed.

    Control: none: that the terminal is made shows that only typing is refused.
    """
    argv = [*PYTHON, TERMINAL, *PYTHON, TYPE]
    result = await boxes.run(SandboxSpec.workspace_write(ws), argv)
    assert result.check().text().splitlines()[0] == "terminal EPERM"


async def test_a_read_only_spec_changes_nothing(boxes: Boxes, ws: Path) -> None:
    """
    Under a read-only spec a file is read, overwritten and removed, and another made.

    Control: reading succeeds.
    """
    (ws / "file").write_text("content")
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=(str(ws),)))
    result = await boxes.run(spec, ["sh", "-c", "cat file; echo x > file; rm file; touch new"])
    said = result.text("stderr")
    refusals = ("Read-only file system", "Permission denied", "Operation not permitted")
    assert (result.text(), sum(map(said.count, refusals))) == ("content", 3), said
    assert [path.name for path in ws.iterdir()] == ["file"]


# --- shells, signals from outside, and every kind of namespace -----------------------------------------


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh"])
async def test_every_shell_reports_its_exit_code(boxes: Boxes, ws: Path, shell: str) -> None:
    """
    Each shell of the machine ends with a code of its own, with the code of a failed
    command, and by a signal.

    Control: without a box the shell gives the same codes.
    """
    if shutil.which(shell) is None:
        pytest.skip(f"not applicable: there is no {shell} here")
    spec = SandboxSpec.workspace_write(ws)
    for script, code in (("exit 7", 7), ("false", 1), ("(exit 9) || exit $?", 9)):
        assert (await boxes.run(spec, [shell, "-c", script])).exit_code == code
        assert subprocess.run([shell, "-c", script], check=False).returncode == code
    assert (await boxes.run(spec, [shell, "-c", "kill -TERM $$"])).signal == signal.SIGTERM
    assert subprocess.run([shell, "-c", "kill -TERM $$"], check=False).returncode == -signal.SIGTERM


TRAPPED = "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.02; done"


async def test_a_signal_from_outside_reaches_the_command(boxes: Boxes, ws: Path) -> None:
    """
    The caller sends SIGTERM to a command that handles it: the handler runs, and its exit
    code is the result.

    Control: without a box the same handler runs.
    """
    async with (
        boxes.backend.open(SandboxSpec.workspace_write(ws)) as box,
        box.start(["sh", "-c", TRAPPED]) as process,
    ):
        assert process.stdout is not None
        assert await process.stdout.receive() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(10):
            result = await process.wait()
        assert (result.exit_code, await process.stdout.receive()) == (9, b"caught\n")
    outside = subprocess.Popen(["sh", "-c", TRAPPED], stdout=subprocess.PIPE)
    assert outside.stdout is not None
    assert outside.stdout.readline() == b"ready\n"
    outside.send_signal(signal.SIGTERM)
    assert (outside.communicate(timeout=10)[0], outside.returncode) == (b"caught\n", 9)


KINDS = Act(
    """
import struct
def in_child(action):
    pid = os.fork()
    if not pid:
        try:
            action()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    number = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if number:
        raise OSError(number, "")
def clone3(flags):
    order = struct.pack("8Q", flags, 0, 0, 0, 17, 0, 0, 0)
    if not kernel("syscall", 435, order, len(order)):
        os._exit(0)
    os.wait()
NEWUSER = 0x10000000
for name, flag in arguments["kinds"].items():
    attempt("unshare " + name, in_child, lambda: kernel("unshare", flag))
    attempt("unshare user and " + name, in_child, lambda: kernel("unshare", NEWUSER | flag))
    attempt("clone3 user and " + name, in_child, lambda: clone3(NEWUSER | flag))
"""
)
NAMESPACE_KINDS = {
    "mount": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "pid": 0x20000000,
    "network": 0x40000000,
}
"""Source: linux/sched.h. A time namespace cannot be made by clone3, whose low byte is the signal."""


async def test_no_namespace_of_any_kind_is_made(boxes: Boxes, ws: Path) -> None:
    """
    Mount, cgroup, uts, ipc, pid and network namespaces are made by unshare and clone3,
    alone and with a user namespace.

    Control: without a box all are made with a user namespace; root makes them alone.
    """
    inside = await boxes.act(SandboxSpec.workspace_write(ws), KINDS, kinds=NAMESPACE_KINDS)
    assert set(inside.values()) <= {"EPERM", "ENOSPC", "ENOSYS"}, inside
    control = KINDS.outside(kinds=NAMESPACE_KINDS)
    made = {what for what, answer in control.items() if answer == "done"}
    assert {what for what in control if " user and " in what or IS_ROOT} <= made, control


WRITE_MEMORY = Act(
    """
pid = arguments["pid"]
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
local = Vector(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
# Nothing is mapped there: whoever may write is told EFAULT, and does no harm.
remote = Vector(16, 8)
attempt("write its memory", kernel, "process_vm_writev", pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
attempt("open its memory", lambda: os.close(os.open("/proc/%d/mem" % pid, os.O_WRONLY)))
attempt("attach", lambda: (kernel("ptrace", 16, pid, 0, 0), os.waitpid(pid, 0x40000000), kernel("ptrace", 17, pid, 0, 0)))
"""
)


@pytest.mark.usefixtures("confined")
async def test_the_boxs_first_process_is_not_written(boxes: Boxes, ws: Path) -> None:
    """
    The memory of the box's first process is written by process_vm_writev and through
    /proc, and a debugger attached to it.

    Control: without a box the same is done to a process of one's own.
    """
    inside = await boxes.act(SandboxSpec.workspace_write(ws), WRITE_MEMORY, pid=1)
    assert set(inside.values()) <= {"EACCES", "EPERM", "ENOSYS"}, inside
    with victim() as pid:
        control = WRITE_MEMORY.outside(pid=pid)
    assert control == {"write its memory": "EFAULT", "open its memory": "done", "attach": "done"}


__all__ = exported(globals(), *FIXTURES)
