"""
What the programs of the documentation and the examples need besides the package itself.
"""

from __future__ import annotations

import importlib.util

__all__ = ["missing_extra"]

_EVAL, _EGRESS = ("eval", "RestrictedPython"), ("egress", "h11")
_NEEDS = {
    "evaluate.py": _EVAL,
    "evaluate_functions.py": _EVAL,
    "fill_in.py": _EVAL,
    "egress.py": _EGRESS,
    "inject_secret.py": _EGRESS,
    "injected_secret.py": _EGRESS,
    "listed_hosts.py": _EGRESS,
}
"""By program: the extra, and a module that comes with it."""


def missing_extra(program: str) -> str | None:
    """
    The extra that *program* needs and that is not installed: it must end by naming that.
    """
    extra, module = _NEEDS.get(program, (None, ""))
    return None if extra is None or importlib.util.find_spec(module) else extra
