"""
The backends of an application, and the choice among them.
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
import threading
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, final

import anyio

from sandboxkit.backends._aside import aside
from sandboxkit.backends._contract import PIPE, BoxProcess, Detection, Sandbox, SandboxBackend
from sandboxkit.backends._obstacles import obstacle
from sandboxkit.backends._once import Once
from sandboxkit.backends._plugins import plugin_backends
from sandboxkit.backends._remembered import forget, recall, remember
from sandboxkit.backends._verification import VERIFIED, Finding, Verification
from sandboxkit.errors import EnforcementError, NoBackendError, PluginError, SpecError
from sandboxkit.model import Control, Enforcement, Grade, SandboxSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence

    from sandboxkit.egress import Ask, OnEvent
    from sandboxkit.model import ExecResult
    from sandboxkit.secrets import SecretRegistry

__all__ = ["PLUGIN_PRIORITY", "BackendStatus", "SandboxRegistry", "Selection"]

PLUGIN_PRIORITY = 9
"""The most a plug-in gets by itself; every built-in backend has more."""
_BUBBLEWRAP_PRIORITY = 100
_LANDLOCK_PRIORITY = 50
_SEATBELT_PRIORITY = 100
_DOCKER_PRIORITY = 20
_PODMAN_PRIORITY = 15
"""After Docker: without root and control groups of version 2 it bounds less."""
_NAME = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_RESERVED = frozenset({"direct"})
_DETECT_SECONDS = 30.0
_PATIENCE = 60.0
_ATTACK_SECONDS = 30.0
_RETRY_SECONDS = 30.0
"""How long it is believed that a backend is unavailable: memory may have been short."""
_NO_MECHANISM = (
    "no backend uses a mechanism of this operating system, and nothing ever runs unconfined instead; "
    "use Docker (pip install 'sandboxkit[docker]', and start an engine); on Windows with an image and copies: "
    "registry.register(DockerBackend(image=..., workspace='copy')); or run there in WSL 2, whose Linux has backends of its own"
)
_REPORT = "report it to whoever makes this backend"


@dataclass(frozen=True, slots=True)
class Selection:
    """
    The backend that runs a spec.

    Attributes:
        backend: The backend.
        detection: What it found, for this spec.
        enforcement: What it enforces for this spec, lowered by the attack.
        verification: What the attack found.
        others: Why each of the other backends was not taken: what it lacks, or that this
            one is preferred.
    """

    backend: SandboxBackend
    detection: Detection
    enforcement: Enforcement
    verification: Verification
    others: Mapping[str, str] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """
        A box of this backend under *spec*, whose results say what was verified.

        Raises:
            EnforcementError: The box that opened holds less than *spec* requires.
            SetupError: It did not come up.
        """
        async with self.backend.open_detected(spec, self.detection) as box:
            found = self.verification.apply(box.enforcement)
            if missing := found.missing(spec.requirements()):
                raise EnforcementError({self.backend.name: _missing(missing)})
            yield box if found == box.enforcement else _Lowered(box, self.verification)


@final
class _Lowered(Sandbox):
    """
    A box whose results say less than its backend claims.
    """

    def __init__(self, box: Sandbox, verification: Verification) -> None:
        self._box = box
        self._verification = verification

    @property
    def spec(self) -> SandboxSpec:
        """
        What the box may do.
        """
        return self._box.spec

    @property
    def enforcement(self) -> Enforcement:
        """
        What is enforced, as the attack found it.
        """
        return self._verification.apply(self._box.enforcement)

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline is part of the result, not an exception
        environment: Mapping[str, str] | None = None,
        explain: bool = False,
        discard: bool = False,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
    ) -> ExecResult:
        """
        Runs *argv* to its end; see `Sandbox.run`.
        """
        result = await self._box.run(
            argv,
            stdin=stdin,
            cwd=cwd,
            timeout=timeout,
            environment=environment,
            **_asked(explain=explain, discard=discard, ask=ask, on_egress=on_egress),
        )
        return _lowered(result, self._verification)

    @contextlib.asynccontextmanager
    async def start(
        self,
        argv: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = PIPE,
        stderr: int | None = PIPE,
        pass_fds: Collection[int] = (),
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        explain: bool = False,
        ask: Ask | None = None,
        on_egress: OnEvent | None = None,
    ) -> AsyncIterator[BoxProcess]:
        """
        Starts *argv*; see `Sandbox.start`.
        """
        async with self._box.start(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            cwd=cwd,
            environment=environment,
            **_asked(explain=explain, ask=ask, on_egress=on_egress),
        ) as process:
            yield _LoweredProcess(process, self._verification)


def _asked(**options: Any) -> dict[str, Any]:
    """
    Those of *options* that somebody asks for: a backend of somebody else may not know
    the others.
    """
    return {name: asked for name, asked in options.items() if asked}


@final
class _LoweredProcess(BoxProcess):
    """
    A command in such a box.
    """

    def __init__(self, process: BoxProcess, verification: Verification) -> None:
        self._process = process
        self._verification = verification
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    async def wait(self) -> ExecResult:
        """
        How it ended; see `BoxProcess.wait`.
        """
        return _lowered(await self._process.wait(), self._verification)

    def send_signal(self, number: int) -> None:
        """
        Sends signal *number* to the command.
        """
        self._process.send_signal(number)

    def kill(self) -> None:
        """
        Ends it, and everything it started, at once.
        """
        self._process.kill()


def _lowered(result: ExecResult, verification: Verification) -> ExecResult:
    return replace(result, enforcement=verification.apply(result.enforcement))


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """
    How one backend stands on this machine.

    Attributes:
        name: Its name.
        priority: Greater is preferred.
        available: Whether it can run here.
        reason: Why, in one sentence.
        remedy: What would make it available; empty when it is.
        facts: What it found, JSON-ready.
        warnings: What does not stop it and should be known.
        enforcement: What it enforces for the spec asked about, lowered by the attack;
            None where it is unavailable.
        verified: What the attack found.
        missing: What the spec asked about requires beyond that.
    """

    name: str
    priority: int
    available: bool
    reason: str
    remedy: str
    facts: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    enforcement: Enforcement | None = None
    verified: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """
        A JSON-ready form.
        """
        return {
            "name": self.name,
            "priority": self.priority,
            "available": self.available,
            "reason": self.reason,
            "remedy": self.remedy,
            "facts": dict(self.facts),
            "warnings": [*self.warnings],
            "enforcement": self.enforcement.to_dict() if self.enforcement else None,
            "verified": {str(f.control): {"grade": str(f.grade), "reason": f.reason} for f in self.verified},
            "missing": [*self.missing],
        }


class SandboxRegistry:
    """
    Backends by priority. It starts empty; `default` has the built-in ones.

    What detection and the attack found is kept for the process, for every thread and
    event loop; that a backend is unavailable is asked again after half a minute.

    Args:
        detect_timeout: Seconds a backend's detection may take.
    """

    def __init__(self, *, detect_timeout: float = _DETECT_SECONDS) -> None:
        if not 0 < detect_timeout < math.inf:
            raise ValueError(f"detect_timeout {detect_timeout}: give a positive number of seconds")
        self._timeout = detect_timeout
        self._entries: tuple[_Entry, ...] = ()
        self._lock = threading.Lock()

    @classmethod
    def default(cls, plugins: Iterable[str] = (), *, secrets: SecretRegistry | None = None) -> SandboxRegistry:
        """
        The built-in backends of this platform, and those of the named plug-ins.

        Args:
            plugins: Names in the entry-point group `sandboxkit.backends`. Loading one
                runs its code, so none is loaded unless it is named here. Whatever
                priority it asks for, it comes after every built-in backend.
            secrets: The values of what specs inject (`network.inject`), for the built-in
                backends that can; each goes only to the hosts it was registered for.

        Raises:
            PluginError: A plug-in is missing or broken.
        """
        if isinstance(plugins, str):
            raise PluginError(plugins, "give a list of names, not a string")
        registry = cls()
        registry._entries = _builtin() if secrets is None else _injecting(_builtin(), secrets)
        for name in plugins:
            registry.load_plugin(name)
        return registry

    def load_plugin(self, name: str) -> None:
        """
        Adds the backends of the plug-in *name*, after every built-in one. Runs its code.

        Raises:
            PluginError: It is missing or broken, or a name of its backends is taken.
        """
        for backend, priority in plugin_backends(name):
            try:
                self.register(backend, min(priority, PLUGIN_PRIORITY))
            except PluginError as exc:
                raise PluginError(name, f"its backend {exc.plugin!r}: {exc.problem}") from exc

    def register(self, backend: SandboxBackend, priority: int = 0) -> None:
        """
        Adds *backend*; greater priorities are preferred, among equals the earlier.

        Raises:
            PluginError: It is no backend, its name is taken or none, or *priority* is
                no whole number.
        """
        entry = _Entry(lambda: backend, _checked_name(backend), priority)
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise PluginError(entry.name, f"priority {priority!r} is no whole number")
        with self._lock:
            if any(known.name == entry.name for known in self._entries):
                raise PluginError(entry.name, "a backend of this name is registered already")
            self._entries = tuple(sorted((*self._entries, entry), key=lambda known: -known.priority))
        for known in self._entries:
            known.detection.forget()

    def forget(self) -> None:
        """
        Drops what detection and the attack found: the machine has changed.
        """
        forget()
        for entry in self._entries:
            entry.detection.forget()
            entry.verification.forget()
            entry.listed.forget()

    async def active(self, spec: SandboxSpec | None = None) -> Selection:
        """
        The preferred backend that is available and enforces what *spec* requires.

        Args:
            spec: None asks for the requirements every spec has.

        Raises:
            NoBackendError: None is available.
            EnforcementError: Some are, and none enforces it all.
            SpecError: A path of *spec* is wrong.
        """
        wanted = spec if spec is not None else SandboxSpec()
        reasons: dict[str, str] = {}
        is_any_available = False
        for entry in self._entries:
            found = await entry.judge(wanted, self._timeout)
            if found.enforcement is None:
                reasons[entry.name] = f"{found.detection.reason}; {found.detection.remedy}"
            elif found.missing:
                is_any_available = True
                reasons[entry.name] = _missing(found.missing)
            else:
                later = self._entries[self._entries.index(entry) + 1 :]
                others = {**reasons, **dict.fromkeys((one.name for one in later), f"{entry.name} is preferred")}
                return Selection(entry.backend, found.detection, found.enforcement, found.verification, others)
        raise EnforcementError(reasons) if is_any_available else NoBackendError({**reasons, **_without_mechanism()})

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """
        A box under *spec* on the backend `active` chooses.

        Raises:
            NoBackendError: No backend is available.
            EnforcementError: None enforces what *spec* requires.
            SpecError: A path of *spec* is wrong.
            SetupError: The box did not come up.
        """
        selection = await self.active(spec)
        async with selection.open(spec) as box:
            yield box

    async def list(self, spec: SandboxSpec | None = None, *, attack_listed: bool = False) -> tuple[BackendStatus, ...]:
        """
        How every backend stands, preferred ones first.

        Args:
            spec: What enforcement is stated for; None is what every spec requires.
            attack_listed: Whether each backend that claims `net.allowlist` is attacked in a
                box of listed hosts too, which otherwise is done for specs that list hosts.
        """
        wanted = spec if spec is not None else SandboxSpec()
        return tuple([await entry.status(wanted, self._timeout, listed=attack_listed) for entry in self._entries])


@dataclass(frozen=True, slots=True)
class _Judgement:
    """
    What is known of a backend for one spec; no enforcement where it is unavailable.
    """

    detection: Detection
    enforcement: Enforcement | None = None
    missing: tuple[str, ...] = ()
    verification: Verification = field(default_factory=Verification)


class _Entry:
    """
    A backend, made when it is first asked about: the preferred one is mostly all that is
    needed.
    """

    def __init__(self, make: Callable[[], SandboxBackend], name: str, priority: int) -> None:
        self._make = make
        self.name = name
        self.priority = priority
        self.detection: Once[Detection] = Once(_PATIENCE)
        self.verification: Once[Verification] = Once(_PATIENCE)
        self.listed: Once[Verification] = Once(_PATIENCE)

    @cached_property
    def backend(self) -> SandboxBackend:
        return self._make()

    async def judge(
        self,
        spec: SandboxSpec,
        timeout: float,  # noqa: ASYNC109 - passed on
        *,
        listed: bool = False,
    ) -> _Judgement:
        found = await self.detection.get(
            lambda: self._detect(None, timeout), lambda d: math.inf if d.available else _RETRY_SECONDS
        )
        if not found.available:
            return _Judgement(found)
        verified = await self.verification.get(
            lambda: self._verified(found, ""), lambda v: _RETRY_SECONDS if v.failure else math.inf
        )
        if verified.failure:
            return _Judgement(_unverified(found, verified.failure))
        if spec.network.mode == "listed":  # a box more, which few need
            verified = verified.and_also(await self._listed(found))
        fresh = await self._detect(spec, timeout)
        if not fresh.available:
            return _Judgement(fresh)
        try:
            claim = self.backend.enforcement(spec, fresh.facts)
            if listed and spec.network.mode != "listed" and claim.grade(Control.NET_ALLOWLIST) is Grade.ENFORCED:
                verified = verified.and_also(await self._listed(found))
            enforcement = verified.apply(claim)
            return _Judgement(fresh, enforcement, enforcement.missing(spec.requirements()), verified)
        except SpecError:
            raise
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - a broken backend must not stop the others
            return _Judgement(_broken(f"enforcement() raised {type(exc).__name__}: {exc}"))

    async def _listed(self, found: Detection) -> Verification:
        return await self.listed.get(lambda: self._verified(found, "listed"), _lasting)

    async def _verified(self, found: Detection, which: Literal["", "listed"]) -> Verification:
        """
        What the attack finds, or found in another process a short time ago.
        """
        kind, circumstances = f"attack-{which}{self.name}", self._circumstances(found)
        known = recall(kind, circumstances) if circumstances else None
        if known is not None:
            with contextlib.suppress(ValueError):
                return Verification.from_dict(known, (Control.NET_ALLOWLIST,) if which else VERIFIED)
        verified = await self._attacked(which)
        if circumstances and not verified.failure and not _is_passing(verified):
            remember(kind, verified.to_dict(), circumstances)
        return verified

    async def _attacked(self, which: Literal["", "listed"]) -> Verification:
        from sandboxkit.backends._verify import attack, attack_listed

        carry_out = attack_listed if which else attack
        if self._is_own:
            return await carry_out(self.backend)
        try:
            return await aside(lambda: carry_out(self.backend), _ATTACK_SECONDS)
        except TimeoutError:
            failure = f"the backend blocks its thread for more than {_ATTACK_SECONDS:g} s"
        except SystemExit:
            failure = "the backend ends the process (SystemExit)"
        if which:
            return Verification((Finding(Control.NET_ALLOWLIST, Grade.ABSENT, failure),))
        return Verification(failure=failure)

    @property
    def _is_own(self) -> bool:
        return type(self.backend).__module__.startswith(f"{__package__}.")

    def _circumstances(self, found: Detection) -> str:
        """
        What the findings depend on; empty where they are not to be remembered, as for
        backends that are not this library's own.
        """
        fingerprint = found.facts.fingerprint() if self._is_own else ""
        return fingerprint and f"{type(self.backend).__qualname__} {fingerprint}"

    async def _detect(self, spec: SandboxSpec | None, timeout: float) -> Detection:  # noqa: ASYNC109 - one of its own
        try:
            found: object = await self._asked(spec, timeout)
            return found if isinstance(found, Detection) else _broken(f"detect() returned {type(found).__name__}")
        except TimeoutError:
            return _broken(f"detect() did not answer within {timeout:g} s")
        except SpecError:
            if spec is not None:
                raise
            return _broken("detect() refuses a spec nobody gave")
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - a broken backend must not stop the others
            return _broken(f"detect() raised {type(exc).__name__}: {exc}")

    async def _asked(self, spec: SandboxSpec | None, timeout: float) -> object:  # noqa: ASYNC109 - passed on
        """
        What `detect` answers. The first time it is somebody else's code that nobody has
        seen to come back, so that is asked in a thread of its own.

        Raises:
            TimeoutError: It took too long.
        """
        if spec is None and not self._is_own:
            return await aside(self.backend.detect, timeout)
        with anyio.fail_after(timeout):
            return await (self.backend.detect() if spec is None else self.backend.detect(spec))

    async def status(
        self,
        spec: SandboxSpec,
        timeout: float,  # noqa: ASYNC109 - passed on
        *,
        listed: bool,
    ) -> BackendStatus:
        try:
            found = await self.judge(spec, timeout, listed=listed)
        except SpecError as exc:
            found = _Judgement(Detection(False, str(exc), "correct the spec"))
        detection = found.detection
        return BackendStatus(
            name=self.name,
            priority=self.priority,
            available=found.enforcement is not None,
            reason=detection.reason,
            remedy=detection.remedy,
            facts=detection.facts.to_dict(),
            warnings=detection.warnings,
            enforcement=found.enforcement,
            verified=found.verification.findings,
            missing=found.missing,
        )


def _is_passing(verified: Verification) -> bool:
    """
    Whether the attack on a listed network could not be carried out: that is tried again.
    """
    return any(found.control is Control.NET_ALLOWLIST and found.grade < Grade.ENFORCED for found in verified.findings)


def _lasting(verified: Verification) -> float:
    return _RETRY_SECONDS if _is_passing(verified) else math.inf


def _without_mechanism() -> Mapping[str, str]:
    """
    Why this platform has no backend of its own, where it has none, and the remedy.
    """
    return {} if sys.platform in ("linux", "darwin") else {sys.platform: _NO_MECHANISM}


def _unverified(found: Detection, failure: str) -> Detection:
    reason = f"the attack that verifies it could not be carried out: {failure}"
    known = obstacle(failure)
    if known:
        return replace(found, available=False, reason=f"{reason} ({known.reason})", remedy=known.remedy)
    return replace(
        found, available=False, reason=reason, remedy="remove what that names; forget() makes the registry try again"
    )


def _broken(reason: str) -> Detection:
    known = obstacle(reason)
    return Detection(False, reason, known.remedy if known else _REPORT)


def _missing(sentences: Sequence[str]) -> str:
    return f"{'; '.join(sentences)}; list a control in allow_degraded where less will do, or use another backend"


def _checked_name(backend: object) -> str:
    if not isinstance(backend, SandboxBackend):
        kind = backend.__name__ + " itself" if isinstance(backend, type) else type(backend).__name__
        raise PluginError(kind, "it is no SandboxBackend object")
    name: object = backend.name
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise PluginError(
            str(name),
            "a backend's name is a lower-case letter and then letters, digits, '.', '_' or '-', and not 'direct'",
        )
    return name


@cache
def _builtin() -> tuple[_Entry, ...]:
    """
    One entry for the process, so that every registry shares what was found out.
    """
    docker = _Entry(_docker, "docker", _DOCKER_PRIORITY)
    if sys.platform == "darwin":
        return _Entry(_seatbelt, "seatbelt", _SEATBELT_PRIORITY), docker
    if sys.platform != "linux":
        return (docker,)
    return (
        _Entry(_bubblewrap, "bubblewrap", _BUBBLEWRAP_PRIORITY),
        _Entry(_landlock, "landlock", _LANDLOCK_PRIORITY),
        docker,
        _Entry(_podman, "podman", _PODMAN_PRIORITY),
    )


def _injecting(entries: tuple[_Entry, ...], secrets: SecretRegistry) -> tuple[_Entry, ...]:
    """
    *entries*, with those of their own for what *secrets* are handed to.
    """

    def bubblewrap() -> SandboxBackend:
        from sandboxkit.backends.bubblewrap import BubblewrapBackend

        return BubblewrapBackend(secrets=secrets)

    def docker() -> SandboxBackend:
        from sandboxkit.backends.docker import DockerBackend

        return DockerBackend(secrets=secrets)

    def podman() -> SandboxBackend:
        from sandboxkit.backends.docker import DockerBackend

        return DockerBackend(engine="podman", secrets=secrets)

    def seatbelt() -> SandboxBackend:
        from sandboxkit.backends.seatbelt import SeatbeltBackend

        return SeatbeltBackend(secrets=secrets)

    own = {
        "seatbelt": _Entry(seatbelt, "seatbelt", _SEATBELT_PRIORITY),
        "bubblewrap": _Entry(bubblewrap, "bubblewrap", _BUBBLEWRAP_PRIORITY),
        "docker": _Entry(docker, "docker", _DOCKER_PRIORITY),
        "podman": _Entry(podman, "podman", _PODMAN_PRIORITY),
    }
    return tuple(own.get(entry.name, entry) for entry in entries)


def _seatbelt() -> SandboxBackend:
    from sandboxkit.backends.seatbelt import SeatbeltBackend

    return SeatbeltBackend()


def _docker() -> SandboxBackend:
    from sandboxkit.backends.docker import DockerBackend

    return DockerBackend()


def _podman() -> SandboxBackend:
    from sandboxkit.backends.docker import DockerBackend

    return DockerBackend(engine="podman")


def _bubblewrap() -> SandboxBackend:
    from sandboxkit.backends.bubblewrap import BubblewrapBackend

    return BubblewrapBackend()


def _landlock() -> SandboxBackend:
    from sandboxkit.backends.landlock import LandlockBackend

    return LandlockBackend()
