"""
Compiles the filters with libseccomp: `python -m sandboxkit.confine._bake`.

Run it after a change of the table or of `_rules`, and commit what it writes. A test
compiles every filter again and compares.

Kept apart because it imports pyseccomp, which loads libseccomp.so.2 and starts two
programs to find it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import struct
from pathlib import Path

import pyseccomp

from sandboxkit.confine._rules import DEFAULT, KILL, Rule, rules
from sandboxkit.confine._seccomp import ARCHITECTURES, SUMS, TABLE, filter_name

__all__ = ["VARIANTS", "build"]

VARIANTS = tuple(itertools.product(ARCHITECTURES, (False, True), (False, True)))
"""Every (arch, allow_ptrace, allow_nested_userns)."""

_TOKENS: dict[str, int] = {"x86_64": pyseccomp.Arch.X86_64, "aarch64": pyseccomp.Arch.AARCH64}
_NAMED_BEFORE = (6,)
"""
libseccomp 2.5 has names for the calls of Linux up to 5.17. One without a name it takes
by number only, and on a foreign architecture not at all.
"""
_BINARY_TREE = 2


def build(arch: str, *, allow_ptrace: bool, allow_nested_userns: bool) -> bytes:
    """
    The filter as classic BPF, compiled anew.

    Any architecture can be compiled on any: libseccomp translates the numbers.

    Raises:
        LookupError: *arch* is not one of `ARCHITECTURES`, or a rule is not known.
        OSError: libseccomp refuses a rule.
    """
    wanted = rules(arch, allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns)
    named = [rule for rule in wanted if rule.call.since < _NAMED_BEFORE]
    return _by_number(arch, [rule for rule in wanted if rule not in named]) + _by_name(arch, named)


def _by_name(arch: str, wanted: list[Rule]) -> bytes:
    program = pyseccomp.SyscallFilter(DEFAULT)
    if not program.exist_arch(_TOKENS[arch]):
        program.add_arch(_TOKENS[arch])
        program.remove_arch(pyseccomp.Arch.NATIVE)
    program.set_attr(pyseccomp.Attr.ACT_BADARCH, KILL)
    program.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    for rule in wanted:
        tests = (pyseccomp.Arg(test.argument, pyseccomp.MASKED_EQ, test.mask, test.value) for test in rule.tests)
        # Exactly: libseccomp may otherwise replace a rule by what it holds equivalent.
        program.add_rule_exactly(rule.action, rule.call.name, *tests)
    with open(os.memfd_create("filter"), "w+b", buffering=0) as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


# filter.h, seccomp.h: the few instructions of the part in front, (code, jt, jf, k).
_LOAD, _AND, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16
_Instruction = tuple[int, int, int, int]


def _by_number(arch: str, wanted: list[Rule]) -> bytes:
    # Jumps are relative, so libseccomp's program can simply follow. It checks the
    # architecture once more, and kills what is foreign.
    by_call = sorted(wanted, key=lambda rule: rule.call.number)
    blocks = [_block(number, list(of)) for number, of in itertools.groupby(by_call, lambda rule: rule.call.number)]
    behind = sum(map(len, blocks))
    instructions = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_IF_EQUAL, 0, behind + 2, _TOKENS[arch]),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_IF_AT_LEAST, 0, behind, by_call[0].call.number),
        *itertools.chain.from_iterable(blocks),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def _block(number: int, answers: list[Rule]) -> list[_Instruction]:
    # What is done with one call. Nothing falls out of it: behind a test, the number is
    # no longer what is loaded.
    body = [instruction for rule in answers for instruction in _answer(rule)]
    if all(rule.tests for rule in answers):
        body.append((_RETURN, 0, 0, DEFAULT))
    return [(_IF_EQUAL, 0, len(body), number), *body]


def _answer(rule: Rule) -> list[_Instruction]:
    # Both architectures are little-endian: the low half of an argument comes first.
    instructions: list[_Instruction] = [(_RETURN, 0, 0, rule.action)]
    for test in reversed(rule.tests):
        instructions = [
            (_LOAD, 0, 0, _OFFSET_ARGUMENTS + 8 * test.argument),
            (_AND, 0, 0, test.mask),
            (_IF_EQUAL, 0, len(instructions), test.value),
            *instructions,
        ]
    return instructions


def main(directory: Path) -> None:
    """
    Writes every filter, and the file of checksums, below *directory*.
    """
    written = {TABLE: (directory / TABLE).read_bytes()}
    for arch, allow_ptrace, allow_nested_userns in VARIANTS:
        name = filter_name(arch, allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns)
        written[name] = build(arch, allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns)
        (directory / name).write_bytes(written[name])
    sums = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in written.items())
    (directory / SUMS).write_text("".join(sums))


if __name__ == "__main__":
    main(Path(__file__).parent)
