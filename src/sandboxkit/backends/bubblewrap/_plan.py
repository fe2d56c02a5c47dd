"""
From an invocation and a spec to the bwrap command line. Pure.
"""

from __future__ import annotations

import marshal
from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxkit.backends._cgroups import control_groups, watched_limits
from sandboxkit.backends._proxied import PROXY_PORT, proxied_environment
from sandboxkit.backends._tree import Node, Tree, box_tree, working_directory
from sandboxkit.backends.bubblewrap._mounts import mounts
from sandboxkit.confine import child_code, landlock_rules, rlimits, seccomp_filter
from sandboxkit.errors import SpecError
from sandboxkit.model import FIRST_FREE_FD, Confinement, LaunchPlan, Mount, PlanFile, Staging, Trace, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxkit.backends._survey import Survey
    from sandboxkit.backends.bubblewrap._facts import BubblewrapFacts
    from sandboxkit.backends.bubblewrap._program import Program
    from sandboxkit.model import Invocation, LandlockRules, SandboxSpec

__all__ = ["launch_plan"]

# Descriptors in the started program; one more is PROGRAM_FD.
_ARGS, _SECCOMP, _STATUS, _REPORT, _PAYLOAD, _CODE = 3, 4, 5, 6, 7, 8
_MANY = 1 << 16
_BOOT = f"import marshal,posix;exec(marshal.loads(posix.read({_CODE},1<<24)))"
_STAGE = "/tmp"
_SHELL_NAME = "sandbox"
_BY_DESCRIPTOR = "--bind-fd"
_PROGRAMS = 2
"""bwrap, and the child inside."""


def launch_plan(invocation: Invocation, spec: SandboxSpec, facts: BubblewrapFacts) -> LaunchPlan:
    """
    How bwrap starts *invocation* under *spec*.

    Raises:
        SpecError: The working directory is not visible in the box, or the spec makes
            something writable that this library runs from, or names something in /dev.
    """
    survey, program = facts.survey, facts.program
    if survey is None or program is None:
        raise SpecError("the machine was not looked at for this spec; call detect(spec) first")
    _refuse_covered(spec)
    tree = box_tree(spec, survey)
    carriers = range(max((FIRST_FREE_FD - 1, *invocation.pass_fds)) + 1, _MANY)
    numbers = iter(carriers[len(invocation.pass_fds) :])
    contents, data = _data_files(tree, survey, facts, numbers)
    authority = next(numbers) if spec.network.intercepts else None
    if authority is not None:
        contents = (*contents, PlanFile(authority, invocation.authority, "certificate of the proxy"))
    steps = mounts(tree, spec, survey, data=data, instead=dict(invocation.instead), authority=authority)
    if not survey.identity.is_root and _BY_DESCRIPTOR in program.options:
        steps = _held(steps, tree, numbers)
    staging = _staging(steps, survey, program) if survey.identity.is_root and not survey.identity.keeps_root else None
    confinement = _confinement(invocation, spec, facts, tree, survey, carriers)
    listener_fd = next(numbers) if confinement.proxy_port is not None else None
    program_filter = _filter(spec, facts.machine)
    return LaunchPlan(
        backend="bubblewrap",
        argv=_argv(program, facts, staging),
        environment=(("LD_LIBRARY_PATH", _staged(staging, program.libraries)),) if program.libraries else (),
        status_fd=_STATUS,
        files=(
            PlanFile(_ARGS, _options(spec, facts, steps, staging), "options of bwrap"),
            PlanFile(_SECCOMP, program_filter, "seccomp filter"),
            PlanFile(_PAYLOAD, _payload(confinement, listener_fd), "order for the child"),
            PlanFile(_CODE, child_code(), "code of the child"),
            *contents,
        ),
        open_files=program.open_files,
        places=tuple((step.source, step.fd) for step in steps if step.fd is not None and step.source),
        confinement=confinement,
        groups=control_groups(spec.limits, spec.requirements(), facts.cgroups),
        watched=watched_limits(spec.limits),
        mounts=steps,
        staging=staging,
        trace=Trace(_PROGRAMS, (program_filter,)),
        listener_fd=listener_fd,
        notes=_notes(spec, survey, program),
    )


def _refuse_covered(spec: SandboxSpec) -> None:
    """
    The box has a /dev and a /proc of its own, which come last and cover what is named in
    them: the command would find nothing there, and fail late and unclearly.

    Raises:
        SpecError: Something in them is named.
    """
    named = {"read": spec.filesystem.read, "write": spec.filesystem.write}
    problems = [
        f"filesystem.{field}: {path!r} lies in {own}, which is the box's own; copy it elsewhere, for example to /var/tmp"
        for field, paths in named.items()
        for path in paths
        for own in ("/dev", "/proc")
        if is_inside(path, own)
    ]
    if problems:
        raise SpecError(*problems)


