"""
The process that evaluates inside a box of a backend: the box confines it, and it forks
once for each evaluation.

It is started bare, by its text, and gets the language over its input, so that the box
shows it no file of ours. It confines nothing itself beyond memory: where a kernel would
let it do so, `_worker` is used.

A fork starts clean. One that broke the language could reach the process it was forked
from, though, and what the box lets be written; a box is an evaluator's own.

Runs in the box only: standard library, RestrictedPython and the modules of a worker.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys

from sandboxkit.evaluation._worker import SPARE_SECONDS, Conversation, load

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from typing import Any

__all__ = ["main"]

READS, WRITES = 0, 1


def limit(memory_bytes: int, seconds: float) -> None:
    """
    The limits of one evaluation: memory, no file, no process, and an end.
    """
    if sys.platform == "linux":  # macOS takes RLIMIT_AS and does not keep it
        with open("/proc/self/statm", "rb") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for what in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        resource.setrlimit(what, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, seconds + SPARE_SECONDS)


def evaluate(order: dict[str, Any]) -> None:
    """
    The fork: one request, one answer, and the end, whatever happens.
    """
    from sandboxkit.evaluation._evaluate import Programs, reply

    code = 1
    try:
        conversation = Conversation(READS, WRITES)
        request = conversation.read()
        limit(order["memory_bytes"], order["seconds"])
        conversation.write(reply(request, conversation.ask, Programs()))
        code = 0
    finally:
        os._exit(code)


def main(order: dict[str, Any]) -> None:
    """
    Loads the language, says that it is ready, and forks until a fork ends without an
    answer: that is the caller's going, or nobody knows what.
    """
    load(os.devnull)  # nothing is there: what is needed came with the order
    gc.collect()
    gc.freeze()
    body = json.dumps({"platform": sys.platform}).encode()
    os.write(WRITES, len(body).to_bytes(4, "little") + body)
    while True:
        child = os.fork()  # noqa: TID251 - of itself, once for each evaluation, inside a box
        if child == 0:
            evaluate(order)
        if os.waitpid(child, 0)[1] != 0:
            return
