"""
Every behaviour, for the backend without namespaces.
"""

from __future__ import annotations

import pytest

from sandboxkit.testing.conformance import *  # noqa: F403 - the behaviours are the tests

pytestmark = pytest.mark.timeout(300)  # many boxes, on a machine that may be busy
