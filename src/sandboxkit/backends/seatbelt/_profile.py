"""
From what a box shows to a profile of `sandbox-exec`. Pure.

Paths never become a part of the profile's text: they are parameters, `-D NAME=PATH`, so
that no name of a file can say anything in the profile's language.

Source: sandbox-exec(1), sandbox(7); the language itself has no published reference. The groups
of the base are those that Chromium's and Codex's profiles need for ordinary programs.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandboxkit.backends._tree import Node, Tree, depth

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Profile", "profile"]

_PROGRAM = "/usr/bin/sandbox-exec"
_BASE = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal process-info* mach-priv-task-port (target same-sandbox))
(allow sysctl-read
  (sysctl-name-prefix "hw.") (sysctl-name-prefix "machdep.cpu.")
  (sysctl-name "kern.argmax") (sysctl-name "kern.hostname") (sysctl-name "kern.maxfilesperproc")
  (sysctl-name "kern.osproductversion") (sysctl-name "kern.osrelease") (sysctl-name "kern.ostype")
  (sysctl-name "kern.osversion") (sysctl-name "kern.proc.all") (sysctl-name "kern.usrstack64")
  (sysctl-name "kern.version") (sysctl-name "vm.loadavg"))
(allow sysctl-write (sysctl-name "kern.grade_cputype") (sysctl-name "kern.tcsm_enable"))
(allow mach-lookup
  (global-name "com.apple.PowerManagement.control") (global-name "com.apple.cfprefsd.agent")
  (global-name "com.apple.cfprefsd.daemon") (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow ipc-posix-sem)
(allow iokit-open (iokit-registry-entry-class "RootDomainUserClient"))
(allow file-read* file-write-data file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom") (literal "/dev/tty"))
(allow file-read-metadata (literal "/"))
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """
    A profile and its parameters.

    Attributes:
        text: The profile.
        parameters: (name, value) of each; values are paths.
    """

    text: str
    parameters: tuple[tuple[str, str], ...]

    def argv(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """
        The command line that runs *command* under it.
        """
        given = (word for name, value in self.parameters for word in ("-D", f"{name}={value}"))
        return (_PROGRAM, "-p", self.text, *given, "--", *command)


def profile(tree: Tree, *, proxy_port: int | None = None) -> Profile:
    """
    The profile of a box that shows *tree*.

    The last rule that fits decides, so the nodes come ancestors first: the deepest decides.
    What leads to a named path can be looked at and not listed.

    A path rule says nothing of a directory's other names: who may rename the parent of a
    denied path moves it out of the rule. So what is held in a writable directory, and every
    directory on the way to it, can be neither removed nor made.

    Args:
        tree: What the box shows.
        proxy_port: A port of the host's loopback that may be connected to, for an egress
            proxy; None switches the network off.

    Raises:
        ValueError: *proxy_port* is no port.
    """
    nodes = sorted(tree.nodes.items(), key=lambda item: depth(item[0]))
    names = {path: f"PATH_{number}" for number, path in enumerate(_mentioned(tree))}
    lines = [_BASE]
    lines += [f'(allow file-read-metadata (literal (param "{names[path]}")))\n' for path in _ways(tree)]
    lines += [_rule(node, names[path]) for path, node in nodes]
    lines += [_held(names[path]) for path in _moves(tree)]
    lines.append(_network(proxy_port))
    return Profile("".join(lines), tuple((name, path) for path, name in names.items()))


def _rule(node: Node, name: str) -> str:
    # A subpath covers the path itself and all in it.
    where = f'(subpath (param "{name}"))'
    match node:
        case Node.READ:
            return f"(allow file-read* file-map-executable {where})\n(deny file-write* {where})\n"
        case Node.WRITE:
            return f"(allow file-read* file-write* file-map-executable {where})\n"
        case Node.HIDDEN | Node.PRIVATE:
            return f"(deny file-read* file-write* file-map-executable process-exec {where})\n"


def _held(name: str) -> str:
    return f'(deny file-write-unlink file-write-create (literal (param "{name}")))\n'


def _network(port: int | None) -> str:
    if port is None:
        return "(deny network*)\n"
    if isinstance(port, bool) or not 0 < port < 1 << 16:
        raise ValueError(f"proxy_port {port!r}: give a port from 1 to 65535")
    # `remote`: the form with `local` lets a socket of that port connect anywhere.
    return f'(deny network*)\n(allow network-outbound (remote ip "localhost:{port}"))\n'


def _mentioned(tree: Tree) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*sorted(tree.nodes, key=depth), *_ways(tree), *_moves(tree))))


def _ways(tree: Tree) -> tuple[str, ...]:
    """
    The directories above what is shown, which a program must get through.
    """
    shown = (path for path, node in tree.nodes.items() if node in (Node.READ, Node.WRITE))
    return tuple(sorted({above for path in shown for above in _above(path)}, key=depth))


def _moves(tree: Tree) -> tuple[str, ...]:
    """
    What is held inside a writable directory, with the directories on the way to it.
    """
    found: set[str] = set()
    for path, node in tree.nodes.items():
        if node is Node.WRITE or path == "/" or tree.at(posixpath.dirname(path)) is not Node.WRITE:
            continue
        found.add(path)
        found.update(above for above in _above(path) if tree.at(above) is Node.WRITE)
    return tuple(sorted(found, key=depth))


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path
