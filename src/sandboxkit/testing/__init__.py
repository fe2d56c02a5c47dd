"""
What authors of backends test with. Needs pytest: the extra `testing`.

`sandboxkit.testing.conformance` holds every behaviour a backend keeps, as tests that run
against a backend of yours.
"""

from __future__ import annotations

from sandboxkit.errors import MissingExtraError

try:
    import pytest
except ModuleNotFoundError as exc:
    raise MissingExtraError("testing", "sandboxkit.testing") from exc

__all__: list[str] = []

# Before the modules are imported: otherwise a failed assertion would show no values.
pytest.register_assert_rewrite("sandboxkit.testing.conformance")
