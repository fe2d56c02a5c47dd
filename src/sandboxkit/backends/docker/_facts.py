"""
What is asked of a container engine, and what one offers.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from sandboxkit.backends._contract import Facts
from sandboxkit.backends.docker._endpoint import Endpoint
from sandboxkit.backends.docker._words import socket_path
from sandboxkit.errors import SpecError
from sandboxkit.model import is_inside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends._survey import Kind, Survey
    from sandboxkit.model import NetworkPolicy, SandboxSpec

__all__ = ["DockerFacts", "EngineName", "PullPolicy", "Settings", "Supervisor", "Workspace"]

EngineName = Literal["docker", "podman"]
PullPolicy = Literal["never", "missing", "always"]
Workspace = Literal["bind", "copy"]
Supervisor = Literal["python", "sh", "none"]

_NOWHERE = (0, 0)
"""The place of what is gone, or reached by a link meanwhile: no container has it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """
    What an application asked for; see `DockerBackend`.
    """

    image: str | None = None
    pull: PullPolicy = "never"
    workspace: Workspace = "bind"
    runtime: str | None = None
    host: str | None = None
    timeout: float = 20.0
    cpus: float | None = None
    engine: EngineName = "docker"


@dataclass(frozen=True, slots=True)
class DockerFacts(Facts):
    """
    What an engine offers, and the host as one spec needs it.

    Attributes:
        settings: What the application asked for.
        where: The engine's address.
        engine: `docker` or `podman`, by what it says of itself.
        version: Its version.
        api: The version of the interface it and the SDK agreed on.
        runtime: The runtime that starts containers, by name.
        runtimes: Those it has.
        cgroup: The version of control groups it bounds containers with, 1 or 2; 0 is none.
        bounds: What it says it can bound: some of `memory`, `swap`, `cpus`, `processes`.
        has_seccomp: Whether it applies seccomp profiles.
        is_rootless: Whether it runs without root.
        system: What its containers are, `linux` or `windows`.
        machine: The architecture, as uname(2) names it.
        kernel: The kernel's release.
        storage: Its storage driver.
        data: Where it keeps its containers and images, on its machine.
        image: The image's id; empty where it has none yet, or makes the host's own.
        interpreter: The Python that supervises a box on the host's own system.
        supervisor: What supervises a command inside the container.
        volumes: Directories that the image declares to be volumes. The engine would make each a
            writable directory of its own disk, without a bound.
        has_proxy: Whether the egress proxy can be used: the extra `egress` is installed.
        survey: The host as one spec needs it, or None where no spec was given.
        places: (device, inode) of what is bound, by path.
    """

    settings: Settings = Settings()
    where: Endpoint = field(default_factory=Endpoint)
    engine: EngineName = "docker"
    version: str = ""
    api: str = ""
    runtime: str = "runc"
    runtimes: tuple[str, ...] = ()
    cgroup: int = 0
    bounds: frozenset[str] = frozenset()
    has_seccomp: bool = False
    is_rootless: bool = False
    system: str = "linux"
    machine: str = ""
    kernel: str = ""
    storage: str = ""
    data: str = ""
    image: str = ""
    interpreter: str = ""
    supervisor: Supervisor = "python"
    volumes: tuple[str, ...] = ()
    has_proxy: bool = False
    survey: Survey | None = None
    places: Mapping[str, tuple[int, int]] | None = None

    @property
    def host(self) -> str:
        """
        The engine's address, as people write it.
        """
        return self.where.host

    @property
    def is_remote(self) -> bool:
        """
        Whether the engine is reached over a network: its files are not this machine's, or
        nobody can tell that they are.
        """
        return self.where.scheme not in ("unix", "npipe")

    @property
    def is_copy(self) -> bool:
        """
        Whether what a spec names is copied into the container.
        """
        return self.settings.workspace == "copy"

    @property
    def keeps_user(self) -> bool:
        """
        Whether the engine has to be told to give the caller its own uid in a container:
        rootless Podman makes it root there.
        """
        return self.engine == "podman" and self.is_rootless

    @property
    def counts_by_user(self) -> bool:
        """
        Whether the kernel's count of the user's processes is the container's own: the engine
        bounds none, and gives each container a user namespace.

        Otherwise the number of processes is the control group's matter, as the kernel counts
        those of the same user in every container. Source: setrlimit(2), RLIMIT_NPROC;
        user_namespaces(7); Linux 5.14 counts by user namespace.
        """
        return self.keeps_user and "processes" not in self.bounds

    @property
    def reads_profile(self) -> bool:
        """
        Whether the engine takes this library's seccomp profile: Docker in the request,
        Podman as a file of its own machine.
        """
        return self.has_seccomp and (self.engine == "docker" or bool(socket_path(self.host)))

    @property
    def no_way_out(self) -> str:
        """
        Why no container can have a proxy for its only way out; empty where one can: its first
        process hands a listener out through a socket file, to this process, on one kernel.

        Source: unix(7), SCM_RIGHTS.
        """
        if self.is_remote:
            return "the engine is reached over a network, and hands no listener of a container out to this machine"
        if sys.platform != "linux":
            return "the engine's containers are on another kernel, and hand no listener out of it"
        if self.runtime == "runsc":
            return "a socket of gVisor's kernel is none of this one's, so no listener can be handed out"
        if self.supervisor != "python":
            return "the image has no python3, which would hand a listener out"
        if not self.has_proxy:
            return "the proxy is the extra egress, which is not installed; pip install 'sandboxkit[egress]'"
        return ""

    def no_way_for(self, network: NetworkPolicy) -> str:
        """
        Why no container can have the way out that *network* lists; empty where one can, or
        where it lists none.
        """
        return self.no_way_out if network.mode == "listed" else ""

    @property
    def is_hosts_system(self) -> bool:
        """
        Whether a box shows the host's system, and not an image's.
        """
        return self.settings.image is None

    def surveyed(self, spec: SandboxSpec) -> DockerFacts:
        """
        These facts with a fresh look at the host for *spec*.

        Raises:
            SpecError: See `survey`.
        """
        from sandboxkit.backends._survey import OTHER_HOME, identity, survey

        found = survey(spec, maps_ids=False)
        if self.is_copy:
            found = replace(found, identity=identity())  # whose the files are here does not matter there
        if not self.is_hosts_system:
            home = found.box_home
            covers = is_inside("/usr", home) or home == "/root"  # an image may have its tools there
            found = replace(
                found,
                system=(),
                links=(),
                tools=(),
                runtime=(),
                key_lists=(),
                box_home=OTHER_HOME if covers else home,
            )
        is_elsewhere = self.is_remote or sys.platform == "win32"  # the engine lives in a machine of its own there
        data = "" if is_elsewhere else self.data
        found = _without_engine(found, data, "" if is_elsewhere else socket_path(self.host))
        named = [*spec.filesystem.write, *spec.filesystem.read]
        if data and (above := [path for path in named if is_inside(data, path)]):
            raise SpecError(
                f"{above[0]!r} holds the engine's own data ({data}), which no box may see; name the directories "
                "in it that are needed"
            )
        facts = replace(self, survey=found)
        return replace(facts, places={path: _place(path) for path in _bound(spec, facts)})

    def to_dict(self) -> dict[str, Any]:
        """
        The facts worth showing to people, JSON-ready.
        """
        return {
            "engine": self.engine,
            "host": self.host,
            "version": self.version,
            "api": self.api,
            "runtime": self.runtime,
            "cgroup": self.cgroup,
            "bounds": sorted(self.bounds),
            "seccomp": self.has_seccomp,
            "rootless": self.is_rootless,
            "machine": self.machine,
            "kernel": self.kernel,
            "storage": self.storage,
            "image": self.settings.image or "the host's system",
            "supervisor": self.supervisor,
            "egress_proxy": self.has_proxy,
        }


