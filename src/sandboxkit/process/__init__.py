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
    from sandboxkit.process._run import Outcome, Running, launch, run
    from sandboxkit.process._streams import PipeReader, PipeWriter, Streams, open_streams
    from sandboxkit.process._zygote import Conversation, Zygote, end_waiting, shutdown, zygote_pids

__all__ = [
    "Conversation",
    "Outcome",
    "PipeReader",
    "PipeWriter",
    "Running",
    "Streams",
    "Zygote",
    "broker_pid",
    "direct_plan",
    "end_waiting",
    "ensure_broker",
    "interpreter",
    "launch",
    "open_streams",
    "run",
    "shutdown",
    "start_early",
    "zygote_pids",
]

__getattr__ = lazy(
    __name__,
    {
        "_broker_process": ("interpreter", "start_early"),
        "_client": ("broker_pid", "ensure_broker"),
        "_direct": ("direct_plan",),
        "_run": ("Outcome", "Running", "launch", "run"),
        "_streams": ("PipeReader", "PipeWriter", "Streams", "open_streams"),
        "_zygote": ("Conversation", "Zygote", "end_waiting", "shutdown", "zygote_pids"),
    },
)
