"""
What may be remembered for good. Most things may not.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandboxkit.approval._programs import (
    MAX_WORDS,
    Kind,
    is_multi_call,
    kind_of,
    loads_from_cwd,
    script_of,
    scripts,
)
from sandboxkit.model import Setting, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxkit.model import Command, Executable, Grant, SandboxSpec, SimpleCommand

__all__ = ["why_not_always", "writable_root"]

_UNCERTAIN = Setting.SUSPECT | Setting.FOREIGN | Setting.REMOTE
_MOVING = frozenset({"cd", "chdir", "popd", "pushd"})


def writable_root(path: str, spec: SandboxSpec) -> str | None:
    """
    The root that *spec* lets a box write and that holds *path*, as it is written or with
    links followed; None where there is none. What *spec* protects inside such a root
    counts as writable too: a directory above it may be replaced.
    """
    spellings = {os.path.normpath(path), os.path.realpath(path)}
    roots = spec.filesystem.write
    return next((root for root in roots if any(is_inside(spelling, root) for spelling in spellings)), None)


def why_not_always(grant: Grant, command: Command) -> str | None:
    """
    Why a yes to *command* cannot count for good, in a sentence that follows a colon; None
    where it can.

    It cannot where something else than what was looked at could run under the same name
    later: no program of its own, or one that a box may write.
    """
    return next(_objections(grant, command), None)


def _objections(grant: Grant, command: Command) -> Iterator[str]:
    if grant.mode != "sandbox":
        yield "it would run without a box"
    if not grant.rules_digest:
        yield "the rules that ask are not named by a digest"
    for part in command.parts:
        yield from _objections_to(part, grant)
    if command.opaque or command.functions or any(part.setting & _UNCERTAIN for part in command.parts):
        yield "what it would run cannot be read to the end"
    for name in grant.not_found:
        yield f"{name!r} is no program on this machine, so there is no file to hold on to"
    yield from _misnamed(grant.executables[1:] if command.argv is None else grant.executables)
    yield from _replaceable(_paths(grant, command), grant.spec)
    for folder in dict.fromkeys(os.path.join(grant.cwd, name) for name in grant.search.split(":")):
        if root := writable_root(folder, grant.spec):
            yield f"programs are looked for in {folder!r}, and a box may write {root!r}"


def _objections_to(part: SimpleCommand, grant: Grant) -> Iterator[str]:
    if part.unknown:
        yield "some of its words are only known when it runs"
    if part.assignments:
        yield "it sets variables, which may change what a program does"
    if len(part.argv) > MAX_WORDS:
        yield f"it has more than {MAX_WORDS} words"
    if not part.argv:
        return
    if part.program in _MOVING:
        yield "it changes the directory that its words start from"
    match kind_of(part.program):
        case Kind.WRAPPER:
            yield f"{part.program!r} is a wrapper: it runs whatever program it is given"
        case Kind.INTERPRETER if script_of(part.argv, grant.cwd) is None:
            yield f"{part.program!r} is a shell or an interpreter, and its program is no file named right after it"
        case Kind.INTERPRETER if loads_from_cwd(part.program) and (root := writable_root(grant.cwd, grant.spec)):
            yield f"{part.program!r} may load files of {grant.cwd!r}, and a box may write {root!r}"
        case Kind.BUILDER if root := writable_root(grant.cwd, grant.spec):
            yield f"{part.program!r} runs what files of {grant.cwd!r} say, and a box may write {root!r}"


def _misnamed(executables: Iterable[Executable]) -> Iterator[str]:
    """
    Programs that are a shell, an interpreter or a wrapper under another name.
    """
    for found in executables:
        if is_multi_call(found.path) and not is_multi_call(found.found_at):
            continue
        name, kind = found.found_at.rpartition("/")[2], kind_of(found.path)
        if kind in (Kind.INTERPRETER, Kind.WRAPPER) and kind_of(name) is not kind:
            yield f"{name!r} is {found.path!r}: {kind.value}"


def _paths(grant: Grant, command: Command) -> Iterator[str]:
    for found in grant.executables:
        yield from (found.path, found.found_at)
    for part in command.parts:
        yield from scripts(part.argv, grant.cwd)


def _replaceable(paths: Iterable[str], spec: SandboxSpec) -> Iterator[str]:
    for path in paths:
        if root := writable_root(path, spec):
            yield f"{path!r} lies in {root!r}, which a box may write"
