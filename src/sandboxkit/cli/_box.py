"""
The spec that the options of a verb describe.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from sandboxkit.cli._injected import injections
from sandboxkit.errors import SpecError
from sandboxkit.model import FilesystemPolicy, NetworkPolicy, SandboxSpec, is_inside, real_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["spec_of"]


def spec_of(options: argparse.Namespace) -> SandboxSpec:
    """
    The spec of `--spec`, or the read-only one of the working directory, with what the
    other options add.

    Raises:
        SpecError: The file is wrong, or a path cannot be right.
    """
    spec = (
        SandboxSpec.from_file(options.spec) if options.spec else _default(has_paths=bool(options.read or options.write))
    )
    read, write = _paths("--read", options.read), _paths("--write", options.write)
    if read or write:
        named = spec.filesystem.model_dump(exclude_unset=True)
        named |= {"read": (*spec.filesystem.read, *read), "write": (*spec.filesystem.write, *write)}
        spec = spec.model_copy(update={"filesystem": FilesystemPolicy(**named)})
    if options.network or options.allow_host or options.intercept or options.inject:
        spec = spec.model_copy(update={"network": _network(spec.network, options)})
    if options.timeout and "wall" not in spec.limits.model_fields_set:
        spec = spec.model_copy(update={"limits": spec.limits.model_copy(update={"wall": options.timeout})})
    return spec


def _network(given: NetworkPolicy, options: argparse.Namespace) -> NetworkPolicy:
    """
    *given* with more hosts and secrets beside its own, or of another mode.
    """
    mode, rows = options.network, injections(options.inject)
    hosts = (*options.allow_host, *(f"https://{row.to.removeprefix('https://')}" for row in rows))
    lists = {"--allow-host": options.allow_host, "--intercept": options.intercept, "--inject": rows}
    if mode in ("none", "host") and any(lists.values()):
        first = next(option for option, value in lists.items() if value)
        raise SpecError(f"{first}: --network {mode} has no list of hosts; leave one of them out")
    if given.mode != "listed" or mode in ("none", "host"):
        given = NetworkPolicy()
    named = given.model_dump(exclude_unset=True) | {"mode": mode or "listed"}
    if hosts:
        named["allow_hosts"] = (*given.allow_hosts, *hosts)
    if options.intercept or rows:
        named["intercept"] = True
    if rows:
        named["inject"] = (*given.inject, *rows)
    return NetworkPolicy(**named)


def _default(*, has_paths: bool) -> SandboxSpec:
    """
    A box that reads the working directory; not the home, unless that is asked for.
    """
    spec = SandboxSpec.read_only()
    (cwd,) = spec.filesystem.read
    if not is_inside(os.path.realpath(_home()), cwd):
        return spec
    if not has_paths:
        raise SpecError(
            f"the working directory {cwd!r} is or holds your home; name what the command may see with --read or --write, or all of it with --read ."
        )
    return SandboxSpec()


def _home() -> str:
    """
    The home, as boxes take it: a relative HOME names none.
    """
    if sys.platform == "win32" or os.environ.get("HOME", "").startswith("/"):
        return os.path.expanduser("~")
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def _paths(option: str, given: Sequence[str]) -> list[str]:
    real, wrong = [], []
    for path in given:
        try:
            real.append(real_path(path))
            if not os.path.exists(real[-1]):
                wrong.append(f"{option}: {path!r} does not exist; create it first")
        except ValueError as exc:
            wrong.append(f"{option}: {exc}")
    if wrong:
        raise SpecError(*wrong)
    return real
