"""
What a box holds, for the backend of macOS.
"""

from __future__ import annotations

import pytest

from sandboxkit.testing.conformance.claims import *  # noqa: F403 - the behaviours are the tests
from sandboxkit.testing.conformance.files import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.limits import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.network import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.processes import *  # noqa: F403 - likewise

pytestmark = [pytest.mark.timeout(300), pytest.mark.requires("seatbelt")]
