"""
From an invocation and a spec to a container and an order for its agent. Pure.
"""

from __future__ import annotations

import json
import posixpath
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sandboxkit.backends._proxied import PROXY_PORT, proxied_environment
from sandboxkit.backends._tree import Node, Tree, box_tree, depth, working_directory
from sandboxkit.confine import rlimits, seccomp_profile
from sandboxkit.errors import SpecError
from sandboxkit.model import TRUSTED_PATH, Confinement, LaunchPlan, Mount, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sandboxkit.backends._survey import Survey
    from sandboxkit.backends.docker._facts import DockerFacts
    from sandboxkit.model import Invocation, SandboxSpec

__all__ = [
    "DOOR",
    "DOOR_FILE",
    "PROFILE",
    "TRUST",
    "TRUST_DIRECTORY",
    "bound",
    "box_mounts",
    "container",
    "launch_plan",
    "order",
    "profile",
    "shown_tree",
    "ways",
]

_PRIVATE_MODE, _SHARED_MODE = 0o700, 0o1777
_BYTES_PER_INODE = 4096
_FEWEST_INODES = 1024
_RLIMIT_NPROC, _RLIMIT_MSGQUEUE = 6, 12
_AGENTS = 1
"""Processes of the container that are not the command's: the agent."""
_API_RECURSIVE_READ_ONLY = (1, 44)
PROFILE: Final = "seccomp.json"
"""The name of the seccomp profile in the box's own directory, for engines that read a file."""
DOOR: Final = "/.sandboxkit-door"
"""
Where a container's agent finds the socket that it hands listeners out through. It has come
before any command runs, and then nobody answers there.
"""
DOOR_FILE: Final = "door"
"""That socket in the box's own directory."""
TRUST: Final = "/.sandboxkit-trust"
"""Where it finds the certificates of proxies that look into its TLS, one for each command."""
TRUST_DIRECTORY: Final = "trust"
"""That directory in the box's own."""
_SEPARATORS = ',"\r\n'
"""What ends a field in the list that Podman makes of a mount."""
_RUN_BYTES = 64 << 10
_MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/fs/ext4",
    "/sys/fs/fuse",
    "/sys/fs/selinux",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
)
"""
Docker's own list (moby, oci/defaults.go); `/proc/key-users`, the numbers of the host user's
keys, which no namespace keeps apart; and the host's devices: only the control groups are
left of /sys, which the agent reads. A missing path is passed over.
"""
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_OWN = ("/dev", "/proc", "/sys")


def shown_tree(spec: SandboxSpec, facts: DockerFacts) -> tuple[Tree, Survey]:
    """
    What a box under *spec* shows of the host.

    Raises:
        SpecError: The facts have seen no spec, or the spec lists hosts where no way leads to
            them, or names what the box has of its own.
    """
    if facts.survey is None:
        raise SpecError("these facts have not seen a spec; use those of detect(spec)")
    if obstacle := facts.no_way_for(spec.network):
        raise SpecError(
            f"network.mode 'listed' cannot be kept by {facts.settings.engine} here: {obstacle}; use a backend that grades "
            "net.allowlist, and net.intercept where TLS is looked into, enforced"
        )
    named = (*spec.filesystem.read, *spec.filesystem.write)
    if problems := [
        f"{path!r} lies in {own}, which is the box's own; copy it elsewhere, for example to /var/tmp"
        for path in named
        for own in _OWN
        if is_inside(path, own)
    ]:
        raise SpecError(*problems)
    if "/" in named:
        raise SpecError("'/' cannot be shown: a container has a root of its own; name the directories that are needed")
    return box_tree(spec, facts.survey), facts.survey


def bound(spec: SandboxSpec, facts: DockerFacts) -> tuple[str, ...]:
    """
    What somebody else could have exchanged and is bound by itself: what the spec names, and
    what lies in writable directories. A named path that what holds it shows as well is not.
    """
    tree, _ = shown_tree(spec, facts)
    named = (*spec.filesystem.write, *spec.filesystem.read)
    return tuple(
        path
        for path, node in tree.nodes.items()
        if node in (Node.READ, Node.WRITE)
        and (path in named or any(is_inside(path, root) for root in spec.filesystem.write))
    )


