"""
How a path is written. Nothing here says where a request goes. Pure.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

__all__ = ["has_traversal", "undone"]

_DOTS = re.compile(r"(?:\.|%2e){2}(?:[/\\]|%2f|%5c)|(?:[/\\]|%2f|%5c)(?:\.|%2e){2}(?:$|[?#&])", re.IGNORECASE)
_DEPTH = 3
"""How often an escape may be escaped; a server that undoes more is not known."""


def has_traversal(text: str) -> bool:
    """
    Whether two dots stand beside a slash in *text*, escaped any number of times up to three.
    """
    return any(_DOTS.search(form) for form in _forms(text))


def undone(path: str) -> str:
    """
    *path* without escapes, as the last of several servers would see it.
    """
    return _forms(path)[-1].replace("\\", "/")


def _forms(text: str) -> list[str]:
    forms = [text]
    while len(forms) <= _DEPTH and (following := unquote(forms[-1])) != forms[-1]:
        forms.append(following)
    return forms
