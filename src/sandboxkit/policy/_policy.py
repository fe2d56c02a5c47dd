"""
`ExecPolicy`: the rules in force, and what they say about a command.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self, final

from pydantic import ValidationError

from sandboxkit.errors import PolicyError, RuleNotFoundError, SandboxError
from sandboxkit.model import EvaluationContext, Level, PolicyAction, PolicyEvaluation
from sandboxkit.policy._builtin import builtin_floor, builtin_layer
from sandboxkit.policy._layer import Layer, RuleSet
from sandboxkit.policy._memo import Memo
from sandboxkit.policy._rule import PolicyRule
from sandboxkit.policy._rule_source import RuleSource
from sandboxkit.policy._undecided import failed, undecided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.policy._floor import FloorRow

__all__ = ["ExecPolicy"]

_LEVELS = (Level.BUILTIN, Level.USER, Level.ORGANISATION, Level.PROJECT)


@final
class ExecPolicy:
    """
    A set of rules, and what they say about commands.

    Make one with `default()`, `from_files()`, `from_dict()` or `empty()`. It holds one
    immutable rule set; changes replace it as a whole, so an evaluation always sees
    one set and threads may share a policy. The floor applies to every policy.

    What it does not do: it judges text. Symbolic links, changed programs and what an
    allowed program really does are the box's business.
    """

    __slots__ = ("_defaults", "_lock", "_memo", "_paths", "_rules")

    def __init__(
        self,
        rules: RuleSet,
        *,
        paths: tuple[str, ...] = (),
        defaults: Mapping[Level, PolicyAction | None] | None = None,
    ) -> None:
        self._rules = rules
        self._paths = paths
        self._defaults = dict(defaults or {})
        self._lock = threading.Lock()
        self._memo = Memo(rules, None)

    @property
    def paths(self) -> tuple[str, ...]:
        """
        The files the rules were read from. A router keeps them read-only in every box.
        """
        return self._paths

    @classmethod
    def default(cls) -> Self:
        """
        The built-in rules alone. Reads no file of the machine.
        """
        return cls._of(builtin_layer(), {})

    @classmethod
    def empty(cls, default: PolicyAction = PolicyAction.SANDBOX) -> Self:
        """
        No rules but the floor: every command gets *default*.
        """
        return cls._of(Layer.of(Level.BUILTIN, ()), {Level.USER: RuleSource(default=PolicyAction(default))})

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """
        The built-in rules, and those of *data* at the user level.

        Args:
            data: `{"rules": [...], "default": "sandbox"}`, as in a rule file; a rule is
                a mapping or a `PolicyRule`.

        Raises:
            PolicyError: It holds a mistake. All mistakes are reported.
        """
        from sandboxkit.policy._load import from_mapping

        return cls._of(builtin_layer(), {Level.USER: from_mapping(data, Level.USER)})

    @classmethod
    def from_files(
        cls,
        *,
        organisation: str | os.PathLike[str] | None = None,
        user: str | os.PathLike[str] | None = None,
        project: str | os.PathLike[str] | None = None,
    ) -> Self:
        """
        The built-in rules, and those of the files given (`.json`, otherwise TOML).

        Args:
            organisation: Decides before the user's file.
            user: Decides before the built-in rules.
            project: From the workspace, so it is only heard where it is stricter:
                prefix and glob rules that sandbox, ask or deny.

        Raises:
            PolicyError: A file cannot be read or holds a mistake. All mistakes of all
                files are reported, with file, row, line and key.
        """
        from sandboxkit.policy._load import from_files  # what reads and checks files is not loaded where there is none

        files = {Level.ORGANISATION: organisation, Level.USER: user, Level.PROJECT: project}
        paths = tuple(os.path.realpath(path) for path in files.values() if path is not None)
        return cls._of(builtin_layer(), from_files(files), paths)

    @classmethod
    def _of(cls, builtin: Layer, read: Mapping[Level, RuleSource], paths: tuple[str, ...] = ()) -> Self:
        defaults = {level: source.default for level, source in read.items()}
        return cls(_rule_set(builtin, read, _default(defaults)), paths=paths, defaults=defaults)

    def evaluate(self, command: str | Sequence[str], *, context: EvaluationContext | None = None) -> PolicyEvaluation:
        """
        What is to be done with *command*, and why. Has no side effects.

        Every program it would start is decided by itself; the strictest counts. Text of
        which it is not certain what it means is at least `ask`, and text that is too
        long to be read is denied, as is one over which the policy itself fails.

        Args:
            command: Text as for bash, or a list of words, which no shell reads.
            context: Where it would run. Without one, relative and home paths count
                as unknown.

        Raises:
            CommandError: The command is empty, holds a NUL byte, is larger than the
                kernel takes, or is neither text nor a sequence of strings.
        """
        memo, rules = self._memo, self._rules
        if not memo.is_for(rules, context):
            memo = self._memo = Memo(rules, context)
        try:
            return memo.evaluation(command)
        except SandboxError:
            raise
        except Exception as exc:  # noqa: BLE001 - fail closed, whatever it is
            return undecided(command if isinstance(command, str) else tuple(command), failed(exc))

    def is_allowed(self, command: str | Sequence[str], *, context: EvaluationContext | None = None) -> bool:
        """
        Whether *command* may run unasked: in a read-only box without network.
        """
        return self.evaluate(command, context=context).action is PolicyAction.ALLOW

    def rules(self, level: Level | None = None) -> tuple[PolicyRule, ...]:
        """
        The rules of *level*, or of all levels, the weakest level first. Disabled ones too.
        """
        return tuple(rule for layer in self._rules.layers if level in (None, layer.level) for rule in layer.rules)

    def floor(self) -> tuple[FloorRow, ...]:
        """
        The denials that apply whatever the rules say.
        """
        return tuple(rule.row for rule in self._rules.floor.rows)

    @property
    def default_action(self) -> PolicyAction:
        """
        What is done with a command no rule matches.
        """
        return self._rules.default

    @property
    def rules_digest(self) -> str:
        """
        Names the rule set in force (sha256, hex): the same rules, the same name.
        """
        return self._rules.digest

    def add_rule(self, rule: PolicyRule) -> None:
        """
        Adds *rule* at the user level.

        Raises:
            PolicyError: The id is taken, an example does not hold, or another rule
                keeps it from ever deciding.
        """
        with self._lock:
            self._replace([*self._rules.user.rules, rule], changed=rule)

    def update_rule(self, rule_id: str, **changes: object) -> PolicyRule:
        """
        The rule of the user level with that id, with the fields in *changes* replaced;
        from then on it is in force.

        Raises:
            RuleNotFoundError: The user level has no such rule.
            PolicyError: The changed rule would be wrong; nothing changes.
        """
        with self._lock:
            rules = list(self._rules.user.rules)
            place = self._place(rule_id)
            rules[place] = _changed(rules[place], changes)
            self._replace(rules, changed=rules[place])
            return rules[place]

    def remove_rule(self, rule_id: str) -> PolicyRule:
        """
        Takes the rule with that id out of the user level, and returns it.

        Raises:
            RuleNotFoundError: The user level has no such rule.
        """
        with self._lock:
            rules = list(self._rules.user.rules)
            removed = rules.pop(self._place(rule_id))
            self._rules = self._rules.with_user(rules)
            return removed

    def enable_rule(self, rule_id: str) -> PolicyRule:
        """
        Puts the rule of the user level with that id in force again, and returns it.

        Raises:
            RuleNotFoundError: The user level has no such rule.
            PolicyError: Another rule now keeps it from ever deciding; nothing changes.
        """
        return self.update_rule(rule_id, enabled=True)

    def disable_rule(self, rule_id: str) -> PolicyRule:
        """
        Keeps the rule of the user level with that id, but out of force, and returns it.

        Built-in rules cannot be switched off: a rule of the user level for the same
        commands decides before them.

        Raises:
            RuleNotFoundError: The user level has no such rule.
        """
        return self.update_rule(rule_id, enabled=False)

    def set_default_action(self, action: PolicyAction | None) -> None:
        """
        What the user level wants done with commands that no rule matches; None says
        nothing, which leaves `sandbox`.

        The organisation's file decides before it, and the project's may make it
        stricter: `default_action` is what counts.
        """
        with self._lock:
            self._replace_user(self._rules.user.rules, None if action is None else PolicyAction(action))

    def import_rules(
        self, source: str | os.PathLike[str] | Mapping[str, object], *, replace: bool = False
    ) -> tuple[PolicyRule, ...]:
        """
        Takes the rules of a file or mapping, and its default action where it names one,
        into the user level; all of them or, where anything is wrong, none.

        Args:
            source: A file (`.json`, otherwise TOML), or a mapping as for `from_dict()`.
            replace: Whether all rules and the default of the user level make room first.

        Returns:
            The rules that were taken.

        Raises:
            PolicyError: The file cannot be read, it holds a mistake, or its rules and
                those that stay do not go together. All mistakes are reported.
        """
        from sandboxkit.policy._load import from_file, from_mapping

        found = from_mapping(source, Level.USER) if isinstance(source, Mapping) else from_file(source, Level.USER)
        with self._lock:
            rules = [*(() if replace else self._rules.user.rules), *found.rules]
            if problems := _together(rules):
                raise PolicyError(*problems)
            stays = None if replace else self._defaults.get(Level.USER)
            self._replace_user(rules, stays if found.default is None else found.default)
        return found.rules

    def describe(self) -> str:
        """
        All rules as tables for a person: the default action, how many rules each level
        has, and every rule, those that decide first on top.
        """
        from sandboxkit.policy._dashboard import dashboard

        return dashboard(self)

    def to_toml(self) -> str:
        """
        The rules of the user level, and its default action where it has one, as the text
        of a TOML file; `import_rules()` and `from_files()` take it back.

        Raises:
            PolicyError: A rule's spec says something TOML cannot; use JSON.
        """
        from sandboxkit.policy._dump import as_toml

        return as_toml(self.rules(Level.USER), self._defaults.get(Level.USER))

    def to_json(self) -> str:
        """
        The same as the text of a JSON file.
        """
        from sandboxkit.policy._dump import as_json

        return as_json(self.rules(Level.USER), self._defaults.get(Level.USER))

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Writes the rules of the user level to *path*, as JSON where it ends in `.json`,
        otherwise as TOML. The file is replaced as a whole, readable by the owner only.

        Raises:
            PolicyError: It cannot be written; what was there is untouched.
        """
        from sandboxkit.policy._dump import save

        save(self.to_json() if os.fspath(path).endswith(".json") else self.to_toml(), path)

    def _place(self, rule_id: str) -> int:
        for place, rule in enumerate(self._rules.user.rules):
            if rule.id == rule_id:
                return place
        raise RuleNotFoundError(rule_id)

    def _replace(self, rules: list[PolicyRule], *, changed: PolicyRule) -> None:
        from sandboxkit.policy._problems import rule_problems

        problems = [f"rule {changed.id!r}: {key}: {message}" for key, message in rule_problems(changed, Level.USER)]
        problems += _together(rules)
        if problems:
            raise PolicyError(*problems)
        self._rules = self._rules.with_user(rules)

    def _replace_user(self, rules: Sequence[PolicyRule], default: PolicyAction | None) -> None:
        defaults = self._defaults | {Level.USER: default}
        now = self._rules
        self._rules = RuleSet.of(
            floor=now.floor,
            builtin=now.builtin,
            user=Layer.of(Level.USER, rules),
            organisation=now.organisation,
            project=now.project,
            default=_default(defaults),
        )
        self._defaults = defaults


