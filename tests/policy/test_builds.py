"""
What holds for the pure and the compiled build alike: neither ends the process, and both
can be interrupted, copied and sent to other processes.
"""

from __future__ import annotations

import copy
import pickle
import signal
import subprocess
import sys
import time

import pytest

from sandboxkit.model import EvaluationContext
from sandboxkit.policy import ExecPolicy
from sandboxkit.shell import MAX_TEXT, parse

NESTED = {
    "subshells": ("(", ")"),
    "groups": ("{ ", "; }"),
    "ifs": ("if a; then ", "; fi"),
    "loops": ("while a; do ", "; done"),
    "negations": ("! ", ""),
    "substitutions": ("echo $(", ")"),
    "quoted substitutions": ('echo "$(', ')"'),
    "process substitutions": ("cat <(", ")"),
    "expansions": ("echo ${x:-", "}"),
    "quoted expansions": ('echo "${x:-', '}"'),
    "braces": ("echo {a,", "}"),
    "inner braces": ("{a,", "}"),
    "inner expansions": ("${x:-", "}"),
    "subscripts": ("${a[", "]}"),
    "arithmetic": ("$((", "))"),
    "signs": ("- ", ""),
    "terms": ("1+", ""),
    "choices": ("1?", ":1"),
    "tests": ("( ", " )"),
    "ands": ("a && ", ""),
    "pipes": ("a | ", ""),
    "functions": ("f() { ", "; }"),
    "wrappers": ("sudo ", ""),
    "shells": ("sh -c ", ""),
    "backticks": ("`", "`"),
    "arrays": ("a=(", ")"),
    "here-documents": ("cat <<a\n", ""),
    "roots": ("/proc/self/root/../", ""),
    "finds": ("find . -exec ", " ;"),
}
STARTS = ("", "echo ", "echo $((", "[[ ", "(( ", "echo {a,", 'echo "', "cat ")
ATTACK = f"""
import sys, threading
from sandboxkit import ExecPolicy, SandboxError

def attack():
    policy = ExecPolicy.default()
    for begin, end in {tuple(NESTED.values())!r}:
        for start in {STARTS!r}:
            for levels in (95, 400, {MAX_TEXT} // len(begin + end) - 20):
                text = start + begin * levels + "a" + end * levels
                text += {{"echo $((": "))", "[[ ": " ]]", "(( ": "))", "echo {{a,": "}}", 'echo "': '"'}}.get(start, "")
                try:
                    policy.evaluate(text)
                except SandboxError:
                    pass

threading.stack_size(512 * 1024)
thread = threading.Thread(target=attack)
thread.start()
thread.join()
print("still here")
"""


@pytest.mark.timeout(300)
def test_no_nesting_ends_a_thread_with_a_small_stack() -> None:
    # 512 KiB is what macOS gives a thread; the usual 8 MiB hold sixteen times as much.
    found = subprocess.run([sys.executable, "-c", ATTACK], capture_output=True, text=True, timeout=280, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "still here\n", "")


def test_the_same_stack_does_overflow_without_a_bound() -> None:
    # So that the test above would notice: a reader without a bound does end the process.
    code = """
import threading
def build():
    value = ()
    for _ in range(100_000):
        value = (value,)
    hash(value)
threading.stack_size(512 * 1024)
thread = threading.Thread(target=build)
thread.start()
thread.join()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert found.returncode in (-signal.SIGSEGV, -signal.SIGBUS)


def test_deciding_can_be_interrupted() -> None:
    code = """
from sandboxkit import ExecPolicy
policy = ExecPolicy.default()
text = "a | " * 150 + "b"
print("ready", flush=True)
number = 0
while True:
    number += 1
    policy.evaluate(f"{text} {number}")
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=20)
    assert child.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("text", ["ls -l", "cat <<<x | sh > $y", "A=1 f() { ls; }; sudo f &"])
def test_values_can_be_copied_and_sent(text: str) -> None:
    command = parse(text)
    evaluation = ExecPolicy.default().evaluate(text, context=EvaluationContext(cwd="/w"))
    for value in (command, *command.parts, evaluation, *evaluation.parts, *evaluation.matches):
        assert copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value
