"""
What a command starts: the command behind a wrapper, the text handed to a shell.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from sandboxkit.model import PIPES, UNKNOWN, Assignment, Doubt, Setting, SimpleCommand, Unknown
from sandboxkit.model._quick import quick
from sandboxkit.shell._wrappers import CODE_OPTIONS, RUN_OPTIONS, RUN_WORDS, SHELLS, STDIN_SHELLS, WRAPPERS, Wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    _Carrier = Callable[[SimpleCommand, "Stdin | None"], "Carried | None"]

__all__ = ["Carried", "Inner", "Stdin", "carried", "starts_others"]

_VERSION = re.compile(r"[-.0-9]+$")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(?:\(\)|%%|\[.*?\])?)\+?=(.*)", re.DOTALL)
_STRINGS = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\\n]|\\.)*)`")
_STARTS = re.compile(
    r"system|exec|popen|spawn|\brun\b|\bcall\b|check_|getoutput|\bqx\b|%x|child_|\beval\b|open3|subprocess|\bos\b|open\b[^\n]{0,30}[\"']\s*\|",
    re.IGNORECASE,
)
_PIPED = re.compile(r"[`|]")
_CALL = re.compile(r"(?<![.\w])\w+\s*\(\s*[frbu]*$")
_PRINTING = re.compile(r"(?:print\w*|log|puts|echo|write\w*|info|warn\w*|error|assert\w*)\s*\(?\s*[frbu]*$")
"""
Code without what starts programs may still do so by a name of its own, but not by one of these.
"""
_BARE = re.compile(r"[\w./+-]+")
_NEEDS_SHELL = re.compile(r"[\s;&|<>()`$]")
_STDIN_READERS = frozenset(("at", "batch"))
_GIT_SETTING = re.compile(r"[a-z]+\.[\w.-]+")
_BLANK = re.compile(r"\s")
_GIT_CARRIES = re.compile(r"=|ext::| !| -x|--exec|-filter|foreach")
_GIT_FLAGS = frozenset(
    """
    --no-pager -P --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs --no-replace-objects
    """.split()
)
_DESCRIPTORS = (PIPES, "/proc/self/fd/")
_FIND_STARTS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))
_TEXT_ONLY = frozenset(("su", "script"))
_FD_STARTS = re.compile(r"-[A-WYZa-wyz]*[xX]=?|--exec(?:-batch)?(?:=|$)")
_SSH_COMMANDS = re.compile(r"(?:-o)?\s*(?:Proxy|Local|KnownHosts)Command\s*[= ]\s*(.*)", re.DOTALL | re.IGNORECASE)
_COPIERS = frozenset(("scp", "sftp"))
_STDIN_FILES = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_MAKE_CODE = re.compile(r" -(?:f|E|-f|-m|-ev)")
_MAKE_SHELL = re.compile(r"\$[({]shell\s+([^)}]+)")
_MAX_STRINGS = 20
_MAX_TAILS = 4
_MAX_RUNNER = 12
_RUNNER_VERBS = frozenset(("run", "exec", "x", "dlx", "develop", "stat", "record", "shell", "--"))
_VERB_RUNNERS = frozenset(
    """
    poetry uv pipenv hatch pdm rye npm yarn pnpm bun bundle conda mamba micromamba pixi mise asdf rbenv pyenv nodenv direnv aws-vault
    op doppler nix nvm perf
    """.split()
)
_TEXT_RUNNERS = frozenset(("tmux", "screen", "hyperfine", "sem"))
_TEXT_OPTIONS = frozenset(("-c", "--call", "--run", "--command", "-ex", "--eval-command", "--eval"))
_RUNNERS = frozenset(
    """
    poetry uv pipenv hatch pdm rye npx npm yarn pnpm pnpx bun bunx bundle conda mamba micromamba pixi mise asdf rbenv pyenv nodenv
    direnv aws-vault op doppler dotenv hyperfine perf valgrind rlwrap torsocks torify proxychains proxychains4 dbus-launch xvfb-run
    sem nocache chpst start-stop-daemon daemonize daemon cpulimit prlimit choom firejail bwrap gdb lldb tmux screen nix nix-shell
    nix-env nvm expect rr ld.so ld-linux.so ld-linux-x86-64.so ld-linux-aarch64.so numactl chronic ts tsp pueue runcon sandbox-exec
    sshpass vim nvim vi ex
    """.split()
)
_ANYTHING = ((0, Unknown(Doubt.WORDS)),)


@quick
@dataclass(frozen=True, slots=True)
class Stdin:
    """
    Standard input that stands in the text itself.

    Attributes:
        text: The text.
        is_known: Whether it is exactly that.
    """

    text: str
    is_known: bool = False


@quick
@dataclass(frozen=True, slots=True)
class Inner:
    """
    A command that another one starts.

    Attributes:
        argv: Its words, or empty where it is text.
        unknown: What is not known about them.
        start: The index in the outer command's words at which it begins, 0 where it is
            not one of them.
        text: Text that a shell reads, or None.
        arguments: The words behind that text: `$0` and the positional parameters.
        assignments: What the outer command puts into its environment.
        setting: How it stands, beyond how the outer one does.
        cwd: The directory the outer command changes to, or None.
        end: The index behind it, for one that ends before the outer words do.
    """

    argv: tuple[str, ...] = ()
    unknown: tuple[tuple[int, Unknown], ...] = ()
    start: int = 0
    text: str | None = None
    arguments: tuple[str, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    setting: Setting = Setting.NONE
    cwd: str | None = None
    end: int = 0


@dataclass(slots=True)
class Carried:
    """
    Everything a command starts.

    Attributes:
        commands: The commands.
        own: How many words are the outer command's own; None where all are.
    """

    commands: list[Inner] = field(default_factory=list)
    own: int | None = None


def carried(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    What *part* starts, or None where it starts nothing that its words tell.

    Args:
        part: The command.
        stdin: What it reads as standard input, as far as the text says it.
    """
    name, wrapper, reader = _known(part.argv[0])
    if wrapper is not None:
        return _behind(part, name, wrapper, stdin)
    return reader(part, stdin) if reader else None


