"""
Sockets of services that make whoever reaches them root are denied also in a directory that a
spec names: a connection takes no network, and no right to write.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._layouts import layouts
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.model import SandboxSpec
from sandboxkit.testing.conformance._acts import importable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.requires("bubblewrap"), pytest.mark.timeout(120)]

SOCKETS = ("/run/docker.sock", "/run/podman/podman.sock", "/run/dbus/system_bus_socket")
OF_A_USER = "/run/user/1000/podman/podman.sock"
NAMED = "/run/user/1000/named/x.sock"
OTHER = "/run/other.sock"
CONNECT = """
import json, socket, sys
found = {}
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as end:
        try:
            end.connect(path)
            found[path] = "connected"
        except OSError as error:
            found[path] = error.strerror
print(json.dumps(found))
"""
PROGRAM = f"""
import contextlib, json, os, socket, subprocess, sys
import anyio
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.model import FilesystemPolicy, SandboxSpec

paths, code = sys.argv[2:], {CONNECT!r}
ends = contextlib.ExitStack()
for path in paths:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    server = ends.enter_context(socket.socket(socket.AF_UNIX))
    server.bind(path)
    os.chmod(path, 0o666)
    server.listen()

async def main():
    specs = [
        SandboxSpec(filesystem=FilesystemPolicy(base="system", read=("/run",))),
        SandboxSpec(filesystem=FilesystemPolicy(base="system", read=("/run", {NAMED!r}[:-7]))),
        SandboxSpec.workspace_write(sys.argv[1]),
    ]
    found = [json.loads(subprocess.check_output([sys.executable, "-c", code, *paths]))]
    for spec in specs:
        async with BubblewrapBackend().open(spec) as box:
            result = await box.run(["/usr/bin/python3", "-c", code, *paths])
            found.append(json.loads(result.check().stdout))
            found.append((await box.run(["ls", "-A", "/run"])).text().split())
    print(json.dumps(found))

anyio.run(main)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="not applicable: only root can mount a /run of its own")
def test_an_engines_socket_is_not_reached_in_a_directory_that_is_shown(tmp_path: Path) -> None:
    assert set(SOCKETS) < set(layouts().denied_services)
    if not os.access("/usr/bin/python3", os.X_OK) or shutil.which("unshare") is None:
        pytest.skip("not applicable: there is no /usr/bin/python3 or no unshare(1)")
    private = 'mount -t tmpfs tmpfs /run && exec "$@"'
    words = [sys.executable, "-c", PROGRAM, str(tmp_path), *SOCKETS, OF_A_USER, NAMED, OTHER]
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", private, "sh", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=importable())
    assert done.returncode == 0, done.stderr
    outside, shown, _, named, _, hidden, listed = json.loads(done.stdout)
    assert set(outside.values()) == {"connected"}
    denied = dict.fromkeys((*SOCKETS, OF_A_USER), "Permission denied")
    assert shown == {**denied, NAMED: "Permission denied", OTHER: "connected"}
    assert named == {**denied, OF_A_USER: "No such file or directory", NAMED: "connected", OTHER: "connected"}
    assert set(hidden.values()) == {"No such file or directory"}
    assert listed == [], "a /run of the box's own has nothing to be held"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SSH_AUTH_SOCK", "{}"),
        ("TMUX", "{},4242,0"),
        ("DOCKER_HOST", "unix://{}"),
        ("DBUS_SESSION_BUS_ADDRESS", "tcp:host=x;unix:path={},guid=0"),
        ("XDG_RUNTIME_DIR", "{}/.."),
    ],
)
@pytest.mark.anyio
async def test_a_socket_that_the_environment_names_is_not_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    place = tmp_path.resolve() / "a"
    place.mkdir()
    path = str(place / "s")
    tmp_path.chmod(0o755)
    named = os.path.normpath(value.format(path)) if value.endswith("..") else value.format(path)
    spec = SandboxSpec.workspace_write(tmp_path)
    words = ["/usr/bin/python3", "-c", CONNECT, path]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen()
        assert json.loads(subprocess.check_output(words)) == {path: "connected"}
        monkeypatch.delenv(variable, raising=False)
        async with BubblewrapBackend().open(spec) as box:
            assert json.loads((await box.run(words)).check().stdout) == {path: "connected"}
        monkeypatch.setenv(variable, named)
        async with BubblewrapBackend().open(spec) as box:
            assert json.loads((await box.run(words)).check().stdout) == {path: "Permission denied"}
