"""
The supervisor inside a box: gives up its rights, starts the command, reports its end.

It is the box's first process. Nothing of the caller's (arguments, environment,
working directory) reaches it before it has confined itself: they come as data, by
descriptor, and take effect in the command's own exec. It then waits, passes signals
on, collects orphans, and when it exits the kernel ends whatever is left.

Runs under `python -I -S` of the launcher's own interpreter, standard library only,
and imports nothing of the package. Only C modules are imported, `_ctypes` instead of
`ctypes` among them: `ctypes`, `signal` and `json` each cost as much as half the start
of the interpreter, and this runs once a command.

Reports, one JSON object a line: `{"started": 1}` when the command may run from then on,
then `{"exit": code, "signal": n, "user_us": t, "system_us": t, "max_rss_kb": n}`; or
`{"error": stage, "errno": n, "interpreter": path in hexadecimal}` when it never ran; the
last names what a script asked for that cannot be executed, and is empty otherwise.

Source: landlock(7), prctl(2), pid_namespaces(7), setrlimit(2).
"""

from __future__ import annotations

import _ctypes
import _signal  # type: ignore[import-not-found]  # typeshed knows only signal
import marshal
import posix as os  # os itself takes a millisecond, once a command
import sys

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable
    from typing import Any

PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
SYS_PRCTL = {"x86_64": 157, "aarch64": 167}
SYS_PRLIMIT64 = {"x86_64": 302, "aarch64": 261}
EPERM = 1
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
SYS_CLOSE_RANGE = 436
CLOSE_RANGE_CLOEXEC = 4
RULE_PATH_BENEATH = 1
# The rights that mean something for a file; the kernel refuses the others there.
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15 | 1 << 16
# All but KILL and STOP, which nobody can hold back, CHLD, which is the supervisor's own, and
# three that are used already: two by the C library, and the next by `_alone`.
FORWARDED = tuple(number for number in range(1, 65) if number not in (9, 17, 19, 32, 33, 34))
RESET = (13, 25)  # PIPE and XFSZ, which the interpreter ignores
CHILD = 17  # CHLD: a child has ended
READ_SIZE = 1 << 24
BACKLOG = 1024  # connections that wait for the proxy
# include/uapi/linux/binfmts.h BINPRM_BUF_SIZE; fs/exec.c exec_binprm().
SCRIPT_BYTES = 256
DEEPEST_SCRIPT = 5
ENCODING, ESCAPES = sys.getfilesystemencoding(), "surrogateescape"


class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # generic for type checkers only
    """
    The C type `long`.
    """

    _type_ = "l"


class Function(_ctypes.CFuncPtr):
    """
    A C function that returns a `long` and keeps errno.
    """

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = Long


class StepError(Exception):
    """
    A step did not work: its name, the error number, and the interpreter that a script named
    in vain.
    """

    def __init__(self, name: str, number: int, interpreter: bytes = b"") -> None:
        self.name, self.number, self.interpreter = name, number, interpreter

    def line(self) -> bytes:
        """
        The report about it.
        """
        shown = self.interpreter.hex().encode()
        return b'{"error": "%s", "errno": %d, "interpreter": "%s"}\n' % (self.name.encode(), self.number, shown)


syscall_function = Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "syscall"))  # type: ignore[arg-type]  # None is this process, see ctypes.CDLL


def syscall(number: int, *arguments: int | bytes) -> int:
    """
    The kernel call *number*; integers go as `long`, bytes as pointers.
    """
    raw = [argument if isinstance(argument, bytes) else Long(argument) for argument in arguments]
    value: int = syscall_function(Long(number), *raw)
    if value < 0:
        raise OSError(_ctypes.get_errno(), f"kernel call {number}")
    return value


def pack(*fields: tuple[int, int]) -> bytes:
    """
    A C structure from (value, size in bytes) pairs, without padding.
    """
    return b"".join(value.to_bytes(size, sys.byteorder) for value, size in fields)


