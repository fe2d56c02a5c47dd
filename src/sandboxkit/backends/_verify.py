"""
The shared attack: whether a box holds what its backend claims.

Finding a program on the machine proves nothing, and neither does a claim. So each
backend, a third party's too, is made to open one box, and what must be impossible is
tried in it. Where claim and attack disagree, the attack is believed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from sandboxkit.backends._temporary import temporary_directory
from sandboxkit.backends._verification import VERIFIED, Finding, Verification
from sandboxkit.errors import BackendError, BrokerError, ProgramNotExecutableError, ProgramNotFoundError, SandboxError
from sandboxkit.model import Control, FilesystemPolicy, Grade, Limits, NetworkPolicy, SandboxSpec, is_inside

if sys.platform != "win32":
    import pwd

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from sandboxkit.backends._contract import SandboxBackend
    from sandboxkit.model import ExecResult

__all__ = ["attack", "attack_listed"]

_SCRIPT = Path(__file__).with_name("attack.sh")
_LISTED_SCRIPT = Path(__file__).with_name("attack_listed.sh")
_WALL_SECONDS = 10.0
_PATIENCE = 20.0
_GRACE = 0.5
"""How long, in seconds, what is left of a box may take to be gone after its end."""
_LOOK = """
read -r pid <left || exit
stat -L -c 'pidns=%i' /proc/self/ns/pid
turns=0
while kill -0 "$pid" && [ "$turns" -lt 20 ]; do sleep 0.05; turns=$((turns + 1)); done
kill -0 "$pid" && echo left=alive || echo left=gone
"""
"""What a second command looks with, in a box whose directory is a copy."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/etc", "/opt", "/lib", "/lib64")
_LOOPBACK = "127.0.0.1"
_OWN = frozenset({"HOSTNAME", "LOGNAME", "OLDPWD", "PWD", "SHELL", "SHLVL", "USER", "_"})
"""Variables that shells and containers set themselves, perhaps to what the host has."""

_HAS_NAMESPACES = sys.platform == "linux"
"""Where there are none, a process id in a box is the host's."""


async def attack(backend: SandboxBackend) -> Verification:
    """
    Attacks one box of *backend*. Leaves nothing on the host, and removes what an attack of
    this user that was killed left there.
    """
    started = time.monotonic()
    try:
        with anyio.fail_after(_PATIENCE), _stage() as stage:
            findings = await _findings(backend, stage)
    except (ProgramNotFoundError, ProgramNotExecutableError) as exc:
        findings = tuple(Finding(control, Grade.PARTIAL, f"could not be verified: {exc}") for control in VERIFIED)
    except TimeoutError:
        return Verification(failure=f"it did not end within {_PATIENCE:g} s")
    except SandboxError as exc:
        return Verification(failure=str(exc))
    except Exception as exc:  # noqa: BLE001 - a backend may be anybody's code; whatever it raises, it did not hold
        return Verification(failure=f"the backend raised {type(exc).__name__}: {exc}")
    return Verification(findings, duration_s=time.monotonic() - started)


async def attack_listed(backend: SandboxBackend) -> Verification:
    """
    Attacks one box of *backend* that may reach one server of this machine and no other.
    Whatever goes wrong lowers `net.allowlist` and nothing else.
    """
    started = time.monotonic()
    try:
        with anyio.fail_after(_PATIENCE):
            found = await _listed(backend)
    except TimeoutError:
        found = Finding(Control.NET_ALLOWLIST, Grade.ABSENT, f"the attack did not end within {_PATIENCE:g} s")
    except Exception as exc:  # noqa: BLE001 - a backend may be anybody's code; whatever it raises, it did not hold
        found = Finding(Control.NET_ALLOWLIST, Grade.ABSENT, f"the attack could not be carried out: {exc}")
    return Verification((found,), duration_s=time.monotonic() - started)


async def _listed(backend: SandboxBackend) -> Finding:
    control = Control.NET_ALLOWLIST
    async with _listener() as unlisted, _listener() as listed:
        if unlisted is None or listed is None:
            return _unverified(control, "this process can make no server on loopback")
        network = NetworkPolicy(allow_hosts=(f"{_LOOPBACK}:{listed.port}",), permit_networks=(f"{_LOOPBACK}/32",))
        spec = SandboxSpec(
            filesystem=FilesystemPolicy(base="system"), network=network, limits=Limits(wall=_WALL_SECONDS)
        )
        found = await backend.detect(spec)
        claim = backend.enforcement(spec, found.facts)
        short = frozenset(c for c, needed in spec.requirements().items() if claim.grade(c) < needed)
        argv = ["/bin/sh", "-c", _LISTED_SCRIPT.read_text(), "sh", str(unlisted.port), str(listed.port)]
        async with backend.open(spec.model_copy(update={"allow_degraded": short})) as box:
            result = await box.run(argv, timeout=_WALL_SECONDS)
        seen = _Seen.of(result, spec)
        if unlisted.was_reached():
            return _broken(control, "reached a server that is not listed")
        return _allowlist(seen, reached=listed.was_reached())


