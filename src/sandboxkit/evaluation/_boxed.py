"""
The process that evaluates inside a box of a backend: the box confines it, and it forks
once for each evaluation.

It is started bare, by its text, and gets the language over its input, JavaScript's engine
too, so that the box shows it no file of ours. It confines nothing itself beyond memory: where a kernel would
let it do so, `_worker` is used.

A fork starts clean. One that broke the language could reach the process it was forked
from, though, and what the box lets be written; a box is an evaluator's own.

Runs in the box only: standard library, what the language needs and the modules of a worker.
"""

from __future__ import annotations

import binascii
import gc
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
from importlib.machinery import ExtensionFileLoader

from sandboxkit.evaluation._worker import LOADS, SPARE_SECONDS, Conversation

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


def bring(name: str, body: bytes) -> None:
    """
    Loads the extension module *name*, whose file holds *body*.

    From memory, where the kernel lends such files; elsewhere from the box's own place for
    temporary ones, of which it is removed again.

    Raises:
        ImportError: It was built for another machine.
    """
    if sys.platform == "linux":
        file = os.memfd_create(name)
        try:
            with open(file, "wb", closefd=False) as writer:
                writer.write(body)
            load_extension(name, f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        return
    with tempfile.NamedTemporaryFile(suffix=".so") as made:
        made.write(body)
        made.flush()
        load_extension(name, made.name)


def load_extension(name: str, path: str) -> None:
    """
    Loads the extension module *name* from *path*.
    """
    spec = importlib.util.spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module


def evaluate(order: dict[str, Any], language: Any) -> None:
    """
    The fork: one request, one answer, and the end, whatever happens.
    """
    code = 1
    try:
        conversation, programs = Conversation(READS, WRITES), language.Programs()
        request = conversation.read()
        limit(order["memory_bytes"], order["seconds"])
        conversation.write(language.reply(request, conversation.ask, programs))
        code = 0
    finally:
        os._exit(code)


def loaded(order: dict[str, Any]) -> Any:
    """
    The module that evaluates the language of *order*.
    """
    name, load = LOADS[order["language"]]
    for extension, body in order.pop("extensions").items():
        if order["built_for"] not in (None, list(sys.version_info[:2])):  # it would crash, or worse
            raise ImportError("it was built for Python {}.{}".format(*order["built_for"]))
        bring(extension, binascii.a2b_base64(body))
    load(os.devnull)  # nothing is there: what is needed came with the order
    return sys.modules[f"sandboxkit.evaluation.{name}"]


def say(message: dict[str, str]) -> None:
    """
    The one message that is not of an evaluation.
    """
    body = json.dumps(message).encode()
    os.write(WRITES, len(body).to_bytes(4, "little") + body)


def main(order: dict[str, Any]) -> None:
    """
    Loads the language, says that it is ready, and forks until a fork ends without an
    answer: that is the caller's going, or nobody knows what.
    """
    try:
        language = loaded(order)
    except (ImportError, OSError) as error:
        say({"error": f"{type(error).__name__}: {error}"[:1000]})
        return
    gc.collect()
    gc.freeze()
    say({"platform": sys.platform})
    while True:
        child = os.fork()  # noqa: TID251 - of itself, once for each evaluation, inside a box
        if child == 0:
            evaluate(order, language)
        if os.waitpid(child, 0)[1] != 0:
            return
