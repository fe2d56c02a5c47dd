"""
Run what you do not trust: decided by rules, in the strongest isolation this machine
really has, with what was enforced in the result.

    import sandboxkit as sk

    result = sk.sync.run("ls -la")              # or: await sk.run("ls -la")

Names load the room they live in when they are first used, so importing the package
costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxkit import sync
    from sandboxkit.approval import (
        CallbackApprover,
        DenyApprover,
        GrantStore,
        RememberedGrant,
        RememberingApprover,
        TerminalApprover,
        permit,
    )
    from sandboxkit.audit import JsonlAudit, MemoryAudit
    from sandboxkit.backends import (
        Sandbox,
        SandboxBackend,
        SandboxRegistry,
        get_active_sandbox_backend,
        list_sandbox_backends,
        register_sandbox_backend,
        sandbox_execute,
    )
    from sandboxkit.errors import (
        ApprovalError,
        AuditError,
        BackendError,
        BackendUnavailableError,
        BrokerError,
        CommandDeniedError,
        CommandError,
        CommandFailedError,
        CommandTimeoutError,
        EgressDeniedError,
        EgressError,
        EgressLimitError,
        EgressTimeoutError,
        EgressUnreachableError,
        EnforcementError,
        FileAccessError,
        GrantNotFoundError,
        GrantStoreError,
        IsolationError,
        LaunchError,
        LeftBehindWarning,
        MissingExtraError,
        NoBackendError,
        PluginError,
        PolicyError,
        ProgramNotExecutableError,
        ProgramNotFoundError,
        ResultError,
        RuleNotFoundError,
        SafeEvalError,
        SafeEvalForbiddenError,
        SafeEvalMemoryError,
        SafeEvalSyntaxError,
        SafeEvalTimeoutError,
        SandboxError,
        SecretScopeError,
        SetupError,
        ShutDownError,
        SpecError,
        UrlError,
    )
    from sandboxkit.evaluation import (
        SafeEvaluator,
        safe_eval,
        safe_eval_async,
        safe_eval_condition,
        safe_interpolate,
    )
    from sandboxkit.guard import EgressPolicy, EgressRule, EndpointGuard, Url, canonical_url
    from sandboxkit.learning import Lesson, learn_spec
    from sandboxkit.model import (
        Advice,
        ApprovalOffer,
        ApprovalReply,
        ApprovalRequest,
        Approver,
        AuditEvent,
        Command,
        Control,
        Enforcement,
        EnvironmentPolicy,
        EvaluationContext,
        ExecResult,
        Executable,
        FilesystemPolicy,
        Grade,
        Grant,
        Limits,
        NetworkPolicy,
        PartDecision,
        PolicyAction,
        PolicyEvaluation,
        ProcessPolicy,
        RouteResult,
        RuleMatch,
        SandboxSpec,
        SecretInjection,
        Termination,
        ToolAction,
        Usage,
        Violation,
    )
    from sandboxkit.policy import (
        ExecPolicy,
        PolicyRule,
        RuleConstraints,
        diagnostic,
        get_exec_policy,
        initialize_exec_policy,
        rules_schema,
    )
    from sandboxkit.process import shutdown
    from sandboxkit.router import AutoSandboxRouter, open_sandbox, run

__all__ = [
    "Advice",
    "ApprovalError",
    "ApprovalOffer",
    "ApprovalReply",
    "ApprovalRequest",
    "Approver",
    "AuditError",
    "AuditEvent",
    "AutoSandboxRouter",
    "BackendError",
    "BackendUnavailableError",
    "BrokerError",
    "CallbackApprover",
    "Command",
    "CommandDeniedError",
    "CommandError",
    "CommandFailedError",
    "CommandTimeoutError",
    "Control",
    "DenyApprover",
    "EgressDeniedError",
    "EgressError",
    "EgressLimitError",
    "EgressPolicy",
    "EgressRule",
    "EgressTimeoutError",
    "EgressUnreachableError",
    "EndpointGuard",
    "Enforcement",
    "EnforcementError",
    "EnvironmentPolicy",
    "EvaluationContext",
    "ExecPolicy",
    "ExecResult",
    "Executable",
    "FileAccessError",
    "FilesystemPolicy",
    "Grade",
    "Grant",
    "GrantNotFoundError",
    "GrantStore",
    "GrantStoreError",
    "IsolationError",
    "JsonlAudit",
    "LaunchError",
    "LeftBehindWarning",
    "Lesson",
    "Limits",
    "MemoryAudit",
    "MissingExtraError",
    "NetworkPolicy",
    "NoBackendError",
    "PartDecision",
    "PluginError",
    "PolicyAction",
    "PolicyError",
    "PolicyEvaluation",
    "PolicyRule",
    "ProcessPolicy",
    "ProgramNotExecutableError",
    "ProgramNotFoundError",
    "RememberedGrant",
    "RememberingApprover",
    "ResultError",
    "RouteResult",
    "RuleConstraints",
    "RuleMatch",
    "RuleNotFoundError",
    "SafeEvalError",
    "SafeEvalForbiddenError",
    "SafeEvalMemoryError",
    "SafeEvalSyntaxError",
    "SafeEvalTimeoutError",
    "SafeEvaluator",
    "Sandbox",
    "SandboxBackend",
    "SandboxError",
    "SandboxRegistry",
    "SandboxSpec",
    "SecretInjection",
    "SecretScopeError",
    "SetupError",
    "ShutDownError",
    "SpecError",
    "TerminalApprover",
    "Termination",
    "ToolAction",
    "Url",
    "UrlError",
    "Usage",
    "Violation",
    "__version__",
    "canonical_url",
    "diagnostic",
    "get_active_sandbox_backend",
    "get_exec_policy",
    "initialize_exec_policy",
    "learn_spec",
    "list_sandbox_backends",
    "open_sandbox",
    "permit",
    "register_sandbox_backend",
    "rules_schema",
    "run",
    "safe_eval",
    "safe_eval_async",
    "safe_eval_condition",
    "safe_interpolate",
    "sandbox_execute",
    "shutdown",
    "sync",
]

__version__: str

_ROOMS = {
    "approval": (
        "CallbackApprover",
        "DenyApprover",
        "GrantStore",
        "RememberedGrant",
        "RememberingApprover",
        "TerminalApprover",
        "permit",
    ),
    "audit": ("JsonlAudit", "MemoryAudit"),
    "backends": (
        "Sandbox",
        "SandboxBackend",
        "SandboxRegistry",
        "get_active_sandbox_backend",
        "list_sandbox_backends",
        "register_sandbox_backend",
        "sandbox_execute",
    ),
    "evaluation": (
        "SafeEvaluator",
        "safe_eval",
        "safe_eval_async",
        "safe_eval_condition",
        "safe_interpolate",
    ),
    "guard": (
        "EgressPolicy",
        "EgressRule",
        "EndpointGuard",
        "Url",
        "canonical_url",
    ),
    "learning": ("Lesson", "learn_spec"),
    "model": (
        "Advice",
        "ApprovalOffer",
        "ApprovalReply",
        "ApprovalRequest",
        "Approver",
        "AuditEvent",
        "Command",
        "Control",
        "Enforcement",
        "EnvironmentPolicy",
        "EvaluationContext",
        "ExecResult",
        "Executable",
        "FilesystemPolicy",
        "Grade",
        "Grant",
        "Limits",
        "NetworkPolicy",
        "PartDecision",
        "PolicyAction",
        "PolicyEvaluation",
        "ProcessPolicy",
        "RouteResult",
        "RuleMatch",
        "SandboxSpec",
        "SecretInjection",
        "Termination",
        "ToolAction",
        "Usage",
        "Violation",
    ),
    "policy": (
        "ExecPolicy",
        "PolicyRule",
        "RuleConstraints",
        "diagnostic",
        "get_exec_policy",
        "initialize_exec_policy",
        "rules_schema",
    ),
    "process": ("shutdown",),
    "router": ("AutoSandboxRouter", "open_sandbox", "run"),
}
_HOMES = {name: f"sandboxkit.{room}" for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("sandboxkit")
    elif name == "sync":
        value = import_module("sandboxkit.sync")
    elif name in __all__:
        value = getattr(import_module(_HOMES.get(name, "sandboxkit.errors")), name)
    else:
        raise AttributeError(f"module 'sandboxkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