def open_place(path: str) -> int:
    """
    A descriptor that only names *path*.
    """
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def restrict_files(
    rules: tuple[int, int, int, tuple[tuple[str, int], ...], int], opened: Callable[[str], int] = open_place
) -> None:
    """
    Enters the Landlock domain *rules* = (fs, net, scoped, ((path, rights), ...), abi).
    A path that *opened* refuses is granted nothing.
    """
    handled_fs, handled_net, scoped, paths, abi = rules
    fields = [(handled_fs, 8), (handled_net, 8), (scoped, 8)][: 3 if abi >= 6 else 2 if abi >= 4 else 1]
    attributes = pack(*fields)
    ruleset = syscall(SYS_LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in paths:
        try:
            fd = opened(path)
        except OSError:
            continue  # not there: nothing is granted
        if not is_directory(fd):
            rights &= FILE_RIGHTS
        syscall(SYS_LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, pack((rights & handled_fs, 8), (fd, 4)), 0)
        os.close(fd)
    syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def is_directory(fd: int) -> bool:
    """
    Whether *fd* is open on a directory.
    """
    return os.fstat(fd).st_mode & 0o170000 == 0o040000


def is_file(path: str) -> bool:
    """
    Whether *path* leads to a regular file.
    """
    try:
        return os.stat(path).st_mode & 0o170000 == 0o100000
    except (OSError, ValueError):
        return False


def close_at_exec() -> None:
    """
    Marks every descriptor but 0, 1 and 2 to be closed at exec.
    """
    try:
        syscall(SYS_CLOSE_RANGE, 3, 0xFFFFFFFF, CLOSE_RANGE_CLOEXEC)
    except OSError:
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                try:
                    os.set_inheritable(int(name), False)
                except OSError:
                    pass  # the listing's own descriptor, closed by now


def hand_out_listener(door: int, port: int) -> None:
    """
    Listens at loopback *port* and hands the listener out through the socket *door*; whoever
    has it is this network namespace's only way out. Keeps neither.
    """
    import _socket  # most boxes have no network at all

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    way = _socket.socket(fileno=door)
    way.sendmsg([b"L"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, pack((listener.fileno(), 4)))])
    listener.close()
    way.close()


def candidates(program: str, environment: dict[str, str]) -> list[str]:
    """
    The paths *program* may mean, in the order execvp(3) tries them.
    """
    if "/" in program:
        return [program]
    search = environment.get("PATH") or "/usr/bin:/bin"
    return [(directory or ".") + "/" + program for directory in search.split(":")]


def spawn(argv: tuple[str, ...], environment: dict[str, str], pass_fds: tuple[tuple[int, int], ...]) -> int:
    """
    Starts *argv* with the (descriptor here, its number there) of *pass_fds* and
    returns its process id.
    """
    moves = [(os.POSIX_SPAWN_DUP2, here, there) for here, there in pass_fds]
    refused = StepError("exec", 2)  # ENOENT
    for path in candidates(argv[0], environment):
        try:
            return os.posix_spawn(
                path, argv, environment, file_actions=moves, setsigdef=RESET + FORWARDED, setsigmask=()
            )
        except OSError as error:
            refused = refusal(path, error.errno) or refused
    raise refused


def refusal(path: str, number: int | None) -> StepError | None:
    """
    What it means that executing *path* failed with *number*; None where it is not there, so
    that the next directory of PATH is looked into.

    Raises:
        StepError: It is there, and no other can take its place.
    """
    if number not in (2, 13, 20):  # not there, not permitted, not a directory
        raise StepError("exec", number or 22) from None
    if number == 20 or not is_file(path):
        return None
    # The kernel answers the same for a script and for the interpreter that it names.
    named = refused_interpreter(path)
    return StepError("exec", 13, named.encode(ENCODING, ESCAPES)) if number == 13 or named else None


