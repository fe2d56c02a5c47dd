"""
Whether there is an engine, and what it offers.
"""

from __future__ import annotations

import os
import platform
import posixpath
import sys
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sandboxkit.backends.docker._alone import alone
from sandboxkit.backends.docker._facts import DockerFacts, Settings
from sandboxkit.backends.docker._labels import new_name, own_labels
from sandboxkit.backends.docker._words import WORDS, socket_path
from sandboxkit.errors import BackendUnavailableError, BrokerError
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from docker import APIClient

    from sandboxkit.backends.docker._engine import Engine
    from sandboxkit.backends.docker._facts import Supervisor

__all__ = ["Seen", "look", "own_image"]

_BOUNDS = {"MemoryLimit": "memory", "SwapLimit": "swap", "CpuCfsQuota": "cpus", "PidsLimit": "processes"}
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}
_OWN_IMAGE = "sandboxkit-host"
_OWN_LABELS = {"sandboxkit.image": "1"}
_SETTINGS = (
    "Env",
    "Volumes",
    "Entrypoint",
    "Cmd",
    "OnBuild",
    "Healthcheck",
    "User",
    "WorkingDir",
    "Labels",
    "Shell",
)


@dataclass(slots=True)
class Seen:
    """
    What was found out, and need not be asked again.

    Attributes:
        supervisors: What images have, by their ids.
        volumes: What images declare to be volumes, by their ids.
        podman: What Podman says of itself, by the identity of its socket: it asks the package
            manager about its programs each time.
    """

    supervisors: dict[str, Supervisor] = field(default_factory=dict)
    volumes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    podman: dict[tuple[int, ...], Mapping[str, Any]] = field(default_factory=dict)


async def look(engine: Engine, settings: Settings, seen: Seen) -> DockerFacts:
    """
    What *engine* offers.

    Args:
        engine: The engine.
        settings: What the application asked for.
        seen: What was found out before; what is found is added.

    Raises:
        BackendUnavailableError: There is none, or it lacks what was asked for.
    """
    facts = await engine.call("say what it is", lambda client: _facts(engine, settings, _info(client, engine, seen)))
    _check(facts)
    if settings.image is None:
        try:
            return _with(facts, image="", supervisor="python", interpreter=interpreter())
        except BrokerError as exc:
            raise BackendUnavailableError(engine.name, str(exc), "use DockerBackend(image=...) with an image") from exc
    image = await _image(engine, settings)
    supervisors = seen.supervisors
    if image not in supervisors:
        supervisors[image] = await engine.call(
            "look into the image", lambda client: _supervisor(client, image, settings.runtime or "")
        )
    if image not in seen.volumes:
        seen.volumes[image] = await engine.call("look at the image", lambda client: _volumes(client, image))
    if (facts.is_copy or facts.is_remote) and supervisors[image] != "python":
        raise BackendUnavailableError(
            engine.name,
            f"the image {settings.image!r} has no python3, which a copied workspace is unpacked by and a box of an "
            "engine over a network is supervised by",
            "use an image that has, or workspace='bind' and an engine on a socket of this machine",
        )
    found = _with(facts, image=image, supervisor=supervisors[image], interpreter="")
    return replace(found, volumes=seen.volumes[image])


def _info(client: APIClient, engine: Engine, seen: Seen) -> Mapping[str, Any]:
    path = socket_path(engine.host)
    if engine.found == "docker" or not path:
        return dict(client.info())
    place = os.stat(path)
    identity = (place.st_dev, place.st_ino, place.st_ctime_ns)
    if identity not in seen.podman:
        seen.podman = {identity: dict(client.info())}
    return seen.podman[identity]


def _supervisor(client: APIClient, image: str, runtime: str) -> Supervisor:
    """
    What the image has to supervise a command with: tried in containers without anything,
    which are started as those of its boxes will be.
    """
    if _runs(client, image, runtime, ["python3", "-I", "-S", "-c", "import ctypes, json, resource, select"]):
        return "python"
    return "sh" if _runs(client, image, runtime, ["/bin/sh", "-c", ":"]) else "none"


