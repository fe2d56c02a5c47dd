"""
Every call a box must not make, made for real under the filter and, for comparison,
without it.

The arguments are chosen so that the kernel itself answers otherwise, mostly because
an address or descriptor is bad: an EPERM then comes from the filter and not from a
missing privilege.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
from errno import EAFNOSUPPORT, ENOSYS, EPERM, EPROTONOSUPPORT
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sandboxkit.confine._rules import calls

if TYPE_CHECKING:
    from tests.confine.conftest import Filtered

BAD = 1
"""An address nothing is mapped at."""
NONE = 2**64 - 1
"""A descriptor that is not open."""
HIGH = 1 << 32
"""A bit the kernel does not look at in an `int`."""
SIGCHLD = 17
TMPFILE = 0o20000000 | {"aarch64": 0o40000}.get(os.uname().machine, 0o200000)
"""O_TMPFILE: the bit of its own, and O_DIRECTORY."""


class Attempt(NamedTuple):
    call: str
    arguments: tuple[int, ...]
    answer: int
    privileged: bool = False
    """Whether the kernel refuses it to ordinary users before it looks at the arguments."""


FLAGS = {
    "NEWNS": 0x20000,
    "NEWCGROUP": 0x2000000,
    "NEWUTS": 0x4000000,
    "NEWIPC": 0x8000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
NEWUSER, NEWTIME = 0x10000000, 0x80

REFUSED = {
    "AF_PACKET": Attempt("socket", (17, 3, 0), EAFNOSUPPORT),
    "AF_ALG": Attempt("socket", (38, 5, 0), EAFNOSUPPORT),
    "AF_VSOCK": Attempt("socket", (40, 1, 0), EAFNOSUPPORT),
    "AF_VSOCK, upper half set": Attempt("socket", (HIGH | 40, 1, 0), EAFNOSUPPORT),
    "AF_XDP": Attempt("socket", (44, 3, 0), EAFNOSUPPORT),
    "AF_TIPC pair": Attempt("socketpair", (30, 1, 0, BAD), EAFNOSUPPORT),
    "NETLINK_AUDIT": Attempt("socket", (16, 3, 9), EPROTONOSUPPORT),
    "NETLINK_NETFILTER": Attempt("socket", (16, 3, 12), EPROTONOSUPPORT),
    "NETLINK_GENERIC, upper halves set": Attempt("socket", (HIGH | 16, 3, HIGH | 16), EPROTONOSUPPORT),
    "TIOCSTI": Attempt("ioctl", (NONE, 0x5412, BAD), EPERM),
    "TIOCSTI, upper half set": Attempt("ioctl", (NONE, HIGH | 0x5412, BAD), EPERM),
    "TIOCLINUX": Attempt("ioctl", (NONE, 0x541C, BAD), EPERM),
    "TIOCLINUX, upper half set": Attempt("ioctl", (NONE, (2**32 - 1) << 32 | 0x541C, BAD), EPERM),
    "TIOCSETD": Attempt("ioctl", (NONE, 0x5423, BAD), EPERM),
    "clone3": Attempt("clone3", (BAD, 0), ENOSYS),
    "setns": Attempt("setns", (NONE, 0), EPERM),
    "chroot": Attempt("chroot", (BAD,), EPERM),
    "mount": Attempt("mount", (BAD, BAD, BAD, 0, BAD), EPERM),
    "umount2": Attempt("umount2", (BAD, 0xFFFF), EPERM),
    "pivot_root": Attempt("pivot_root", (BAD, BAD), EPERM, privileged=True),
    "open_tree": Attempt("open_tree", (NONE, BAD, 0), EPERM),
    "move_mount": Attempt("move_mount", (NONE, BAD, NONE, BAD, 0), EPERM, privileged=True),
    "fsopen": Attempt("fsopen", (BAD, 0), EPERM, privileged=True),
    "fsconfig": Attempt("fsconfig", (NONE, 99, BAD, BAD, 0), EPERM),
    "fsmount": Attempt("fsmount", (NONE, 0, 0), EPERM, privileged=True),
    "fspick": Attempt("fspick", (NONE, BAD, 0), EPERM, privileged=True),
    "mount_setattr": Attempt("mount_setattr", (NONE, BAD, 0, BAD, 0), EPERM),
    "open_tree_attr": Attempt("open_tree_attr", (NONE, BAD, 0, BAD, 1), EPERM),
    "sethostname": Attempt("sethostname", (BAD, NONE), EPERM, privileged=True),
    "io_uring_setup": Attempt("io_uring_setup", (1, BAD), ENOSYS),
    "io_uring_enter": Attempt("io_uring_enter", (NONE, 0, 0, 0, 0, 0), ENOSYS),
    "io_uring_register": Attempt("io_uring_register", (NONE, 0, 0, 0), ENOSYS),
    "keyctl": Attempt("keyctl", (0, 2**64 - 2, 0), ENOSYS),
    "add_key": Attempt("add_key", (BAD, BAD, BAD, 1, 0), ENOSYS),
    "request_key": Attempt("request_key", (BAD, BAD, BAD, 0), ENOSYS),
    "userfaultfd": Attempt("userfaultfd", (1,), ENOSYS),
    "modify_ldt": Attempt("modify_ldt", (0, BAD, 0), ENOSYS),
    "bpf": Attempt("bpf", (0, BAD, 1 << 20), EPERM),
    "perf_event_open": Attempt("perf_event_open", (BAD, 0, NONE, NONE, 0), EPERM),
    "open_by_handle_at": Attempt("open_by_handle_at", (NONE, BAD, 0), EPERM, privileged=True),
    "adjtimex": Attempt("adjtimex", (BAD,), EPERM),
    "clock_adjtime": Attempt("clock_adjtime", (0, BAD), EPERM),
    "settimeofday": Attempt("settimeofday", (BAD, 0), EPERM),
    "clock_settime": Attempt("clock_settime", (99, BAD), EPERM),
    "kexec_load": Attempt("kexec_load", (0, 0, 0, 0xFFFF), EPERM, privileged=True),
    "init_module": Attempt("init_module", (BAD, 0, BAD), EPERM, privileged=True),
    "finit_module": Attempt("finit_module", (NONE, BAD, 0), EPERM, privileged=True),
    "delete_module": Attempt("delete_module", (BAD, 0), EPERM, privileged=True),
    "swapon": Attempt("swapon", (BAD, 0), EPERM, privileged=True),
    "swapoff": Attempt("swapoff", (BAD,), EPERM, privileged=True),
    "acct": Attempt("acct", (BAD,), EPERM, privileged=True),
    "reboot": Attempt("reboot", (0, 0, 0, 0), EPERM, privileged=True),
    "syslog": Attempt("syslog", (99, 0, 0), EPERM, privileged=True),
    "quotactl": Attempt("quotactl", (0xFFFFFFFF, BAD, 0, BAD), EPERM),
    "iopl": Attempt("iopl", (9,), EPERM),
    "ioperm": Attempt("ioperm", (70000, 1, 0), EPERM),
    "personality READ_IMPLIES_EXEC": Attempt("personality", (0x400000,), ENOSYS),
    "personality MMAP_PAGE_ZERO, upper half set": Attempt("personality", (HIGH | 0x100000,), ENOSYS),
    "chmod u+s": Attempt("chmod", (BAD, 0o4755), EPERM),
    "chmod g+s": Attempt("chmod", (BAD, 0o2755), EPERM),
    "chmod u+s, upper half set": Attempt("chmod", (BAD, HIGH | 0o4755), EPERM),
    "fchmod u+s": Attempt("fchmod", (NONE, 0o104755), EPERM),
    "fchmodat ug+s": Attempt("fchmodat", (NONE, BAD, 0o6755), EPERM),
    "fchmodat2 u+s": Attempt("fchmodat2", (NONE, BAD, HIGH | 0o4000, 0), EPERM),
    "creat g+s": Attempt("creat", (BAD, 0o2000), EPERM),
    "mknod u+s": Attempt("mknod", (BAD, 0o104755, 0), EPERM),
    "mknodat g+s": Attempt("mknodat", (NONE, BAD, 0o102755, 0), EPERM),
    "open u+s": Attempt("open", (BAD, 0o101, 0o4755), EPERM),
    "openat u+s": Attempt("openat", (NONE, BAD, 0o101, 0o4755), EPERM),
    "openat u+s, upper halves set": Attempt("openat", (NONE, BAD, HIGH | 0o101, HIGH | 0o4755), EPERM),
    "openat g+s without a name": Attempt("openat", (NONE, BAD, TMPFILE | 0o1, 0o2755), EPERM),
    "openat2": Attempt("openat2", (NONE, BAD, BAD, 24), ENOSYS),
    "unshare NEWTIME": Attempt("unshare", (NEWUSER | NEWTIME,), EPERM),
    "unshare NEWUSER, upper half set": Attempt("unshare", (HIGH | NEWUSER,), EPERM),
    "clone NEWUSER, upper half set": Attempt("clone", (HIGH | NEWUSER | SIGCHLD, 0, 0, 0, 0), EPERM),
    **{f"unshare {name}": Attempt("unshare", (NEWUSER | flag,), EPERM) for name, flag in FLAGS.items()},
    **{
        f"clone {name}": Attempt("clone", (NEWUSER | flag | SIGCHLD, 0, 0, 0, 0), EPERM) for name, flag in FLAGS.items()
    },
}

TRACING = {
    "ptrace": Attempt("ptrace", (0, 0, 0, 0), EPERM),
    "process_vm_readv": Attempt("process_vm_readv", (0, 0, 0, 0, 0, 1), EPERM),
    "process_vm_writev": Attempt("process_vm_writev", (0, 0, 0, 0, 0, 1), EPERM),
    "kcmp": Attempt("kcmp", (NONE, NONE, 0, 0, 0), EPERM),
    "pidfd_getfd": Attempt("pidfd_getfd", (NONE, 0, 0), EPERM),
}

SAME = {
    "AF_UNIX": Attempt("socket", (1, 1, 0), 0),
    "AF_INET": Attempt("socket", (2, 1, 0), 0),
    "AF_INET, upper half set": Attempt("socket", (HIGH | 2, 1, 0), 0),
    "AF_INET6": Attempt("socket", (10, 2, 0), 0),
    "NETLINK_ROUTE": Attempt("socket", (16, 3, 0), 0),
    "TIOCGWINSZ": Attempt("ioctl", (NONE, 0x5413, BAD), errno.EBADF),
    "FIONREAD": Attempt("ioctl", (NONE, 0x541B, BAD), errno.EBADF),
    "TIOCGPTN, sign-extended as musl does": Attempt("ioctl", (NONE, 0xFFFFFFFF80045430, BAD), errno.EBADF),
    "personality query": Attempt("personality", (0xFFFFFFFF,), 0),
    "personality ADDR_NO_RANDOMIZE": Attempt("personality", (0x40000,), 0),
    "chmod a+t": Attempt("chmod", (BAD, 0o1777), errno.EFAULT),
    "fchmod, what an unsigned short does not hold": Attempt("fchmod", (NONE, 0xFFFF0000 | 0o755), errno.EBADF),
    "fchmodat": Attempt("fchmodat", (NONE, BAD, 0o755), errno.EFAULT),
    "fchmodat2": Attempt("fchmodat2", (NONE, BAD, 0o755, 0), errno.EFAULT),
    "creat": Attempt("creat", (BAD, 0o1777), errno.EFAULT),
    "mknod": Attempt("mknod", (BAD, 0o100644, 0), errno.EFAULT),
    "mknodat": Attempt("mknodat", (NONE, BAD, 0o10644, 0), errno.EFAULT),
    "open that makes nothing, mode of whatever was there": Attempt("open", (BAD, 2, 0o7777), errno.EFAULT),
    "openat that makes nothing, mode of whatever was there": Attempt("openat", (NONE, BAD, 2, NONE), errno.EFAULT),
    "openat of a directory": Attempt("openat", (NONE, BAD, TMPFILE & ~0o20000000, 0o7777), errno.EFAULT),
    "openat": Attempt("openat", (NONE, BAD, 0o101, 0o1666), errno.EFAULT),
    "openat without a name": Attempt("openat", (NONE, BAD, TMPFILE | 0o1, 0o600), errno.EFAULT),
    "unshare FILES": Attempt("unshare", (0x400,), 0),
    "clone": Attempt("clone", (SIGCHLD, 0, 0, 0, 0), 0),
    "clone, exit signal with NEWTIME's bit": Attempt("clone", (NEWTIME, 0, 0, 0, 0), 0),
    "Landlock ABI": Attempt("landlock_create_ruleset", (0, 0, 1), 0),
    "landlock_add_rule": Attempt("landlock_add_rule", (NONE, 1, BAD, 0), errno.EBADF),
    "landlock_restrict_self": Attempt("landlock_restrict_self", (NONE, 0), errno.EBADF),
    "seccomp": Attempt("seccomp", (2, 0, BAD), errno.EFAULT),
    "prlimit64": Attempt("prlimit64", (0, 7, 0, 0), 0),
    "close_range": Attempt("close_range", (1000, 1000, 0), 0),
    "name_to_handle_at": Attempt("name_to_handle_at", (NONE, BAD, BAD, BAD, 0), errno.EFAULT),
    "statmount": Attempt("statmount", (BAD, BAD, 0, 0), errno.EFAULT),
    "rseq": Attempt("rseq", (BAD, 0, 0, 0), errno.EINVAL),
}

NUMBERS = {call.name: call.number for call in calls(os.uname().machine)}


def rows(attempts: dict[str, Attempt]) -> dict[str, list[int]]:
    return {name: [NUMBERS[a.call], *a.arguments] for name, a in attempts.items() if a.call in NUMBERS}


def answers(attempts: dict[str, Attempt]) -> dict[str, int | str]:
    return {name: attempts[name].answer for name in rows(attempts)}


def test_what_is_refused(user: Filtered, plain_fd: int) -> None:
    assert dataclasses.replace(user, fd=plain_fd).probe(rows(REFUSED)) == answers(REFUSED)


def test_what_is_refused_is_not_so_without_the_filter(user: Filtered) -> None:
    is_root = os.geteuid() == 0 and not user.drop
    comparable = {name: attempt for name, attempt in REFUSED.items() if is_root or not attempt.privileged}
    without = user.probe(rows(comparable))
    unchanged = {name for name, answer in answers(comparable).items() if without[name] == answer}
    # What this kernel was built without, and what this machine forbids everywhere.
    absent = {name for name, answer in without.items() if answer in (ENOSYS, EAFNOSUPPORT, EPROTONOSUPPORT)}
    spaces = {name for name in without if name.startswith(("unshare", "clone NEW"))}
    assert unchanged <= absent | (spaces if without["unshare NEWUSER"] else set())


def test_tracing_is_refused_only_where_the_spec_says_so(user: Filtered, strict_fd: int, plain_fd: int) -> None:
    without = user.probe(rows(TRACING))
    assert dataclasses.replace(user, fd=strict_fd).probe(rows(TRACING)) == answers(TRACING)
    assert dataclasses.replace(user, fd=plain_fd).probe(rows(TRACING)) == without
    assert EPERM not in without.values()


def test_what_is_allowed_answers_as_without_the_filter(user: Filtered, strict_fd: int) -> None:
    without = user.probe(rows(SAME))
    assert dataclasses.replace(user, fd=strict_fd).probe(rows(SAME)) == without
    missing = {name for name, answer in without.items() if answer in (ENOSYS, EAFNOSUPPORT)}
    assert {name: answer for name, answer in without.items() if name not in missing} == {
        name: answer for name, answer in answers(SAME).items() if name not in missing
    }


def test_namespaces_where_the_spec_allows_them(user: Filtered, nested_fd: int) -> None:
    words = ("unshare", "clone", "mount", "umount2", "setns", "chroot", "pivot_root", "move_mount", "fs", "open_tree")
    namespaces = {name: attempt for name, attempt in REFUSED.items() if attempt.call.startswith(words)}
    assert dataclasses.replace(user, fd=nested_fd).probe(rows(namespaces)) == user.probe(rows(namespaces))


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is an interface of x86_64")
def test_x32_calls_kill(user: Filtered, plain_fd: int) -> None:
    x32 = {"getpid": [0x40000000 | 39], "setsockopt": [0x40000000 | 541, NONE, 0, 0, 0, 0]}
    without = user.probe(x32)
    assert all(isinstance(answer, int) for answer in without.values())
    assert dataclasses.replace(user, fd=plain_fd).probe(x32) == dict.fromkeys(x32, f"signal {int(signal.SIGSYS)}")


CALLS_AS_I386 = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b8 14000000 cd80 c3"))  # mov eax, 20 (getpid); int 0x80; ret
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="int 0x80 is an interface of x86_64")
def test_i386_calls_kill(user: Filtered, plain_fd: int) -> None:
    argv = [user.python, "-I", "-S", "-c", CALLS_AS_I386]
    without = user.run(argv)
    if without.returncode == -signal.SIGSEGV:
        pytest.skip("this kernel has no calls of i386")
    assert without.stdout == "True\n", without
    assert dataclasses.replace(user, fd=plain_fd).run(argv).returncode == -signal.SIGSYS


TYPES_INTO_TERMINAL = """
import fcntl, json, os, pty, sys, termios
pid, terminal = pty.fork()
if not pid:
    answers = []
    for request in json.loads(sys.argv[1]):
        try:
            fcntl.ioctl(0, request, b"x")
            answers.append(0)
        except OSError as error:
            answers.append(error.errno)
    print(json.dumps(answers), isinstance(termios.tcgetattr(0), list), flush=True)
    os._exit(0)
