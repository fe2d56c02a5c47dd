"""
What a program's name says about whose code it runs, and which words name that code.
"""

from __future__ import annotations

import os
import re
import stat
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MAX_WORDS", "Kind", "is_multi_call", "kind_of", "loads_from_cwd", "script_of", "scripts"]

MAX_WORDS = 256
"""Words of one command that are looked at; more are not, and then nothing is remembered for good."""


class Kind(Enum):
    """
    Whose code a program runs.
    """

    INTERPRETER = "an interpreter"
    """What a file, an argument or its input says."""
    WRAPPER = "a wrapper"
    """The program its arguments name."""
    BUILDER = "a build tool"
    """What files of its directory say."""
    DATA = "a tool for data"
    """Its own: files it is given are not executed."""


def _table(text: str, kind: Kind) -> dict[str, Kind]:
    return dict.fromkeys(text.split(), kind)


_KINDS = {
    # Shells, also those of other systems. Source: shells(5) of Debian 12, Alpine and Fedora.
    **_table(
        "ash bash bash-static bsd-csh csh dash elvish fish ksh ksh93 lksh mksh mksh-static nu oksh osh pdksh posh pwsh"
        " rbash rc rksh rzsh sash sh tcsh xonsh yash ysh zsh zsh-static",
        Kind.INTERPRETER,
    ),
    # Interpreters of languages that take a program as file, argument or input.
    **_table(
        """awk bc bun clisp clojure crystal csi dart dc deno elixir erb erl escript expect gawk gdb gforth ghc ghci
        gnuplot gprolog graalpy groovy guile iex ipython irb java jjs jruby julia jshell jython kotlin lua luajit m4
        mawk maxima micropython nawk node nodejs ocaml octave octave-cli original-awk osascript pdb perl php php-cgi
        phpdbg pypy python qjs r racket raku rexx rscript ruby runghc runhaskell sbcl scala scheme swift swipl tcc
        tclsh ts-node tsx wish""",
        Kind.INTERPRETER,
    ),
    # Editors and clients with a language or a shell of their own.
    **_table(
        "ed emacs emacsclient ex ftp gvim less lftp lldb man more most mysql nvi nvim psql rview rvim sqlite sqlplus vi view"
        " vim vim.basic vim.gtk3 vim.nox vim.tiny vimdiff w3m",
        Kind.INTERPRETER,
    ),
    # Programs that start another; the shell's own words for that are among them.
    **_table(
        """. at batch busybox-static bwrap builtin busybox capsh catchsegv chpst chroot chrt chronic command coreutils cpulimit
        crontab crun dbus-run-session direnv doas docker dtach env entr envdir eval exec fakechroot fakeroot faketime find
        firejail flatpak flock fzf gosu heaptrack hyperfine ifne ionice kubectl ld-linux ld-musl logsave ltrace lxc
        machinectl mosh nerdctl nice
        mispipe nc ncat netcat newgrp nix-shell nodenv nohup nsenter nsjail numactl parallel pee perf pkexec podman
        prlimit proot proxychains pyenv rbenv rlwrap rr rsh run-parts runc runcon runuser s6-setuidgid schroot screen script setarch setlock setpriv setsid setuidgid sg socat softlimit source ssh sshpass start-stop-daemon stdbuf strace
        su sudo systemd-run taskset time timeout tini tmux torsocks toybox trap trickle tsocks ts unbuffer
        unshare valgrind watch watchexec wine with-contenv xargs xvfb-run""",
        Kind.WRAPPER,
    ),
    # Runners of what a project or a registry says.
    **_table(
        """act alembic ansible ansible-playbook ant autoconf automake autoreconf ava babel bats bazel bazelisk bmake brew buck
        bundle cabal cap cargo celery cmake composer conan conda configure coverage ctest cypress debuild django-admin
        doit dotnet dpkg-buildpackage dune earthly eslint fab flake8 flask foreman gem gmake go gradle gradlew grunt
        guard guix gulp gunicorn hatch helm hg inv invoke jekyll jest jupyter just karma latexmk lein make makepkg mamba
        maven meson mill mix mkdocs mocha mvn mvnw mypy ninja nix nix-build nmake nox npm npx nx opam pants parcel pdm
        phing phpunit pip pipenv pipx playwright pmake pnpm pnpx poetry pre-commit prettier psake pulumi pylint pytest
        rails rake rebar rollup rpmbuild rspec rubocop sbt scons scrapy setup.py snakemake sphinx-build stack streamlit
        task terraform thor tox tsc tsup turbo uv uvicorn uvx vagrant vite vitest waf webpack xcodebuild yarn
        zig""",
        Kind.BUILDER,
    ),
    **_table(
        """cat chgrp chmod chown cp curl cut diff du file git gzip head install kill ln ls mkdir mv rm rmdir rsync
        scp sha256sum sort stat tail tar touch tr unzip wc wget xz zip""",
        Kind.DATA,
    ),
}
"""Names without a version. What is not here runs its own code."""

_FAMILIES = ("python", "pypy", "ld-linux", "ld-musl")
"""Names that go on after a version: python3.11-dbg, python3-config."""

_SELF_CONTAINED = frozenset({"ash", "bash", "dash", "ksh", "mksh", "pypy", "python", "sh"})
"""
Take code from the script and its directory only. Others read start-up files of the
working directory (R, gdb, bun) or look for modules there (lua).
"""

_MULTI_CALL = frozenset({"busybox", "coreutils", "toybox"})
"""One file for many tools: what it does is said by the name it is called by."""

