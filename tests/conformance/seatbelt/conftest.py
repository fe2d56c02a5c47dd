"""
The `seatbelt` backend under the conformance suite, on a Mac; elsewhere nothing is collected.

The deviations are what the mechanism is known not to have. No Mac has run them yet: the job
of macOS runners shows which are missing here, and which are no longer true.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from sandboxkit.backends.seatbelt import SeatbeltBackend
from sandboxkit.model import Control
from sandboxkit.testing.conformance import asking_less

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sandboxkit.backends import SandboxBackend

if sys.platform != "darwin":
    collect_ignore = ["test_seatbelt.py"]

ASKED_LESS: Final = frozenset(
    {
        Control.FS_DENY_INSIDE_ALLOW,
        Control.LIMITS_CPU,
        Control.LIMITS_MEMORY,
        Control.LIMITS_PROCESSES,
        Control.PROCESS_ISOLATION,
        Control.PROCESS_KILL_TREE,
        Control.SYSCALLS,
    }
)
"""
What a spec must do without to be run by it: macOS has no namespaces, no filter of system
calls and no limit of memory; names that do not exist are held as the tables spell them.
"""

_NO_NAMESPACES = "macOS has no namespaces: processes, devices, /tmp and the loopback are the host's"
_NO_LOOPBACK = "the box has no network of its own: net.none is kept by refusing every address, its own loopback too"
_NO_MOUNTS = "macOS mounts nothing for a box: its directories lie on the host's disk and are not sized"
_NO_PROC = "macOS has no /proc"
_EACH = "limits count each process by itself, and those of the user that ran before are added"
SEATBELT: Final[Mapping[str, str]] = {
    "the_default_spec_is_met": "process.isolation, process.kill_tree, syscalls and limits.memory are less than it requires",
    "a_denied_an_unlisted_and_a_missing_path_answer_differently": "both answer EPERM: a rule is about a path",
    "the_usual_temporary_directories_are_private": f"{_NO_MOUNTS}; TMPDIR names one of the box's own",
    "memory_behind_files_is_bounded": _NO_MOUNTS,
    "the_device_directory_is_small": f"{_NO_NAMESPACES}; the profile opens the usual devices alone",
    "every_mount_is_without_setuid_and_devices": _NO_PROC,
    "processes_of_the_host_are_not_seen": _NO_NAMESPACES,
    "the_boxs_first_process_gives_nothing_away": _NO_PROC,
    "a_namespace_is_made_where_the_spec_allows_it": _NO_NAMESPACES,
    "there_is_only_the_boxs_own_loopback": _NO_LOOPBACK,
    "ordinary_sockets_are_made": _NO_LOOPBACK,
    "listed_hosts_are_reached_and_no_others": f"{_NO_LOOPBACK}; the rest of it is kept",
    "a_secret_is_put_in_outside_and_never_seen": f"{_NO_PROC}, in which the act looks for the secret",
    "objects_of_system_v_are_not_listed_and_can_be_made": "the profile allows no object of System V",
    "a_bomb_of_private_memory_stops_at_the_limit": "macOS enforces no limit of memory on a process",
    "threads_count_as_processes": "RLIMIT_NPROC of macOS counts no threads",
    "two_boxes_do_not_share_the_limit_of_processes": _EACH,
    "the_limits_are_the_specs": _EACH,
}


@pytest.fixture(scope="session")
def backend_factory() -> Callable[[], SandboxBackend]:
    """
    What makes the backend.
    """
    return partial(asking_less, SeatbeltBackend, ASKED_LESS)


@pytest.fixture(scope="session")
def deviations() -> Mapping[str, str]:
    """
    What it is known not to keep.
    """
    return SEATBELT
