"""
What a command in a container costs, next to `docker run`, llm-sandbox and bare bwrap.

    python tests/engine.py python benchmarks/containers.py [--quick] [--json] [--check]

Three questions: a program of its own that runs one command (`program`), an application that
lives and takes a new container for each (`box`), and one that keeps a container
(`session`). All candidates show the same files of the host, have no network, no
capabilities, the same limits and a read-only root. llm-sandbox (PyPI) is compared where it
is installed. Each round runs every candidate once, in an order that turns. Nothing fails on
timing unless `--check` is given: a box may then take no longer than `docker run`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from anyio.from_thread import start_blocking_portal

from sandboxkit.backends.docker import DockerBackend
from sandboxkit.model import Control, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import Callable

TRUE = "/bin/true"
MEMORY, PROCESSES = "4g", "513"
BWRAP = "bwrap --unshare-all --die-with-parent --new-session --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp"
OURS = """
import sys, anyio
from sandboxkit.backends.docker import DockerBackend
from sandboxkit.model import Control, SandboxSpec
spec = SandboxSpec.workspace_write(sys.argv[1], allow_degraded=[Control(name) for name in sys.argv[2:]])
anyio.run(lambda: DockerBackend().execute(["/bin/true"], spec=spec)).check()
"""
THEIRS = """
import json, sys
from llm_sandbox.docker import SandboxDockerSession
with SandboxDockerSession(image=sys.argv[1], runtime_configs=json.loads(sys.argv[2]), **json.loads(sys.argv[3])) as box:
    assert box.execute_command("/bin/true").exit_code == 0