def _notes(spec: SandboxSpec, survey: Survey, program: Program) -> tuple[str, ...]:
    notes = []
    if not survey.identity.is_root and _BY_DESCRIPTOR not in program.options:
        notes.append(
            "this bwrap binds by name only: another box that writes the same directories could put a link in the "
            "place of one while this is made; use bubblewrap 0.10 or a distribution's fixed one"
        )
    if survey.identity.keeps_root:
        notes.append("the command keeps uid 0, because process.isolation may be degraded")
    if survey.watched:
        notes.append(
            f"{len(survey.watched)} protected names do not exist; made in the run, they are moved away after it"
        )
    notes += survey.gaps
    if not survey.identity.is_root or survey.identity.keeps_root:
        notes.append("/tmp, /run, /dev/shm and the home are bounded in bytes, not in the number of files")
    if spec.network.mode == "listed":
        from sandboxkit.guard import EgressPolicy  # few boxes need it, and it takes longer than a plan

        notes += EgressPolicy.of_network(spec.network).warnings()
    if spec.filesystem.allow_host_interpreter_writes:
        notes.append("the box may write what this library runs from")
    return tuple(notes)


def _argv(program: Program, facts: BubblewrapFacts, staging: Staging | None) -> tuple[str, ...]:
    child = (facts.interpreter, "-I", "-S", "-c", _BOOT, str(_PAYLOAD), str(_REPORT))
    return (program.executable, "--args", str(_ARGS), "--json-status-fd", str(_STATUS), "--", *child)


def _staged(staging: Staging | None, path: str | None) -> str:
    if staging is None or path is None:
        return path or ""
    number = [source for source, _ in staging.sources].index(path)
    return f"{staging.directory}/{number}"


# --- files --------------------------------------------------------------------------


def _data_files(
    tree: Tree, survey: Survey, facts: BubblewrapFacts, numbers: Iterator[int]
) -> tuple[tuple[PlanFile, ...], dict[str, int]]:
    """
    The files whose content is not the host's, and the descriptor of each path. Every
    one has its own: bwrap 0.11 reads an empty file from a descriptor used twice, and
    0.12 refuses it.
    """
    contents = {
        path: b"" for path, node in tree.nodes.items() if node is Node.HIDDEN and survey.kinds.get(path) == "file"
    }
    if not survey.identity.is_named and tree.at("/etc/passwd") is Node.READ:
        contents["/etc/passwd"], contents["/etc/group"] = _users(survey, facts)
    settings = f"{survey.box_home}/.gitconfig"
    if survey.git_identity and tree.at(settings) is Node.PRIVATE:
        contents[settings] = survey.git_identity
    data = {path: next(numbers) for path in sorted(contents)}
    return tuple(PlanFile(fd, contents[path], f"content of {path}") for path, fd in data.items()), data


def _users(survey: Survey, facts: BubblewrapFacts) -> tuple[bytes, bytes]:
    """
    The user databases with an entry for the box's user: ssh-keygen, npm and others do
    not work for a user without one.
    """
    uid, gid = survey.identity.uid, survey.identity.gid
    passwd, group = (content if content.endswith(b"\n") or not content else content + b"\n" for content in facts.passwd)
    user = f"{_SHELL_NAME}:x:{uid}:{gid}:{_SHELL_NAME}:{survey.box_home}:/bin/sh\n".encode()
    return passwd + user, group + f"{_SHELL_NAME}:x:{gid}:\n".encode()


def _filter(spec: SandboxSpec, machine: str) -> bytes:
    return seccomp_filter(
        machine,
        allow_ptrace=spec.process.allow_ptrace,
        allow_nested_userns=spec.process.allow_nested_userns,
    )


# --- what the child is told -----------------------------------------------------------


def _confinement(
    invocation: Invocation,
    spec: SandboxSpec,
    facts: BubblewrapFacts,
    tree: Tree,
    survey: Survey,
    carriers: Iterable[int],
) -> Confinement:
    environment = {
        name: survey.box_home if name == "HOME" and value == survey.home else value
        for name, value in invocation.environment
    }
    is_listed = spec.network.mode == "listed"
    if is_listed:
        environment = proxied_environment(spec.network, environment)
    return Confinement(
        argv=invocation.argv,
        environment=tuple(environment.items()),
        cwd=working_directory(invocation.cwd, spec, survey, lambda path: _is_shown(path, tree), survey.box_home),
        rlimits=rlimits(spec.limits, grouped=facts.cgroups.controls),
        landlock=_landlock(facts.landlock_abi, tree),
        landlock_abi=facts.landlock_abi,
        pass_fds=tuple(zip(carriers, invocation.pass_fds, strict=False)),
        proxy_port=PROXY_PORT if is_listed else None,
    )


