"""
From a command to its result: evaluate, ask, choose a backend, run, record.
"""

from sandboxkit.router._explanation import Explanation
from sandboxkit.router._router import AutoSandboxRouter, default_router, open_sandbox, run

__all__ = ["AutoSandboxRouter", "Explanation", "default_router", "open_sandbox", "run"]
