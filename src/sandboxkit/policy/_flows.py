"""
Who executes whose output, as far as a rough reading shows it.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from sandboxkit.shell import PLACEHOLDER, Fragment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.policy._floor import Programs

__all__ = ["Flows"]

_MAX_PIPE = 12
_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


class Flows:
    """
    The pipes, substitutions and downloaded files between fragments of one text.
    """

    def __init__(self, found: tuple[Fragment, ...], programs: Programs) -> None:
        self._found = found
        self._programs = programs
        self._children: dict[int, list[int]] = {}
        self._downloads: dict[str, int] = {}
        for index, fragment in enumerate(found):
            if fragment.inside is not None:
                self._children.setdefault(fragment.inside, []).append(index)
            if "downloaders" in self.groups(index):
                self._note_download(index, fragment)

    def _note_download(self, index: int, fragment: Fragment) -> None:
        for word in (*fragment.words[1:], *fragment.writes):
            # The file may be attached to its option, as in -o/tmp/x, or be named by
            # the last part of the address.
            names = (posixpath.basename(word),) if "://" in word else (word, word.lstrip("-sSoO"))
            for name in names:
                self._downloads.setdefault(_here(name), index)

    def groups(self, index: int) -> tuple[str, ...]:
        """
        The groups of sources the fragment belongs to.
        """
        words = self._leading(self._found[index].words)
        names = frozenset().union(*map(_names, words))
        return tuple(
            group for group in ("downloaders", "decoders") if not names.isdisjoint(getattr(self._programs, group))
        )

    def is_shell(self, index: int) -> bool:
        """
        Whether the fragment executes shell text.
        """
        executor = self._executor(self._found[index].words)
        return executor is not None and not _names(executor[0]).isdisjoint(
            self._programs.shells | self._programs.evaluators
        )

    def sources(self, index: int) -> tuple[int, ...]:
        """
        The fragments whose output this one executes.
        """
        return tuple(dict.fromkeys(self._sources(index)))

    def _sources(self, index: int) -> Iterator[int]:
        fragment = self._found[index]
        if not fragment.words:
            return
        if "/" in fragment.words[0]:
            yield from self._download(fragment.words[0], index)
        executor = self._executor(fragment.words)
        if executor is None:
            return
        script = self._script(executor)
        if script is None or script in _STDIN:
            yield from self._upstream(index)
        elif PLACEHOLDER in script:
            for child in self._children.get(index, ()):
                yield child
                yield from self._upstream(child)
        yield from self._download(script or "", index)

    def _download(self, name: str, index: int) -> Iterator[int]:
        """
        The fragment before *index* that downloads the file *name*.
        """
        source = self._downloads.get(_here(name))
        if name and source is not None and source < index:
            yield source

    def _upstream(self, index: int) -> Iterator[int]:
        for _ in range(_MAX_PIPE):
            source = self._found[index].reads_from
            if source is None:
                return
            yield source
            yield from self._children.get(source, ())
            index = source

    def _leading(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """
        The program; behind a wrapper every word, as each may be the program.
        """
        return words if words and not _names(words[0]).isdisjoint(self._programs.wrappers) else words[:1]

    def _executor(self, words: tuple[str, ...]) -> tuple[str, ...] | None:
        """
        The words from the program on that executes what it reads.
        """
        for place, word in enumerate(self._leading(words)):
            if not _names(word).isdisjoint(self._programs.executors):
                return words[place:]
        return None

    def _script(self, words: tuple[str, ...]) -> str | None:
        """
        What the executor executes: the code given to it, or the file, or None where
        it is standard input.
        """
        names = _names(words[0])
        if not names.isdisjoint(self._programs.evaluators):
            return " ".join(words[1:])
        code_letters = "c" if not names.isdisjoint(self._programs.shells) else "ceEmrnp"
        for place, word in enumerate(words[1:], 1):
            if word.startswith("--") and word.partition("=")[0] not in ("--eval", "--command", "--execute", "--print"):
                continue
            if len(word) > 1 and word[0] in "-+":
                if word.startswith("--") or not set(code_letters).isdisjoint(word[1:]):
                    return " ".join(words[place:])
                continue
            return word
        return None


def _here(name: str) -> str:
    return name.removeprefix("./")


def _names(word: str) -> frozenset[str]:
    """
    The program *word* names, with and without a version at its end.
    """
    name = posixpath.basename(word).lower()
    return frozenset((name, name.rstrip("0123456789.") or name))
