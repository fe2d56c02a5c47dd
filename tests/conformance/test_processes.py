"""
What a box must not do to processes, or learn from them, and the same acts outside.
"""

from __future__ import annotations

import contextlib
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
from tests.conformance.conftest import BOXED, IS_ROOT, PYTHON, Act, gone, running

from sandboxkit.errors import CommandError, ProgramNotExecutableError, ProgramNotFoundError
from sandboxkit.model import EnvironmentPolicy, FilesystemPolicy, ProcessPolicy, SandboxSpec, Termination
from sandboxkit.process import interpreter, shutdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.conftest import Boxes

pytestmark = pytest.mark.anyio

needs_root = pytest.mark.skipif(not IS_ROOT, reason="not applicable: only root can set this up")


# --- how a command ends ------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 42, 125, 126, 127, 128, 137, 139, 255])
async def test_an_exit_code_is_the_commands_own(boxes: Boxes, ws: Path, code: int) -> None:
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", f"exit {code}"])
    assert (result.exit_code, result.signal, result.termination) == (code, None, Termination.EXITED)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP]
)
async def test_a_signal_is_no_exit_code(boxes: Boxes, ws: Path, number: signal.Signals) -> None:
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", f"kill -{int(number)} $$"])
    assert (result.exit_code, result.signal, result.termination) == (None, number, Termination.SIGNALED)


async def test_a_missing_program_of_the_shell_and_of_ours(boxes: Boxes, ws: Path) -> None:
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
    words = ['{"a": [1, "b"]}', "a | b > c", "$(id) `id` $HOME", "", "-", "--", "-n", "ünï\n\tcode", "*", "'\"\\"]
    argv = [*PYTHON, "import json, sys; print(json.dumps(sys.argv[1:]))", *words]
    result = await boxes.run(SandboxSpec.workspace_write(ws), argv)
    assert json.loads(result.text()) == words
    with pytest.raises(CommandError, match="NUL"):
        await boxes.run(SandboxSpec.workspace_write(ws), ["echo", "a\0b"])


async def test_killing_everything_inside_leaves_a_right_result(boxes: Boxes, ws: Path) -> None:
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
    script = """
for _ in range(20):
    if not os.fork():
        if os.fork():
            os._exit(0)
        time.sleep(0.05)
        os._exit(0)
    os.wait()
def zombies():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found += [entry] * (open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()[0] == "Z")
            except OSError:
                pass
    return found
deadline = time.monotonic() + 5
time.sleep(0.1)
while zombies() and time.monotonic() < deadline:
    time.sleep(0.02)
answers["zombies"] = zombies()
answers["processes"] = sum(entry.isdigit() for entry in os.listdir("/proc"))
"""
    assert await boxes.act(SandboxSpec.workspace_write(ws), Act(script)) == {"zombies": [], "processes": 2}


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
    started = time.monotonic()
    result = await boxes.run(SandboxSpec.workspace_write(ws), ["sh", "-c", "sleep 30 & echo out"], timeout=25)
    assert (result.text(), time.monotonic() - started < 10) == ("out\n", True)


# --- the host's processes ---------------------------------------------------------------------

