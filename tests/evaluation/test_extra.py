"""
Without its extra, evaluation says what to install, and the rest of the library works.
"""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
sys.modules["RestrictedPython"] = None
import sandboxkit as sk
assert sk.ExecPolicy.default().evaluate("ls").action.name == "ALLOW"
for isolation in ("worker", "reuse", "in-process"):
    try:
        sk.safe_eval("1", isolation=isolation)
    except sk.MissingExtraError as exc:
        print(exc)
"""


def test_the_extra_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["evaluation needs an optional dependency: pip install 'sandboxkit[eval]'"] * 3


def test_importing_it_loads_no_language() -> None:
    code = "import sys, sandboxkit as sk; sk.safe_eval; print('RestrictedPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
