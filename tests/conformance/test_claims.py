"""
What a backend says about itself, for the built-in backends.
"""

from __future__ import annotations

from sandboxkit.testing.conformance.claims import *  # noqa: F403 - the behaviours are the tests
