"""
Ordinary tools and faults in containers: hundreds of containers, which CI leaves out.
"""

from __future__ import annotations

import pytest

from sandboxkit.testing.conformance.faults import *  # noqa: F403 - the behaviours are the tests
from sandboxkit.testing.conformance.tools import *  # noqa: F403 - likewise

pytestmark = pytest.mark.timeout(300)  # many boxes, on a machine that may be busy
