"""
Decisions that are remembered are those that would be made again.
"""

from __future__ import annotations

import gc
import threading

import pytest

from sandboxkit.errors import CommandError
from sandboxkit.model import EvaluationContext, PolicyAction
from sandboxkit.policy import ExecPolicy, PolicyRule

HERE = EvaluationContext(cwd="/home/user/project", home="/home/user")


def test_the_same_value_again() -> None:
    policy = ExecPolicy.default()
    first = policy.evaluate("ls | wc", context=HERE)
    assert policy.evaluate("ls | wc", context=HERE) is first
    same = EvaluationContext(cwd="/home/user/project", home="/home/user")
    assert policy.evaluate("ls | wc", context=same) is first
    assert ExecPolicy.default().evaluate("ls | wc", context=HERE) == first


def test_another_context_is_another_decision() -> None:
    policy = ExecPolicy.default()
    for cwd, expected in (("/home/user/project", PolicyAction.SANDBOX), ("/", PolicyAction.DENY)) * 2:
        context = EvaluationContext(cwd=cwd, home="/home/user")
        assert policy.evaluate("rm -rf lib", context=context).action is expected
    assert policy.evaluate("rm -rf lib").action is PolicyAction.SANDBOX


def test_changed_rules_decide_anew() -> None:
    policy = ExecPolicy.default()
    assert policy.evaluate("tool x").action is PolicyAction.SANDBOX
    policy.add_rule(PolicyRule(id="tool", prefix=("tool",), action=PolicyAction.DENY))
    assert policy.evaluate("tool x").action is PolicyAction.DENY
    policy.update_rule("tool", action="ask")
    assert policy.evaluate("tool x").action is PolicyAction.ASK
    policy.remove_rule("tool")
    assert policy.evaluate("tool x").action is PolicyAction.SANDBOX


def test_a_callers_numbers_are_looked_at_each_time() -> None:
    policy = ExecPolicy.from_dict(
        {"rules": [{"id": "n", "prefix": ["tool"], "action": "deny", "constraints": {"more_than": {"pages": 5}}}]}
    )
    numbers = {"pages": 1.0}
    context = EvaluationContext(numbers=numbers)
    assert policy.evaluate("tool x", context=context).action is PolicyAction.SANDBOX
    numbers["pages"] = 9.0
    assert policy.evaluate("tool x", context=context).action is PolicyAction.DENY


def test_words_and_text_are_not_mixed_up() -> None:
    policy = ExecPolicy.default()
    assert policy.evaluate("ls; rm -rf /").action is PolicyAction.DENY
    assert policy.evaluate(["ls; rm -rf /"]).action is not PolicyAction.DENY
    assert policy.evaluate(["ls", "-la"]).action is policy.evaluate("ls -la").action


class Text(str):
    """
    Text of somebody else, which claims to equal another.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("ls")


def test_text_of_another_type_is_read_each_time() -> None:
    policy = ExecPolicy.default()
    policy.evaluate("ls")
    assert policy.evaluate(Text("rm -rf /")).action is PolicyAction.DENY


def test_refusals_are_not_remembered() -> None:
    policy = ExecPolicy.default()
    for _ in range(2):
        with pytest.raises(CommandError):
            policy.evaluate(" ")


def test_it_stays_small() -> None:
    policy = ExecPolicy.default()
    for number in range(2000):
        policy.evaluate(f"ls {number}")
    policy.evaluate("echo " + "x" * 5000)
    assert len(policy._memo._entries) <= 512


def test_threads_share_it() -> None:
    policy = ExecPolicy.default()
    wrong: list[object] = []

    def look(context: EvaluationContext, expected: PolicyAction) -> None:
        for _ in range(200):
            action = policy.evaluate("rm -rf lib", context=context).action
            if action is not expected:
                wrong.append(action)

    threads = [
        threading.Thread(target=look, args=(EvaluationContext(cwd=cwd, home="/home/user"), expected))
        for cwd, expected in (("/home/user/project", PolicyAction.SANDBOX), ("/", PolicyAction.DENY)) * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_oldest_decision_makes_room() -> None:
    policy = ExecPolicy.default()
    made = [policy.evaluate(f"ls {number}", context=HERE) for number in range(513)]
    assert policy.evaluate("ls 1", context=HERE) is made[1]
    assert policy.evaluate("ls 512", context=HERE) is made[512]
    again = policy.evaluate("ls 0", context=HERE)
    assert again == made[0]
    assert again is not made[0]


def test_reading_leaves_nothing_to_the_garbage_collector() -> None:
    policy = ExecPolicy.default()
    texts = [
        "for x in a; do ls $x; done",
        "echo $(ls `pwd`)",
        'echo "open',
        "a=(1); unset 'a[$(ls)]'",
        "sh -c 'ls; ls'",
    ]
    for text in texts:
        policy.evaluate(text, context=HERE)  # loads what is loaded once
    gc.collect()
    gc.disable()
    try:
        for text in texts:
            policy.evaluate(f"{text} # again", context=HERE)
        assert gc.collect() == 0
    finally:
        gc.enable()
