"""
Without the extra, what needs it says so, and the rest works.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = "import sys; sys.modules.update(h11=None, httpx2=None, httpcore2=None)\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("EgressProxy(EgressPolicy())", "sandboxkit.egress.EgressProxy needs an optional dependency"),
        ("guarded_client(EgressPolicy())", "sandboxkit.egress.guarded_client needs an optional dependency"),
        ("Dialer(EgressPolicy()); print('works')", "works"),
    ],
)
def test_a_missing_extra_is_named(code: str, said: str) -> None:
    program = f"""{WITHOUT}
from sandboxkit import EgressPolicy, MissingExtraError
from sandboxkit.egress import Dialer, EgressProxy, guarded_client
try:
    {code}
except MissingExtraError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert said in done.stdout
