"""
What is left unlooked at because a listing says it is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._exists import is_there, may_hold, mode_of, names_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(names_in("/") is None, reason="names are listed on Linux alone")


def test_only_what_is_certain_to_be_missing_is_left_out(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "leads-nowhere").symlink_to("nothing")
    names = names_in(str(tmp_path))
    assert names is not None
    assert may_hold(names, ".ssh/id_rsa")
    assert may_hold(names, "leads-nowhere")
    assert not may_hold(names, ".aws/credentials")


def test_a_name_in_other_letters_may_be_the_same_file(tmp_path: Path) -> None:
    # Directories of ext4 may take them for one, by chattr +F.
    (tmp_path / ".SSH").mkdir()
    assert may_hold(names_in(str(tmp_path)), ".ssh/config")


def test_many_names_are_not_listed(tmp_path: Path) -> None:
    for number in range(301):
        (tmp_path / str(number)).touch()
    assert names_in(str(tmp_path)) is None
    assert may_hold(None, "anything")


def test_a_directory_that_is_not_there_or_a_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert names_in(str(tmp_path / "missing")) is None
    assert names_in(str(tmp_path / "file")) is None


def test_a_link_that_leads_nowhere_has_a_mode_and_is_not_there(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nothing")
    assert mode_of(str(link)) is not None
    assert not is_there(str(link))
    assert mode_of(str(tmp_path / "missing")) is None
