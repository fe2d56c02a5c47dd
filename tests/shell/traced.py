"""
What bash really runs of a text: it runs in a box where every program only writes down
its own name and arguments.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.shell.texts import PROGRAMS, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["HOME", "Trace", "trace"]

TIMEOUT_S = 1
HOME = "/home/u"

_PROGRAM = """#!/bin/sh
printf '%s\\0' "$#" "${0##*/}" "$@" >&9
case ${0##*/} in
  p5 | p6) exit 1 ;;
  p9) echo p8 z ;;
esac
"""

_DRIVER = f"""
ulimit -c 0 -f 256 -u 2000
for text in /tmp/box/texts/*; do
  number=${{text##*/}}
  mkdir "/tmp/box/work/$number" && cd "/tmp/box/work/$number" || exit 1
  IFS= read -r -d '' body < "$text"
  exec 9>> "/tmp/box/logs/$number"
  /usr/bin/env -i PATH=/tmp/box/programs HOME={HOME} LC_ALL=C.UTF-8 \\
    {shutil.which("timeout")} -s KILL {TIMEOUT_S} {shutil.which("bash")} --noprofile --norc -c -- "$body" \\
    < /dev/null > /dev/null 2>&1
  case $body in (*'&'* | *coproc* | *'>('*) sleep 0.05 ;; esac
done 2> /dev/null
"""


@dataclass(frozen=True, slots=True)
class Trace:
    """
    What came of running a text.

    Attributes:
        ran: Program and arguments of each start.
        files: The files that are there now.
    """

    ran: tuple[tuple[str, ...], ...]
    files: tuple[str, ...]


def trace(texts: Sequence[str], directory: Path) -> list[Trace]:
    """
    Runs *texts*, one after another, in a box without network that can write to
    *directory* alone and finds no program but those of `texts`.

    What a text leaves in the background is ended with the box, and may be missing.
    """
    for name in ("texts", "logs", "work", "programs"):
        (directory / name).mkdir()
    for name in PROGRAMS:
        (directory / "programs" / name).write_text(_PROGRAM)
        (directory / "programs" / name).chmod(0o755)
    for name in WRAPPERS:
        (directory / "programs" / name).symlink_to(str(shutil.which(name)))
    names = [f"{number:06}" for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        (directory / "texts" / name).write_bytes(os.fsencode(text) + b"\0")
    box = "bwrap --unshare-all --die-with-parent --new-session --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp"
    subprocess.run(
        [*box.split(), "--tmpfs", "/home", "--bind", directory, "/tmp/box", str(shutil.which("bash")), "-c", _DRIVER],
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=30 + 2 * TIMEOUT_S * len(texts),
    )
    return [
        Trace(tuple(_read(directory / "logs" / name)), tuple(sorted(os.listdir(directory / "work" / name))))
        for name in names
    ]


def _read(log: Path) -> Iterator[tuple[str, ...]]:
    fields = os.fsdecode(log.read_bytes()).split("\0")[:-1]
    while fields and len(fields) >= 2 + int(fields[0]):
        count = int(fields[0])
        yield tuple(fields[1 : 2 + count])
        del fields[: 2 + count]
