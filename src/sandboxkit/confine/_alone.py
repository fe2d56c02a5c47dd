"""
The supervisor of a box without namespaces: what makes one a box is applied here alone.

It is a host process that starts the command in a child of its own and, when that ends
or the broker asks for it, ends everything the command left: orphans come back to it (it
is a subreaper), and on a kernel that scopes signals one `kill(-1)` reaches exactly what
is below it, at one stroke, so that nothing can fork away. The command runs in a Landlock
domain below the supervisor's and can neither signal nor trace it.

The child gives up its rights as its last act before exec: limits, Landlock, seccomp.
Nothing of the caller's has run by then.

Runs as `_child.py` does, in one program with it: what it imports from there is already
defined.

Source: landlock(7), kill(2), prctl(2), seccomp(2), capset(2), credentials(7).
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]  # typeshed knows only signal
import marshal
import posix as os  # os itself takes a millisecond, once a command
import resource  # noqa: TC003 - wait4 needs it, and later an unprivileged uid might not reach it
import sys

from sandboxkit.confine._child import (
    CHILD,
    ENCODING,
    ESCAPES,
    FORWARDED,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    READ_SIZE,
    RESET,
    SYS_PRCTL,
    SYS_PRLIMIT64,
    StepError,
    candidates,
    close_at_exec,
    pack,
    refusal,
    restrict_files,
    set_limit,
    step,
    syscall,
)

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from typing import Any, NoReturn

END = 34  # the first signal nobody else uses: ends the box
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
SECCOMP_MODE_FILTER = 2
SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
SYS_OPENAT2 = 437
CAPABILITY_VERSION_3 = 0x20080522
AT_FDCWD = -100
RESOLVE_NO_SYMLINKS = 0x04
SCOPE_SIGNAL = 1 << 1
MOVES = 1 << 13  # LANDLOCK_ACCESS_FS_REFER
SCOPES_SINCE = 6
SIGKILL = 9
FIRST_SPARE = 64
LONGEST_REFUSAL = 512
PIPE_MODE = 0o010000
NOT_GRANTED = (2, 13, 20, 40)  # ENOENT EACCES ENOTDIR ELOOP


class Char(_ctypes._SimpleCData):  # type: ignore[type-arg]  # generic for type checkers only
    """
    The C type `char`.
    """

    _type_ = "c"


def open_real(path: str) -> int:
    """
    A descriptor that only names *path*, refused where a symbolic link leads there: the
    path was real when the plan was made.
    """
    how = pack((os.O_PATH | os.O_CLOEXEC, 8), (0, 8), (RESOLVE_NO_SYMLINKS, 8))
    try:
        return syscall(SYS_OPENAT2, AT_FDCWD, path.encode(ENCODING, ESCAPES) + b"\0", how, len(how))
    except OSError as error:
        if error.errno in NOT_GRANTED:
            raise
        raise StepError("landlock", error.errno or 22) from None


def give_up_user(user: tuple[int, int] | None) -> None:
    """
    Becomes *user*, who is then the owner of the pipes of the standard streams: opening
    /dev/stderr opens the pipe anew, and only its owner may.
    """
    if user is None:
        return
    for fd in (0, 1, 2):
        if os.fstat(fd).st_mode & 0o170000 == PIPE_MODE:
            os.fchown(fd, *user)
    uid, gid = user
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def empty_bounding_set(machine: str) -> None:
    """
    Lets no program ever be given a capability, where the caller may say so: an ordinary
    user may not, and no_new_privs says the same about every program.
    """
    for capability in range(64):
        try:
            syscall(SYS_PRCTL[machine], PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError as error:
            if error.errno in (1, 22):  # EPERM; EINVAL behind the last there is
                return
            raise


def give_up_capabilities(machine: str) -> None:
    """
    Holds no capability, and with no_new_privs none comes back: not to uid 0 either.
    """
    syscall(SYS_CAPSET[machine], pack((CAPABILITY_VERSION_3, 4), (0, 4)), bytes(24))


def put_on(prctl: int, program: bytes) -> None:
    """
    Puts the seccomp filter *program* on this process and all it will start.
    """
    buffer = (Char * len(program)).from_buffer_copy(program)
    # struct sock_fprog: a count of 8-byte instructions, padding, a pointer.
    described = pack((len(program) // 8, 2), (0, 6), (_ctypes.addressof(buffer), 8))
    syscall(prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0)


def become(order: dict[str, Any]) -> NoReturn:
    """
    Gives up every right *order* does not leave, and becomes its command.
    """
    machine = os.uname().machine
    environment = dict(order["environment"])
    for number in (*FORWARDED, *RESET, END):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    step("session", os.setsid)
    step("cwd", os.chdir, order["cwd"])
    for here, there in order["pass_fds"]:
        step("descriptors", os.dup2, here, there)
    for number, limit in order["rlimits"]:
        step("limits", set_limit, SYS_PRLIMIT64[machine], number, limit)
    step("landlock", restrict_files, order["landlock"], open_real)
    for program in order["filters"]:
        step("seccomp", put_on, SYS_PRCTL[machine], program)
    refused = StepError("exec", 2)  # ENOENT
    for path in candidates(order["argv"][0], environment):
        try:
            os.execve(path, order["argv"], environment)
        except OSError as error:
            refused = refusal(path, error.errno) or refused
    raise refused


def begin(order: dict[str, Any]) -> int:
    """
    Starts the command of *order* and returns its process id, once it has been executed.
    """
    failed, low = os.pipe2(os.O_CLOEXEC)
    # Above all numbers the command is given, so that none of them covers it.
    above = max((FIRST_SPARE, *(fd + 1 for pair in order["pass_fds"] for fd in pair)))
    report = os.dup2(low, above, inheritable=False)
    os.close(low)
    pid = os.fork()
    if pid == 0:
        try:
            become(order)
        except StepError as failure:
            os.write(report, b"%s %d %s" % (failure.name.encode(), failure.number, failure.interpreter))
        except BaseException:  # noqa: BLE001 - whatever it was, the command did not start
            os.write(report, b"setup 22 ")
        finally:
            os._exit(125)
    os.close(report)
    said = os.read(failed, LONGEST_REFUSAL)
    os.close(failed)
    if said:
        os.waitpid(pid, 0)
        stage, number, interpreter = said.split(b" ", 2)
        raise StepError(stage.decode(), int(number), interpreter)
    return pid


def parent_of(pid: str) -> int:
    """
    The parent of *pid*, or 0 where it is gone.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