"""
THEIR_OPTIONS = {"skip_environment_setup": True, "keep_template": True, "workdir": "/tmp"}


@dataclass(frozen=True)
class Row:
    """
    One candidate's times in milliseconds, and p50 over that of `docker run`, or `docker exec`.
    """

    kind: str
    name: str
    p50_ms: float
    p95_ms: float
    ratio: float


def in_turn(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """
    Milliseconds of every candidate in every round, but the first.
    """
    names = list(candidates)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            started = time.perf_counter()
            candidates[name]()
            if number >= 0:  # the round before warms the caches
                times[name].append((time.perf_counter() - started) * 1000)
    return times


def rows(kind: str, candidates: dict[str, Callable[[], object]], rounds: int) -> list[Row]:
    """
    The candidates of one question, each compared with the first.
    """
    times = in_turn(candidates, rounds)
    base = statistics.median(next(iter(times.values())))
    return [
        Row(kind, name, p50 := statistics.median(values), sorted(values)[int(len(values) * 0.95)], p50 / base)
        for name, values in times.items()
    ]


def run(*words: str) -> str:
    return subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout.strip()


def shown(workspace: str) -> dict[str, str]:
    """
    What a container shows of the host: (path, ro or rw).
    """
    system = [path for path in ("/usr", "/etc", "/bin", "/lib", "/lib64") if os.path.isdir(path)]
    return {**dict.fromkeys((path for path in system if not os.path.islink(path)), "ro"), workspace: "rw"}


def docker_words(workspace: str) -> list[str]:
    """
    The options of `docker` that come nearest to a box of ours.
    """
    words = f"--network none --read-only --cap-drop ALL --security-opt no-new-privileges --log-driver none --memory {MEMORY}"
    words += f" --memory-swap {MEMORY} --pids-limit {PROCESSES} --user {os.getuid()}:{os.getgid()} --tmpfs /tmp"
    return words.split() + [word for path, how in shown(workspace).items() for word in ("-v", f"{path}:{path}:{how}")]


def their_settings(workspace: str) -> dict[str, Any]:
    """
    The same for llm-sandbox, which hands it to the SDK.
    """
    return {
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "mem_limit": MEMORY,
        "memswap_limit": MEMORY,
        "pids_limit": int(PROCESSES),
        "user": f"{os.getuid()}:{os.getgid()}",
        "tmpfs": {"/tmp": ""},
        "volumes": {path: {"bind": path, "mode": how} for path, how in shown(workspace).items()},
        "command": "sleep infinity",
        "stop_signal": "SIGKILL",  # its end would wait ten seconds for a first process that heeds no other
    }


def benchmark(workspace: str, rounds: int) -> list[Row]:
    """
    All rows.
    """
    degraded = [Control.PROCESS_ISOLATION] if os.geteuid() == 0 else []
    spec = SandboxSpec.workspace_write(workspace, allow_degraded=degraded)
    backend = DockerBackend()
    with ExitStack() as ends:
        portal = ends.enter_context(start_blocking_portal())

        async def boxed() -> None:
            (await backend.execute([TRUE], spec=spec)).check()

        portal.call(boxed)  # makes the image the others use too
        image = run("docker", "images", "-q", "sandboxkit-host").splitlines()[0]
        one = ["docker", "run", "--rm", *docker_words(workspace), image, TRUE]
        python = [sys.executable, "-c"]
        programs: dict[str, Callable[[], object]] = {
            "docker run": lambda: run(*one),
            "sandboxkit": lambda: run(*python, OURS, workspace, *map(str, degraded)),
            "bare bwrap": lambda: run(*BWRAP.split(), TRUE),
        }
        boxes: dict[str, Callable[[], object]] = {
            "docker run": lambda: run(*one),
            "sandboxkit": lambda: portal.call(boxed),
            "bare bwrap": lambda: run(*BWRAP.split(), TRUE),
        }
        kept = run("docker", "run", "--rm", "-d", *docker_words(workspace), image, "sleep", "infinity")
        ends.callback(run, "docker", "rm", "-f", kept)
        box = ends.enter_context(portal.wrap_async_context_manager(backend.open(spec)))
        sessions: dict[str, Callable[[], object]] = {
            "docker exec": lambda: run("docker", "exec", kept, TRUE),
            "sandboxkit": lambda: portal.call(box.run, [TRUE]).check(),
        }
        if importlib.util.find_spec("llm_sandbox"):
            theirs = (image, json.dumps(their_settings(workspace)), json.dumps(THEIR_OPTIONS))
            programs["llm-sandbox"] = lambda: run(*python, THEIRS, *theirs)
            with_llm_sandbox(ends, image, workspace, boxes, sessions)
        return [
            *rows("program", programs, max(3, rounds // 5)),
            *rows("box", boxes, rounds),
            *rows("session", sessions, rounds * 5),
        ]


def with_llm_sandbox(
    ends: ExitStack,
    image: str,
    workspace: str,
    boxes: dict[str, Callable[[], object]],
    sessions: dict[str, Callable[[], object]],
) -> None:
    """
    Adds llm-sandbox to the candidates.
    """
    theirs = importlib.import_module("llm_sandbox.docker")

    def made() -> Any:
        return theirs.SandboxDockerSession(image=image, runtime_configs=their_settings(workspace), **THEIR_OPTIONS)

    def one() -> None:
        with made() as session:
            session.execute_command(TRUE)

    open_session = ends.enter_context(made())
    boxes["llm-sandbox"] = one
    sessions["llm-sandbox"] = lambda: open_session.execute_command(TRUE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="end with 1 where a box takes longer than docker run")
    options = parser.parse_args()
    rounds = 5 if options.quick else 30
    with tempfile.TemporaryDirectory() as workspace:
        found = benchmark(os.path.realpath(workspace), rounds)
    if options.json:
        print(json.dumps({"rounds": rounds, "rows": [asdict(row) for row in found]}, indent=2))
    else:
        print(f"{TRUE}, {rounds} rounds, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n")
        print(f"{'':10}{'':16}{'p50 ms':>10}{'p95 ms':>10}{'ratio':>8}")
        for row in found:
            print(f"{row.kind:10}{row.name:16}{row.p50_ms:10.1f}{row.p95_ms:10.1f}{row.ratio:8.2f}")
    ours = next(row for row in found if (row.kind, row.name) == ("box", "sandboxkit"))
    return int(options.check and ours.ratio > 1)


if __name__ == "__main__":
    raise SystemExit(main())
