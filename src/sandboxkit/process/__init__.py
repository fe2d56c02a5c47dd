"""
The only room that starts processes: it runs a launch plan and ends the whole tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit._lazy import lazy

if TYPE_CHECKING:
    from sandboxkit.process._broker_process import interpreter, start_early
    from sandboxkit.process._client import broker_pid, ensure_broker
    from sandboxkit.process._direct import direct_plan
    from sandboxkit.process._door import LoopbackDoor, NamedDoor, Serve, Serving, serving
    from sandboxkit.process._loop import Loop, Work, shared_loop
    from sandboxkit.process._run import Outcome, Running, launch, run, without_interpreter
    from sandboxkit.process._streams import PipeReader, PipeWriter, Streams, open_streams, pipe_to_us
    from sandboxkit.process._zygote import Conversation, Zygote, end_waiting, shutdown, socket_pair, zygote_pids

__all__ = [
    "Conversation",
    "Loop",
    "LoopbackDoor",
    "NamedDoor",
    "Outcome",
    "PipeReader",
    "PipeWriter",
    "Running",
    "Serve",
    "Serving",
    "Streams",
    "Work",
    "Zygote",
    "broker_pid",
    "direct_plan",
    "end_waiting",
    "ensure_broker",
    "interpreter",
    "launch",
    "open_streams",
    "pipe_to_us",
    "run",
    "serving",
    "shared_loop",
    "shutdown",
    "socket_pair",
    "start_early",
    "without_interpreter",
    "zygote_pids",
]

__getattr__ = lazy(
    __name__,
    {
        "_broker_process": ("interpreter", "start_early"),
        "_client": ("broker_pid", "ensure_broker"),
        "_direct": ("direct_plan",),
        "_door": ("LoopbackDoor", "NamedDoor", "Serve", "Serving", "serving"),
        "_loop": ("Loop", "Work", "shared_loop"),
        "_run": ("Outcome", "Running", "launch", "run", "without_interpreter"),
        "_streams": ("PipeReader", "PipeWriter", "Streams", "open_streams", "pipe_to_us"),
        "_zygote": ("Conversation", "Zygote", "end_waiting", "shutdown", "socket_pair", "zygote_pids"),
    },
)