def refused_interpreter(path: str) -> str:
    """
    Of the interpreters that the script *path* names, and they in turn, the first that cannot
    be executed; empty where it is the script itself, or no script.

    Source: execve(2), "Interpreter scripts".
    """
    for _ in range(DEEPEST_SCRIPT):
        if not may_execute(path):
            return ""
        path = interpreter_of(path)
        if path and not may_execute(path):
            return path
    return ""


def may_execute(path: str) -> bool:
    """
    Whether *path* is a file marked executable, and one that Landlock lets be read, if its
    mode does: what may be read there may be executed.
    """
    if not is_file(path) or not os.access(path, os.X_OK):
        return False
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return not os.access(path, os.R_OK)
    return True


def interpreter_of(path: str) -> str:
    """
    What the first line of the script *path* names; empty where it is none.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        begin = os.read(fd, SCRIPT_BYTES)
    except OSError:
        return ""
    finally:
        os.close(fd)
    words = begin.partition(b"\n")[0][2:].split(maxsplit=1)
    return words[0].partition(b"\0")[0].decode(ENCODING, ESCAPES) if begin[:2] == b"#!" and words else ""


class Supervisor:
    """
    The command's parent: passes signals on and waits for the end.

    Its signals are blocked and fetched one by one. A handler would be lost where a signal
    comes just before wait4(2) is entered: the interpreter runs it when the call returns,
    and the command may wait for nothing but that signal.
    """

    def __init__(self) -> None:
        self.command = 0

    def listen(self) -> None:
        """
        Takes the signals that are meant for the command; they wait until it runs.
        """
        _signal.pthread_sigmask(_signal.SIG_BLOCK, (*FORWARDED, CHILD))

    def forward(self, number: int) -> None:
        """
        Hands signal *number* to the command.
        """
        try:
            os.kill(self.command, number)
        except ProcessLookupError:
            pass  # it has just ended

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
                number = _signal.sigwait((*FORWARDED, CHILD))
                if number != CHILD:
                    self.forward(number)


def step(name: str, action: Callable[..., object], *arguments: object) -> None:
    """
    Runs *action*; its error becomes the failure of step *name*.
    """
    try:
        action(*arguments)
    except (OSError, ValueError) as error:
        raise StepError(name, getattr(error, "errno", None) or 22) from None


def run(order: dict[str, Any], report: int) -> None:
    """
    Confines this process by *order*, starts the command in it and reports its end.
    """
    environment = dict(order["environment"])
    machine = os.uname().machine
    prctl = SYS_PRCTL[machine]
    supervisor = Supervisor()
    supervisor.listen()
    step("descriptors", close_at_exec)
    step("privileges", syscall, prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    step("privileges", syscall, prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)
    if order["listener"]:
        step("listener", hand_out_listener, *order["listener"])
    step("cwd", os.chdir, order["cwd"])
    for number, limit in order["rlimits"]:
        step("limits", set_limit, SYS_PRLIMIT64[machine], number, limit)
    if order["landlock"]:
        step("landlock", restrict_files, order["landlock"])
    os.write(report, b'{"started": 1}\n')  # before: who is killed in between must not deny that it ran
    supervisor.command = spawn(order["argv"], environment, order["pass_fds"])
    status, usage = supervisor.wait()  # its first look loads the module resource, beside the command
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    os.write(
        report,
        b'{"exit": %d, "signal": %d, "user_us": %d, "system_us": %d, "max_rss_kb": %d}\n'
        % (code, number, usage.ru_utime * 1e6, usage.ru_stime * 1e6, usage.ru_maxrss),
    )


def set_limit(prlimit: int, number: int, limit: int) -> None:
    """
    Sets both limits of a resource to *limit*; what is lower already stays.
    """
    try:
        syscall(prlimit, 0, number, pack((limit, 8), (limit, 8)), 0)
    except OSError as error:
        if error.errno != EPERM:
            raise


def main(payload: int, report: int) -> None:
    """
    Reads the order from descriptor *payload* and carries it out.
    """
    try:
        run(marshal.loads(os.read(payload, READ_SIZE)), report)
    except StepError as failure:
        os.write(report, failure.line())
        os._exit(125)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
