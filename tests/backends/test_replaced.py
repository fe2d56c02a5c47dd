"""
What stands where a mount held something before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._replaced import anchors, replaced, replacements
from sandboxkit.model import Access

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("content", "mode", "stays"), [("", 0o444, False), ("", 0o644, True), ("mine", 0o444, True), (None, 0, False)]
)
def test_an_empty_file_made_for_a_mount_goes_and_what_is_the_users_stays(
    tmp_path: Path, content: str | None, mode: int, *, stays: bool
) -> None:
    held, other = tmp_path / "held", tmp_path / "other"
    for path in (held, other):
        path.touch()
    before = anchors([str(held), str(other), str(tmp_path / "missing")], {str(tmp_path): Access.WRITE})
    assert (set(before), list(replaced(before))) == ({str(held), str(other)}, [])
    held.rename(tmp_path / "moved away by another box")
    if content is not None:
        held.write_text(content)
        held.chmod(mode)
    assert [found.target for found in replacements(before)] == ([str(held)] if stays else [])
    assert held.exists() is stays


def test_what_the_spec_does_not_show_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "held").touch()
    assert anchors([str(tmp_path / "held")], {str(tmp_path / "other"): Access.WRITE}) == {}
