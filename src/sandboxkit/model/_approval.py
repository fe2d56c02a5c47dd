"""
The question a person or program is asked, what a yes to it grants, and the answer.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from sandboxkit.model._spec import SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.model._decision import PolicyEvaluation, RuleMatch

__all__ = [
    "ApprovalOffer",
    "ApprovalReply",
    "ApprovalRequest",
    "Approver",
    "Executable",
    "Grant",
    "Remember",
    "RunMode",
    "ToolAction",
]

Remember: TypeAlias = Literal["once", "session", "always"]
"""
How long a yes counts: for this run, until the application ends, or until it expires.
"""

RunMode: TypeAlias = Literal["sandbox", "direct", "unsandboxed"]
"""
Where a command runs: in a box, without one because it needs none, or without one
because the application switched isolation off.
"""


@dataclass(frozen=True, slots=True)
class Executable:
    """
    A program or script as it was found on the host.

    Attributes:
        path: Its real path.
        device: Its device number.
        inode: Its inode number.
        size: Bytes.
        mtime_ns: When its content was last changed, as the file says.
        ctime_ns: When anything of it was last changed; unlike `mtime_ns` nobody can set
            it back. Source: inode(7).
        found_at: Where it was found, before links were followed.
    """

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    found_at: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """
    What an approval covers. A run whose grant has another digest was not approved.

    Programs and scripts are covered by the identity of their files, not by their content.
    What those read in turn (modules, configuration, data) is not covered, nor is the
    application's own environment.

    Attributes:
        command: The exact words, or the exact text for bash.
        cwd: Where it runs.
        workspace_roots: The directories that count as the workspace.
        spec: The box it gets.
        executables: The programs it starts, and the scripts it names, as far as they
            were found on the host. Where bash reads the command, bash comes first.
        rules_digest: The rule set that asked.
        mode: Whether it gets the box.
        stdin_digest: sha256 of what it reads on standard input, hex; None where that is
            empty.
        not_found: The programs that were not found on the host, as they are named.
        search: Where bare program names are looked for, as in PATH: also those that a
            program starts in turn.
    """

    command: tuple[str, ...] | str
    cwd: str
    workspace_roots: tuple[str, ...]
    spec: SandboxSpec
    executables: tuple[Executable, ...]
    rules_digest: str
    mode: RunMode = "sandbox"
    stdin_digest: str | None = None
    not_found: tuple[str, ...] = ()
    search: str = ""

    @property
    def digest(self) -> str:
        """
        Names it: sha256 over every attribute, hex.
        """
        content = {
            "command": self.command,
            "cwd": self.cwd,
            "workspace_roots": self.workspace_roots,
            "spec": self.spec.model_dump(mode="json"),
            "named_limits": sorted(self.spec.limits.model_fields_set),
            "executables": [asdict(found) for found in self.executables],
            "rules": self.rules_digest,
            "mode": self.mode,
            "stdin": self.stdin_digest,
            "not_found": self.not_found,
            "search": self.search,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_NOT_REMEMBERED = "nobody remembers answers here; wrap the approver in sandboxkit.RememberingApprover"


def _unremembered() -> Mapping[Remember, str]:
    return {"session": _NOT_REMEMBERED, "always": _NOT_REMEMBERED}


@dataclass(frozen=True, slots=True)
class ApprovalOffer:
    """
    What a yes would grant.

    Attributes:
        mode: Whether the command gets the box of the request. Approval never takes the
            box away: other modes than `sandbox` are the application's own setting.
        grant: What exactly would be approved; None for what is not a command.
        remember: How long the answer may count, as the approver may choose.
        refused: For each other choice, why it is not on offer.
        always_seconds: How long `always` counts, in seconds; None where it is not on
            offer.
    """

    mode: RunMode = "sandbox"
    grant: Grant | None = None
    remember: tuple[Remember, ...] = ("once",)
    refused: Mapping[Remember, str] = field(default_factory=_unremembered)
    always_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ToolAction:
    """
    Something a tool is about to do that is no command, for example fetching pages.

    Attributes:
        name: What is done, as rules name it: `scraper.fetch`.
        arguments: What it is done to.
        numbers: How much of it, by name: `{"pages": 40}`. Rules compare them
            (`more_than`).
    """

    name: str
    arguments: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """
        Its form as words, so that rules match it as they do commands.
        """
        return (self.name, *self.arguments)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """
    A command, or the action of a tool, that waits for approval.

    Attributes:
        evaluation: The decision that asks, with the exact command.
        cwd: Where it would run.
        spec: The box it would get.
        offer: What a yes would grant.
        action: What a tool wants to do, where no command is asked about; then `cwd` and
            `spec` mean nothing.
    """

    evaluation: PolicyEvaluation
    cwd: str
    spec: SandboxSpec
    offer: ApprovalOffer = ApprovalOffer()
    action: ToolAction | None = None

    @classmethod
    def for_action(cls, action: ToolAction, evaluation: PolicyEvaluation) -> ApprovalRequest:
        """
        The question whether a tool may do *action*, which is asked each time anew.

        Args:
            action: What it wants to do.
            evaluation: What the policy says about `action.words`.
        """
        return cls(evaluation, "/", SandboxSpec.isolated(), action=action)

    @property
    def command(self) -> tuple[str, ...] | str:
        """
        Exactly what was asked for: the words, or the text. Not escaped for a terminal.
        """
        if self.offer.grant is not None:
            return self.offer.grant.command
        command = self.evaluation.command
        return command.source if command.source is not None else command.argv or ()

    @property
    def reasons(self) -> tuple[RuleMatch, ...]:
        """
        The rules that ask, each with its reason and the span it saw.
        """
        return tuple(
            match for match in self.evaluation.matches if match.decided and match.action >= self.evaluation.action
        )


@dataclass(frozen=True, slots=True)
class ApprovalReply:
    """
    The answer to a request.

    Attributes:
        approved: True lets exactly this command run, in the box of the request.
        reason: Why, for the record.
        remember: How long the answer counts. What the request's offer does not list is
            not remembered.
        origin: Where the answer comes from: `asked`, or what was remembered (`session`,
            `always`). For the record; `RememberingApprover` sets it.
    """

    approved: bool
    reason: str = ""
    remember: Remember = "once"
    origin: Literal["asked", "session", "always"] = "asked"


@runtime_checkable
class Approver(Protocol):
    """
    Somebody who can say yes. Everything else than a reply with `approved=True`
    (an exception, a timeout, another value) is a no.
    """

    async def approve(self, request: ApprovalRequest) -> ApprovalReply:
        """
        Answers *request*.
        """
        ...
