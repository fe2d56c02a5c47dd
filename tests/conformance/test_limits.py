"""
Limits, for the built-in backends.
"""

from __future__ import annotations

from sandboxkit.testing.conformance.limits import *  # noqa: F403 - the behaviours are the tests