def starts_others(program: str) -> bool:
    """
    Whether *program* may start something that its words tell.
    """
    _, wrapper, reader = _known(program)
    return wrapper is not None or reader is not None


@lru_cache(maxsize=1024)
def _known(program: str) -> tuple[str, Wrapper | None, _Carrier | None]:
    """
    The name of *program*, its row in the table of wrappers, and who reads it else.
    """
    name = _name(program)
    return name, WRAPPERS.get(name), _READERS.get(name) or _READERS.get(_VERSION.sub("", name))


def _name(word: str) -> str:
    name = word.rpartition("/")[2].lower()
    return name.removesuffix(".exe")


def _tail(
    part: SimpleCommand,
    start: int,
    *,
    assignments: tuple[Assignment, ...] = (),
    setting: Setting = Setting.NONE,
    cwd: str | None = None,
) -> Inner:
    """
    The words of *part* from *start* on as a command.
    """
    unknown = tuple((index - start, doubt) for index, doubt in part.unknown if index >= start)
    return Inner(part.argv[start:], unknown, start, assignments=assignments, setting=setting, cwd=cwd)


def _unsure(part: SimpleCommand, start: int = 1) -> Carried:
    """
    For words that cannot be told apart: some unknown command, and every tail of the
    words as one that may be it.
    """
    unknown = Inner((UNKNOWN,), _ANYTHING, start)
    tails = [_tail(part, index, setting=Setting.SUSPECT) for index in range(start, min(len(part.argv), start + 12))]
    return Carried([unknown, *(tail for tail in tails if not tail.argv[0].startswith("-"))], start)


def _is_unknown(part: SimpleCommand, index: int) -> bool:
    return any(place == index for place, _ in part.unknown)


def _text(
    part: SimpleCommand, words: range, setting: Setting = Setting.NONE, arguments: tuple[str, ...] = ()
) -> list[Inner]:
    """
    Some words of *part*, joined by blanks, as text for a shell.
    """
    text = " ".join(part.argv[index] for index in words)
    if any(_is_unknown(part, index) for index in words):
        unknown = Inner((UNKNOWN,), _ANYTHING, words.start, setting=setting)
        guess = Inner(text=text, start=words.start, setting=setting | Setting.SUSPECT, arguments=arguments)
        return [unknown, guess] if text.strip() else [unknown]
    if not text.strip():
        return []
    return [Inner(text=text, start=words.start, setting=setting, arguments=arguments)]


def _option_text(part: SimpleCommand, index: int, attached: str | None, setting: Setting) -> list[Inner]:
    if attached is None:
        return _text(part, range(index, index + 1), setting)
    return _text(replace(part, argv=(attached,), unknown=_only(part, index)), range(1), setting)


def _only(part: SimpleCommand, index: int) -> tuple[tuple[int, Unknown], ...]:
    return tuple((0, doubt) for place, doubt in part.unknown if place == index)


# Wrappers of the table


