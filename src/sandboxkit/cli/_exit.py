"""
What the exit code of `sandboxkit` says. Ours are kept apart from the command's.
"""

from __future__ import annotations

from enum import IntEnum

from sandboxkit.errors import (
    ApprovalError,
    BackendError,
    CommandDeniedError,
    CommandError,
    EgressDeniedError,
    GrantStoreError,
    LaunchError,
    PolicyError,
    ProgramNotExecutableError,
    ProgramNotFoundError,
    SafeEvalError,
    SafeEvalForbiddenError,
    SafeEvalMemoryError,
    SafeEvalSyntaxError,
    SafeEvalTimeoutError,
    SandboxError,
    SpecError,
    UrlError,
)

__all__ = ["EPILOG", "Exit", "exit_of", "reserved"]


class Exit(IntEnum):
    """
    The codes that are ours; a command's own code among `reserved()` becomes `THEIRS`.
    """

    DONE = 0
    FOUND_WANTING = 1
    THEIRS = 118
    USAGE = 119
    DENIED = 120
    APPROVAL = 121
    SANDBOX = 122
    PROGRAM = 123
    LIMIT = 124
    INTERNAL = 125
    INTERRUPTED = 130
    BROKEN_PIPE = 141

    @property
    def status(self) -> str:
        """
        Its name in `--json`.
        """
        return self.name.lower()


EPILOG = """\
exit codes:
  of `run`, when the command ran to its end: its own code, or 128+N where signal N ended it
  118  the command's own code is one of 118 to 125; stderr and --json say which
  119  wrong use: an argument, the spec, a rule file, a log, or a command that is empty or too long
  120  the policy denies the command; nothing was started
  121  the command needs approval, and nobody gave it (--ask asks); nothing was started
  122  no backend keeps the spec here, or the sandbox did not start; the command did not run
  123  the program was not found, or is not executable; the command did not run
  124  the command was ended by its timeout or another limit
  125  sandboxkit itself failed
  130  Ctrl-C: the command and everything it started were ended
  141  whoever read the output has gone
  `check` and `explain` end with 0, or with the code from 119 to 123 that `run` would give.
  `doctor`, `demo`, `audit verify`, `policy lint` and `policy test` end with 1 where
  something is wanting, `backends` where a plug-in cannot be loaded, `learn` where the
  command does not pass, `audit grep` and `policy show` where nothing fits, and `policy
  replay` where --fail-on says so. `eval` and `render` end with 1 where what they evaluate
  raises, and with 119, 120, 122 or 124 as their help says.
Codes 118 to 125 are always ours, so a command cannot pass its failure off as sandboxkit's,
nor the other way round. With --json one object on stdout says the same, and more;
--status-fd N writes it, without the output, to descriptor N.
"""

_TABLE: tuple[tuple[type[Exception], Exit], ...] = (
    (ApprovalError, Exit.APPROVAL),
    (CommandDeniedError, Exit.DENIED),
    (ProgramNotFoundError, Exit.PROGRAM),
    (ProgramNotExecutableError, Exit.PROGRAM),
    (LaunchError, Exit.SANDBOX),
    (BackendError, Exit.SANDBOX),
    (CommandError, Exit.USAGE),
    (UrlError, Exit.USAGE),
    (EgressDeniedError, Exit.DENIED),
    (SpecError, Exit.USAGE),
    (PolicyError, Exit.USAGE),
    (GrantStoreError, Exit.USAGE),
    (SafeEvalSyntaxError, Exit.USAGE),
    (SafeEvalForbiddenError, Exit.DENIED),
    (SafeEvalTimeoutError, Exit.LIMIT),
    (SafeEvalMemoryError, Exit.LIMIT),
    (SafeEvalError, Exit.FOUND_WANTING),
    (SandboxError, Exit.INTERNAL),
)
"""The first row that fits counts."""


def exit_of(exc: Exception) -> Exit:
    """
    The exit code of a failure that is ours.
    """
    return next((code for kind, code in _TABLE if isinstance(exc, kind)), Exit.INTERNAL)


def reserved() -> range:
    """
    The codes that never come from a command.
    """
    return range(Exit.THEIRS, Exit.INTERNAL + 1)
