"""
Processes, privileges and terminals, for the built-in backends.
"""

from __future__ import annotations

from sandboxkit.testing.conformance.processes import *  # noqa: F403 - the behaviours are the tests
