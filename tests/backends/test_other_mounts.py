"""
A path that another mount shows a second time.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._other_mounts import shown_elsewhere
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.model import Access, Control, FilesystemPolicy, Grade, SandboxSpec
from sandboxkit.testing.conformance._acts import IS_ROOT

if TYPE_CHECKING:
    from pathlib import Path

MOUNTS = """\
20 1 8:1 / / rw - ext4 /dev/a rw
21 20 8:1 /srv/real /srv/ws rw - ext4 /dev/a rw
22 21 8:1 /srv/real/secret /srv/ws/sh\\040own rw - ext4 /dev/a rw
23 21 8:1 /srv/real/secret/deep /srv/ws/part rw - ext4 /dev/a rw
24 20 8:1 / /all rw - ext4 /dev/a rw
25 24 0:9 / /all/srv rw - tmpfs t rw
26 20 8:2 / /other rw - ext4 /dev/b rw
"""


@pytest.mark.parametrize(
    ("read", "denied", "places"),
    [
        ("/srv/ws", "/srv/ws/secret", ["/srv/ws/sh own", "/srv/ws/part"]),
        ("/srv/ws", "/srv/real/secret", ["/srv/ws/secret", "/srv/ws/sh own", "/srv/ws/part"]),
        ("/srv/ws", "/srv/ws/plain", []),
        ("/srv/real", "/srv/real/secret", []),
        ("/all", "/etc/secret", ["/all/etc/secret"]),
        ("/all", "/srv/real/secret", []),
        ("/other", "/other/secret", []),
        ("/other", "/secret", []),
    ],
)
def test_where_mounts_show_a_path_again(tmp_path: Path, read: str, denied: str, places: list[str]) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    tree = {read: Access.READ, denied: Access.DENY}
    found = list(shown_elsewhere([denied], tree, Access.READ, str(tmp_path / "mountinfo")))
    assert found == [
        f"{denied!r} is also shown at {place!r} by another mount, where it is not held" for place in places
    ]


@pytest.mark.requires("bubblewrap")
@pytest.mark.skipif(not IS_ROOT, reason="not applicable: only root can mount")
@pytest.mark.anyio
async def test_a_denied_directory_that_a_mount_shows_again_is_graded(tmp_path: Path) -> None:
    for name in ("secret", "again"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret/file").write_text("content")
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=(str(tmp_path),), deny=(str(tmp_path / "secret"),)))
    backend = BubblewrapBackend()
    async with backend.open(spec) as box:
        assert box.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.ENFORCED
    subprocess.run(["mount", "--bind", tmp_path / "secret", tmp_path / "again"], check=True)
    try:
        async with backend.open(spec) as box:
            result = await box.run(["cat", str(tmp_path / "again/file")])
    finally:
        subprocess.run(["umount", tmp_path / "again"], check=True)
    assert result.text() == "content", "what the grade says"
    assert "by another mount, where it is not held" in result.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
