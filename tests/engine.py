"""
Container engines of one's own, without systemd, network or registry.

`python tests/engine.py [--with=docker,podman] [--as=USER] COMMAND...` starts them, runs the
command with their addresses in DOCKER_HOST and CONTAINER_HOST, stops everything, and fails
where anything was left. With `--as`, that user may open Docker's socket, and Podman is
rootless and that user's. Needs root, and Debian's docker.io and podman.
"""

from __future__ import annotations

import argparse
import contextlib
import grp
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["VARIABLES", "Engine", "engine", "why_not"]

Kind = Literal["docker", "podman"]

START_S = 30.0
STOP_S = {"docker": 20.0, "podman": 1.0}
"""Podman waits for streams that nobody reads any more, and has nothing to lose."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = {"docker": ("dockerd", "containerd", "runc", "unshare"), "podman": ("podman", "conmon", "runc", "unshare")}
VARIABLES: dict[Kind, str] = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}
WITHOUT_NETWORK = ("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
RUNSC = """#!/bin/sh
exec {runsc} --platform=ptrace --network=none --ignore-cgroups "$@"
"""
"""gVisor without /dev/kvm, and where nobody has set a bridge up for it."""
PODMAN_CONF = """
[containers]
# Those of the distribution may be more than this root may have.
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
[network]
network_config_dir = "{root}/networks"
"""
PODMAN_REGISTRIES = """
# A registry of a test's own on loopback; Docker needs no word for those.
[[registry]]
location = "127.0.0.1"
insecure = true
"""
MARK = "SANDBOXKIT_TEST_ENGINE"
"""In the environment of all that an engine starts for itself: where it lies."""
PODMAN_GROUP = "libpod_parent"


@dataclass(frozen=True)
class Engine:
    """
    A running engine.

    Attributes:
        kind: `docker` or `podman`.
        host: Its address.
        daemon: Its process.
        root: Where all of it lies.
    """

    kind: Kind
    host: str
    daemon: subprocess.Popen[bytes]
    root: Path

    @property
    def pid(self) -> int:
        """
        The daemon's pid.
        """
        return self.daemon.pid

    def call(self, method: str, path: str) -> Any:
        """
        What its interface answers to *method* of *path*.
        """
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(10)
            stream.connect(self.host.removeprefix("unix://"))
            connection = http.client.HTTPConnection("localhost", timeout=10)
            connection.sock = stream
            connection.request(method, path, headers={"Connection": "close"})
            with connection.getresponse() as answer:
                return json.loads(answer.read() or b"null")

    def get(self, path: str) -> Any:
        """
        What its interface answers to GET *path*.
        """
        return self.call("GET", path)

    def processes(self) -> list[int]:
        """
        Everything that runs for it: the daemon, containerd, and what watches containers.
        """
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._is_of(entry)]

    def _is_of(self, process: Path) -> bool:
        if process.name == str(os.getpid()):
            return False
        with contextlib.suppress(OSError):
            if str(self.root).encode() in (process / "cmdline").read_bytes():
                return True
            return f"{MARK}={self.root}".encode() in (process / "environ").read_bytes().split(b"\0")
        return False


def why_not(kind: Kind = "docker") -> str:
    """
    What keeps an engine of *kind* from being started here; empty where nothing does.
    """
    if os.geteuid():
        return "only root can start an engine"
    missing = [name for name in PROGRAMS[kind] if shutil.which(name, path=PATH) is None]
    package = {"docker": "docker.io", "podman": "podman"}[kind]
    return f"not installed: {', '.join(missing)} (Debian's {package})" if missing else ""


@contextlib.contextmanager
def engine(
    kind: Kind = "docker", *, user: str = "root", data: Path | None = None, options: Sequence[str] = ()
) -> Iterator[Engine]:
    """
    An engine, and nothing of it afterwards.

    Args:
        kind: `docker` or `podman`.
        user: Who may use its socket; Podman runs as that user.
        data: Where it keeps images and containers; None is a directory that is removed.
        options: More of dockerd's own, for example a second address.

    Raises:
        RuntimeError: It does not come up; the message holds the end of its log.
    """
    with tempfile.TemporaryDirectory(prefix="sk-engine-", ignore_cleanup_errors=True) as directory:
        root = Path(directory).resolve()
        root.chmod(0o711)
        found = _started(kind, root, user, data or root / "data", options)
        try:
            yield found
        finally:
            _stop(found)


def _dockerd(root: Path, user: str, data: Path) -> list[str]:
    group = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    words = ["dockerd", "--data-root", data, "--exec-root", root / "exec", "--pidfile", root / "pid", "-G", group]
    if runsc := shutil.which("runsc", path=PATH):
        wrapper = root / "runsc"
        wrapper.write_text(RUNSC.format(runsc=runsc))
        wrapper.chmod(0o755)
        words += ["--add-runtime", f"runsc={wrapper}"]
    return [*map(str, words), "-H", f"unix://{root}/docker.sock", *WITHOUT_NETWORK]


def _podman(root: Path, user: str, data: Path) -> list[str]:
    (root / "containers.conf").write_text(PODMAN_CONF.format(root=root))
    (root / "registries.conf").write_text(PODMAN_REGISTRIES)
    words: list[object] = ["podman", "--root", data, "--runroot", root / "run", "--storage-driver", "overlay"]
    if user == "root":
        words += ["--tmpdir", root / "tmp"]
    else:
        os.chown(root, pwd.getpwnam(user).pw_uid, -1)
        words = ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups", "--", *words]
    return [*map(str, words), "system", "service", "--time=0", f"unix://{root}/docker.sock"]


def _environment(root: Path) -> dict[str, str]:
    """
    Podman keeps in these places what it has no option for.
    """
    places = {name: str(root) for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR", MARK)}
    files = {"CONTAINERS_CONF": f"{root}/containers.conf", "CONTAINERS_REGISTRIES_CONF": f"{root}/registries.conf"}
    return {"PATH": PATH, **files, **places}


def _started(kind: Kind, root: Path, user: str, data: Path, options: Sequence[str]) -> Engine:
    words = (_dockerd if kind == "docker" else _podman)(root, user, data)
    # Its mounts are its own business: what tests find on the host must not change with them.
    private = ["unshare", "--mount", "--propagation", "private"]
    with (root / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [*private, *words, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=_environment(root),
            cwd=root,
        )
    found = Engine(kind, f"unix://{root}/docker.sock", daemon, root)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and daemon.poll() is None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            found.get("/version")
            return found
        time.sleep(0.1)
    said = (root / "log").read_text(errors="replace")[-3000:]
    _stop(found)
    raise RuntimeError(f"{kind} did not come up:\n{said}")


def _stop(found: Engine) -> None:
    if found.kind == "podman" and found.daemon.poll() is None:
        _remove_containers(found)  # they outlive the service
    found.daemon.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        found.daemon.wait(STOP_S[found.kind])
    deadline = time.monotonic() + 2
    while found.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in found.processes():  # what watches containers outlives a daemon that was killed
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    found.daemon.wait()
    for name in (f"{PODMAN_GROUP}/conmon", PODMAN_GROUP):
        for group in Path("/sys/fs/cgroup").glob(f"*/{name}"):
            with contextlib.suppress(OSError):  # another engine uses it
                group.rmdir()


def _remove_containers(found: Engine) -> None:
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        for row in found.get("/containers/json?all=1"):
            found.call("DELETE", f"/containers/{row['Id']}?force=1")


def left(found: Engine) -> list[str]:
    """
    What is on the engine besides images of this library and of its tests.
    """
    containers = [row["Names"][0] for row in found.get("/containers/json?all=1")]
    images = [tag for row in found.get("/images/json") for tag in row["RepoTags"] or [row["Id"]]]
    networks = [row["Name"] for row in found.get("/networks")]
    return [
        *(f"container {name}" for name in containers),
        *(f"image {tag}" for tag in images if not _is_own(tag)),
        *(f"network {name}" for name in networks if name not in ("none", "host", "podman", "bridge")),
        *(f"volume {row['Name']}" for row in found.get("/volumes")["Volumes"] or ()),
    ]


def _is_own(tag: str) -> bool:
    return tag.rpartition("/")[2].startswith("sandboxkit-host:")


def mounts(found: Engine) -> list[str]:
    """
    What is mounted below it on the host.
    """
    return [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if str(found.root) in line]


def main(words: Sequence[str]) -> int:
    """
    Runs the command of *words* with engines; its exit code, or 1 where something was left.
    """
    parser = argparse.ArgumentParser(description="Runs a command with container engines of its own.")
    parser.add_argument("--with", dest="kinds", default="docker", type=lambda text: text.split(","))
    parser.add_argument("--as", dest="user", default="root")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    if reasons := [reason for kind in asked.kinds if (reason := why_not(kind))]:
        print(f"no engine: {'; '.join(reasons)}", file=sys.stderr)
        return 1
    with contextlib.ExitStack() as stack:
        engines = [stack.enter_context(engine(kind, user=asked.user)) for kind in asked.kinds]
        hosts = {VARIABLES[found.kind]: found.host for found in engines}
        code = subprocess.run(asked.command, env={**os.environ, **hosts}, check=False).returncode
        remains = [f"{found.kind}: {what}" for found in engines for what in left(found)]
    remains += [f"{found.kind}: process {pid}" for found in engines for pid in found.processes()]
    remains += [f"{found.kind}: mount {path}" for found in engines for path in mounts(found)]
    remains += [f"{found.kind}: {found.root}" for found in engines if found.root.exists()]
    for what in remains:
        print(f"left behind: {what}", file=sys.stderr)
    return code or bool(remains)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