def _runs(client: APIClient, image: str, runtime: str, words: list[str]) -> bool:
    from docker import errors

    config = {
        "Image": image,
        "Entrypoint": [],
        "Cmd": words,
        "User": "65534:65534",
        "Labels": own_labels(),
        "NetworkDisabled": True,
        "HostConfig": {
            "Runtime": runtime,
            "LogConfig": {"Type": "none", "Config": {}},
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": 16,
        },
    }
    ident = client.create_container_from_config(config, new_name())["Id"]
    try:
        client.start(ident)
        return bool(client.wait(ident)["StatusCode"] == 0)
    except errors.APIError as exc:
        if "executable file not found" in str(exc.explanation) or "no such file" in str(exc.explanation):
            return False
        raise
    finally:
        client.remove_container(ident, force=True, v=True)


def _with(facts: DockerFacts, *, image: str, supervisor: Supervisor, interpreter: str) -> DockerFacts:
    return replace(facts, image=image, supervisor=supervisor, interpreter=interpreter)


def _facts(engine: Engine, settings: Settings, info: Mapping[str, Any]) -> DockerFacts:
    security = [str(option) for option in info.get("SecurityOptions") or ()]
    machine = str(info.get("Architecture", ""))
    is_rootless = bool(info.get("Rootless")) or any("rootless" in option for option in security)
    default = str(info.get("DefaultRuntime") or "runc")
    cgroup = int(str(info.get("CgroupVersion") or "1")) if info.get("CgroupDriver") != "none" else 0
    if is_rootless and cgroup == 1:
        cgroup = 0  # nobody but root makes groups of version 1: limits are taken and ignored
    return DockerFacts(
        settings=settings,
        where=engine.where,
        engine=engine.found,
        version=str(info.get("ServerVersion", "")),
        api=str(engine.client().api_version),
        runtime=default if engine.found == "podman" else settings.runtime or default,
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        cgroup=cgroup,
        bounds=frozenset(word for key, word in _BOUNDS.items() if cgroup and info.get(key)),
        has_seccomp=any("seccomp" in option for option in security),
        is_rootless=is_rootless,
        system=str(info.get("OSType") or "linux"),
        machine=_MACHINES.get(machine, machine),
        kernel=str(info.get("KernelVersion", "")),
        storage=str(info.get("Driver", "")),
        data=str(info.get("DockerRootDir", "")),
        has_proxy=None not in (find_spec("h11"), find_spec("cryptography")),
    )


def _check(facts: DockerFacts) -> None:
    """
    Raises:
        BackendUnavailableError: What was asked for is not there.
    """
    for reason, remedy in _lacks(facts):
        raise BackendUnavailableError(facts.settings.engine, f"{facts.host}: {reason}", remedy)


def _lacks(facts: DockerFacts) -> Iterator[tuple[str, str]]:
    """
    What keeps the engine from what was asked for, with the remedy.
    """
    asked, words = facts.settings, WORDS[facts.settings.engine]
    if facts.engine != asked.engine:
        yield f"{facts.engine} answers there, not {asked.engine}", f"use DockerBackend(engine={facts.engine!r})"
    if facts.system != "linux":
        yield (
            f"its containers are {facts.system}'s, which hold none of what a spec asks for",
            "use an engine with containers of Linux; Docker Desktop switches to them by its menu",
        )
    wanted = asked.runtime
    if facts.engine == "podman" and wanted not in (None, facts.runtime):
        # What it lists is what it would know, installed or not; its interface takes none with a container.
        yield f"the service starts containers with {facts.runtime}, and lets nobody choose {wanted!r}", words.runtime
    if wanted is not None and facts.runtimes and wanted not in facts.runtimes:
        yield f"the engine has no runtime {wanted!r}, only {', '.join(facts.runtimes)}", words.runtime
    if facts.is_rootless and facts.is_hosts_system and not _is_own_socket(facts.host):
        yield (
            "it is another user's rootless engine, which opens files as that user and not as this one",
            "use a rootless engine of this user's own",
        )
    if asked.cpus is not None and "cpus" not in facts.bounds:
        yield (
            "the engine cannot bound the processors of a container",
            "leave cpus out, or use an engine with the control group cpu",
        )
    if facts.is_hosts_system and not (sys.platform == "linux" and not facts.is_remote):
        yield (
            "a box that shows this machine's system needs an engine on a socket of this machine, on Linux",
            "name an image: DockerBackend(image=..., workspace='copy')",
        )
    if sys.platform == "win32" and not facts.is_copy:
        yield (
            "no path of Windows can be shown in a container",
            "DockerBackend(image=..., workspace='copy'); hand files over with box.files or by stdin and stdout",
        )
    if facts.is_hosts_system and facts.is_copy:
        yield "a copied workspace needs an image", "name one: DockerBackend(image=..., workspace='copy')"
    if facts.machine != platform.machine() and facts.is_hosts_system:
        yield (
            f"the engine is for {facts.machine}, this machine is {platform.machine()}",
            "use an engine of this machine",
        )


