"""
Git: commands in its options, its configuration and its aliases, and `git -C`.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from itertools import dropwhile

from sandboxkit.model import UNKNOWN, Setting, SimpleCommand, Unknown
from sandboxkit.shell._carried import Carried, Inner, Stdin, guesses, is_unknown, may_be_several, tail
from sandboxkit.shell._run_options import values_of

__all__ = ["git"]

_CONFIG_NAME = re.compile(r"[A-Za-z]+\.\S+")
_RUNS = re.compile(
    r"(?:pager|editor|command|fsmonitor|external|program|helper|cmd|driver|textconv|clean|smudge|process|askpass|gitproxy|smtpserver|hook)$|^pager\.",
    re.IGNORECASE,
)
"""
How the names of settings end whose value git runs.
"""
_BLANK = re.compile(r"\s")
_OPTIONS = re.compile(r" -[a-z]*x|--e|-filter| --(?:up|rec|set|op)| -[Ou]|-cmd")
_CARRIES = re.compile(rf"{_OPTIONS.pattern}|ext::| !|foreach| -c|--conf| config | bisect ")
_TEXT_OPTIONS = (
    *(
        "-x",
        "--exec",
        "--extcmd",
        "--upload-pack",
        "--receive-pack",
        "--setup",
        "--to-cmd",
        "--cc-cmd",
        "--header-cmd",
        "--sendmail-cmd",
    ),
    *(
        "--tree-filter",
        "--index-filter",
        "--msg-filter",
        "--env-filter",
        "--parent-filter",
        "--commit-filter",
        "--tag-name-filter",
    ),
)
_FLAGS = frozenset(
    """
    --no-pager -P --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-replace-objects
    """.split()
)


def git(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Commands in git's options and configuration. Source: git(1), git-config(1),
    git-remote-ext(1), git 2.43.
    """
    argv = part.argv
    if argv[1:2] and argv[1].startswith("-") and (elsewhere := _git_elsewhere(part)):
        return elsewhere
    text = " ".join(argv)
    if not _CARRIES.search(text):
        return None
    texts = _settings(argv)
    if _OPTIONS.search(text):
        texts += values_of(argv, _TEXT_OPTIONS)
    found = guesses([*texts, *_verbs(argv)])
    found += [_external(word) for word in argv if word.startswith("ext::")]
    if "bisect" in argv:
        at = argv.index("bisect") + 1
        if argv[at : at + 1] == ("run",):
            return Carried([*([tail(part, at + 1)] if len(argv) > at + 1 else []), *found], at + 1)
    return Carried(found) if found else None


def _settings(argv: tuple[str, ...]) -> list[str]:
    """
    Values of settings that may be commands: of `-c`, `--config` and `git config`.
    """
    texts: list[str] = []
    sets = "config" in argv
    for at, word in enumerate(argv):
        key, assigned, value = word.removeprefix("--config=").partition("=")
        if assigned and "." in key and not key.startswith("--"):
            is_command = bool(_BLANK.search(value))
        elif sets and at + 1 < len(argv) and _CONFIG_NAME.fullmatch(word):
            value, is_command = argv[at + 1], bool(_RUNS.search(word))
        else:
            continue
        if value.startswith("!") or is_command:
            texts.append(value.removeprefix("!"))
    return texts


def _verbs(argv: tuple[str, ...]) -> list[str]:
    """
    Commands that stand as only one of git's own commands takes them.
    """
    texts: list[str] = []
    if "clone" in argv:
        texts += values_of(argv, ("-u",))
    if "grep" in argv:
        texts += [word[2:] for word in argv if word.startswith("-O") and " " in word]
        texts += [word.partition("=")[2] for word in argv if word.startswith("--op")]
    if "foreach" in argv:
        words = argv[argv.index("foreach") + 1 :]
        texts.append(" ".join(dropwhile(lambda word: word.startswith("-"), words)))
    return texts


def _external(word: str) -> Inner:
    """
    The command of `ext::…`: its words are cut at blanks, and a blank within one is `% `.

    Source: git-remote-ext(1), git 2.43.
    """
    words = re.split(r"(?<!%) +", word[5:].strip())
    if len(words) == 1:
        return Inner(text=words[0], setting=Setting.SUSPECT)
    return Inner(tuple(each.replace("% ", " ").replace("%%", "%") for each in words), setting=Setting.SUSPECT)


def _git_elsewhere(part: SimpleCommand) -> Carried | None:
    """
    `git -C DIR …` is the rest, started in DIR, and `git --no-pager …` just the rest. Only
    options that change nothing else may stand around them.
    """
    argv, at, cwd = part.argv, 1, part.cwd
    while at < len(argv) and not is_unknown(part, at):
        if argv[at] == "-C" and at + 1 < len(argv) and not may_be_several(part, at + 1):
            to = argv[at + 1]
            cwd = posixpath.join(cwd or "", f"{to}/{UNKNOWN}" if is_unknown(part, at + 1) else to)
            at += 2
        elif argv[at] in _FLAGS:
            at += 1
        else:
            break
    if at == 1 or at >= len(argv):
        return None
    inner = tail(part, at - 1, cwd=cwd)
    return Carried([replace(inner, argv=("git", *inner.argv[1:]), unknown=_without_first(inner), start=at)], at)


def _without_first(inner: Inner) -> tuple[tuple[int, Unknown], ...]:
    return tuple((index, doubt) for index, doubt in inner.unknown if index)