@dataclass(slots=True)
class _Options:
    """
    The wrapper's own words as they are told apart.
    """

    at: int = 1
    texts: list[tuple[int, str | None]] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    cwd: str | None = None
    stops: bool = False
    splits: int | None = None
    replaces: str | None = None


def _behind(part: SimpleCommand, name: str, wrapper: Wrapper, stdin: Stdin | None) -> Carried | None:
    inner = _behind_options(part, name, wrapper, stdin)
    texts = [found[1] for word in part.argv if (found := _SSH_COMMANDS.fullmatch(word))] if name == "ssh" else []
    if not texts:
        return inner
    # These run on this host.
    inner = inner or Carried([])
    return Carried([*(Inner(text=text, setting=Setting.SUSPECT) for text in texts), *inner.commands], inner.own)


def _behind_options(part: SimpleCommand, name: str, wrapper: Wrapper, stdin: Stdin | None) -> Carried | None:
    found = _options(part, name, wrapper)
    if found is None:
        return _unsure(part)
    if found.stops:
        return None
    if found.splits is not None:
        return _split(part, found)
    if found.texts:
        inner = [each for index, text in found.texts for each in _option_text(part, index, text, wrapper.setting)]
        return Carried(inner, found.at)
    if name in _TEXT_ONLY or found.at >= len(part.argv):
        return _default(part, name, found, wrapper, stdin)
    if wrapper.joins and not (name == "watch" and _executes(part.argv[1 : found.at])):
        inner = _text(part, range(found.at, len(part.argv)), wrapper.setting)
        return Carried([*inner, *_each_line(part, found, stdin)] if name == "parallel" else inner, found.at)
    inner_part = _tail(part, found.at, assignments=tuple(found.assignments), setting=wrapper.setting, cwd=found.cwd)
    if name == "xargs":
        inner_part = _with_input(inner_part, stdin, found.replaces)
    return Carried([inner_part], found.at)


def _executes(options: tuple[str, ...]) -> bool:
    """
    Whether `watch` starts the command without a shell.
    """
    return any(re.match(r"-[a-zA-Z]*x|--exec$", option) for option in options)


def _each_line(part: SimpleCommand, found: _Options, stdin: Stdin | None) -> Iterator[Inner]:
    """
    What `parallel` makes of the lines of its input.
    """
    words = part.argv[found.at :]
    if stdin is None or any(word.startswith(":::") for word in words):
        return
    command = " ".join(words)
    for line in stdin.text.splitlines()[:_MAX_STRINGS]:
        text = command.replace("{}", line) if "{}" in command else f"{command} {line}"
        yield Inner(text=text, start=found.at, setting=Setting.SUSPECT)


def _default(part: SimpleCommand, name: str, found: _Options, wrapper: Wrapper, stdin: Stdin | None) -> Carried | None:
    if stdin is not None and name == "parallel":
        return Carried(_input(stdin, Setting.FOREIGN), None)
    if stdin is not None and name in STDIN_SHELLS:
        return Carried(_input(stdin, wrapper.setting | Setting.FOREIGN), None)
    if name in ("env", "time", "command", "builtin", "exec", "coproc"):
        # Without a command env does the work of printenv.
        argv = ("printenv",) if name == "env" else ()
        bare = [Inner(argv, assignments=tuple(found.assignments))] if argv or found.assignments else []
        return Carried(bare, found.at)
    return None


def _options(part: SimpleCommand, name: str, wrapper: Wrapper) -> _Options | None:
    found = _Options()
    argv = part.argv
    operands = _operands(argv, name, wrapper)
    while found.at < len(argv):
        word = argv[found.at]
        if wrapper.assigns and (assigned := _ASSIGNMENT.fullmatch(word)):
            known = not _is_unknown(part, found.at)
            found.assignments.append(Assignment(assigned[1], assigned[2], known, is_exported=True))
            found.at += 1
            continue
        if _is_unknown(part, found.at) and found.assignments and name in ("time", "coproc"):
            break  # no option follows an assignment
        if _is_unknown(part, found.at) and (not operands or _may_be_several(part, found.at)):
            return None if word.startswith("-") or not _surely_operand(part, found.at) else found
        if word == "--":
            found.at += 1
            operands = _skip(found, operands, argv)
            break
        if len(word) > 1 and word[0] == "-":
            if not _option(part, found, wrapper, name):
                return None
        elif operands:
            operands -= 1
            found.at += 1
        elif name == "env" and word == "-":
            found.at += 1
        else:
            break
        if found.stops or found.splits is not None:
            break
    if wrapper.assigns:
        _assignments(part, found)
    return found


