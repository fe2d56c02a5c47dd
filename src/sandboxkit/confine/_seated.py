"""
The last step inside a sandbox that was put around this process before: the working
directory, the limits and the descriptors of the command, and then the command itself.

What the caller gives (arguments, environment, working directory) takes effect only here,
behind the sandbox: variables such as DYLD_INSERT_LIBRARIES would otherwise act on the
programs that lead here, and the system strips them from its own. That this runs at all
says that the sandbox was put on.

Runs under `python -I -S`, standard library only, and imports nothing of the package.
Reports, one JSON object a line: `{"started": 1}`, and `{"error": step, "errno": n}` when
the command could not be executed after all.

Source: execve(2), setrlimit(2).
"""

from __future__ import annotations

import marshal
import posix as os  # os itself takes a millisecond, once a command
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

READ_SIZE = 1 << 24
FIRST_SPARE_FD = 300
NOT_THERE = (2, 20)  # ENOENT, ENOTDIR
NOT_PERMITTED = (1, 13)  # EPERM, which Seatbelt answers, and EACCES


class StepError(Exception):
    """
    A step did not work: its name, and the error number.
    """


def step(name: str, action: Callable[..., object], *arguments: object) -> None:
    """
    Runs *action*; its error becomes the failure of step *name*.
    """
    try:
        action(*arguments)
    except (OSError, ValueError) as error:
        raise StepError(name, getattr(error, "errno", None) or 22) from None


def lower(name: str, limit: int) -> None:
    """
    Sets the resource limit *name*, soft and hard, to *limit*; what is lower already stays.
    """
    number = getattr(resource, name)
    _, hard = resource.getrlimit(number)
    bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(number, (bound, bound))


def place(pass_fds: tuple[tuple[int, int], ...], report: int) -> None:
    """
    Gives the descriptors of *pass_fds* their numbers, and closes all but them and 0 to 2 at
    exec.
    """
    kept = {there for _, there in pass_fds}
    for here, there in pass_fds:
        os.dup2(here, there)
    for number in range(3, max((FIRST_SPARE_FD, report, *kept, *(here for here, _ in pass_fds))) + 1):
        if number not in kept:
            try:
                os.set_inheritable(number, False)
            except OSError:
                pass  # it is not open


def is_file(path: str) -> bool:
    """
    Whether *path* leads to a regular file.
    """
    try:
        return os.stat(path).st_mode & 0o170000 == 0o100000
    except (OSError, ValueError):
        return False


def candidates(program: str, environment: dict[str, str]) -> list[str]:
    """
    The paths *program* may mean, in the order execvp(3) tries them.
    """
    if "/" in program:
        return [program]
    search = environment.get("PATH") or "/usr/bin:/bin"
    return [(directory or ".") + "/" + program for directory in search.split(":")]


def become(argv: tuple[str, ...], environment: dict[str, str]) -> None:
    """
    Becomes *argv*.

    Raises:
        StepError: It cannot be executed.
    """
    refused = 2  # ENOENT
    for path in candidates(argv[0], environment):
        try:
            os.execve(path, argv, environment)
        except OSError as error:
            if error.errno not in (*NOT_THERE, *NOT_PERMITTED):
                raise StepError("exec", error.errno) from None
            if error.errno in NOT_PERMITTED:
                refused = 13 if "/" in argv[0] or is_file(path) else refused
    raise StepError("exec", refused)


def run(order: dict[str, Any], report: int) -> None:
    """
    Carries out *order* and becomes the command.
    """
    step("cwd", os.chdir, order["cwd"])
    for name, limit in order["rlimits"]:
        step("limits", lower, name, limit)
    step("descriptors", place, order["pass_fds"], report)
    os.write(report, b'{"started": 1}\n')
    become(order["argv"], dict(order["environment"]))


def main(payload: int, report: int) -> None:
    """
    Reads the order from descriptor *payload* and carries it out.
    """
    # Above every number a command may ask for, which would otherwise be written to.
    import fcntl

    report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, FIRST_SPARE_FD)
    try:
        run(marshal.loads(os.read(payload, READ_SIZE)), report)
    except StepError as failure:
        os.write(report, b'{"error": "%s", "errno": %d}\n' % (failure.args[0].encode(), failure.args[1]))
    os._exit(125)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
