"""
Paths of URLs in their one written form. Pure.
"""

from __future__ import annotations

import re
from urllib.parse import quote

__all__ = ["canonical_path"]

_TO_REWRITE = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]+?", re.DOTALL)
"""Escapes, and what a path or query cannot hold unescaped."""
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def canonical_path(path: str) -> str:
    """
    *path* with dot segments resolved and escapes in their one form.

    Source: RFC 3986 sections 5.2.4 and 6.2.2.
    """
    kept: list[str] = []
    segments = _TO_REWRITE.sub(_decoded_or_escaped, path).split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _decoded_or_escaped(found: re.Match[str]) -> str:
    part = found[0]
    if len(part) != 3 or part[0] != "%":
        return quote(part, safe="")
    value = int(part[1:], 16)
    return chr(value) if value in _UNRESERVED else part.upper()
