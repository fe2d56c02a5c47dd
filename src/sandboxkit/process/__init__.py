"""
The only room that starts processes: it runs a launch plan and ends the whole tree.
"""

from sandboxkit.process._client import broker_pid, ensure_broker, interpreter
from sandboxkit.process._direct import direct_plan
from sandboxkit.process._door import Serve
from sandboxkit.process._run import Outcome, Running, launch, run
from sandboxkit.process._streams import PipeReader, PipeWriter, Streams, open_streams, pipe_to_us
from sandboxkit.process._zygote import Conversation, Zygote, end_waiting, shutdown, zygote_pids

__all__ = [
    "Conversation",
    "Outcome",
    "PipeReader",
    "PipeWriter",
    "Running",
    "Serve",
    "Streams",
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
    "shutdown",
    "zygote_pids",
]