def box_mounts(spec: SandboxSpec, facts: DockerFacts, scratch: str = "") -> tuple[Mount, ...]:
    """
    What is mounted in the container, ancestors first. Pure.

    Args:
        spec: The spec.
        facts: From `detect(spec)`.
        scratch: The box's own directory on the host, which holds an unreadable file.
    """
    tree, survey = shown_tree(spec, facts)
    copied = facts.is_copy
    steps = [
        _mount(path, node, tree, spec, survey, scratch, copied=copied)
        for path, node in sorted(tree.nodes.items(), key=lambda item: depth(item[0]))
        if not (copied and _is_within_copy(path, spec, tree))
    ]
    steps += [_in_memory(path, spec, _SHARED_MODE) for path in facts.volumes if path not in tree.nodes]
    if spec.network.mode == "listed":
        steps.append(Mount("ro-bind", DOOR, f"{scratch}/{DOOR_FILE}"))
    if spec.network.intercepts:
        steps.append(Mount("ro-bind", TRUST, f"{scratch}/{TRUST_DIRECTORY}"))
    return tuple(steps)


def _is_within_copy(path: str, spec: SandboxSpec, tree: Tree) -> bool:
    """
    Whether *path* lies in something that is copied, of which only the top is mounted.
    """
    named = (*spec.filesystem.write, *spec.filesystem.read)
    return any(path != root and is_inside(path, root) for root in named if root in tree.nodes)


def _mount(
    path: str, node: Node, tree: Tree, spec: SandboxSpec, survey: Survey, scratch: str, *, copied: bool
) -> Mount:
    if copied and node in (Node.READ, Node.WRITE) and path in tree.named:
        return _in_memory(path, spec, _PRIVATE_MODE)
    match node:
        case Node.READ:
            return Mount("ro-bind", path, path)
        case Node.WRITE:
            return Mount("bind", path, path)
        case Node.PRIVATE:
            return _in_memory(path, spec, _PRIVATE_MODE if path == survey.box_home else _SHARED_MODE)
        case Node.HIDDEN:
            return Mount("ro-bind", path, hidden_source(path, tree, survey, scratch))


