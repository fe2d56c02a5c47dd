"""
Every exception this library raises.

Two kinds of failure are never mixed: our machinery failed (an exception of this
tree), or the command failed (an `ExecResult`). Each class also is the nearest
builtin, so callers may catch either.

    SandboxError(Exception)
    ├── ShutDownError(RuntimeError)           the library was told to stop
    ├── MissingExtraError(ImportError)        an optional dependency is not installed
    ├── CommandError(ValueError)              the command is none, or cannot be run at all
    ├── SpecError(ValueError)                 a spec is wrong; lists every problem
    ├── PolicyError(ValueError)               a rule or rule file is wrong; lists every problem
    │   └── RuleNotFoundError(LookupError)    no rule has that id
    ├── CommandDeniedError(PermissionError)   the policy said deny
    │   └── ApprovalError                     the policy said ask and nobody approved
    ├── IsolationError(RuntimeError)          isolation was to be switched off, and may not be
    ├── BackendError(RuntimeError)
    │   ├── BackendUnavailableError           this machine cannot run this backend
    │   ├── NoBackendError                    no backend is available at all
    │   ├── EnforcementError                  backends exist, none keeps the spec
    │   └── PluginError                       a third-party backend is broken
    ├── LaunchError(OSError)                  a command could not be started
    │   ├── SetupError                        the sandbox itself failed to come up
    │   ├── ProgramNotFoundError(FileNotFoundError)
    │   ├── ProgramNotExecutableError(PermissionError)
    │   └── BrokerError(ConnectionError)      the process that starts commands is gone
    ├── FileAccessError(OSError)              a file operation inside a box failed
    ├── AuditError(OSError)                   the audit record could not be written
    ├── GrantStoreError(OSError)              the file of remembered approvals is not to be trusted
    │   └── GrantNotFoundError(LookupError)   no approval of this id is remembered
    ├── SecretScopeError(PermissionError)     a secret is not for this host
    ├── UrlError(ValueError)                  a URL cannot be read in one way only
    ├── EgressError(OSError)                  a connection through the egress guard failed
    │   ├── EgressDeniedError(PermissionError)    the policy refuses the destination
    │   ├── EgressUnreachableError(ConnectionError)   no address of it answered
    │   ├── EgressTimeoutError(TimeoutError)      a deadline passed
    │   └── EgressLimitError                  the answer is larger than allowed, or malformed
    ├── SafeEvalError(RuntimeError)           what was evaluated raised, or could not be evaluated
    │   ├── SafeEvalSyntaxError(SyntaxError)  it is no expression, snippet or template
    │   ├── SafeEvalForbiddenError(PermissionError)   it does what it may not
    │   ├── SafeEvalTimeoutError(TimeoutError)        its deadline passed
    │   └── SafeEvalMemoryError(MemoryError)  it took more memory than it may
    └── ResultError                           raised by `ExecResult.check()` only
        ├── CommandFailedError(RuntimeError)
        └── CommandTimeoutError(TimeoutError)

One warning, for what nobody is there to be told by an exception:

    LeftBehindWarning(UserWarning)            a run whose application was killed left something
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sandboxkit.guard import Verdict
    from sandboxkit.model import ExecResult, PolicyEvaluation

__all__ = [
    "ApprovalError",
    "AuditError",
    "BackendError",
    "BackendUnavailableError",
    "BrokerError",
    "CommandDeniedError",
    "CommandError",
    "CommandFailedError",
    "CommandTimeoutError",
    "EgressDeniedError",
    "EgressError",
    "EgressLimitError",
    "EgressTimeoutError",
    "EgressUnreachableError",
    "EnforcementError",
    "FileAccessError",
    "GrantNotFoundError",
    "GrantStoreError",
    "IsolationError",
    "LaunchError",
    "LeftBehindWarning",
    "MissingExtraError",
    "NoBackendError",
    "PluginError",
    "PolicyError",
    "ProgramNotExecutableError",
    "ProgramNotFoundError",
    "ResultError",
    "RuleNotFoundError",
    "SafeEvalError",
    "SafeEvalForbiddenError",
    "SafeEvalMemoryError",
    "SafeEvalSyntaxError",
    "SafeEvalTimeoutError",
    "SandboxError",
    "SecretScopeError",
    "SetupError",
    "ShutDownError",
    "SpecError",
    "UrlError",
]


class SandboxError(Exception):
    """
    The root of everything sandboxkit raises.
    """


class ShutDownError(SandboxError, RuntimeError):
    """
    A run was asked for, or was going on, when `sandboxkit.shutdown()` ended it.
    """


class MissingExtraError(SandboxError, ImportError):
    """
    A feature needs an optional dependency that is not installed.

    Attributes:
        extra: The name of the extra of this package.
        feature: What needs it.
    """

    def __init__(self, extra: str, feature: str) -> None:
        self.extra = extra
        self.feature = feature
        super().__init__(f"{feature} needs an optional dependency: pip install 'sandboxkit[{extra}]'")


class CommandError(SandboxError, ValueError):
    """
    A command is empty, holds a NUL byte or is larger than the kernel takes.

    Attributes:
        problem: What is wrong with it, with the remedy.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the command cannot be run: {problem}")