def _without_engine(found: Survey, data: str, socket: str) -> Survey:
    """
    *found*, without what the engine itself lives from: its containers' files, for which it
    refuses a bind of a directory above them, and the socket that makes whoever reaches
    it root.
    """
    sockets = (os.path.realpath(socket),) if socket and os.path.exists(socket) else ()
    kinds: dict[str, Kind] = dict.fromkeys(sockets, "file")
    return replace(
        found,
        system=tuple(path for path in found.system if not (data and is_inside(data, path))),
        tools=tuple(path for path in found.tools if not (data and is_inside(data, path))),
        denied=(*found.denied, *sockets),
        kinds={**found.kinds, **kinds},
    )


def _bound(spec: SandboxSpec, facts: DockerFacts) -> tuple[str, ...]:
    """
    What is bound by itself, where another box may exchange it.
    """
    from sandboxkit.backends.docker._plan import bound

    return () if facts.is_copy or facts.no_way_for(spec.network) else bound(spec, facts)


def _place(path: str) -> tuple[int, int]:
    """
    The device and inode at *path*, to which no link leads. The engine follows links, so
    what it bound has to be compared with this.

    Source: openat(2) O_PATH, O_NOFOLLOW.
    """
    if not hasattr(os, "O_PATH"):
        found = os.lstat(path)
        return _NOWHERE if stat.S_ISLNK(found.st_mode) else (found.st_dev, found.st_ino)
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags)
    try:
        for name in path.strip("/").split("/"):
            above, fd = fd, os.open(name or ".", flags, dir_fd=fd)
            os.close(above)
        found = os.fstat(fd)
    except OSError:
        return _NOWHERE
    finally:
        os.close(fd)
    return _NOWHERE if stat.S_ISLNK(found.st_mode) else (found.st_dev, found.st_ino)