def _allowlist(seen: _Seen, *, reached: bool) -> Finding:
    control = Control.NET_ALLOWLIST
    if routes := sorted(set(seen.values.get("route", ()))):
        return _broken(control, f"found a route out of the box by {', '.join(routes)}")
    if seen.has("tool", "missing"):
        return _unverified(control, "the box has no program that connects")
    let = [line for line in seen.values.get("refused", ()) if line.startswith("HTTP/1.1 2")]
    if let or seen.has("direct", "made"):
        return _broken(control, "was let through where nothing is listed, or past the proxy")
    if any(line.startswith("HTTP/1.1 2") for line in seen.values.get("untold", ())):
        return _broken(control, "was let through without the token")
    if not reached:
        return _unverified(control, "the listed server was not reached, so that the others are not proves nothing")
    return _believed(control, "only the listed server was reached, and only through the proxy")


@dataclass(frozen=True, slots=True)
class _Stage:
    """
    The attack's own files on the host.

    Attributes:
        root: A private directory.
        canary: What the forbidden file holds.
        work: Where the box may write; None where no directory of this machine can be shown.
        pipe: The reading end of the pipe a leftover process would hold open; None likewise.
    """

    root: str
    canary: str
    work: str | None
    pipe: int | None

    @property
    def outside(self) -> str:
        return f"{self.root}/outside"