def _operands(argv: tuple[str, ...], name: str, wrapper: Wrapper) -> int:
    if name == "runuser" and not any(word.startswith(("-u", "--u")) for word in argv):
        return WRAPPERS["su"].operands  # it takes what su takes
    if name == "setarch" and argv[1:2] and argv[1].startswith("-"):
        return 0  # the architecture comes first or not at all
    return wrapper.operands


def _may_be_several(part: SimpleCommand, index: int) -> bool:
    return any(place == index and doubt.doubt is Doubt.WORDS for place, doubt in part.unknown)


def _surely_operand(part: SimpleCommand, index: int) -> bool:
    return any(place == index and doubt.known and doubt.known[0] != "-" for place, doubt in part.unknown)


def _skip(found: _Options, operands: int, argv: tuple[str, ...]) -> int:
    found.at = min(found.at + operands, len(argv))
    return 0


def _assignments(part: SimpleCommand, found: _Options) -> None:
    while found.at < len(part.argv) and (assigned := _ASSIGNMENT.fullmatch(part.argv[found.at])):
        found.assignments.append(
            Assignment(assigned[1], assigned[2], not _is_unknown(part, found.at), is_exported=True)
        )
        found.at += 1


def _option(part: SimpleCommand, found: _Options, wrapper: Wrapper, name: str) -> bool:
    """
    Takes one option, with its value; False where it is not known.
    """
    argv, word = part.argv, part.argv[found.at]
    if name == "env" and ("--split-string".startswith(word.partition("=")[0]) or re.match(r"-[iv0]*S", word)):
        found.splits = found.at
        return True
    if name == "xargs" and word.startswith(("-I", "-i", "--replace")):
        found.replaces = _replaced(argv, found.at)
    if wrapper.digits and word[1:].lstrip("-+").isdigit():
        found.at += 1
        return True
    if word.startswith("--"):
        return _long(part, found, wrapper)
    return _short(part, found, wrapper)


def _replaced(argv: tuple[str, ...], at: int) -> str:
    word = argv[at]
    if word == "-I":
        return argv[at + 1] if at + 1 < len(argv) else "{}"
    return (word.partition("=")[2] if word.startswith("--") else word[2:]) or "{}"


def _long(part: SimpleCommand, found: _Options, wrapper: Wrapper) -> bool:
    argv = part.argv
    name, attached, value = argv[found.at].partition("=")
    known = wrapper.names | wrapper.valued | wrapper.stops | wrapper.text | wrapper.directory
    matching = [each for each in known if each.startswith("--") and each.startswith(name)]
    exact = name if name in known else matching[0] if len(matching) == 1 else None
    if exact is None:
        return False
    if exact in wrapper.stops:
        found.stops = True
        return True
    takes = exact in wrapper.valued or exact in wrapper.text
    value_at = found.at + 1 if takes and not attached else None
    if exact in wrapper.text:
        found.texts.append((found.at, value) if attached else (found.at + 1, None))
    if exact in wrapper.directory:
        found.cwd = value if attached else argv[value_at] if value_at and value_at < len(argv) else UNKNOWN
    found.at = (value_at or found.at) + 1
    return found.at <= len(argv)


def _short(part: SimpleCommand, found: _Options, wrapper: Wrapper) -> bool:
    argv, word = part.argv, part.argv[found.at]
    for place, letter in enumerate(word[1:], 2):
        option = f"-{letter}"
        attached = word[place:]
        if option in wrapper.stops:
            found.stops = True
            return True
        if option in wrapper.text:
            found.texts.append((found.at, attached) if attached else (found.at + 1, None))
            found.at += 1 if attached else 2
            return found.at <= len(argv)
        if letter in wrapper.optional:
            found.at += 1
            return True
        if letter in wrapper.values:
            if option in wrapper.directory:
                found.cwd = attached or (argv[found.at + 1] if found.at + 1 < len(argv) else UNKNOWN)
            found.at += 1 if attached else 2
            return found.at <= len(argv)
        if letter not in wrapper.flags:
            return False
    found.at += 1
    return True


def _split(part: SimpleCommand, found: _Options) -> Carried:
    """
    `env -S`: one word holds several. Only plain words are read.
    """
    at = found.splits or 1
    word = part.argv[at]
    attached = word.partition("=")[2] if word.startswith("--") else word[word.index("S") + 1 :]
    start = at + 1 if attached else at + 2
    text = attached or (part.argv[at + 1] if at + 1 < len(part.argv) else "")
    if re.search(r"[\\'\"$#`]", text) or any(index <= start for index, _ in part.unknown):
        guess = Inner(text=text, start=at, setting=Setting.SUSPECT)
        return Carried([Inner((UNKNOWN,), _ANYTHING, at), guess], at)
    argv = (part.argv[0], *text.split(), *part.argv[start:])
    inner = _behind(SimpleCommand(argv), "env", WRAPPERS["env"], None)
    if inner is None:
        return Carried([], at)
    commands = [replace(each, start=at) for each in inner.commands]
    return Carried(commands, at)


