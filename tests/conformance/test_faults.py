"""
Crashes, cancellation, floods and endurance, for the built-in backends.
"""

from __future__ import annotations

import pytest

from sandboxkit.testing.conformance.faults import *  # noqa: F403 - the behaviours are the tests

pytestmark = pytest.mark.timeout(300)  # many boxes, on a machine that may be busy
