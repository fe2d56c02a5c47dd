"""
What a box holds, for the backend of containers of Podman that show the host's own system.
"""

from __future__ import annotations

import pytest

from sandboxkit.testing.conformance.claims import *  # noqa: F403 - the behaviours are the tests
from sandboxkit.testing.conformance.files import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.limits import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.network import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.processes import *  # noqa: F403 - likewise

pytestmark = pytest.mark.timeout(300)  # many boxes, on a machine that may be busy