def _is_own_socket(host: str) -> bool:
    path = socket_path(host)
    return not path or os.stat(path).st_uid == os.geteuid()


async def _image(engine: Engine, settings: Settings) -> str:
    """
    The id of the named image, pulled only where the settings say so.

    Raises:
        BackendUnavailableError: It is not there, and may not or cannot be pulled.
    """
    name = settings.image or ""
    found = "" if settings.pull == "always" else await engine.call("look for an image", lambda c: _image_id(c, name))
    if not found and settings.pull != "never":
        found = await engine.call("pull an image", lambda client: _pulled(client, engine, name))
    if not found:
        raise BackendUnavailableError(
            engine.name,
            f"{engine.host}: the engine has no image {name!r}, and pull='never' forbids to fetch it",
            f"{engine.name} pull {name}, or DockerBackend(pull='missing')",
        )
    return found


def _image_id(client: APIClient, name: str) -> str:
    from docker import errors

    try:
        return str(client.inspect_image(name)["Id"])
    except errors.NotFound:
        return ""


def _volumes(client: APIClient, image: str) -> tuple[str, ...]:
    found = (client.inspect_image(image).get("Config") or {}).get("Volumes") or {}
    return tuple(sorted({posixpath.normpath(str(path)) for path in found}))


def _pulled(client: APIClient, engine: Engine, name: str) -> str:
    from docker import errors
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    try:
        client.pull(repository, tag=tag or "latest")
        return str(client.inspect_image(name)["Id"])
    except errors.APIError as exc:
        raise BackendUnavailableError(
            engine.name,
            f"the image {name!r} cannot be pulled: {exc.explanation or exc}",
            f"correct its name, log in to its registry, or load it by hand ({engine.name} load, {engine.name} import)",
        ) from exc


async def own_image(engine: Engine, links: tuple[tuple[str, str], ...]) -> str:
    """
    The id of an image with nothing in it but *links*: the root of boxes that show the
    host's system. It is made here, from nothing; no registry is asked.
    """
    archive = _archive(links)
    return await engine.call("make an empty image", lambda client: _own_once(client, archive))


def _archive(links: tuple[tuple[str, str], ...]) -> bytes:
    import io
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in links:
            member = tarfile.TarInfo(path.lstrip("/"))
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, text, 0o777
            archive.addfile(member)
        if not links:
            member = tarfile.TarInfo("etc")
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
    return buffer.getvalue()


def _own_once(client: APIClient, archive: bytes) -> str:
    if found := _own_id(client, archive):
        return found
    with alone():
        return _own_id(client, archive) or _own(client, archive)


def _own_id(client: APIClient, archive: bytes) -> str:
    """
    The id of the image that was made of *archive*; empty where there is none. What came to
    the engine under its name and holds something else, or settings of its own, is none.
    """
    from docker import errors

    try:
        found = client.inspect_image(":".join(_own_name(archive)))
    except errors.NotFound:
        return ""
    layers = (found.get("RootFS") or {}).get("Layers")
    settings = {key: text for key, text in (found.get("Config") or {}).items() if text and key in _SETTINGS}
    is_own = layers == [f"sha256:{_digest(archive)}"] and settings == {"Labels": _OWN_LABELS}
    return str(found["Id"]) if is_own else ""


def _digest(archive: bytes) -> str:
    import hashlib

    return hashlib.sha256(archive).hexdigest()


def _own_name(archive: bytes) -> tuple[str, str]:
    return _OWN_IMAGE, _digest(archive)[:16]


def _own(client: APIClient, archive: bytes) -> str:
    import json

    changes = ["LABEL " + "=".join(row) for row in _OWN_LABELS.items()]
    said = client.import_image_from_data(archive, changes=changes)
    made = str(json.loads(said.splitlines()[-1])["status"])
    client.tag(made, *_own_name(archive))
    return made