class Supervisor:
    """
    The command's parent, and the end of everything the command started. Its signals are
    blocked and fetched one by one, as in `_child`.
    """

    def __init__(self) -> None:
        self.command = 0
        self.is_scoped = False

    def listen(self) -> None:
        """
        Takes the signals that are meant for the command, and the one that ends the box.
        """
        _signal.pthread_sigmask(_signal.SIG_BLOCK, (*FORWARDED, CHILD, END))

    @property
    def is_ending(self) -> bool:
        """
        Whether the box is to end and that was not done yet.
        """
        return END in _signal.sigpending()

    def take(self, number: int) -> None:
        """
        Acts on signal *number*: hands it to the command, or ends everything it started.
        """
        if number == END:
            self.kill_all()
        elif number != CHILD:
            try:
                os.kill(self.command, number)
            except ProcessLookupError:
                pass  # it has just ended

    def scope(self, abi: int) -> None:
        """
        Enters a domain of its own out of which no signal goes, where the kernel has such.

        Raises:
            StepError: It does not hold. Then `kill(-1)` must never be called.
        """
        if abi < SCOPES_SINCE:
            return
        # Every domain forbids moves between directories that does not allow them itself.
        restrict_files((MOVES, 0, SCOPE_SIGNAL, (("/", MOVES),), abi))
        try:
            os.kill(os.getppid(), 0)
        except PermissionError:
            self.is_scoped = True
        else:
            raise StepError("landlock", 1)

    def kill_all(self) -> None:
        """
        Kills what is below: at one stroke where signals are scoped, else child by child.
        """
        if self.is_scoped:
            try:
                os.kill(-1, SIGKILL)
            except OSError:
                pass  # nobody is left
            return
        own = os.getpid()
        for name in os.listdir("/proc"):
            if name.isdigit() and parent_of(name) == own:
                try:
                    os.kill(int(name), SIGKILL)
                except OSError:
                    pass  # it has just gone

    def wait(self) -> tuple[int, resource.struct_rusage]:
        """
        The command's wait status and usage; other children are only collected. A command
        that has itself traced by its parent is stopped, not ended.
        """
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == self.command and not os.WIFSTOPPED(status):
                return status, usage
            if pid == 0:
                self.take(_signal.sigwait((*FORWARDED, CHILD, END)))

    def clear(self) -> None:
        """
        Ends what the command left, until there is nothing.
        """
        while True:
            self.kill_all()
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def supervise(order: dict[str, Any], report: int) -> None:
    """
    Runs the command of *order* to its end, and reports it once nothing is left of it.
    """
    machine = os.uname().machine
    prctl = SYS_PRCTL[machine]
    parent = os.getppid()
    supervisor = Supervisor()
    supervisor.listen()
    step("descriptors", close_at_exec)
    step("privileges", syscall, prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    step("landlock", supervisor.scope, order["landlock"][4])
    step("privileges", empty_bounding_set, machine)
    step("privileges", give_up_user, order["user"])
    step("privileges", give_up_capabilities, machine)
    step("privileges", syscall, prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    step("privileges", syscall, prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)
    step("privileges", syscall, prctl, PR_SET_PDEATHSIG, END, 0, 0, 0)
    if os.getppid() != parent or supervisor.is_ending:
        os._exit(125)
    os.write(report, b'{"started": 1}\n')  # before: who is killed in between must not deny that it ran
    supervisor.command = begin(order)
    status, usage = supervisor.wait()
    supervisor.clear()
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    os.write(
        report,
        b'{"exit": %d, "signal": %d, "user_us": %d, "system_us": %d, "max_rss_kb": %d}\n'
        % (code, number, usage.ru_utime * 1e6, usage.ru_stime * 1e6, usage.ru_maxrss),
    )


def main(payload: int, report: int) -> None:
    """
    Reads the order from descriptor *payload* and carries it out.
    """
    try:
        supervise(marshal.loads(os.read(payload, READ_SIZE)), report)
    except StepError as failure:
        os.write(report, failure.line())
        os._exit(125)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
