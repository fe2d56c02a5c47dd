"""
The only room that starts processes: it runs a launch plan and ends the whole tree.
"""

from typing import TYPE_CHECKING

from sandboxkit._lazy import lazy
from sandboxkit.process._client import broker_pid, ensure_broker, interpreter
from sandboxkit.process._direct import direct_plan
from sandboxkit.process._door import Serve
from sandboxkit.process._run import Outcome, Running, launch, run
from sandboxkit.process._streams import PipeReader, PipeWriter, Streams, open_streams, pipe_to_us
from sandboxkit.process._zygote import Conversation, Zygote, end_waiting, shutdown, socket_pair, zygote_pids

if TYPE_CHECKING:
    from sandboxkit.process._loop import Loop, shared_loop

__all__ = [
    "Conversation",
    "Loop",
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
    "shared_loop",
    "shutdown",
    "socket_pair",
    "zygote_pids",
]

# asyncio costs an import that who only plans, or has a loop of its own, does not need.
__getattr__ = lazy(__name__, {"_loop": ("Loop", "shared_loop")})
