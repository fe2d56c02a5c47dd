"""
The backend `landlock` in a container that was started with no option about security: the
engine's own profile forbids new namespaces there.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from tests.backends.docker.conftest import _archive
from tests.backends.landlock.test_without_namespaces import PROGRAM, check

from sandboxkit.testing.conformance._acts import importable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SYSTEM = ("bin", "sbin", "lib", "lib64")
OUTSIDE = "import pathlib; pathlib.Path(__import__('sys').argv[1], '..', 'outside').write_text('x')"


@pytest.fixture(scope="module")
def host_image(make_image: Callable[..., str]) -> str:
    """
    An image to mount the host's system into.
    """
    links = {f"/{name}": f"usr/{name}" for name in SYSTEM if os.path.islink(f"/{name}")}
    return make_image(f"sandboxkit-test-host-{os.getpid()}", _archive({}, links))


def in_container(image: str, program: str, ws: Path) -> str:
    """
    What *program* prints in a default container with the host's system and *ws*.
    """
    import docker

    shown = {"/usr", "/etc", sys.prefix, sys.base_prefix, *importable()["PYTHONPATH"].split(":")}
    volumes = {path: {"bind": path, "mode": "ro"} for path in shown if os.path.isdir(path)}
    volumes[str(ws.parent)] = {"bind": str(ws.parent), "mode": "rw"}
    client = docker.from_env()
    try:
        said: bytes = client.containers.run(
            image,
            [sys.executable, "-c", program, str(ws)],
            environment={**importable(), "HOME": "/tmp", "PATH": "/usr/bin:/bin"},
            network_mode="none",
            volumes=volumes,
            remove=True,
        )
    finally:
        client.close()
    return said.decode()


@pytest.mark.parametrize("kind", ["docker"], indirect=True, scope="session")
@pytest.mark.skipif(not os.path.islink("/bin"), reason="not applicable: the host's /bin is no part of /usr")
def test_its_boxes_hold_in_a_default_container(backend: object, host_image: str, ws: Path) -> None:
    in_container(host_image, OUTSIDE, ws)
    outside = ws.parent / "outside"
    assert outside.read_text() == "x", "what is refused in the box can be done beside it"
    outside.unlink()
    answers = json.loads(in_container(host_image, PROGRAM, ws))
    check(answers, "a root caller may not make a mount namespace here", ws)