def _landlock(abi: int, tree: Tree) -> LandlockRules | None:
    """
    A second wall behind the mounts. It cannot take away a part of what it grants, so
    what is read-only inside a writable directory is the mounts' business alone.
    """
    writable = sorted(path for path, node in tree.nodes.items() if node in (Node.WRITE, Node.PRIVATE))
    return landlock_rules(abi, readable=("/",), writable=(*writable, "/dev/shm"), devices=("/dev", "/proc"))


def _is_shown(path: str, tree: Tree) -> bool:
    return tree.at(path) in (Node.READ, Node.WRITE) or tree.nodes.get(path) is Node.PRIVATE


def _payload(confinement: Confinement, listener_fd: int | None) -> bytes:
    rules = confinement.landlock
    landlock = rules and (rules.handled_fs, rules.handled_net, rules.scoped, rules.paths, confinement.landlock_abi)
    return marshal.dumps(
        {
            "argv": confinement.argv,
            "environment": confinement.environment,
            "cwd": confinement.cwd,
            "rlimits": confinement.rlimits,
            "landlock": landlock,
            "pass_fds": confinement.pass_fds,
            "listener": None if listener_fd is None else (listener_fd, confinement.proxy_port),
        }
    )


# --- what bwrap is told ---------------------------------------------------------------


def _held(steps: tuple[Mount, ...], tree: Tree, numbers: Iterator[int]) -> tuple[Mount, ...]:
    """
    *steps* with the paths that other boxes may write bound by descriptor: between the
    look at a path and its mount, nobody can put a symbolic link there.
    """
    return tuple(
        replace(step, fd=next(numbers)) if step.kind in ("bind", "ro-bind") and step.target in tree.named else step
        for step in steps
    )


def _staging(steps: tuple[Mount, ...], survey: Survey, program: Program) -> Staging:
    sources = [(step.source, step.owner) for step in steps if step.kind in ("bind", "ro-bind", "dev-bind")]
    if program.libraries:
        sources.append((program.libraries, None))
    memory = [(step.size, step.inodes, step.perms) for step in steps if step.kind == "tmpfs"]
    bounded = tuple((size, inodes, perms or 0) for size, inodes, perms in memory if size and inodes)
    return Staging(survey.identity.uid, survey.identity.gid, tuple(sources), _STAGE, bounded)


def _options(spec: SandboxSpec, facts: BubblewrapFacts, steps: tuple[Mount, ...], staging: Staging | None) -> bytes:
    """
    The options for `--args`, each ended by a NUL. The command itself must stand on the
    command line; bwrap takes no command from there.
    """
    options = [
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        *(["--unshare-net"] if spec.network.mode != "host" else []),
        *(["--disable-userns"] if _disables_userns(spec, facts) else []),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", "--cap-drop", "ALL"),
        *("--seccomp", str(_SECCOMP)),
    ]
    staged = iter(range(len(steps)))
    memory = iter(range(len(staging.sources), len(staging.sources) + len(steps))) if staging else iter(())
    for step in steps:
        options += _step(step, staging, memory if step.inodes is not None else staged)
    return b"".join(option.encode(errors="surrogateescape") + b"\0" for option in (*options, "--chdir", "/"))


def _disables_userns(spec: SandboxSpec, facts: BubblewrapFacts) -> bool:
    return (
        not spec.process.allow_nested_userns
        and facts.program is not None
        and "--disable-userns" in facts.program.options
    )


def _step(step: Mount, staging: Staging | None, staged: Iterator[int]) -> tuple[str, ...]:
    match step.kind:
        case "bind" | "ro-bind" | "dev-bind":
            if step.fd is not None:
                return (f"--{step.kind}-fd", str(step.fd), step.target)
            source = f"{staging.directory}/{next(staged)}" if staging else step.source
            return (f"--{step.kind}", source, step.target)
        case "tmpfs" if staging and step.inodes is not None:
            return ("--bind", f"{staging.directory}/{next(staged)}", step.target)
        case "tmpfs":
            return (*_perms(step), "--size", str(step.size), "--tmpfs", step.target)
        case "data":
            return (*_perms(step), "--ro-bind-data", str(step.fd), step.target)
        case "file":
            return (*_perms(step), "--file", str(step.fd), step.target)
        case "symlink":
            return ("--symlink", step.source, step.target)
        case "proc" | "dev" | "remount-ro":
            return (f"--{step.kind}", step.target)


def _perms(step: Mount) -> tuple[str, ...]:
    return () if step.perms is None else ("--perms", f"{step.perms:04o}")