def _in_memory(path: str, spec: SandboxSpec, mode: int) -> Mount:
    size = spec.filesystem.tmp_bytes
    return Mount("tmpfs", path, size=size, inodes=max(_FEWEST_INODES, size // _BYTES_PER_INODE), perms=mode)


def hidden_source(path: str, tree: Tree, survey: Survey, scratch: str) -> str:
    """
    What of the box's own directory on the host covers a hidden path: a file nobody may
    read, a directory nobody may enter, or one that leads to what is shown inside.

    Not a file system in memory: runc gives that the mode of what it covers.
    """
    if survey.kinds.get(path) == "file":
        return f"{scratch}/nothing"
    inner = any(other != path and is_inside(other, path) for other in tree.nodes)
    return f"{scratch}/way{path}" if inner else f"{scratch}/closed"


def ways(spec: SandboxSpec, facts: DockerFacts) -> tuple[tuple[str, bool], ...]:
    """
    What lies in hidden directories and is shown, with whether it is a directory: in the
    directories that cover them there must be something to mount it on.
    """
    tree, survey = shown_tree(spec, facts)
    tops = [path for path, node in tree.nodes.items() if node is Node.HIDDEN and survey.kinds.get(path) != "file"]
    return tuple(
        (path, survey.kinds.get(path) != "file")
        for path in sorted(tree.nodes, key=depth)
        if any(path != top and is_inside(path, top) for top in tops)
    )


def container(
    spec: SandboxSpec, facts: DockerFacts, *, image: str, labels: dict[str, str], scratch: str, command: tuple[str, ...]
) -> dict[str, Any]:
    """
    What the engine is asked to make, in the words of its interface.

    Nothing is left to the engine's defaults that a default could loosen. The engine removes
    the container when it ends, and closes its input when whoever is attached goes away.

    Args:
        spec: The spec.
        facts: From `detect(spec)`.
        image: The image's id or name.
        labels: Whose it is.
        scratch: The box's own directory on the host.
        command: Its first process.

    Source: Docker Engine API v1.41, ContainerCreate.
    """
    _, survey = shown_tree(spec, facts)
    steps = box_mounts(spec, facts, scratch)
    user = f"{survey.identity.uid}:{survey.identity.gid}"
    return {
        "Image": image,
        "Cmd": list(command),
        "Entrypoint": [],
        "Env": [],
        "Labels": labels,
        "User": user,
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Tty": False,
        "NetworkDisabled": spec.network.mode != "host",
        # Podman would make a timer of systemd even for none.
        **({} if facts.engine == "podman" and facts.is_hosts_system else {"Healthcheck": {"Test": ["NONE"]}}),
        "HostConfig": {
            "AutoRemove": True,
            "Runtime": facts.settings.runtime or "",
            "NetworkMode": "host" if spec.network.mode == "host" else "none",
            "IpcMode": "private",
            "PidMode": "",
            "UTSMode": "",
            "Privileged": False,
            "ReadonlyRootfs": True,
            "CapAdd": [],
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", *_seccomp(spec, facts, scratch), *_masks(facts)],
            "MaskedPaths": list(_MASKED),
            "ReadonlyPaths": list(_READ_ONLY),
            "ShmSize": spec.filesystem.tmp_bytes,
            "UsernsMode": "keep-id" if facts.keeps_user else "",
            **_mounted(steps, survey, facts),
            "LogConfig": {"Type": "none", "Config": {}},
            "RestartPolicy": {"Name": "no"},
            **_bounds(spec, facts),
        },
    }


@cache
def _profile(machine: str, allow_ptrace: bool, allow_nested_userns: bool) -> str:
    return json.dumps(seccomp_profile(machine, allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns))


def profile(spec: SandboxSpec, facts: DockerFacts) -> str:
    """
    The seccomp profile of a box, as JSON; empty where the engine takes none.
    """
    if not facts.reads_profile:
        return ""
    return _profile(facts.machine, spec.process.allow_ptrace, spec.process.allow_nested_userns)


def _seccomp(spec: SandboxSpec, facts: DockerFacts, scratch: str) -> list[str]:
    text = profile(spec, facts)
    return [f"seccomp={f'{scratch}/{PROFILE}' if facts.engine == 'podman' else text}"] if text else []


def _masks(facts: DockerFacts) -> list[str]:
    """
    Podman's interface ignores `MaskedPaths` and masks its own list; this adds ours.
    """
    return [f"mask={':'.join(_MASKED)}"] if facts.engine == "podman" else []


def _mounted(steps: tuple[Mount, ...], survey: Survey, facts: DockerFacts) -> dict[str, Any]:
    """
    What is mounted, by the fields of the interface.

    Podman puts the fields of a mount together with commas, and a directory in memory with
    its options by a colon, and quotes neither.

    Raises:
        SpecError: Podman cannot be told one of the paths.
    """
    binds = [step for step in steps if step.kind in ("bind", "ro-bind")]
    in_memory = {step.target: _tmpfs(step, survey, facts) for step in steps if step.kind == "tmpfs"}
    if facts.engine != "podman":
        return {"Mounts": [_bind(step, facts) for step in binds], "Tmpfs": in_memory}
    if wrong := [step.target for step in steps if ":" in step.target and (step.kind == "tmpfs" or _is_listed(step))]:
        raise SpecError(
            *(f"{path!r} cannot be told to podman: it holds ':', or that and ','; use another" for path in wrong)
        )
    # Podman's own is without a size, and what the root's being read-only leaves to be written.
    if all(step.target != "/run" for step in steps):
        in_memory["/run"] = f"size={_RUN_BYTES},mode=555,nosuid,nodev,noexec,notmpcopyup"
    return {
        "Mounts": [_bind(step, facts) for step in binds if not _is_listed(step)],
        "Binds": [_listed(step) for step in binds if _is_listed(step)],
        "Tmpfs": in_memory,
    }


def _is_listed(step: Mount) -> bool:
    return bool({*_SEPARATORS} & {*(step.source or ""), *step.target})


def _listed(step: Mount) -> str:
    """
    A bind of the interface's older form.
    """
    return f"{step.source}:{step.target}:{'ro' if step.kind == 'ro-bind' else 'rw'},rprivate,bind"


def _bounds(spec: SandboxSpec, facts: DockerFacts) -> dict[str, Any]:
    """
    The limits of the container's control group, as far as the engine says it can set them.
    """
    limits = spec.limits
    found: dict[str, Any] = {"OomKillDisable": False} if facts.cgroup == 1 else {}
    if limits.memory_bytes is not None and "memory" in facts.bounds:
        found["Memory"] = limits.memory_bytes
        if "swap" in facts.bounds:
            found["MemorySwap"] = limits.memory_bytes  # the sum of both: none is left for swap
    if limits.processes is not None and "processes" in facts.bounds:
        found["PidsLimit"] = limits.processes + _AGENTS
    if facts.settings.cpus is not None:
        found["NanoCpus"] = round(facts.settings.cpus * 1e9)
    return found


def _bind(step: Mount, facts: DockerFacts) -> dict[str, Any]:
    """
    A bind of the interface's newer form, which makes no directory where there is none.

    What is mounted below a readable directory would stay writable: engines before 25 make
    only the top read-only, so there what is mounted below is not shown at all.
    """
    options: dict[str, Any] = {"Propagation": "rprivate"}
    is_read_only = step.kind == "ro-bind"
    if is_read_only and _version(facts.api) >= _API_RECURSIVE_READ_ONLY and facts.engine == "docker":
        options["ReadOnlyForceRecursive"] = True
    elif is_read_only:
        options["NonRecursive"] = True
    return {
        "Type": "bind",
        "Source": step.source,
        "Target": step.target,
        "ReadOnly": is_read_only,
        "BindOptions": options,
    }


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _tmpfs(step: Mount, survey: Survey, facts: DockerFacts) -> str:
    """
    The options of a directory in memory. Podman knows none for whose it is, nor for the number
    of inodes: what belongs to the command's user is everybody's there, and nobody else is in it.
    """
    options = [f"size={step.size}", "nosuid", "nodev", "exec"]
    if facts.engine == "podman":
        return ",".join([*options, f"mode={_SHARED_MODE:o}", "notmpcopyup"])
    options.append(f"mode={step.perms or 0:o}")
    if step.perms == _PRIVATE_MODE:
        options += [f"uid={survey.identity.uid}", f"gid={survey.identity.gid}"]
    if step.inodes is not None:
        options.append(f"nr_inodes={step.inodes}")
    return ",".join(options)


# --- the order for the agent -----------------------------------------------------------


def order(
    invocation: Invocation,
    spec: SandboxSpec,
    facts: DockerFacts,
    timeout: float | None,
    proxy_port: int | None = None,
    authority: str = "",
) -> dict[str, Any]:
    """
    What the agent is told to start.

    Args:
        invocation: The command.
        spec: The spec.
        facts: From `detect(spec)`.
        timeout: Seconds until it is ended; None is no deadline.
        proxy_port: The loopback port there of the proxy that is its only way out.
        authority: The file there with that proxy's certificate, where it looks into TLS.

    Raises:
        SpecError: The working directory is not visible in the box.
    """
    inner = _confinement(invocation, spec, facts, proxy_port, authority)
    return {
        "argv": list(inner.argv),
        "environment": [list(row) for row in inner.environment],
        "cwd": inner.cwd,
        "rlimits": [list(row) for row in inner.rlimits],
        "wall": timeout,
        "cpu": spec.limits.cpu if facts.cgroup else None,
    }


def _confinement(
    invocation: Invocation, spec: SandboxSpec, facts: DockerFacts, proxy_port: int | None, authority: str
) -> Confinement:
    tree, survey = shown_tree(spec, facts)
    environment = _environment(invocation, survey)
    if proxy_port is not None:
        environment = proxied_environment(spec.network, environment, port=proxy_port, authority=authority)
    return Confinement(
        argv=invocation.argv,
        environment=tuple(environment.items()),
        cwd=_cwd(invocation.cwd, spec, facts, tree, survey),
        rlimits=tuple(row for row in rlimits(spec.limits) if row[0] not in _unset(facts)),
        proxy_port=proxy_port,
    )


def _environment(invocation: Invocation, survey: Survey) -> dict[str, str]:
    """
    The command's variables, with the box's home in place of the user's. An application on
    Windows has paths of another form, which mean nothing in a container.
    """
    if survey.home:
        return {
            name: survey.box_home if name == "HOME" and value == survey.home else value
            for name, value in invocation.environment
        }
    own = {"HOME": survey.box_home, "PATH": ":".join(TRUSTED_PATH)}
    return own | {name: value for name, value in invocation.environment if name not in own or value.startswith("/")}


def _unset(facts: DockerFacts) -> frozenset[int]:
    """
    The limits of one process that the agent does not set, by number: the number of processes
    is the control group's matter; and gVisor refuses to have one of message queues changed.
    """
    grouped = frozenset() if facts.counts_by_user else frozenset({_RLIMIT_NPROC})
    return grouped | ({_RLIMIT_MSGQUEUE} if facts.runtime == "runsc" else frozenset())


def _cwd(asked: str | None, spec: SandboxSpec, facts: DockerFacts, tree: Tree, survey: Survey) -> str:
    if asked is not None and not facts.is_hosts_system and not _is_shown(asked, tree):
        # The image's own directories are not known here: the agent says whether there is one.
        return posixpath.normpath(asked) if asked.startswith("/") else asked
    return working_directory(asked, spec, survey, lambda path: _is_shown(path, tree), survey.box_home)


def _is_shown(path: str, tree: Tree) -> bool:
    return tree.at(path) in (Node.READ, Node.WRITE) or tree.nodes.get(path) is Node.PRIVATE


# --- for people ------------------------------------------------------------------------


def launch_plan(invocation: Invocation, spec: SandboxSpec, facts: DockerFacts) -> LaunchPlan:
    """
    The plan for *invocation*, as the command line of the engine that would come nearest.

    Raises:
        SpecError: The spec or the working directory cannot be kept.
    """
    if invocation.pass_fds:
        raise SpecError("descriptors cannot be handed into a container; use files, or stdin, stdout and stderr")
    port = PROXY_PORT if spec.network.mode == "listed" else None
    confinement = _confinement(invocation, spec, facts, port, f"{TRUST}/(the command's own).pem")
    made = container(
        spec,
        facts,
        image=facts.settings.image or "(the host's system)",
        labels={},
        scratch="(the box's own)",
        command=confinement.argv,
    )
    return LaunchPlan(
        backend=facts.settings.engine,
        argv=tuple(_command_line(facts.settings.engine, made, confinement)),
        confinement=confinement,
        mounts=box_mounts(spec, facts, "(the box's own)"),
        notes=tuple(_notes(spec, facts)),
    )


def _command_line(engine: str, made: dict[str, Any], inner: Confinement) -> Iterator[str]:
    host = made["HostConfig"]
    yield from (engine, "run", "--rm", "--interactive", "--pull", "never", "--read-only")
    yield from ("--network", host["NetworkMode"], "--ipc", "private", "--cap-drop", "ALL")
    yield from ("--security-opt", "no-new-privileges")
    if any(option.startswith("seccomp=") for option in host["SecurityOpt"]):
        yield from ("--security-opt", "seccomp=PROFILE")
    yield from ("--user", made["User"], "--log-driver", "none", "--shm-size", str(host["ShmSize"]))
    if host["Runtime"]:
        yield from ("--runtime", host["Runtime"])
    for option, key in (("--memory", "Memory"), ("--memory-swap", "MemorySwap"), ("--pids-limit", "PidsLimit")):
        if key in host:
            yield from (option, str(host[key]))
    if "NanoCpus" in host:
        yield from ("--cpus", f"{host['NanoCpus'] / 1e9:g}")
    for target, options in host["Tmpfs"].items():
        yield from ("--tmpfs", f"{target}:{options}")
    for mount in host["Mounts"]:
        read_only = ",readonly" if mount["ReadOnly"] else ""
        yield from ("--mount", f"type=bind,source={mount['Source']},target={mount['Target']}{read_only}")
    yield from ("--workdir", inner.cwd, made["Image"], *inner.argv)


def _notes(spec: SandboxSpec, facts: DockerFacts) -> Iterator[str]:
    survey = facts.survey
    if survey is None:
        return
    if survey.identity.keeps_root:
        yield "the command is uid 0 of the host, without capabilities: its directories are root's"
    if survey.watched:
        yield f"{len(survey.watched)} protected names do not exist; made in the run, they are moved away after it"
    yield from survey.gaps
    if facts.is_copy:
        yield "the named directories are copied into the container; what the command changes stays there"
    if spec.network.mode == "listed":
        from sandboxkit.guard import EgressPolicy  # few boxes need it, and it takes longer than a plan

        yield from EgressPolicy.of_network(spec.network).warnings()
    if spec.filesystem.allow_host_interpreter_writes:
        yield "the box may write what this library runs from"