def _listed(head: str, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"{head}: {problems[0]}"
    return "\n".join([f"{head}, {len(problems)} problems:", *(f"  {problem}" for problem in problems)])


class SpecError(SandboxError, ValueError):
    """
    A sandbox spec cannot be right, or names what this machine does not have.

    Attributes:
        problems: Every problem found, each with its key and, from a file, its line.
        source: The file it came from, or None.
    """

    def __init__(self, *problems: str, source: str | None = None) -> None:
        self.problems = problems
        self.source = source
        super().__init__(
            _listed(f"the sandbox spec in {source} is wrong" if source else "the sandbox spec is wrong", problems)
        )


class PolicyError(SandboxError, ValueError):
    """
    A rule, or a file of rules, is wrong; nothing of it was taken.

    Attributes:
        problems: Every problem found, each with the rule's id or line and the key.
        source: The file it came from, or None.
    """

    def __init__(self, *problems: str, source: str | None = None) -> None:
        self.problems = problems
        self.source = source
        super().__init__(_listed(f"the rules in {source} are wrong" if source else "the rules are wrong", problems))


class RuleNotFoundError(PolicyError, LookupError):
    """
    No rule of the user level has this id.

    Attributes:
        rule_id: The id that was asked for.
    """

    def __init__(self, rule_id: str) -> None:
        self.rule_id = rule_id
        super().__init__(f"no rule of the user level has the id {rule_id!r}; ExecPolicy.rules() lists them")


class CommandDeniedError(SandboxError, PermissionError):
    """
    The policy denies the command; nothing was started.

    Attributes:
        evaluation: The decision, with every rule that matched.
    """

    def __init__(self, evaluation: PolicyEvaluation, because: str | None = None) -> None:
        self.evaluation = evaluation
        super().__init__(f"denied: {(because or evaluation.reason).removeprefix('denied: ')}")


class ApprovalError(CommandDeniedError):
    """
    The policy asks for approval and none was given; nothing was started.

    No approver, a decline, a timeout, an exception in the approver and an answer
    that is not a plain yes all end here.
    """


class IsolationError(SandboxError, RuntimeError):
    """
    Isolation was to be switched off where that is not permitted.
    """


class BackendError(SandboxError, RuntimeError):
    """
    Something about the choice of a backend failed.
    """


class BackendUnavailableError(BackendError):
    """
    This machine cannot run this backend.

    Attributes:
        backend: The backend's name.
        reason: Why it is unavailable.
        remedy: What would make it available.
    """

    def __init__(self, backend: str, reason: str, remedy: str) -> None:
        self.backend = backend
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"backend {backend!r} is unavailable: {reason}; {remedy}")


def _per_backend(head: str, reasons: Mapping[str, str]) -> str:
    lines = [f"  {name}: {reason}" for name, reason in reasons.items()]
    return "\n".join([head, *(lines or ["  no backend is registered"])])


class NoBackendError(BackendError):
    """
    No backend is available on this machine; the command was not run.

    Attributes:
        reasons: For each registered backend, why it is unavailable and the remedy.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__(_per_backend("no sandbox backend is available, so nothing was run:", self.reasons))


class EnforcementError(BackendError):
    """
    Backends are available, but none enforces what the spec requires.

    Attributes:
        reasons: For each registered backend, the controls it misses and the remedy.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__(_per_backend("no backend enforces what the spec requires, so nothing was run:", self.reasons))


class PluginError(BackendError):
    """
    A third-party backend cannot be loaded or breaks the contract.

    Attributes:
        plugin: The entry point's name.
        problem: What is wrong with it.
    """

    def __init__(self, plugin: str, problem: str) -> None:
        self.plugin = plugin
        self.problem = problem
        super().__init__(f"plug-in {plugin!r}: {problem}")


