"""
The conformance suite: what every backend keeps, tried with real processes on the real
kernel, each act also without a box.

A module of your tests takes the behaviours over and defines two fixtures:

    from sandboxkit.testing.conformance import *

    @pytest.fixture(scope="session")
    def backend_factory():
        return MyBackend

    @pytest.fixture(scope="session")
    def deviations():
        return {"limits_cannot_be_raised": "the hypervisor sets them, no rlimit does"}

`backend_factory` gives a callable without arguments that makes your `SandboxBackend`. A
class, a function of a module, or a `functools.partial` of one: some behaviours hand it
to another process, by pickle. For a backend that looks into TLS (`net.intercept`) it takes
two by keyword: `secrets`, a `SecretRegistry`, and `ssl_context`, which verifies the real hosts.

`deviations` gives, by name, what your backend does not keep and why: `name` for all
cases of a behaviour, `name[case]` for one. The behaviour is tried all the same and must
be found *not* kept. One that is kept fails as an unexpected pass, so that its
entry goes; a name that no behaviour bears fails too.

A backend that opens no spec unless the spec lets it hold something less well is made by
`functools.partial(asking_less, MyBackend, {Control.PROCESS_ISOLATION})`: every spec of
the suite then says so. That the default spec is not met is a deviation of its own.

Each area can be taken alone: `sandboxkit.testing.conformance.claims`, `files`,
`processes`, `network`, `limits`, `tools`, `faults`. `crash_count` (16) and `run_count` (200) say how often
`faults` repeats; a fixture of that name in your module says otherwise.
"""

from __future__ import annotations

from sandboxkit.testing.conformance import claims, faults, files, limits, network, processes, tools
from sandboxkit.testing.conformance._asking_less import asking_less
from sandboxkit.testing.conformance._behaviours import BEHAVIOURS, Behaviour
from sandboxkit.testing.conformance._fixtures import *  # noqa: F403 - what users of this module import in turn
from sandboxkit.testing.conformance._fixtures import FIXTURES
from sandboxkit.testing.conformance.claims import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.faults import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.files import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.limits import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.network import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.processes import *  # noqa: F403 - likewise
from sandboxkit.testing.conformance.tools import *  # noqa: F403 - likewise

_AREAS = (claims, files, processes, network, limits, tools, faults)

__all__ = [
    "BEHAVIOURS",
    "Behaviour",
    *FIXTURES,
    "asking_less",
    *(name for area in _AREAS for name in area.__all__ if name not in FIXTURES),
]