def _with_input(inner: Inner, stdin: Stdin | None, replaces: str | None) -> Inner:
    """
    What xargs starts: words of its input follow those given, or stand in their place.
    """
    if replaces:
        unknown = dict(inner.unknown)
        for index, word in enumerate(inner.argv):
            if replaces in word:
                unknown[index] = Unknown(Doubt.VALUE, word[: word.index(replaces)], is_output=True)
        guess = stdin.text.strip() if stdin else UNKNOWN
        argv = tuple(word.replace(replaces, guess) for word in inner.argv)
        return replace(inner, argv=argv, unknown=tuple(sorted(unknown.items())))
    more = tuple(stdin.text.split()[:50] if stdin else ()) or (UNKNOWN,)
    start = len(inner.argv)
    doubts = tuple((start + index, Unknown(Doubt.WORDS, is_output=True)) for index in range(len(more)))
    return replace(inner, argv=inner.argv + more, unknown=inner.unknown + doubts)


# Shells and builtins that run text


def _shell(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    name = _name(part.argv[0])
    foreign = Setting.NONE if name in ("bash", "rbash") else Setting.FOREIGN
    at, is_text, reads_stdin = 1, False, False
    argv = part.argv
    while at < len(argv) and not _may_end(part, at):
        word = argv[at]
        if word in ("-", "--"):
            at += 1
            break
        if word[:1] not in "-+" or len(word) < 2:
            break
        if word.startswith("--"):
            at += 1 + (word in ("--rcfile", "--init-file"))
            continue
        is_text |= word[0] == "-" and "c" in word
        reads_stdin |= word[0] == "-" and "s" in word
        at += 1 + sum(letter in "oO" for letter in word[1:])
    if is_text:
        if at >= len(argv):
            return None
        inner = _text(part, range(at, at + 1), foreign, arguments=argv[at + 1 :] or ("bash",))
        if at + 1 < len(argv) and _BARE.fullmatch(argv[at]) and not _is_unknown(part, at + 1):
            # Words follow that it cannot use: whoever wrote this meant something else.
            inner.append(Inner((UNKNOWN,), _ANYTHING, at))
        return Carried(inner, at)
    if at < len(argv) and (printed := _printed(part, at)):
        return Carried(_input(Stdin(printed), foreign), at)
    if at < len(argv) and argv[at].startswith(_DESCRIPTORS):
        # Which descriptor holds which text is not followed.
        return Carried(_input(Stdin(stdin.text if stdin else UNKNOWN), foreign), at)
    if stdin is not None and (at >= len(argv) or reads_stdin or argv[at] in ("-", "/dev/stdin")):
        return Carried(_input(stdin, foreign), None)
    return None


def _input(stdin: Stdin, setting: Setting) -> list[Inner]:
    if stdin.is_known:
        return [Inner(text=stdin.text, setting=setting)]
    guess = Inner(text=stdin.text, setting=setting | Setting.SUSPECT)
    return [Inner((UNKNOWN,), _ANYTHING, setting=setting), guess]


def _source(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    printed = _printed(part, 1)
    if printed:
        return Carried(_input(Stdin(printed), Setting.NONE), 1)
    return Carried(_input(stdin, Setting.NONE), 1) if stdin and part.argv[1:2] == ("/dev/stdin",) else None


def _printed(part: SimpleCommand, index: int) -> str | None:
    """
    What a process substitution at *index* prints, where the text says it.
    """
    return next((unknown.printed for place, unknown in part.unknown if place == index), None)


def _printed_files(part: SimpleCommand) -> list[str]:
    """
    What each process substitution among the words prints, where the text says it.
    """
    return [doubt.printed for _, doubt in part.unknown if doubt.printed and PIPES in doubt.known]


def _may_end(part: SimpleCommand, index: int) -> bool:
    return _is_unknown(part, index)


def _eval(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    start = 2 if part.argv[1:2] == ("--",) else 1
    return Carried(_text(part, range(start, len(part.argv))), start) if len(part.argv) > start else None


def _trap(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    start = 2 if part.argv[1:2] == ("--",) else 1
    if len(part.argv) < start + 2 or (part.argv[start] in ("-", "", "-l", "-p") and not _is_unknown(part, start)):
        return None
    return Carried(_text(part, range(start, start + 1), Setting.FUNCTION), start)


def _alias(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    texts = [word.partition("=")[2] for word in part.argv[1:] if "=" in word]
    return Carried([Inner(text=text, setting=Setting.SUSPECT) for text in texts if text], None)


def _complete(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    places = [index + 1 for index, word in enumerate(part.argv[:-1]) if word in ("-C", "-F", "-W")]
    return Carried([each for at in places for each in _text(part, range(at, at + 1), Setting.FUNCTION)], None)


def _callback(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `mapfile -C TEXT`.
    """
    places = [index + 1 for index, word in enumerate(part.argv[:-1]) if word == "-C"]
    inner = [each for at in places for each in _text(part, range(at, at + 1))]
    inner += [Inner(text=word[2:]) for word in part.argv if word.startswith("-C") and len(word) > 2]
    return Carried(inner) if inner else None


def _names(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Builtins that take a quoted array subscript for arithmetic, and run what is in it.
    """
    words = [word for word in part.argv[1:] if "[" in word and ("$(" in word or "`" in word)]
    if not words:
        return None
    inner = [found for word in words for found in re.findall(r"\$\(([^()]*)\)|`([^`]*)`", word)]
    texts = [one or other for one, other in inner]
    guesses = [Inner(text=text, setting=Setting.SUSPECT) for text in texts if text.strip()]
    return Carried([Inner((UNKNOWN,), _ANYTHING), *guesses], None)


# Programs with a command somewhere among their arguments


def _find(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `find … -exec CMD ;`. Source: find(1), findutils 4.9.
    """
    commands: list[Inner] = []
    at = 1
    while at < len(part.argv):
        if part.argv[at] in _FIND_STARTS:
            inner = _until(part, at + 1, (";", "+"), appends=False)
            at = inner.end
            if inner.argv:
                commands.append(inner)
        at += 1
    return Carried(commands, commands[0].start) if commands else None


def _fd(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `fd … -x CMD`. Source: fd(1), fd 8.6.
    """
    commands: list[Inner] = []
    at = 1
    while at < len(part.argv):
        found = _FD_STARTS.match(part.argv[at])
        at += 1
        if found:
            attached = part.argv[at - 1][found.end() :]
            begun = replace(part, argv=(*part.argv[: at - 1], attached, *part.argv[at:]))
            inner = _until(begun, at - 1, (";",), appends=True) if attached else _until(part, at, (";",), appends=True)
            at = inner.end + 1
            if inner.argv:
                commands.append(inner)
    return Carried(commands, commands[0].start) if commands else None


def _until(part: SimpleCommand, start: int, ends: tuple[str, ...], *, appends: bool) -> Inner:
    end = next((at for at in range(start, len(part.argv)) if _ends(part.argv, at, ends)), len(part.argv))
    unknown = {index - start: doubt for index, doubt in part.unknown if start <= index < end}
    for index, word in enumerate(part.argv[start:end]):
        if "{" in word and "}" in word:
            unknown[index] = Unknown(Doubt.WORDS, word[: word.index("{")], is_output=True)
    argv = part.argv[start:end]
    if appends and "{}" not in argv:
        unknown.setdefault(len(argv), Unknown(Doubt.WORDS, is_output=True))
        argv = (*argv, UNKNOWN) if argv else ()
    return Inner(argv, tuple(sorted(unknown.items())), start, end=end)


def _ends(argv: tuple[str, ...], at: int, ends: tuple[str, ...]) -> bool:
    # A + ends the command only behind {}.
    return argv[at] in ends and (argv[at] != "+" or argv[at - 1] == "{}")


def _container(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `docker run … IMAGE CMD`, `kubectl exec POD -- CMD`: options vary too much to be
    told from their values, so every tail that may be the command is looked at.
    """
    argv = part.argv
    verb = next((at for at, word in enumerate(argv) if word in ("run", "exec", "create")), None)
    if verb is None:
        return None
    start = argv.index("--", verb) + 1 if "--" in argv[verb:] else verb + 2
    tails = [
        _tail(part, at, setting=Setting.SUSPECT | Setting.REMOTE) for at in range(start, min(len(argv), start + 16))
    ]
    return Carried([tail for tail in tails if not tail.argv[0].startswith("-")], None)


def _git(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
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
        return Carried([_tail(part, 3)] if len(argv) > 3 else [], 3)
    found = [Inner(text=text, setting=Setting.SUSPECT) for text in texts if text.strip()]
    return Carried(found) if found else None


def _git_elsewhere(part: SimpleCommand) -> Carried | None:
    """
    `git -C DIR …` is the rest, started in DIR. Only options that change nothing else may
    stand around it.
    """
    argv, at, own, cwd = part.argv, 1, 0, part.cwd
    while at < len(argv) and not _is_unknown(part, at):
        if argv[at] == "-C" and at + 1 < len(argv) and not _may_be_several(part, at + 1):
            to = argv[at + 1]
            cwd = posixpath.join(cwd or "", f"{to}/{UNKNOWN}" if _is_unknown(part, at + 1) else to)
            own = at = at + 2
        elif argv[at] in _GIT_FLAGS:
            at += 1
        else:
            break
    if not own or own >= len(argv):
        return None
    inner = _tail(part, own - 1, cwd=cwd)
    return Carried([replace(inner, argv=("git", *inner.argv[1:]), unknown=_without_first(inner), start=own)], own)


def _without_first(inner: Inner) -> tuple[tuple[int, Unknown], ...]:
    return tuple((index, doubt) for index, doubt in inner.unknown if index)


def _code(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Code of another language: the strings in it may be commands.
    """
    name = _name(part.argv[0])
    options = CODE_OPTIONS.get(name) or CODE_OPTIONS.get(_VERSION.sub("", name), ())
    words = part.argv[1:]
    codes = [words[at + 1] for at, word in enumerate(words[:-1]) if word in options]
    codes += [word.partition("=")[2] for word in words if word.startswith("--") and word.partition("=")[0] in options]
    codes += [word[2:] for word in words if len(word) > 2 and word[:2] in options and word[1] != "-"]
    if "" in options:
        codes += [word for word in words if not word.startswith("-")][:1]
        codes = [code for code in codes if not code.startswith(PIPES)]
    if not codes:
        # What a process substitution prints is the program, where a file would be.
        codes = _printed_files(part)
    if stdin is not None and not codes:
        codes = [stdin.text]
    is_piped = part.stands(Setting.PIPELINE)
    return Carried([inner for code in codes for inner in _strings(code, is_piped=is_piped)], None) if codes else None


def _is_handed(before: str) -> bool:
    """
    Whether a string behind *before* is the argument of a function that may be any.
    """
    return bool(_CALL.search(before)) and not _PRINTING.search(before)


def _strings(code: str, *, is_piped: bool) -> Iterator[Inner]:
    # What it prints may be what another program of the pipeline executes.
    may_start = (
        is_piped
        or _STARTS.search(code)
        or _PIPED.search(_STRINGS.sub(lambda each: each[0][0] if each[3] else "", code))
    )
    found = [each for each in _STRINGS.finditer(code) if may_start or _is_handed(code[: each.start()][-80:])]
    strings = [next(filter(None, each.groups()), "") for each in found[:_MAX_STRINGS]]
    for text in strings:
        text = re.sub(r"\\(.)", r"\1", text)
        if _NEEDS_SHELL.search(text.strip()):
            yield Inner(text=text, setting=Setting.SUSPECT)
    words = tuple(word for word in strings if word)
    # The first of them may be the name of a module or function.
    for start in range(min(len(words) - 1, _MAX_TAILS)):
        yield Inner(words[start:], setting=Setting.SUSPECT)


def _runner(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    A program that starts another one somewhere among its words: every tail that may be
    the command, and every word that may be text for a shell, is looked at.
    """
    argv, name = part.argv, _name(part.argv[0])
    verb = next((at for at, word in enumerate(argv) if word in _RUNNER_VERBS), 0)
    if name in _VERB_RUNNERS and not verb:
        return None
    start = verb + 1 if name in _VERB_RUNNERS else 1
    tails = [_tail(part, at, setting=Setting.SUSPECT) for at in range(start, min(len(argv) - 1, _MAX_RUNNER))]
    takes_text = name in _TEXT_RUNNERS
    words = [
        word.removeprefix("!").removeprefix("shell ").removeprefix("spawn ")
        for before, word in pairwise(argv[:_MAX_RUNNER])
        if " " in word and (takes_text or before in _TEXT_OPTIONS)
    ]
    texts = [Inner(text=word, setting=Setting.SUSPECT) for word in words]
    return Carried([*texts, *(tail for tail in tails if not tail.argv[0].startswith("-"))], None)


def _running(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    Commands in options of a program that does other work. A program's name alone says
    nothing that the options do not.
    """
    argv, name = part.argv, _name(part.argv[0])
    texts = list[str]()
    options = RUN_OPTIONS.get(name, ())
    for at, word in enumerate(argv[1:] if options else (), 1):
        option, attached, value = word.partition("=")
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if word in options:
            texts.append(following)
        elif word.startswith("--"):
            if len(option) > 2 and any(each.startswith(option) for each in options):
                texts.append(value if attached else following)
        elif word[:1] == "-" and len(word) > 2:
            texts += [word[2:]] if word[:2] in options else [following] if f"-{word[-1]}" in options else []
    texts = [text.removeprefix("exec=").lstrip("| ") for text in texts]
    texts += [found[1] for word in argv if (found := _SSH_COMMANDS.fullmatch(word))] if name in _COPIERS else []
    if pattern := RUN_WORDS.get(name):
        matches = [each for word in argv[1:] for each in pattern.finditer(word)]
        texts += [re.sub(r"\\(.)", r"\1", each[each.lastindex or 0]) for each in matches]
    inner = [
        Inner(text=text, setting=Setting.SUSPECT) for text in texts[:_MAX_STRINGS] if _NEEDS_SHELL.search(text.strip())
    ]
    return Carried(inner) if inner else None


def _make(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `make -f FILE`, where the text says what is in the file: its recipes. What `--eval` is
    given is a makefile too. Source: make(1), "Rule Syntax", GNU make 4.3.
    """
    if not part.unknown and not _MAKE_CODE.search(" ".join(part.argv)):
        return _running(part, stdin)
    codes = _printed_files(part)
    for at, word in enumerate(part.argv):
        name, attached, value = word.partition("=")
        following = part.argv[at + 1] if at + 1 < len(part.argv) else ""
        file = word[2:] or following if word[:2] == "-f" else value or following
        if stdin is not None and word.startswith(("-f", "--f", "--m")) and file in _STDIN_FILES:
            codes.append(stdin.text)
        elif name in ("--eval", "-E"):
            codes.append(value if attached else following)
    inner = _running(part, stdin)
    recipes = [recipe for code in codes for recipe in _recipes(code) if _NEEDS_SHELL.search(recipe.strip())]
    if not recipes:
        return inner
    found = [Inner(text=recipe, setting=Setting.SUSPECT) for recipe in recipes[:_MAX_STRINGS]]
    return Carried([*(inner.commands if inner else ()), *found])


def _recipes(makefile: str) -> Iterator[str]:
    """
    The lines of *makefile* that a shell reads.
    """
    for line in makefile.replace("\\\n", " ").split("\n"):
        recipe = line if line.startswith("\t") else line.partition(";")[2] if ":" in line else ""
        if recipe.strip():
            yield recipe.lstrip("\t @+-").replace("$$", "$")
        yield from (found[1] for found in _MAKE_SHELL.finditer(line))


def _after_dashes(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `capsh -- ARGUMENTS` hands them to bash.
    """
    if "--" not in part.argv:
        return None
    inner = _tail(part, part.argv.index("--"), setting=Setting.SUSPECT)
    return Carried([replace(inner, argv=("bash", *inner.argv[1:]))])


def _ip(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    """
    `ip netns exec NAME COMMAND`.
    """
    at = part.argv.index("exec") + 2 if "exec" in part.argv else len(part.argv)
    return Carried([_tail(part, at, setting=Setting.SUSPECT)]) if at < len(part.argv) else None


def _stdin_text(part: SimpleCommand, stdin: Stdin | None) -> Carried | None:
    return Carried(_input(stdin, Setting.FOREIGN), None) if stdin else None


_READERS: dict[str, _Carrier] = {
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(CODE_OPTIONS, _code),
    **dict.fromkeys(_STDIN_READERS, _stdin_text),
    **dict.fromkeys(
        (
            "let",
            "read",
            "unset",
            "declare",
            "typeset",
            "local",
            "readonly",
            "export",
            "mapfile",
            "readarray",
            "printf",
            "test",
            "[",
            "[[",
            "wait",
            "getopts",
        ),
        _names,
    ),
    **dict.fromkeys(_RUNNERS, _runner),
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "oc", "docker-compose", "lxc", "crictl"), _container),
    **dict.fromkeys((*RUN_OPTIONS, *RUN_WORDS), _running),
    "capsh": _after_dashes,
    **dict.fromkeys(("make", "gmake", "bmake"), _make),
    "ip": _ip,
    "eval": _eval,
    "mapfile": _callback,
    "readarray": _callback,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "alias": _alias,
    "complete": _complete,
    "find": _find,
    "fd": _fd,
    "fdfind": _fd,
    "git": _git,
}