_VERSION = re.compile(r"(?<=[^\d.\-])[-.]?\d[\d.]*[a-z]?$")
_ENDING = re.compile(r"\.(exe|bin)$")

_SUFFIXES = (
    ".awk .bash .bat .bats .cjs .clj .cmd .command .csh .el .exs .fish .gradle .groovy .hs .jar .jl .js .jsx .kts .ksh"
    " .lua .mak .mjs .mk .nu .php .phar .pl .pm .ps1 .py .pyc .pyw .pyz .r .rb .rkt .run .scala .scm .sed .sh .so .sql"
    " .tcl .ts .tsx .vim .wasm .xonsh .zsh"
).split()

_BUILD_FILES = (
    "GNUmakefile makefile Makefile package.json pyproject.toml setup.py setup.cfg noxfile.py tox.ini conftest.py"
    " Cargo.toml build.rs CMakeLists.txt build.ninja meson.build build.gradle build.gradle.kts settings.gradle pom.xml"
    " build.xml Rakefile Gemfile justfile Justfile .justfile Taskfile.yml go.mod composer.json SConstruct BUILD.bazel"
    " build.sbt mix.exs Snakefile main.tf .pre-commit-config.yaml"
).split()


def kind_of(name: str) -> Kind | None:
    """
    What the program called *name* is, whatever its directory and version; None for one
    that runs its own code, as far as its name says.
    """
    return _KINDS.get(_plain(name))


def loads_from_cwd(name: str) -> bool:
    """
    Whether the interpreter called *name* may load code of the directory it is started
    in, besides the script it is given.
    """
    return _plain(name) not in _SELF_CONTAINED


def _plain(name: str) -> str:
    """
    *name* without directory, ending and version, as the table has it.
    """
    base = _ENDING.sub("", name.rpartition("/")[2].lower())
    family = next((family for family in _FAMILIES if base.startswith(family)), None)
    return family or (base if base in _KINDS else _VERSION.sub("", base))


def is_multi_call(name: str) -> bool:
    """
    Whether the file *name* is many tools in one.
    """
    return name.rpartition("/")[2] in _MULTI_CALL


def script_of(argv: Sequence[str], cwd: str) -> str | None:
    """
    The file an interpreter called by *argv* takes its program from, or None where the
    first word after it is an option, or no file: then the program is an argument, its
    input, a module, or loaded besides.
    """
    if len(argv) < 2 or not argv[1] or argv[1].startswith(("-", "+")):
        return None
    path = _joined(argv[1], cwd)
    return path if path is not None and _is_file(path) else None


def scripts(argv: Sequence[str], cwd: str) -> Iterator[str]:
    """
    The paths *argv* seems to name code by: scripts among its words, and what a build
    tool reads by itself. Some may not exist.
    """
    kind = kind_of(argv[0]) if argv else None
    if kind is Kind.INTERPRETER and (script := script_of(argv, cwd)):
        yield script
    words = _option_values(argv[1:MAX_WORDS]) if kind is Kind.DATA else argv[1:MAX_WORDS]
    named = [path for word in words for path in _paths(word, cwd)]
    if kind is None:
        yield from _program_files(argv[1:MAX_WORDS], cwd)
    yield from (path for path in named if _is_code(path) or (kind is Kind.BUILDER and _is_file(path)))
    if kind is Kind.BUILDER:
        for place in dict.fromkeys((cwd, *filter(os.path.isdir, named))):
            yield from filter(_is_file, (os.path.join(place, name) for name in _BUILD_FILES))


def _program_files(words: Sequence[str], cwd: str) -> Iterator[str]:
    """
    The files behind `-f` among *words*: by that option tools with a small language take
    their program from a file, whatever its name (`sed -f`, `jq -f`).
    """
    for before, word in zip(("", *words), words, strict=False):
        if before in _PROGRAM_FILE:
            text = word
        elif word.startswith(("--file=", "--from-file=")):
            text = word.partition("=")[2]
        else:
            text = word[2:] if word.startswith("-f") else ""
        path = _joined(text, cwd) if text else None
        if path is not None and _is_file(path):
            yield path


_PROGRAM_FILE = ("-f", "--file", "--from-file")


def _option_values(words: Sequence[str]) -> Iterator[str]:
    """
    The options among *words*, and the words behind them: a tool for data executes none
    but these (`rsync -e`, `tar --to-command=`, `git -c`).
    """
    for before, word in zip(("", *words), words, strict=False):
        if word.startswith("-") or (before.startswith("-") and before != "--"):
            yield word


def _paths(word: str, cwd: str) -> Iterator[str]:
    """
    What *word* may name: itself, the value of `--option=VALUE` or of `-xVALUE`.
    """
    if "://" in word:
        return
    for text in dict.fromkeys((word, word.partition("=")[2], word[2:] if word.startswith("-") else "")):
        path = _joined(text, cwd) if text else None
        if path is not None:
            yield path


def _joined(text: str, cwd: str) -> str | None:
    return None if "\0" in text or len(text) > 4096 else os.path.normpath(os.path.join(cwd, text))


def _is_code(path: str) -> bool:
    if path.lower().endswith(tuple(_SUFFIXES)):
        return True
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return False
        return bool(found.st_mode & 0o111) or _has_shebang(path)
    except (OSError, ValueError):
        return False


def _has_shebang(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        return os.read(fd, 2) == b"#!"
    finally:
        os.close(fd)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False
