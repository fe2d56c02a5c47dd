"""
The words of the flow: frozen values without I/O.

`str | argv` → Command → PolicyEvaluation → SandboxSpec → LaunchPlan → ExecResult → AuditEvent
"""

from sandboxkit.model._approval import (
    ApprovalOffer,
    ApprovalReply,
    ApprovalRequest,
    Approver,
    Executable,
    Grant,
    Remember,
    RunMode,
    ToolAction,
)
from sandboxkit.model._command import (
    PIPES,
    UNKNOWN,
    Assignment,
    Command,
    Doubt,
    Redirect,
    Setting,
    SimpleCommand,
    Unknown,
)
from sandboxkit.model._context import TRUSTED_PATH, EvaluationContext
from sandboxkit.model._control import BASELINE, Control, ControlState, Enforcement, Grade
from sandboxkit.model._decision import Advice, Level, PartDecision, PolicyAction, PolicyEvaluation, RuleMatch
from sandboxkit.model._described import Described
from sandboxkit.model._egress_rule import EgressAction, EgressRule, HostText, NetworkText, Port
from sandboxkit.model._event import SCHEMA_VERSION, AuditEvent, AuditSink
from sandboxkit.model._host import HostPattern, canonical_host, ipv6_text, is_literal
from sandboxkit.model._injection import SecretInjection
from sandboxkit.model._key_lines import KeyLines
from sandboxkit.model._open_flags import open_flags
from sandboxkit.model._paths import Access, access_of, is_inside, strictest
from sandboxkit.model._plan import (
    FIRST_FREE_FD,
    Confinement,
    ControlGroup,
    ControlGroups,
    Invocation,
    LandlockRules,
    LaunchPlan,
    LoopbackProxy,
    Mount,
    PlanFile,
    Staging,
    Trace,
)
from sandboxkit.model._real_path import real_path
from sandboxkit.model._refusal import Act, Refusal
from sandboxkit.model._result import ExecResult, RouteResult, Termination, Usage, Violation
from sandboxkit.model._spec import (
    EnvironmentPolicy,
    FilesystemPolicy,
    Limits,
    NetworkPolicy,
    ProcessPolicy,
    ProtectionSet,
    SandboxSpec,
    checked_timeout,
)
from sandboxkit.model._spec_problems import problems
from sandboxkit.model._toml import toml_key, toml_value
from sandboxkit.model._url_path import canonical_path
from sandboxkit.model._walk import (
    MAX_DEPTH,
    PATTERN_DEPTH,
    PATTERN_DIRECTORIES,
    Walk,
    fixed_part,
    has_wildcard,
    real_now,
)

__all__ = [
    "BASELINE",
    "FIRST_FREE_FD",
    "MAX_DEPTH",
    "PATTERN_DEPTH",
    "PATTERN_DIRECTORIES",
    "PIPES",
    "SCHEMA_VERSION",
    "TRUSTED_PATH",
    "UNKNOWN",
    "Access",
    "Act",
    "Advice",
    "ApprovalOffer",
    "ApprovalReply",
    "ApprovalRequest",
    "Approver",
    "Assignment",
    "AuditEvent",
    "AuditSink",
    "Command",
    "Confinement",
    "Control",
    "ControlGroup",
    "ControlGroups",
    "ControlState",
    "Described",
    "Doubt",
    "EgressAction",
    "EgressRule",
    "Enforcement",
    "EnvironmentPolicy",
    "EvaluationContext",
    "ExecResult",
    "Executable",
    "FilesystemPolicy",
    "Grade",
    "Grant",
    "HostPattern",
    "HostText",
    "Invocation",
    "KeyLines",
    "LandlockRules",
    "LaunchPlan",
    "Level",
    "Limits",
    "LoopbackProxy",
    "Mount",
    "NetworkPolicy",
    "NetworkText",
    "PartDecision",
    "PlanFile",
    "PolicyAction",
    "PolicyEvaluation",
    "Port",
    "ProcessPolicy",
    "ProtectionSet",
    "Redirect",
    "Refusal",
    "Remember",
    "RouteResult",
    "RuleMatch",
    "RunMode",
    "SandboxSpec",
    "SecretInjection",
    "Setting",
    "SimpleCommand",
    "Staging",
    "Termination",
    "ToolAction",
    "Trace",
    "Unknown",
    "Usage",
    "Violation",
    "Walk",
    "access_of",
    "canonical_host",
    "canonical_path",
    "checked_timeout",
    "fixed_part",
    "has_wildcard",
    "ipv6_text",
    "is_inside",
    "is_literal",
    "open_flags",
    "problems",
    "real_now",
    "real_path",
    "strictest",
    "toml_key",
    "toml_value",
]