@contextlib.contextmanager
def _stage() -> Iterator[_Stage]:
    with temporary_directory("sandboxkit-verify-") as root:
        if any(is_inside(root, folder) for folder in _SYSTEM):
            # Where nothing else can be written, tempfile takes the working directory.
            raise BackendError(f"No usable temporary directory: every box may read {root}")
        os.mkdir(f"{root}/outside", 0o700)
        canary = os.urandom(16).hex()
        Path(root, "outside", "canary").write_text(canary + "\n")
        if sys.platform == "win32":
            yield _Stage(root, canary, None, None)
            return
        work = f"{root}/work"
        os.mkdir(work, 0o700)
        for name in ("pipe", "gate"):
            os.mkfifo(f"{work}/{name}", 0o600)
        pipe = os.open(f"{work}/pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        gate = os.open(f"{work}/gate", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield _Stage(root, canary, work, pipe)
        finally:
            os.close(pipe)
            os.close(gate)


async def _findings(backend: SandboxBackend, stage: _Stage) -> tuple[Finding, ...]:
    spec = await _spec(backend, stage)
    async with _listener() as listener:
        seen, looked = await _carried_out(backend, spec, stage, listener.port if listener else 0)
        reached = bool(listener and listener.was_reached())
    is_alive = await _is_alive(stage.pipe) if looked is None else _is_alive_inside(seen, looked)
    judges: tuple[Callable[[], Finding], ...] = (
        lambda: _read(seen, stage),
        lambda: _written(seen, stage),
        lambda: _network(seen, reached=reached),
        lambda: _isolation(seen),
        lambda: _kill_tree(seen, is_alive=is_alive),
        lambda: _nested(seen),
        lambda: _syscalls(seen),
        lambda: _environment(seen),
    )
    return tuple(judge() for judge in judges)


async def _spec(backend: SandboxBackend, stage: _Stage) -> SandboxSpec:
    """
    The strictest box the backend itself says it can make.
    """
    filesystem = FilesystemPolicy(base="system", write=(stage.work,) if stage.work else ())
    limits = Limits(wall=_WALL_SECONDS)
    strict = SandboxSpec(filesystem=filesystem, limits=limits)
    found = await backend.detect(strict)
    claim = backend.enforcement(strict, found.facts)
    short = frozenset(control for control, needed in strict.requirements().items() if claim.grade(control) < needed)
    return SandboxSpec(filesystem=filesystem, limits=limits, allow_degraded=short)


async def _carried_out(
    backend: SandboxBackend, spec: SandboxSpec, stage: _Stage, port: int
) -> tuple[_Seen, str | None]:
    """
    What the script saw, and in a box that shows a copy what a second command saw.
    """
    from sandboxkit.process import interpreter  # this module is also imported where there is no POSIX

    try:
        python = interpreter()
    except BrokerError:
        python = ""
    argv = ["/bin/sh", "-c", _SCRIPT.read_text(), "sh", stage.outside, str(port), str(os.getpid()), _home(), python]
    async with backend.open(spec) as box:
        seen = _Seen.of(await box.run(argv, cwd=stage.work, timeout=_WALL_SECONDS), spec)
        if "pidns" not in seen.values:
            return seen, None
        return seen, (await box.run(["/bin/sh", "-c", _LOOK], cwd=stage.work, timeout=_WALL_SECONDS)).text()


def _home() -> str:
    home = os.environ.get("HOME") or _account_home()
    real = os.path.realpath(home) if home.startswith("/") else "/"
    return "/nonexistent" if real == "/" or any(is_inside(real, folder) for folder in _SYSTEM) else real


def _account_home() -> str:
    if sys.platform == "win32":
        return "/"
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


@dataclass(frozen=True, slots=True)
class _Listener:
    port: int
    accept: Callable[[], object]

    def was_reached(self) -> bool:
        try:
            self.accept()
        except BlockingIOError:
            return False
        return True


@contextlib.asynccontextmanager
async def _listener() -> AsyncIterator[_Listener | None]:
    """
    A listener on the host's loopback; None where this process can make none itself.
    """
    try:
        made = await anyio.create_tcp_listener(local_host=_LOOPBACK, local_port=0)
    except OSError:
        yield None
        return
    async with made:
        raw = made.extra(anyio.abc.SocketAttribute.raw_socket)
        yield _Listener(made.extra(anyio.abc.SocketAttribute.local_port), lambda: raw.accept()[0].close())


async def _is_alive(pipe: int | None) -> bool | None:
    """
    Whether something of the box still holds *pipe*; None where nothing ever did.
    """
    if pipe is None:
        return None
    started, deadline = False, time.monotonic() + _GRACE
    while True:
        try:
            data = os.read(pipe, 64)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return True
            await anyio.sleep(0.002)
            continue
        if not data:
            return False if started else None
        started = True


def _is_alive_inside(seen: _Seen, looked: str) -> bool | None:
    """
    Whether a second command found what the first had left; None where it could not have.
    """
    lines = looked.splitlines()
    if f"pidns={seen.values['pidns'][0]}" not in lines:
        return None
    return "left=alive" in lines or (None if "left=gone" not in lines else False)


@dataclass(frozen=True, slots=True)
class _Seen:
    """
    What the script printed.

    Attributes:
        values: The values of each key, in order.
        leaked: Names of the application's variables that the box should not have.
    """

    values: Mapping[str, tuple[str, ...]]
    leaked: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, result: ExecResult, spec: SandboxSpec) -> _Seen:
        text = result.text()
        head, _, rest = text.partition("environ=begin\n")
        environ, _, tail = rest.partition("environ=end\n")
        values: dict[str, tuple[str, ...]] = {}
        for line in (head + tail).splitlines():
            key, _, value = line.partition("=")
            values[key] = (*values.get(key, ()), value)
        if "done" not in values:
            raise SandboxError(
                f"the attack's script {result.outcome} before its end: {result.text('stderr')[-300:].strip()}"
            )
        held = set(environ.splitlines())
        leaked = sorted(
            name
            for name, text in os.environ.items()
            if f"{name}={text}".splitlines()[0] in held and name not in _OWN and not spec.environment.inherits(name)
        )
        return cls(values, tuple(leaked))

    def has(self, key: str, value: str) -> bool:
        return value in self.values.get(key, ())

    def inode(self, path: str) -> str | None:
        """
        `device:inode` of *path* in the box.
        """
        for row in self.values.get("inode", ()):
            name, _, number = row.rpartition(" ")
            if name == path:
                return number
        return None

    def shares(self, path: str) -> bool | None:
        """
        Whether *path* in the box is the host's; None where it cannot be told. Of a kernel
        that the host does not have it is not.
        """
        inside, outside = self.inode(path), _inode(path)
        if inside and not outside and not _HAS_NAMESPACES and path.startswith("/proc/"):
            return False
        return inside == outside if inside and outside else None

    def status(self, key: str) -> str | None:
        rows = (row.partition(":") for row in self.values.get("status", ()))
        return next((value for name, _, value in rows if name == key), None)


def _inode(path: str) -> str | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}"


def _believed(control: Control, reason: str) -> Finding:
    return Finding(control, Grade.ENFORCED, reason)


def _unverified(control: Control, why: str) -> Finding:
    return Finding(control, Grade.PARTIAL, f"could not be verified: {why}")