out = b""
while True:
    try:
        out += os.read(terminal, 1000)
    except OSError:
        break
os.waitpid(pid, 0)
print(out.decode().replace("x", "").strip())
"""


def test_nothing_is_typed_into_a_real_terminal(user: Filtered, plain_fd: int) -> None:
    argv = [user.python, "-I", "-S", "-c", TYPES_INTO_TERMINAL, json.dumps([0x5412])]
    without = user.run(argv)
    inside = dataclasses.replace(user, fd=plain_fd).run(argv)
    assert inside.stdout == f"[{EPERM}] True\n", inside
    # EIO: dev.tty.legacy_tiocsti is 0, the default of many distributions since Linux 6.2.
    assert without.stdout in ("[0] True\n", f"[{errno.EIO}] True\n"), without


def test_the_whole_process_dies_not_one_thread(plain_fd: int) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("only x86_64 has calls of a second interface at hand")
    from tests.confine.conftest import Filtered

    source = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: ctypes.CDLL(None).syscall(0x40000027)).start()\n"
        "time.sleep(20)"
    )
    started = subprocess.run(
        Filtered(plain_fd).command("exec", sys.executable, "-I", "-c", source),
        pass_fds=(plain_fd,),
        timeout=15,
        check=False,
    )
    assert started.returncode == -signal.SIGSYS