def _together(rules: Sequence[PolicyRule]) -> list[str]:
    from sandboxkit.policy._problems import set_problems

    return [f"rule {rules[index].id!r}: {key}: {message}" for index, key, message in set_problems(rules)]


def _changed(rule: PolicyRule, changes: Mapping[str, object]) -> PolicyRule:
    given = {name: getattr(rule, name) for name in rule.model_fields_set}
    if changes.get("id", rule.id) != rule.id:
        raise PolicyError(f"rule {rule.id!r}: id: it cannot change; remove the rule and add another")
    try:
        return PolicyRule.model_validate(given | dict(changes))
    except ValidationError as error:
        from sandboxkit.policy._problems import said

        raise PolicyError(*(f"rule {rule.id!r}: {key}: {message}" for key, message in said(error))) from error


def _default(given: Mapping[Level, PolicyAction | None]) -> PolicyAction:
    """
    What is done with a command no rule matches: what the organisation says, else the
    user, else `sandbox`; and no less than the project says.
    """
    said = [given.get(level) for level in (Level.ORGANISATION, Level.USER)]
    default = next((action for action in said if action is not None), PolicyAction.SANDBOX)
    return max(default, given.get(Level.PROJECT) or PolicyAction.ALLOW)


def _rule_set(builtin: Layer, read: Mapping[Level, RuleSource], default: PolicyAction) -> RuleSet:
    sources = {level: read.get(level, RuleSource()) for level in _LEVELS}
    return RuleSet.of(
        floor=builtin_floor(),
        builtin=builtin,
        user=Layer.of(Level.USER, sources[Level.USER].rules),
        organisation=Layer.of(Level.ORGANISATION, sources[Level.ORGANISATION].rules),
        project=Layer.of(Level.PROJECT, sources[Level.PROJECT].rules),
        default=default,
    )
