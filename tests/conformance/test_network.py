"""
Network, kernel and IPC, for the built-in backends.
"""

from __future__ import annotations

from sandboxkit.testing.conformance.network import *  # noqa: F403 - the behaviours are the tests
