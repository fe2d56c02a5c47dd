"""
The only room that starts processes: it runs a launch plan and ends the whole tree.
"""

from sandboxkit.process._client import broker_pid, ensure_broker, interpreter, shutdown
from sandboxkit.process._direct import direct_plan
from sandboxkit.process._run import Outcome, Running, launch, run
from sandboxkit.process._streams import PipeReader, PipeWriter, Streams, open_streams

__all__ = [
    "Outcome",
    "PipeReader",
    "PipeWriter",
    "Running",
    "Streams",
    "broker_pid",
    "direct_plan",
    "ensure_broker",
    "interpreter",
    "launch",
    "open_streams",
    "run",
    "shutdown",
]