def _broken(control: Control, what: str) -> Finding:
    return Finding(control, Grade.ABSENT, f"the attack {what}")


def _read(seen: _Seen, stage: _Stage) -> Finding:
    if seen.has("canary", stage.canary):
        return _broken(Control.FS_READ, "read a file outside the box")
    home = _home()
    if seen.has("home", "listed") and seen.shares(home):
        return _broken(Control.FS_READ, f"listed the home directory {home}")
    return _believed(Control.FS_READ, "a file outside and the home directory were out of reach")


def _written(seen: _Seen, stage: _Stage) -> Finding:
    made = [path for path in (f"{stage.outside}/written", f"{stage.root}/beside") if os.path.lexists(path)]
    if made or Path(stage.outside, "canary").read_text() != stage.canary + "\n":
        return _broken(Control.FS_WRITE, "wrote a file outside the writable directories")
    opened = [
        path for path in seen.values.get("opened", ()) if path.startswith("/proc/") or seen.shares(path) is not False
    ]
    if opened:
        return _broken(Control.FS_WRITE, f"opened {', '.join(opened)} for writing")
    return _believed(Control.FS_WRITE, "writes outside the writable directories did not reach the host")


def _network(seen: _Seen, *, reached: bool) -> Finding:
    control = Control.NET_NONE
    if reached or seen.has("connect", "made"):
        return _broken(control, "connected to a listener on the host's loopback")
    shared = seen.shares("/proc/self/ns/net")
    routes = sorted(set(seen.values.get("route", ())))
    if shared is False and routes:
        return _broken(control, f"found a route out of the box by {', '.join(routes)}")
    if shared is False and seen.has("routes", "read"):
        return _believed(control, "the box has a network of its own, without a route")
    if seen.has("connect", "forbidden"):
        return _believed(control, "a connection to the host's loopback was forbidden")
    return _unverified(control, "the box has neither /proc nor a program that connects")


def _isolation(seen: _Seen) -> Finding:
    control = Control.PROCESS_ISOLATION
    is_visible = any(_start_time(row) == _own_start_time() for row in seen.values.get("process", ()))
    shared = seen.shares("/proc/self/ns/pid")
    if seen.has("signal", "sent") and (is_visible or shared or (shared is None and not _HAS_NAMESPACES)):
        return _broken(control, "could signal a process of the host")
    if is_visible:
        return Finding(control, Grade.PARTIAL, "the attack saw a process of the host")
    capabilities = seen.status("CapEff")
    if capabilities is not None and int(capabilities, 16):
        return Finding(control, Grade.PARTIAL, f"the attack held capabilities ({capabilities.lstrip('0')})")
    if seen.status("NoNewPrivs") == "0":
        return Finding(control, Grade.PARTIAL, "no_new_privs is off, so a set-user-ID program raises its rights")
    if shared is None:
        return _unverified(control, "the box has no /proc")
    return _believed(control, "processes of the host were out of sight and of reach")


def _start_time(row: str) -> str:
    """
    When the process of this line of /proc/PID/stat started, which its pid alone does not say.

    Source: proc_pid_stat(5), field 22.
    """
    fields = row.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _own_start_time() -> str | None:
    try:
        return _start_time(Path("/proc/self/stat").read_text())
    except OSError:
        return None


def _kill_tree(seen: _Seen, *, is_alive: bool | None) -> Finding:
    control = Control.PROCESS_KILL_TREE
    if is_alive:
        return _broken(control, "left a process behind that outlived the box")
    if is_alive is None:
        return _unverified(control, "what the box left could not be looked for")
    return _believed(control, "a process left in the background was ended with the box")


def _nested(seen: _Seen) -> Finding:
    control = Control.PROCESS_NESTED_USERNS
    if seen.has("nested", "made"):
        return _broken(control, "made a user namespace inside the box")
    if seen.has("nested", "refused"):
        return _believed(control, "a user namespace inside the box was refused")
    return _unverified(control, "the box has no program that makes one")


def _syscalls(seen: _Seen) -> Finding:
    mode = seen.status("Seccomp")
    if mode is None:
        return _unverified(Control.SYSCALLS, "the box has no /proc")
    if mode != "2":
        return _broken(Control.SYSCALLS, "ran without a seccomp filter")
    return _believed(Control.SYSCALLS, "a seccomp filter was active")


def _environment(seen: _Seen) -> Finding:
    if seen.leaked:
        return _broken(Control.ENV, f"found variables that the spec does not pass on: {', '.join(seen.leaked[:5])}")
    return _believed(Control.ENV, "no variable outside the allowlist was found")
