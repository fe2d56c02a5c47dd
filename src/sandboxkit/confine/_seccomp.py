"""
The seccomp filter of a box, as bytes for the kernel.

The filters are compiled ahead of time with libseccomp and lie beside the table they
were made from. Reading one takes a fraction of a millisecond; importing pyseccomp
takes some thirty, starts two programs, and fails where libseccomp is not installed,
as in small containers. A test compiles them again and compares.

What a filter does not do: it sees numbers, not memory, so it can judge no path, no
address and no structure. Files are Landlock's and the mounts' matter, the network is
the namespace's.

No call may set the set-user-ID or set-group-ID bit, with nested user namespaces or
without: the file would carry it on the host, where it lets others act as the
workspace's owner. What that costs, and where it ends:

- The filter cannot tell a directory from a file. None can be made set-group-ID, nor can
  the mode of one that inherited the bit be changed to another with it: `git init
  --shared` fails, and so does `cp -a` of such a directory.
- `openat2` is absent; see the table.
- A file that has the bit when the box starts keeps it while it is rewritten through a
  shared mapping; the kernel takes it away only on write, truncation and chown.
- File capabilities are an attribute, which a filter cannot see. They take CAP_SETFCAP,
  which a box has nowhere, as long as it cannot map the uids of a nested namespace.
"""

from __future__ import annotations

import hashlib
import pkgutil
from functools import cache

from sandboxkit.errors import SetupError

__all__ = ["ARCHITECTURES", "SUMS", "TABLE", "filter_name", "seccomp_filter"]

ARCHITECTURES = ("x86_64", "aarch64")
"""Machines there are filters for, as `os.uname().machine` names them."""

TABLE = "data/syscalls.toml"
"""The table the filters are compiled from."""

SUMS = "data/filters.sha256"
"""Checksums of the table and the filters made from it, as sha256sum(1) writes them."""


def filter_name(arch: str, *, allow_ptrace: bool, allow_nested_userns: bool) -> str:
    """
    The data file that holds a filter.
    """
    return f"data/{arch}{'-ptrace' * allow_ptrace}{'-userns' * allow_nested_userns}.bpf"


@cache
def seccomp_filter(arch: str, *, allow_ptrace: bool, allow_nested_userns: bool) -> bytes:
    """
    The filter for a box, as classic BPF for `bwrap --seccomp` or seccomp(2).

    It allows what `data/syscalls.toml` allows. All else answers ENOSYS or EPERM, and
    calls of another architecture or of x32 kill the process. The child that confines
    itself inside the box can still do so under it.

    Args:
        arch: The machine, as `os.uname().machine` names it.
        allow_ptrace: Whether processes may trace and read each other.
        allow_nested_userns: Whether namespaces, and mounts in them, may be made.

    Raises:
        LookupError: *arch* is not one of `ARCHITECTURES`.
        SetupError: The data files are damaged, or were not compiled again after a
            change of the table and libseccomp is not there to do it now.

    Source: seccomp(2), bwrap(1).
    """
    if arch not in ARCHITECTURES:
        raise LookupError(
            f"there is no seccomp filter for the architecture {arch!r}; there is one for {' and '.join(ARCHITECTURES)}"
        )
    name = filter_name(arch, allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns)
    content = _data(name)
    if _is_current(TABLE, _data(TABLE)) and _is_current(name, content):
        return content
    try:
        from sandboxkit.confine import _bake  # costs what this module is there to save
    except (ImportError, RuntimeError) as exc:  # pyseccomp raises RuntimeError without libseccomp
        problem = f"{name} does not match {SUMS}; reinstall the package, or install libseccomp and pyseccomp"
        raise SetupError("seccomp", problem) from exc
    return _bake.build(arch, allow_ptrace=allow_ptrace, allow_nested_userns=allow_nested_userns)


def _data(name: str) -> bytes:
    try:
        return pkgutil.get_data(__package__, name) or b""
    except FileNotFoundError:
        return b""


def _is_current(name: str, content: bytes) -> bool:
    return f"{hashlib.sha256(content).hexdigest()}  {name}" in _data(SUMS).decode().splitlines()
