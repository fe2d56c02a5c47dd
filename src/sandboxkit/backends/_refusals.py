"""
From what a run was refused to violations, each with the line of a spec file that would
allow it. Pure.

A line is given only where it is known to be enough for that call, and never for
credentials, for names that other programs execute or obey, for what the spec itself
denies, or for a whole home: those a person must think of.
"""

from __future__ import annotations

import errno
import json
import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._tree import Node, Tree, box_tree
from sandboxkit.confine import ARCHITECTURES, filter_allows, seccomp_filter
from sandboxkit.model import Access, Violation, access_of, is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandboxkit.backends._host import Seen
    from sandboxkit.backends._survey import Survey
    from sandboxkit.model import Refusal, SandboxSpec

__all__ = ["Ground", "is_of_the_box", "merged", "violation"]

_KINDS = {
    "read": "read",
    "exec": "exec",
    "content": "write",
    "attributes": "write",
    "create": "write",
    "entry": "write",
    "connect": "connect",
    "bind": "bind",
    "signal": "signal",
}
_WRITES = frozenset({"content", "attributes", "create", "entry", "bind"})
_SPECIAL = ("/proc", "/dev")
_INTERNET = (2, 10)
_OBEYED = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/var/spool/cron")
"""Written, these change what every user of the machine runs. Source: hier(7), crontab(5)."""
_LAST_RESERVED_PORT = 1023
_NETWORK_LINE = 'network.mode = "host"'


@dataclass(frozen=True, slots=True)
class Ground:
    """
    What a box was, as far as it explains a refusal.

    Attributes:
        spec: Its spec.
        survey: The host as it was seen for that.
        tree: What it showed.
        machine: The architecture.
        nests: Whether the backend can let user namespaces be made.
        homes: Whose credentials the application could read.
        search: Where the application's user finds programs.
    """

    spec: SandboxSpec
    survey: Survey
    tree: Tree
    machine: str
    nests: bool
    homes: tuple[str, ...] = ()
    search: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        spec: SandboxSpec,
        survey: Survey,
        *,
        machine: str,
        nests: bool,
        homes: tuple[str, ...] = (),
        search: tuple[str, ...] = (),
    ) -> Ground:
        """
        The ground of a box under *spec*.
        """
        return cls(spec, survey, box_tree(spec, survey), machine, nests, homes, search)


def is_of_the_box(refusal: Refusal, ground: Ground) -> bool:
    """
    Whether the box had a part in *refusal*: a box on the host's network adds nothing to
    what that answers, but holds no capability to bind a reserved port.
    """
    is_inet = refusal.act in ("connect", "bind") and not refusal.paths and not refusal.address.startswith("@")
    if refusal.is_filtered or not is_inet or ground.spec.network.mode != "host":
        return True
    return refusal.act == "bind" and refusal.error == errno.EACCES and _port(refusal) <= _LAST_RESERVED_PORT


def violation(refusal: Refusal, seen: tuple[Seen, ...], ground: Ground) -> Violation:
    """
    What *refusal* means.

    Args:
        refusal: The call.
        seen: Its paths, as the host has them.
        ground: The box.
    """
    kind, target = _KINDS.get(refusal.act, "syscall"), " -> ".join(refusal.paths) or refusal.address
    if refusal.act in ("socket", "other"):
        kind, target, why, line = _call(refusal, ground)
    elif refusal.is_filtered:
        why, line = _FILTERED, _switch(refusal, ground)
    elif seen:
        why, line = _file(refusal, seen, ground)
    elif refusal.act == "signal":
        why, line = "the box may not signal processes outside", None
    else:
        why, line = _network(refusal, ground)
    name = errno.errorcode.get(refusal.error, str(refusal.error))
    return Violation(
        kind,
        target,
        f"{refusal.call} by {refusal.program or 'an unnamed program'} got {name}: {why}",
        spec_line=line,
        call=refusal.call,
        error=name,
        program=refusal.program,
        count=refusal.count,
    )