class LaunchError(SandboxError, OSError):
    """
    A command could not be started. It never ran.
    """


class SetupError(LaunchError):
    """
    The sandbox failed to come up, so the command never ran.

    Attributes:
        backend: The backend that failed.
        problem: What it said, shortened, with the remedy where one is known.
    """

    def __init__(self, backend: str, problem: str) -> None:
        self.backend = backend
        self.problem = problem
        super().__init__(f"the {backend} sandbox did not start, so the command was not run: {problem}")


class ProgramNotFoundError(LaunchError, FileNotFoundError):
    """
    The program does not exist where the command would run.

    Attributes:
        program: The name that was looked for.
    """

    def __init__(self, program: str, where: str) -> None:
        self.program = program
        super().__init__(f"program {program!r} was not found {where}")


class ProgramNotExecutableError(LaunchError, PermissionError):
    """
    The program exists and cannot be executed.

    Attributes:
        program: The name that was tried.
    """

    def __init__(self, program: str, why: str) -> None:
        self.program = program
        super().__init__(f"program {program!r} cannot be executed: {why}")


class BrokerError(LaunchError, ConnectionError):
    """
    The process that starts commands is gone or refused a request.
    """


class FileAccessError(SandboxError, OSError):
    """
    A file operation inside a box failed.

    Attributes:
        path: The path inside the box.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}")


class AuditError(SandboxError, OSError):
    """
    An audit record could not be written, so the run was refused; or a file of
    records does not hold together.

    Attributes:
        sink: Which sink failed, or which file.
        problem: What it said.
        remedy: What would help.
        result: What the command gave, where it had already run when its end could not
            be recorded; None where nothing ran.
        role: What `sink` is: "audit sink" where records are written, otherwise the kind of
            file that was read, for example "audit log" or "audit key".
    """

    def __init__(
        self,
        sink: str,
        problem: str,
        *,
        remedy: str = "free the disk or name another sink, or set audit_required=False to run unrecorded",
        result: ExecResult | None = None,
        role: str = "audit sink",
    ) -> None:
        self.sink = sink
        self.problem = problem
        self.remedy = remedy
        self.result = result
        self.role = role
        super().__init__(f"{role} {sink}: {problem}; {remedy}")


class GrantStoreError(SandboxError, OSError):
    """
    The file of remembered approvals cannot be read, written or trusted. Nothing of it
    counts as a yes.

    Attributes:
        path: The file or its directory.
        problem: What is wrong with it, with the remedy.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"the remembered approvals in {path}: {problem}")


class GrantNotFoundError(GrantStoreError, LookupError):
    """
    No approval of this id is remembered.

    Attributes:
        grant_id: The id that was asked for.
    """

    def __init__(self, path: str, grant_id: str) -> None:
        self.grant_id = grant_id
        super().__init__(path, f"there is none with the id {grant_id!r}; list them first")


class SecretScopeError(SandboxError, PermissionError):
    """
    A secret was to go to a host it was not registered for. It was not put in.

    Attributes:
        secret: The secret's name.
        host: Where it was to go.
    """

    def __init__(self, secret: str, host: str) -> None:
        self.secret = secret
        self.host = host
        super().__init__(f"the secret {secret} is not for {host}; name the host in SecretRegistry.add(…, hosts=…)")


class UrlError(SandboxError, ValueError):
    """
    A URL cannot be used: readers of URLs disagree about it, or it is not of http or https.

    Attributes:
        url: The URL, shortened, in ASCII and without user name and password.
        problem: What is wrong with it, with the remedy.
    """

    def __init__(self, url: str, problem: str) -> None:
        self.url = url
        self.problem = problem
        super().__init__(f"the URL {url} cannot be used: {problem}")


class EgressError(SandboxError, OSError):
    """
    A connection to the network failed, or was not made.

    Attributes:
        destination: Where it was to go: an origin, or host and port.
    """

    def __init__(self, destination: str, problem: str) -> None:
        self.destination = destination
        super().__init__(f"{destination}: {problem}")


class EgressDeniedError(EgressError, PermissionError):
    """
    The policy refuses the destination. Nothing was sent to it.

    Attributes:
        verdict: Which check decided, and the setting that would change it.
    """

    def __init__(self, destination: str, verdict: Verdict) -> None:
        self.verdict = verdict
        remedy = f"; {verdict.setting} would change it" if verdict.setting else ""
        if verdict.action == "ask":
            remedy = "; nobody approved"
        super().__init__(destination, f"refused: {verdict.reason}{remedy}")


