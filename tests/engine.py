"""
A container engine of one's own, without systemd, network or registry.

`python tests/engine.py COMMAND...` starts one, runs the command with its address in
DOCKER_HOST, stops everything, and fails where anything was left. Needs root, and Debian's
docker.io.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Engine", "engine", "why_not"]

START_S = 30.0
STOP_S = 20.0
PROGRAMS = ("dockerd", "containerd", "runc", "unshare")
WITHOUT_NETWORK = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")


@dataclass(frozen=True)
class Engine:
    """
    A running engine.

    Attributes:
        host: Its address.
        daemon: Its process.
        root: Where all of it lies.
    """

    host: str
    daemon: subprocess.Popen[bytes]
    root: Path

    @property
    def pid(self) -> int:
        """
        The daemon's pid.
        """
        return self.daemon.pid

    def get(self, path: str) -> Any:
        """
        What its interface answers to GET *path*.
        """
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(10)
            stream.connect(self.host.removeprefix("unix://"))
            connection = http.client.HTTPConnection("localhost", timeout=10)
            connection.sock = stream
            connection.request("GET", path, headers={"Connection": "close"})
            with connection.getresponse() as answer:
                return json.loads(answer.read() or b"null")

    def processes(self) -> list[int]:
        """
        Everything that runs for it: the daemon, containerd, and the shims of containers.
        """
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str(self.root).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return [pid for pid in found if pid != os.getpid()]


def why_not() -> str:
    """
    What keeps an engine from being started here; empty where nothing does.
    """
    if os.geteuid():
        return "only root can start an engine"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)} (Debian's docker.io)" if missing else ""


@contextlib.contextmanager
def engine(*, group: str = "root", data: Path | None = None, options: Sequence[str] = ()) -> Iterator[Engine]:
    """
    An engine, and nothing of it afterwards.

    Args:
        group: Whose members may use its socket.
        data: Where it keeps images and containers; None is a directory that is removed.
        options: More of dockerd's own, for example a second address.

    Raises:
        RuntimeError: It does not come up; the message holds the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="sk-engine-") as directory:
        root = Path(directory).resolve()
        root.chmod(0o711)
        found = _started(root, group, data or root / "data", options)
        try:
            yield found
        finally:
            _stop(found)


def _started(root: Path, group: str, data: Path, options: Sequence[str]) -> Engine:
    words = ["dockerd", "--data-root", data, "--exec-root", root / "exec", "--pidfile", root / "pid", "-G", group]
    # Its mounts are its own business: what tests find on the host must not change with them.
    private = ["unshare", "--mount", "--propagation", "private"]
    with (root / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [*private, *map(str, words), "-H", f"unix://{root}/docker.sock", *WITHOUT_NETWORK, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    found = Engine(f"unix://{root}/docker.sock", daemon, root)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and daemon.poll() is None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            found.get("/version")
            return found
        time.sleep(0.1)
    _stop(found)
    raise RuntimeError(f"dockerd did not come up:\n{(root / 'log').read_text(errors='replace')[-3000:]}")


def _stop(found: Engine) -> None:
    found.daemon.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        found.daemon.wait(STOP_S)
    deadline = time.monotonic() + 2
    while found.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in found.processes():  # shims outlive a daemon that was killed
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    found.daemon.wait(STOP_S)


def left(found: Engine) -> list[str]:
    """
    What is on the engine besides images of this library and of its tests.
    """
    containers = [row["Names"][0] for row in found.get("/containers/json?all=1")]
    images = [tag for row in found.get("/images/json") for tag in row["RepoTags"] or [row["Id"]]]
    networks = [row["Name"] for row in found.get("/networks")]
    return [
        *(f"container {name}" for name in containers),
        *(f"image {tag}" for tag in images if not tag.startswith(("sandboxkit-host:", "sandboxkit-test"))),
        *(f"network {name}" for name in networks if name not in ("none", "host")),
        *(f"volume {row['Name']}" for row in found.get("/volumes")["Volumes"] or ()),
    ]


def main(words: list[str]) -> int:
    """
    Runs *words* with an engine; its exit code, or 1 where something was left.
    """
    if reason := why_not():
        print(f"no engine: {reason}", file=sys.stderr)
        return 1
    with engine(group=os.environ.get("SANDBOXKIT_ENGINE_GROUP", "root")) as found:
        code = subprocess.run(words, env={**os.environ, "DOCKER_HOST": found.host}, check=False).returncode
        remains = left(found)
    remains += [f"process {pid}" for pid in found.processes()]
    for what in remains:
        print(f"left behind: {what}", file=sys.stderr)
    return code or bool(remains)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