def merged(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    """
    *violations* with those of one kind and target as one: the first, with the sum of how
    often and a line that any of them has.
    """
    found: dict[tuple[str, str], Violation] = {}
    for one in violations:
        key = (one.kind, one.target)
        if before := found.get(key):
            one = replace(before, count=before.count + one.count, spec_line=before.spec_line or one.spec_line)
        found[key] = one
    return tuple(found.values())


# --- files --------------------------------------------------------------------------


def _file(refusal: Refusal, seen: tuple[Seen, ...], ground: Ground) -> tuple[str, str | None]:
    writes = refusal.act in _WRITES
    for place in seen:
        if why := _kept(place.path, ground, writes=writes):
            return why, None
    if refusal.error == errno.EXDEV:
        return "the two lie on different mounts of the box, between which nothing can be moved", None
    if refusal.error == errno.EBUSY:
        return "it is a mount point of the box, which cannot be moved or removed", None
    if refusal.act == "connect":
        return "sockets outside are not handed into a box", None
    needed = [path for place in seen if (path := _needed(refusal, place, ground)) is not None]
    why = _shown(seen[0].path, ground, writes=writes)
    if any(path == place.path and place.names > 1 for place in seen for path in needed):
        return f"{why}; the file has other names, which may be anything, so no line is given for this one", None
    if not needed or any(_is_unnameable(refusal, place, ground) for place in seen):
        return why, None
    return why, _paths_line("write" if writes else "read", needed)


def _kept(path: str, ground: Ground, *, writes: bool) -> str:
    """
    Why no line is given for *path*, whatever the call; empty where nothing stands against
    one.
    """
    spec, survey = ground.spec, ground.survey
    if any(is_inside(path, found) for found in survey.matched):
        return "a pattern of filesystem.deny matches it"
    if access_of(path, spec.filesystem.tree()) is Access.DENY:
        return "filesystem.deny names it"
    if any(is_inside(path, found) for found in _credentials(ground)):
        return "it holds credentials, which are denied unless the spec names exactly that path"
    if any(is_inside(path, found) for found in layouts().denied_services):
        return "a service behind it acts outside of the box, so it is denied unless the spec names exactly that path"
    if not writes:
        return ""
    held = (*survey.protected, *(place.path for place in survey.watched))
    if any(is_inside(path, found) for found in held) or _is_protected(path, spec.filesystem.protect):
        return "other programs execute or obey it, so it is protected"
    if any(is_inside(path, found) for found in survey.launcher):
        return "this library itself runs from it"
    if any(is_inside(path, found) for found in _OBEYED) and access_of(path, spec.filesystem.tree()) < Access.READ:
        return "the system runs or obeys what lies there, so no line is given"
    if any(is_inside(path, found) for found in _searched(ground)):
        return "the user runs programs from there by their names, so no line is given"
    return ""


def _searched(ground: Ground) -> Iterator[str]:
    """
    Where the user finds programs, apart from what the spec names.
    """
    tree = ground.spec.filesystem.tree()
    return (found for found in ground.search if access_of(found, tree) < Access.READ)


def _credentials(ground: Ground) -> tuple[str, ...]:
    homes = dict.fromkeys((ground.survey.home.rstrip("/"), *ground.homes))
    return (*layouts().denied_system, *(f"{home}/{name}" for home in homes for name in layouts().denied_home))


def _is_protected(path: str, protect: Iterable[str]) -> bool:
    """
    Whether *path* would be protected in some writable directory.
    """
    sets = layouts().protect
    return any(f"/{name}/" in f"{path}/" for group in protect if group in sets for name in sets[group])


def _needed(refusal: Refusal, place: Seen, ground: Ground) -> str | None:
    """
    The path that a spec must name for the call to work on *place*; None where it has it.
    """
    makes = refusal.act in ("entry", "bind") or (refusal.act == "create" and place.kind is None)
    path = posixpath.dirname(place.path) if makes else place.path
    if len(refusal.paths) > 1 and ground.tree.at(path) in (Node.WRITE, Node.PRIVATE):
        return None
    return path


def _is_unnameable(refusal: Refusal, place: Seen, ground: Ground) -> bool:
    """
    Whether the path that the call needs cannot be named, or should not be by itself.
    """
    path = _needed(refusal, place, ground)
    if path is None:
        return False
    writes = refusal.act in _WRITES
    if path == place.path and place.kind not in ("directory", "file"):
        return True
    if path != place.path and not place.above:
        return True
    has_it = access_of(path, ground.spec.filesystem.tree()) >= (Access.WRITE if writes else Access.READ)
    return (
        not place.is_real
        or has_it
        or path in layouts().private
        or any(is_inside(home, path) for home in (ground.survey.home, *ground.homes))
        or any(is_inside(path, special) for special in (*_SPECIAL, *(("/sys",) if writes else ())))
        or (writes and any(is_inside(found, path) for found in _searched(ground)))
        or path == "/"
    )


def _shown(path: str, ground: Ground, *, writes: bool) -> str:
    match ground.tree.at(path):
        case Node.READ if writes:
            return "the box may only read it"
        case Node.WRITE | Node.READ:
            return "the box shows it, to another user than its owner or without the right it takes"
        case _:
            return "the box does not show it"


def _paths_line(field: str, paths: Iterable[str]) -> str | None:
    """
    The line that names *paths*; None where one is no text, which a spec file is.
    """
    try:
        quoted = [_quoted(path) for path in dict.fromkeys(paths)]
    except UnicodeEncodeError:
        return None
    return f"filesystem.{field} = [{', '.join(quoted)}]"


def _quoted(text: str) -> str:
    """
    *text* as a basic string of TOML, whose escapes are JSON's but for DEL.
    """
    text.encode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- the network and the filter -----------------------------------------------------

_FILTERED = "the box's filter of system calls refuses it"


def _network(refusal: Refusal, ground: Ground) -> tuple[str, str | None]:
    if refusal.address.startswith("@"):
        return "sockets outside are not handed into a box", None
    if ground.spec.network.mode == "listed":
        return "it does not ask the box's proxy, the only way out (HTTPS_PROXY names it)", None
    if refusal.act == "bind" and _port(refusal) <= _LAST_RESERVED_PORT:
        return "the command holds no capability, which this port takes", None
    if ground.spec.network.mode != "none":
        return "the box has no right to it", None
    return "the network is off", _NETWORK_LINE


def _port(refusal: Refusal) -> int:
    return int(refusal.address.rpartition(":")[2])


def _call(refusal: Refusal, ground: Ground) -> tuple[str, str, str, str | None]:
    """
    (kind, target, why, line) of a call that only the filter refuses.
    """
    family = refusal.arguments[0] & 0xFFFFFFFF
    if refusal.act == "socket" and family in _INTERNET and ground.spec.network.mode == "none":
        return "connect", "the internet", "the network is off", _NETWORK_LINE
    return "syscall", refusal.call, _FILTERED, _switch(refusal, ground)


def _switch(refusal: Refusal, ground: Ground) -> str | None:
    """
    The switch of the spec under which the filter would let the very same call pass.
    """
    process, machine = ground.spec.process, ground.machine
    switches = {"allow_ptrace": process.allow_ptrace, "allow_nested_userns": process.allow_nested_userns}

    def passes(**changed: bool) -> bool:
        program = seccomp_filter(machine, **{**switches, **changed})
        return filter_allows(program, machine, refusal.number, refusal.arguments)

    if machine not in ARCHITECTURES or passes():
        return None  # another filter refused it, which has no switch
    for name in ("allow_ptrace", *(("allow_nested_userns",) if ground.nests else ())):
        if not switches[name] and passes(**{name: True}):
            return f"process.{name} = true"
    return None
