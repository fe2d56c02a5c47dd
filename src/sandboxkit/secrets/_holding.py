"""
Whether a configuration file holds secrets. Pure.
"""

from __future__ import annotations

import re

from sandboxkit.secrets._shapes import SHAPES

__all__ = ["secret_in"]

_ASSIGNED = re.compile(
    r"(?im)^[^#\n]{0,200}?(?P<key>[\w.-]{0,60}(?:token|secret|passw(?:or)?d|api_?key|credential)[\w.-]{0,60})"
    r"[\"']?\s{0,10}[=:]\s{0,10}(?:[\"'](?![<$])[^\"'\s]{6,}[\"']|(?![\"'<$\[{])[^\s\"'#]{6,})"
)
"""A key that says what it is, with a value that is neither an alias nor a variable."""


def secret_in(text: str) -> str | None:
    """
    What looks like a secret in a configuration file: the name of a known shape, or of the
    key that holds it; None where nothing does. The value is never repeated.

    It is a help: what has no telling name or shape is not seen.
    """
    data = text.encode("utf-8", "surrogatepass")
    shape = next((shape for shape in SHAPES if shape.pattern.search(data)), None)
    if shape is not None:
        return shape.name
    found = _ASSIGNED.search(text)
    return found["key"] if found else None
