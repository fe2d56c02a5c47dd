"""
Git: commands in its options, its configuration and its aliases, and `git -C`.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from sandboxkit.model import UNKNOWN, SimpleCommand, Unknown
from sandboxkit.shell._carried import Carried, Inner, Stdin, guesses, is_unknown, may_be_several, tail

__all__ = ["git"]

_GIT_SETTING = re.compile(r"[a-z]+\.[\w.-]+")
_BLANK = re.compile(r"\s")
_GIT_CARRIES = re.compile(r"=|ext::| !| -x|--exec|-filter|foreach")
_GIT_FLAGS = frozenset(
    """
    --no-pager -P --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-replace-objects
    """.split()
)


def git(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Commands in git's options and configuration. Source: git(1), git-config(1),
    git-remote-ext(1), git 2.43.
    """
    argv, texts = part.argv, []
    if argv[1:2] and argv[1].startswith("-") and (elsewhere := _git_elsewhere(part)):
        return elsewhere
    if argv[1:2] != ("bisect",) and not _GIT_CARRIES.search(" ".join(argv)):
        return None
    for at, word in enumerate(argv):
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if word.startswith("ext::"):
            texts.append(word[5:])
        if word in ("-x", "--exec", "--tree-filter", "--index-filter", "--msg-filter", "foreach"):
            texts.append(following)
        key, assigned, value = word.partition("=")
        value = value if assigned and "." in key else following if _GIT_SETTING.fullmatch(word) else ""
        if value.startswith("!"):
            texts.append(value[1:])
        elif assigned and value and _BLANK.search(value) and not word.startswith("--"):
            texts.append(value)
        elif word.startswith(("--exec=", "--upload-pack=", "--receive-pack=", "--open-files-in-pager=")):
            texts.append(word.partition("=")[2])
    if argv[1:3] == ("bisect", "run"):
        return Carried([tail(part, 3)] if len(argv) > 3 else [], 3)
    found = guesses(texts)
    return Carried(found) if found else None


def _git_elsewhere(part: SimpleCommand) -> Carried | None:
    """
    `git -C DIR …` is the rest, started in DIR. Only options that change nothing else may
    stand around it.
    """
    argv, at, own, cwd = part.argv, 1, 0, part.cwd
    while at < len(argv) and not is_unknown(part, at):
        if argv[at] == "-C" and at + 1 < len(argv) and not may_be_several(part, at + 1):
            to = argv[at + 1]
            cwd = posixpath.join(cwd or "", f"{to}/{UNKNOWN}" if is_unknown(part, at + 1) else to)
            own = at = at + 2
        elif argv[at] in _GIT_FLAGS:
            at += 1
        else:
            break
    if not own or own >= len(argv):
        return None
    inner = tail(part, own - 1, cwd=cwd)
    return Carried([replace(inner, argv=("git", *inner.argv[1:]), unknown=_without_first(inner), start=own)], own)


def _without_first(inner: Inner) -> tuple[tuple[int, Unknown], ...]:
    return tuple((index, doubt) for index, doubt in inner.unknown if index)
