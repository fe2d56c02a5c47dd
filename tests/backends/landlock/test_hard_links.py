"""
Files with a second name: the kernel grants a file, whatever name of it was meant.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.backends.landlock.conftest import IS_ROOT, SHARED
from tests.conformance.conftest import Act

from sandboxkit.model import Control, FilesystemPolicy, Grade, SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

    from sandboxkit.backends.landlock import LandlockBackend

pytestmark = pytest.mark.anyio

READ = Act("for path in arguments['paths']: attempt(path, read, path)")


@pytest.mark.parametrize("denied", ["secret", "denied"])
async def test_a_denied_file_is_not_granted_by_another_name(
    backend: LandlockBackend, open_ws: Path, denied: str
) -> None:
    (open_ws / "denied").mkdir()
    for name in ("secret", "denied/secret", "plain", "here"):
        (open_ws / name).write_text("content")
    os.link(open_ws / "secret", open_ws / "second")
    os.link(open_ws / "denied/secret", open_ws / "third")
    os.link(open_ws / "plain", open_ws / "plain.too")
    filesystem = FilesystemPolicy(read=(str(open_ws),), deny=(str(open_ws / denied),))
    spec = SandboxSpec(filesystem=filesystem, allow_degraded=SHARED)
    paths = [str(open_ws / name) for name in ("secret", "second", "denied/secret", "third", "plain", "plain.too")]
    async with backend.open(spec) as box:
        inside = await READ.inside(box, paths=paths)
        state = box.enforcement.states[Control.FS_DENY_INSIDE_ALLOW]
    refused = set(paths[:2] if denied == "secret" else paths[2:4])
    assert {path for path, answer in inside.items() if answer == "EACCES"} == refused
    assert (state.grade, "other names" in state.reason) == (Grade.PARTIAL, True)
    assert set(READ.outside(paths=paths).values()) == {"done"}


async def test_two_names_in_a_denied_directory_are_both_denied(backend: LandlockBackend, open_ws: Path) -> None:
    (open_ws / "denied").mkdir()
    (open_ws / "denied/one").write_text("content")
    os.link(open_ws / "denied/one", open_ws / "denied/two")
    filesystem = FilesystemPolicy(read=(str(open_ws),), deny=(str(open_ws / "denied"),))
    paths = [str(open_ws / "denied/one"), str(open_ws / "denied/two")]
    async with backend.open(SandboxSpec(filesystem=filesystem, allow_degraded=SHARED)) as box:
        assert set((await READ.inside(box, paths=paths)).values()) == {"EACCES"}
        assert box.enforcement.grade(Control.FS_DENY_INSIDE_ALLOW) is Grade.ENFORCED
    assert set(READ.outside(paths=paths).values()) == {"done"}


@pytest.mark.skipif(not IS_ROOT, reason="not applicable: only root can mount")
async def test_a_denied_directory_is_not_granted_by_another_mount(backend: LandlockBackend, open_ws: Path) -> None:
    for name in ("denied", "again"):
        (open_ws / name).mkdir()
    (open_ws / "denied/secret").write_text("content")
    filesystem = FilesystemPolicy(read=(str(open_ws),), deny=(str(open_ws / "denied"),))
    paths = [str(open_ws / name / "secret") for name in ("denied", "again")]
    subprocess.run(["mount", "--bind", open_ws / "denied", open_ws / "again"], check=True)
    try:
        async with backend.open(SandboxSpec(filesystem=filesystem, allow_degraded=SHARED)) as box:
            inside = await READ.inside(box, paths=paths)
            assert "by another mount" in box.enforcement.reason(Control.FS_DENY_INSIDE_ALLOW)
        assert set(inside.values()) == {"EACCES"}
        assert set(READ.outside(paths=paths).values()) == {"done"}
    finally:
        subprocess.run(["umount", open_ws / "again"], check=True)