class EgressUnreachableError(EgressError, ConnectionError):
    """
    The destination may be reached, and none of its addresses answered.
    """


class EgressTimeoutError(EgressError, TimeoutError):
    """
    A deadline passed while a name was resolved, a connection made or an answer awaited.
    """


class EgressLimitError(EgressError):
    """
    An answer is larger than allowed, or breaks the protocol.
    """


class SafeEvalError(SandboxError, RuntimeError):
    """
    What was evaluated raised an exception, or its worker ended before it answered.

    The message names the snippet's own exception and line. It never holds a path of this
    machine; what the snippet put into its exception is shortened and made printable.

    Attributes:
        kind: The name of the snippet's exception, for example `ZeroDivisionError`.
        problem: Its message.
        line: The line of the snippet or template, from 1, or None.
        hint: What helps, where that is known; the message ends with it.
    """

    def __init__(self, kind: str, problem: str, line: int | None = None, hint: str = "") -> None:
        self.kind = kind
        self.problem = problem
        self.line = line
        self.hint = hint
        text = f"{kind}: {problem}" if problem else kind
        super().__init__(_placed(f"{text}; {hint}" if hint else text, line))


def _placed(text: str, line: int | None) -> str:
    return text if line is None else f"line {line}: {text}"


class SafeEvalSyntaxError(SafeEvalError, SyntaxError):
    """
    It cannot be read as an expression, a snippet or a template.

    Attributes:
        lineno: The line, from 1, or None.
        offset: The column, from 1, or None.
        text: That line, its control characters replaced and at most 300 characters of it;
            the message has it with a caret below the column.
    """

    def __init__(self, problem: str, line: int | None = None, column: int | None = None, source: str = "") -> None:
        super().__init__("SyntaxError", problem, line)
        self.msg = problem
        self.lineno = line
        self.offset = column
        self.text = source

    def __str__(self) -> str:
        head = _placed(f"it cannot be read: {self.problem}", self.line)
        if not self.text:
            return head
        caret = f"\n  {' ' * (self.offset - 1)}^" if self.offset and self.offset <= len(self.text) + 1 else ""
        return f"{head}\n  {self.text}{caret}"


class SafeEvalForbiddenError(SafeEvalError, PermissionError):
    """
    It does what no snippet may do, or uses what it was not given.

    Attributes:
        construct: What it does.
        why: Why that is refused, with the remedy where there is one.
        column: The column, from 0, or None.
    """

    def __init__(self, construct: str, why: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(construct, why, line)
        self.construct = construct
        self.why = why
        self.column = column

    def __str__(self) -> str:
        return _placed(f"{self.construct} is not allowed: {self.why}", self.line)


class SafeEvalTimeoutError(SafeEvalError, TimeoutError):
    """
    It was ended by a limit of time or of calls.

    Attributes:
        limit: Which one, for example `timeout`.
        figure: Its value.
    """

    def __init__(self, limit: str, figure: float) -> None:
        self.limit = limit
        self.figure = figure
        super().__init__("timeout", f"ended by {limit}={figure:g}; nothing of its result is known")

    def __str__(self) -> str:
        return self.problem


class SafeEvalMemoryError(SafeEvalError, MemoryError):
    """
    It asked for more memory than `memory_bytes`.

    Attributes:
        memory_bytes: The limit.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        super().__init__("memory", f"it needs more than memory_bytes={memory_bytes}")

    def __str__(self) -> str:
        return self.problem


class LeftBehindWarning(UserWarning):
    """
    An application was killed while its box ran, and what the box had made under a
    protected name was found, and moved away, by the next one that opens a box.
    """


class ResultError(SandboxError):
    """
    `ExecResult.check()` found that the command did not succeed.

    Attributes:
        result: The result that was checked.
    """

    def __init__(self, result: ExecResult) -> None:
        self.result = result
        tail = result.text("stderr")[-500:].strip()
        super().__init__(f"the command {result.outcome}" + (f": {tail}" if tail else ""))


class CommandFailedError(ResultError, RuntimeError):
    """
    The command ended with a code other than 0, by a signal or by a limit.
    """


class CommandTimeoutError(ResultError, TimeoutError):
    """
    The command was ended by its deadline.
    """
