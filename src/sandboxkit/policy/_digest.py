"""
Naming values by their content.
"""

from __future__ import annotations

import hashlib
import json

__all__ = ["digest_of"]


def digest_of(value: object) -> str:
    """
    The sha256 of *value* as canonical JSON, in hexadecimal.
    """
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()
    ).hexdigest()
