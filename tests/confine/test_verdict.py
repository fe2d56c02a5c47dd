"""
The filters run again outside the kernel answer as they were meant; `test_filter.py` holds
the meaning, and the kernel's own answers are in `test_attack.py`.
"""

from __future__ import annotations

import errno
from itertools import product

import pytest
from tests.confine.test_filter import TOKENS as THEIRS
from tests.confine.test_filter import interpret

from sandboxkit.confine import ARCHITECTURES, alone_filter, calls, filter_allows, filter_refuses, seccomp_filter
from sandboxkit.confine._rules import DEFAULT
from sandboxkit.confine._verdict import TOKENS, answer

ARGUMENTS = ((0,) * 6, (1, 2, 3, 4, 5, 6), (2, 1, 0, 0, 0, 0), (0x10000000, 0x5412, 0o4755, 0o2755, 0, 0))


@pytest.mark.parametrize(("arch", "ptrace", "userns"), [*product(ARCHITECTURES, (False, True), (False, True))])
def test_every_call_is_answered_as_the_other_interpreter_says(arch: str, ptrace: bool, userns: bool) -> None:
    program = seccomp_filter(arch, allow_ptrace=ptrace, allow_nested_userns=userns)
    assert TOKENS[arch] == THEIRS[arch]
    for call, arguments in product(calls(arch), ARGUMENTS):
        expected = interpret(program, THEIRS[arch], call.number, arguments)
        assert answer(program, arch, call.number, arguments) == expected, call
    assert answer(program, arch, 599, (0,) * 6) == DEFAULT


def test_the_filter_that_refuses_is_found_among_several() -> None:
    numbers = {call.name: call.number for call in calls("x86_64")}
    general = seccomp_filter("x86_64", allow_ptrace=True, allow_nested_userns=False)
    own = alone_filter("x86_64", families=(), allow_metadata=False)
    inet = (2, 1, 0, 0, 0, 0)
    assert filter_refuses((own, general), "x86_64", numbers["socket"], inet, errno.EACCES)
    assert not filter_refuses((own, general), "x86_64", numbers["socket"], inet, errno.EPERM)
    assert not filter_refuses((general,), "x86_64", numbers["socket"], inet, errno.EACCES)
    assert filter_allows(general, "x86_64", numbers["socket"], inet)
    assert not filter_allows(own, "x86_64", numbers["socket"], inet)


@pytest.mark.parametrize("program", [b"", b"\x99\0\0\0\0\0\0\0"])
def test_what_is_no_filter_of_ours_is_an_error(program: bytes) -> None:
    with pytest.raises(ValueError, match="filter"):
        answer(program, "x86_64", 0, (0,) * 6)
