"""
From what a box shows to a profile of Seatbelt, in its own language (SBPL). Pure.

The text is made of constants; every path, and the name by which the box is known, is a
parameter (`-D NAME=value`), so that no path can say anything in that language.

The last rule that matches decides; but it was observed that a rule for one operation
(`file-write-create`) beats one for many (`file-write*`) wherever it stands. So whatever
is allowed by a wildcard is denied by the same wildcard, after it, and rules for single
operations only ever deny more, or open what no wildcard denies: what is decided is the
same in both readings.

Source: Apple Sandbox Guide v1.0 (reverse.put.as, 2011), the profiles in
/System/Library/Sandbox/Profiles, and what Chromium and other sandboxes of commands use.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._tree import Node, Tree, depth
from sandboxkit.backends.seatbelt._system import (
    BASE_SERVICES,
    LINKS,
    NETWORK_SERVICES,
    OPEN_DEVICES,
    RESOLVER,
    SYSCTL_NAMES,
    SYSCTL_PREFIXES,
)
from sandboxkit.errors import SpecError
from sandboxkit.model import is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Box", "Profile", "profile", "real"]

_READ: Final = "file-read* file-map-executable process-exec*"
_WRITE: Final = "file-write*"
_MOVE: Final = "file-write-unlink file-write-create"
"""Renaming is an unlink of the old path and a creation of the new one; rmdir is the first."""
_PORTS: Final = range(1, 1 << 16)


@dataclass(frozen=True, slots=True)
class Box:
    """
    What a profile is made from.

    Attributes:
        nodes: What stands where; the deepest above a path decides. Real paths, or such as
            begin with a link of the system's own (/tmp).
        missing: Names that do not exist and must not be made.
        sockets: Directories in which sockets may be made and connected to.
        network: `none`, `listed` for what the proxy lets through, or `host` for all of the
            host's network.
        proxy_port: The one TCP port of the host's own 127.0.0.1 that may be connected to, or
            None.
        debugging: Whether its processes may debug each other.
        terminal: Whether it may use terminals.
        mark: A name nobody else knows, by which its processes are found; empty for none.
    """

    nodes: Mapping[str, Node]
    missing: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    network: str = "none"
    proxy_port: int | None = None
    debugging: bool = True
    terminal: bool = False
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """
    A profile as sandbox-exec(1) takes it.

    Attributes:
        text: In SBPL.
        parameters: (name, value), in the order of the names.
    """

    text: str
    parameters: tuple[tuple[str, str], ...]

    def arguments(self) -> tuple[str, ...]:
        """
        The arguments of sandbox-exec(1) up to the command.
        """
        given = (f"-D{name}={value}" for name, value in self.parameters)
        return ("-p", self.text, *given, "--")


def profile(box: Box) -> Profile:
    """
    The profile for *box*.

    Raises:
        SpecError: It asks for a network, or a port, that this cannot say.
    """
    names = _Names()
    nodes = _real_nodes(box.nodes)
    missing = tuple(sorted({real(path) for path in box.missing}, key=depth))
    rules = (
        *_BASE,
        *_processes(box, names),
        *_services(box),
        *_tree(nodes, missing, names),
        *_ways(nodes, names),
        *_devices(nodes, terminal=box.terminal),
        *_pins(nodes, missing, names),
        *_network(box, names),
    )
    return Profile("\n".join(rules) + "\n", names.given())


def real(path: str) -> str:
    """
    *path* without the links of the system's own: /private/tmp for /tmp.
    """
    return f"/private{path}" if any(is_inside(path, link) for link in LINKS) else path


@dataclass(slots=True)
class _Names:
    """
    The parameters, each named when it is first used.
    """

    _known: dict[str, str] = field(default_factory=dict)

    def of(self, value: str) -> str:
        """
        The expression that stands for *value*.

        Raises:
            SpecError: No program can be given it.
        """
        if "\0" in value:
            raise SpecError(f"{value!r} holds a NUL byte, which no path has")
        name = self._known.setdefault(value, f"P{len(self._known)}")
        return f'(param "{name}")'

    def given(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, value) for value, name in self._known.items())


_SHARED_MEMORY: Final = " ".join(
    f"ipc-posix-shm-{act}" for act in ("read-data write-create write-data write-unlink".split())
)
_SHARED_NAMES: Final = '(ipc-posix-name-regex "^/(psm_[0-9a-f]+|__KMP_REGISTERED_LIB_[0-9]+)$")'
_RANKS: Final = {Node.HIDDEN: 0, Node.PRIVATE: 0, Node.READ: 1, Node.WRITE: 2}

_BASE: Final = (
    "(version 1)",
    "(deny default)",
    "; Whatever a process starts is bound by the same profile.",
    "(allow process-fork)",
    "(allow signal (target same-sandbox))",
    "(allow process-info* (target same-sandbox))",
    "(allow user-preference-read)",
    "(allow ipc-posix-sem)",
    "; Python's multiprocessing and libomp; other programs' shared memory has other names.",
    f"(allow {_SHARED_MEMORY} {_SHARED_NAMES})",
    "(allow mach-host*)",
    '(allow sysctl-write (sysctl-name "kern.grade_cputype"))',
    '(allow iokit-open (iokit-registry-entry-class "RootDomainUserClient"))',
    '(allow file-read* (literal "/"))',
)


def _real_nodes(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """
    *nodes* by real paths. Where two names meet in one, the lesser holds.
    """
    found: dict[str, Node] = {}
    for path, node in nodes.items():
        place = real(path)
        if place not in found or _RANKS[node] < _RANKS[found[place]]:
            found[place] = node
    return found


def _at(nodes: Mapping[str, Node], path: str) -> Node | None:
    return Tree(nodes, frozenset()).at(path)


def _processes(box: Box, names: _Names) -> Iterator[str]:
    if box.debugging:
        yield "(allow mach-priv-task-port (target same-sandbox))"
    if box.mark:
        yield f"(allow mach-lookup (global-name {names.of(box.mark)}))"


def _services(box: Box) -> Iterator[str]:
    services = (*BASE_SERVICES, *(NETWORK_SERVICES if box.network == "host" else ()))
    yield _rule("allow mach-lookup", (f'(global-name "{name}")' for name in services))
    sysctls = [f'(sysctl-name "{name}")' for name in SYSCTL_NAMES]
    yield _rule("allow sysctl-read", (*sysctls, *(f'(sysctl-name-prefix "{name}")' for name in SYSCTL_PREFIXES)))


def _rule(head: str, filters: Iterable[str]) -> str:
    """
    A rule for whatever one of *filters* matches.
    """
    return f"({head} {' '.join(filters)})"


def _tree(nodes: Mapping[str, Node], missing: tuple[str, ...], names: _Names) -> Iterator[str]:
    """
    One step for each path, outer ones first: so the deepest decides.
    """
    for path in sorted({*nodes, *missing}, key=depth):
        if path in nodes:
            yield from _node(nodes[path], names.of(path))
        if path in missing:
            yield _rule(f"deny {_WRITE}", (f"(subpath {names.of(path)})", *_spellings(path, names)))


def _node(node: Node, place: str) -> Iterator[str]:
    match node:
        case Node.READ:
            yield f"(allow {_READ} (subpath {place}))"
            yield f"(deny {_WRITE} (subpath {place}))"
        case Node.WRITE:
            yield f"(allow {_READ} {_WRITE} (subpath {place}))"
        case Node.HIDDEN | Node.PRIVATE:
            yield f"(deny {_READ} {_WRITE} (subpath {place}))"


def _spellings(path: str, names: _Names, *, whole: bool = True) -> Iterator[str]:
    """
    Filters for *path*, a name of the protection sets, however its letters are written: most
    volumes of macOS take .GIT for .git. The pattern is made of names this library knows,
    never of the path.

    Args:
        path: Which.
        names: The parameters.
        whole: Whether what lies in it is meant too.
    """
    known = _known_name(path)
    if known is None:
        return
    directory, name = known
    end = "(/.*)?$" if whole else "$"
    yield _spelled(directory, f"{_letters(name)}{end}", names)


def _known_name(path: str) -> tuple[str, str] | None:
    """
    (directory, the rest) where the rest of *path* is a name of the protection sets.
    """
    found = [name for name in _table() if path.endswith("/" + name)]
    if not found:
        return None
    name = max(found, key=len)
    return path[: -len(name) - 1] or "/", name


def _table() -> tuple[str, ...]:
    return tuple(sorted({".git", "HEAD", *(name for names in layouts().protect.values() for name in names)}))


def _spelled(directory: str, pattern: str, names: _Names) -> str:
    start = "" if directory == "/" else f"(regex-quote {names.of(directory)}) "
    return f'(regex (string-append "^" {start}"/{pattern}"))'


def _letters(name: str) -> str:
    """
    A regular expression for *name* in any mix of capitals: one class for each character.
    """
    return "".join(
        "/" if letter == "/" else f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else f"[{letter}]"
        for letter in name
    )


def _above(path: str) -> Iterator[str]:
    """
    The directories that lead to *path*, without the root.
    """
    while (path := posixpath.dirname(path)) != "/":
        yield path


def _ways(nodes: Mapping[str, Node], names: _Names) -> Iterator[str]:
    """
    What leads to something visible can be looked at, and not listed.
    """
    shown = [path for path, node in nodes.items() if node in (Node.READ, Node.WRITE)]
    ways = {above for path in shown for above in _above(path) if _at(nodes, above) not in (Node.READ, Node.WRITE)}
    links = (f'(literal "{link}")' for link in LINKS)
    yield _rule("allow file-read-metadata", (*links, *(f"(literal {names.of(path)})" for path in sorted(ways))))


def _devices(nodes: Mapping[str, Node], *, terminal: bool) -> Iterator[str]:
    open_to_all = [path for path in OPEN_DEVICES if _at(nodes, path) not in (Node.HIDDEN, Node.PRIVATE)]
    if _at(nodes, "/dev") not in (Node.HIDDEN, Node.PRIVATE):
        yield '(allow file-read* (literal "/dev") (subpath "/dev/fd"))'
        yield '(allow file-write-data (subpath "/dev/fd"))'
    if open_to_all:
        literals = " ".join(f'(literal "{path}")' for path in open_to_all)
        yield f"(allow file-read* {literals})"
        yield f"(allow file-write-data file-ioctl (require-all (require-any {literals}) (vnode-type CHARACTER-DEVICE)))"
    if terminal:
        yield "(allow pseudo-tty)"
        yield '(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (literal "/dev/tty"))'
        yield '(allow file-read* file-write* file-ioctl (regex "^/dev/ttys[0-9]+$"))'


def _pins(nodes: Mapping[str, Node], missing: tuple[str, ...], names: _Names) -> Iterator[str]:
    """
    Nothing that leads from a writable directory to another access can be moved, removed or
    put there: whoever moves a directory away has its files under names nobody denied.
    """
    held = {**nodes, **dict.fromkeys(missing, Node.READ)}
    pinned = {place for path in held for place in (path, *_above(path)) if _at(held, place) is Node.WRITE}
    filters = [f"(literal {names.of(path)})" for path in sorted(pinned, key=depth)]
    for path in missing:
        for above in _above(path):
            if above in pinned and above not in nodes:
                filters += _spelled_above(path, above, names)
    if filters:
        yield _rule(f"deny {_MOVE}", dict.fromkeys(filters))


def _spelled_above(path: str, above: str, names: _Names) -> Iterator[str]:
    """
    A filter for *above*, on the way to the missing *path*, in any spelling, as far as a
    table has it.
    """
    known = _known_name(path)
    if known is not None and len(above) > len(known[0]):
        yield _spelled(known[0], f"{_letters(above[len(known[0].rstrip('/')) + 1 :])}$", names)


def _network(box: Box, names: _Names) -> Iterator[str]:
    """
    Raises:
        SpecError: See `profile`.
    """
    for path in map(real, sorted(box.sockets)):
        place = f"unix-socket (subpath {names.of(path)})"
        yield "(allow system-socket (socket-domain AF_UNIX))"
        yield f"(allow network-bind network-inbound (local {place}))"
        yield f"(allow network-outbound (remote {place}))"
    if box.proxy_port is not None:
        if box.proxy_port not in _PORTS:
            raise SpecError(f"the egress proxy's port {box.proxy_port!r} is none; it is a number from 1 to 65535")
        yield f'(allow network-outbound (remote tcp4 "localhost:{box.proxy_port:d}"))'
    match box.network:
        case "none" | "listed":
            return
        case "host":
            yield '(allow network-outbound (remote ip "*:*"))'
            yield '(allow network-bind network-inbound (local ip "*:*"))'
            yield f'(allow network-outbound (literal "{RESOLVER}"))'
            yield "(allow system-socket (require-all (socket-domain AF_SYSTEM) (socket-protocol 2)))"
        case mode:
            raise SpecError(f"network.mode {mode!r} cannot be kept by Seatbelt; use 'none' or 'listed'")