REACH = Act(
    """
pid = arguments["pid"]
attempt("look", os.listdir, "/proc/%d" % pid)
attempt("signal", os.kill, pid, 0)
attempt("pidfd", os.pidfd_open, pid)
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
    with victim() as pid:
        inside = await boxes.act(SandboxSpec.workspace_write(ws), REACH, pid=pid)
        assert set(REACH.outside(pid=pid).values()) == {"done"}
    assert (
        inside.pop("look") == inside.pop("environment") == inside.pop("memory") == inside.pop("namespace") == "ENOENT"
    )
    # pidfd_open of a process id too large for the namespace answers EINVAL.
    assert set(inside.values()) == {"ESRCH"}


async def test_processes_of_the_host_are_not_seen(boxes: Boxes, ws: Path) -> None:
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


async def test_the_boxs_first_process_gives_nothing_away(boxes: Boxes, ws: Path) -> None:
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
    (outside / "secret").write_text("secret")
    fds = [os.open(outside / "secret", os.O_RDWR), os.open(outside, os.O_RDONLY | os.O_DIRECTORY)]
    high = 57
    try:
        os.dup2(fds[0], high, inheritable=True)
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
    inside = await boxes.act(SandboxSpec.workspace_write(ws), STATUS)
    ids, groups = inside.pop("ids"), inside.pop("groups")
    assert inside == {
        **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0),
        "NoNewPrivs": 1,
        "Seccomp": 2,
    }
    assert 0 not in (*ids, *groups)
    control = STATUS.outside()
    assert (control["NoNewPrivs"], control["Seccomp"], control["CapBnd"] > 0, control["CapEff"] > 0) == (
        0,
        0,
        True,
        IS_ROOT,
    )


async def test_the_host_sees_an_unprivileged_user(boxes: Boxes, ws: Path) -> None:
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
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), NAMESPACES, where=str(ws), clone=number)
    assert set(inside.values()) == {"EPERM"}
    control = NAMESPACES.outside(where=str(ws), clone=number)
    assert control["user namespace"] == control["mount in them"] == "done"
    spec = SandboxSpec.workspace_write(ws, process=ProcessPolicy(allow_nested_userns=True))
    assert (await boxes.act(spec, NAMESPACES, where=str(ws), clone=number))["user namespace"] == "done"


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


async def test_nothing_is_mounted_or_unmounted(boxes: Boxes, ws: Path) -> None:
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    inside = await boxes.act(SandboxSpec.workspace_write(ws), MOUNTS, where=str(ws), pivot_root=number)
    assert set(inside.values()) == {"EPERM"}


@needs_root
async def test_a_setuid_program_in_the_workspace_gains_nothing(boxes: Boxes, ws: Path) -> None:
    shutil.copy(shutil.which("id") or "/usr/bin/id", ws / "id")
    (ws / "id").chmod(0o4755)
    result = await boxes.run(SandboxSpec.workspace_write(ws), [str(ws / "id"), "-u"])
    assert result.check().text().strip() not in ("", "0")
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


async def test_nothing_is_typed_into_the_callers_terminal(ws: Path) -> None:
    typing = [*PYTHON, TYPE]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = [sys.executable, "-c", TERMINAL]
    plain = subprocess.run([*run, *typing], capture_output=True, text=True, check=True, timeout=30)
    # EIO: dev.tty.legacy_tiocsti is 0, the default of many distributions since Linux 6.2.
    assert plain.stdout.splitlines()[-1].split()[-1] in ("typed", "EIO")
    assert "terminal ENXIO" not in plain.stdout
    boxed = [sys.executable, "-c", BOXED, str(ws), *typing]
    inside = subprocess.run([*run, *boxed], capture_output=True, text=True, check=True, env=environment, timeout=30)
    assert inside.stdout.split()[:2] == ["terminal", "ENXIO"], inside
    assert "typed" not in inside.stdout


async def test_nothing_is_typed_into_a_terminal_of_its_own(boxes: Boxes, ws: Path) -> None:
    argv = [*PYTHON, TERMINAL, *PYTHON, TYPE]
    result = await boxes.run(SandboxSpec.workspace_write(ws), argv)
    assert result.check().text().splitlines()[0] == "terminal EPERM"


async def test_a_read_only_spec_changes_nothing(boxes: Boxes, ws: Path) -> None:
    (ws / "file").write_text("content")
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=(str(ws),)))
    result = await boxes.run(spec, ["sh", "-c", "cat file; echo x > file; rm file; touch new"])
    assert (result.text(), result.text("stderr").count("Read-only file system")) == ("content", 3)
    assert [path.name for path in ws.iterdir()] == ["file"]
