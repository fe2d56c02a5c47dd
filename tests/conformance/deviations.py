"""
What the built-in backends do not keep of the conformance suite, by backend and by who
calls: each with the reason. The suite finds an entry that is no longer true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEVIATIONS", "LANDLOCK_BEFORE", "ROOT", "USER", "landlock_deviations"]

ROOT: Final = "root"
USER: Final = "a plain user"

_NO_PID_NAMESPACE = "it has no namespace of processes: process.isolation is partial"
_NO_IPC = "it has no IPC namespace: the filter refuses every System V and POSIX object, one's own too"
_NO_MOUNTS = "it mounts nothing"
_NO_PART = (
    "Landlock cannot take a part away from what it grants: in a writable directory that holds a denied path nothing can be "
    "made, moved or removed directly, and fs.deny_inside_allow is lowered"
)
_LOOKED_AT = (
    "Landlock cannot hold a name inside a writable directory: the spec must let fs.deny_inside_allow be less, and what "
    "was changed is reported after the run"
)
_NO_METADATA = (
    "Landlock does not decide about modes, owners and times, so the filter refuses to change any; a spec that lets "
    "fs.write be less may"
)
_NO_SOCKETS = "it has no network namespace: net.none is kept by refusing every socket, those of the own loopback too"
_NO_SEMAPHORES = f"POSIX semaphores live in /dev/shm, which is the host's and out of reach: {_NO_MOUNTS}"
_NO_TERMINAL = f"/dev/pts is the host's and out of reach: {_NO_MOUNTS}"
_ROOT_IS_ROOT = (
    "root's own directories take root: the command keeps uid 0, without capabilities, and process.isolation says so"
)
_UNCOUNTED = "the kernel does not count the processes of root against RLIMIT_NPROC: limits.processes is absent"

_LISTED: Final = (
    "listed_hosts_are_reached_and_no_others",
    "a_refused_host_is_reported",
    "https_is_looked_into_where_the_spec_asks",
    "a_secret_is_put_in_outside_and_never_seen",
)

_LANDLOCK: Final[Mapping[str, str]] = {
    "the_default_spec_is_met": f"{_NO_PID_NAMESPACE}, and the default spec requires it enforced",
    # files
    "a_denied_an_unlisted_and_a_missing_path_answer_differently": "an unlisted path answers EACCES as a denied one does: "
    "that a path exists can be seen, as fs.read says",
    "a_name_is_only_a_name": _NO_PART,
    "the_deepest_named_path_decides": _NO_PART,
    "what_the_library_runs_from_is_not_rewritten": f"it is not; but {_NO_PART}",
    "protected_names_are_neither_written_nor_moved_aside": _LOOKED_AT,
    "a_worktree_does_not_open_its_repository": _LOOKED_AT,
    "the_usual_temporary_directories_are_private": f"{_NO_MOUNTS}: the host's are out of reach, and TMPDIR names one of "
    "the box's own",
    "memory_behind_files_is_bounded": f"{_NO_MOUNTS}: the box's own directories lie on the host's disk and are not sized",
    # processes
    "processes_of_the_host_are_not_seen": _NO_PID_NAMESPACE,
    "every_mount_is_without_setuid_and_devices": f"{_NO_MOUNTS}; no_new_privs keeps programs from gaining rights",
    "a_namespace_is_made_where_the_spec_allows_it": "the filter refuses it, whatever the spec allows: less is no harm",
    "nothing_is_typed_into_a_terminal_of_its_own": f"none can be made: {_NO_TERMINAL}",
    # network and IPC
    "datagrams_do_not_leave": f"they do not; but {_NO_SOCKETS}",
    "there_is_only_the_boxs_own_loopback": _NO_SOCKETS,
    "ordinary_sockets_are_made": _NO_SOCKETS,
    **dict.fromkeys(
        _LISTED, "Landlock knows ports and no hosts, and there is no network of its own: such a spec is refused"
    ),
    "objects_of_system_v_are_not_listed_and_can_be_made": _NO_IPC,
    "keys_of_the_host_are_not_listed": "/proc is the host's: it lists the names of the user's keys; no call of the box "
    "can read or use one",
    # limits
    "the_limits_are_the_specs": "RLIMIT_NPROC counts all processes of the user, so those that ran before are added: "
    "limits.processes is partial",
    "two_boxes_do_not_share_the_limit_of_processes": "RLIMIT_NPROC counts all processes of the user, those of other boxes "
    "too, and none of root's: limits.processes is partial, or absent",
    # tools
    "git_knows_its_user": f"it does; but git init changes modes. {_NO_METADATA}",
    "tools_below_a_private_home": "they run; but a readable directory that holds a hidden one cannot be listed",
    **{
        f"ordinary_tool[{name}]": _NO_METADATA
        for name in (
            "chown to oneself and chmod",
            "compiler, linker and make",
            "cp that keeps mode and time",
            "cp, mv, touch, rename across directories",
            "git clone of a local repository",
            "git config of the workspace's repository",
            "git init in the temporary directory",
            "install",
            "tar of programs, links and a directory all may write",
            "tar, gzip and find",
            "venv and pip, without an index",
        )
    },
    "ordinary_tool[git worktree]": "it makes one in /tmp, which is out of reach",
    **{
        f"ordinary_tool[{name}]": _NO_SOCKETS
        for name in (
            "node: listen on loopback, and a socket in the workspace",
            "python: AF_UNIX server, in the workspace and abstract",
            "python: getaddrinfo and interfaces",
            "python: http.server and urllib",
            "python: loopback servers, IPv4 and IPv6",
            "python: multiprocessing.Manager",
        )
    },
    **{
        f"ordinary_tool[{name}]": _NO_SEMAPHORES
        for name in (
            "python: ProcessPoolExecutor",
            "python: multiprocessing.Lock and shared memory",
            "python: processes by spawn and forkserver",
        )
    },
    "ordinary_tool[script(1), a terminal of its own]": _NO_TERMINAL,
    "ordinary_tool[node: os, fs.watch, WebAssembly]": "Landlock does not decide about watching, by which the names of files of "
    "others are learned: the filter refuses it; a spec that lets fs.read be less may",
}
"""
What an ordinary user and root lose alike. Each is a loss that the grades or notes of a box tell.
"""
_LANDLOCK_ROOT: Final[Mapping[str, str]] = {
    "the_command_is_not_root_to_itself": _ROOT_IS_ROOT,
    "the_host_sees_an_unprivileged_user": _ROOT_IS_ROOT,
    "the_boxs_first_process_gives_nothing_away": f"{_NO_PID_NAMESPACE}, and the numbers of the host's init's descriptors "
    f"are root's to list, what they lead to is not. {_ROOT_IS_ROOT[0].upper()}{_ROOT_IS_ROOT[1:]}",
    "a_device_that_lies_in_the_workspace_is_not_opened": f"{_NO_MOUNTS}, so a device in a writable directory is what its "
    f"mode says. {_ROOT_IS_ROOT[0].upper()}{_ROOT_IS_ROOT[1:]}",
    "a_fork_bomb_stops_at_the_limit": _UNCOUNTED,
    "a_real_fork_bomb_ends_at_the_deadline": f"it is not tried: {_UNCOUNTED}",
    "threads_count_as_processes": _UNCOUNTED,
}
_LANDLOCK_USER: Final[Mapping[str, str]] = {
    "no_capability_can_be_had_again": "an ordinary user may not empty the bounding set without a user namespace; "
    "no_new_privs keeps every program from gaining from it",
}

_AS_BOUND = "an engine binds a directory as it is, so root's own take root: process.isolation is partial"

_DOCKER: Final[Mapping[str, str]] = {
    "the_run_directory_is_empty": "/run is; of /sys the names at the top are seen, and nothing in them but the container's own "
    "control groups, which its supervisor reads",
    "the_device_directory_is_small": "it also has /dev/mqueue, the container's own, which the engine mounts always",
    "every_mount_is_without_setuid_and_devices": "an engine mounts its root and binds without these flags; no_new_privs keeps "
    "programs from gaining rights, and the control group of devices refuses others than the usual ones",
    "processes_of_the_host_are_not_seen": "they are not; but the command is not number 2: the number of a container's first "
    "command depends on what the engine did before it",
    "the_limits_are_the_specs": "processes are counted by the container's control group and not by RLIMIT_NPROC, which would "
    "count those of other containers too",
}
_DOCKER_ROOT: Final[Mapping[str, str]] = {
    "the_default_spec_is_met": _AS_BOUND,
    "the_command_is_not_root_to_itself": _AS_BOUND,
    "the_host_sees_an_unprivileged_user": _AS_BOUND,
    "the_boxs_first_process_gives_nothing_away": f"the numbers of its descriptors are root's to list, what they lead to is not. {_AS_BOUND}",
    "the_box_has_no_other_place_to_write": f"/dev is in memory, at most 64 MiB, and root's. {_AS_BOUND}",
    "a_device_that_lies_in_the_workspace_is_not_opened": f"one of the usual ones (null, zero, random) is what its mode says; the "
    f"control group of devices refuses all others. {_AS_BOUND}",
}

_DOCKER_USER: Final[Mapping[str, str]] = {
    "ordinary_tool[pytest]": "it runs; but directories that lead to a bound one in /tmp are made by the engine and root's, and "
    "pytest uses no /tmp/pytest-of-USER of somebody else: the suite's own workspace lies in one",
}

_PODMAN: Final[Mapping[str, str]] = {
    "a_name_is_only_a_name[colon:comma,]": "Podman's Docker interface parts what is mounted at ',' in one form and at ':' in the "
    "other, so a path that holds both is refused",
}

_PODMAN_USER: Final[Mapping[str, str]] = {
    name: reason for name, reason in _DOCKER.items() if name != "the_limits_are_the_specs"
}
"""
Rootless, and on control groups of version 1: without groups, processes are counted by RLIMIT_NPROC.
"""

DEVIATIONS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "bubblewrap": {
        ROOT: {},
        USER: {},
    },
    "docker": {ROOT: {**_DOCKER, **_DOCKER_ROOT}, USER: {**_DOCKER, **_DOCKER_USER}},
    "landlock": {ROOT: {**_LANDLOCK, **_LANDLOCK_ROOT}, USER: {**_LANDLOCK, **_LANDLOCK_USER}},
    "podman": {ROOT: {**_DOCKER, **_DOCKER_ROOT, **_PODMAN}, USER: {**_PODMAN_USER, **_DOCKER_USER, **_PODMAN}},
}


_SIGNALS_OUT = "signals reach processes of the same user outside: process.isolation is absent"
_COULD_END_ITS_END = (
    "it is not tried: signals reach the supervisor and the host's processes, and process.kill_tree is partial"
)

LANDLOCK_BEFORE: Final[Mapping[int, Mapping[str, str]]] = {
    3: {
        "a_readable_file_is_not_changed_in_any_way": "truncation is not held back: fs.write is partial, and a spec that lets "
        "it be less may change modes and times",
        "a_denied_directory_in_a_writable_one_stays_denied": "what is in it does; but a spec that lets fs.write be less may "
        "change its mode",
        "ordinary_tool[cp, mv, touch, rename across directories]": "all but the last work, which goes to /tmp: that is out of "
        f"reach. {_NO_MOUNTS[0].upper()}{_NO_MOUNTS[1:]}",
        "ordinary_tool[git config of the workspace's repository]": _LOOKED_AT,
    },
    6: {
        "processes_of_the_host_cannot_be_reached": f"{_SIGNALS_OUT}; they cannot be traced all the same",
        **dict.fromkeys(
            (
                "a_flood_does_not_starve_the_caller",
                "a_flood_of_output_ends_the_run",
                "a_real_fork_bomb_ends_at_the_deadline",
                "crippling_the_supervisor_is_never_a_success",
                "killing_everything_inside_leaves_a_right_result",
                "nothing_is_mounted_or_unmounted",
                "nothing_of_a_run_is_left_on_the_host",
                "the_boxs_first_process_gives_nothing_away",
                "the_boxs_first_process_is_not_written",
            ),
            _COULD_END_ITS_END,
        ),
    },
}
"""
What `landlock` does not keep besides, for anyone, before that ABI.
"""
_METADATA_MAY_CHANGE_BEFORE: Final = 3
"""Each spec must let fs.write be less there, so the filter refuses no change of modes."""


def landlock_deviations(caller: str, abi: int) -> Mapping[str, str]:
    """
    What `landlock` does not keep for *caller* where it has this *abi*.
    """
    lost = dict(DEVIATIONS["landlock"][caller])
    if abi < _METADATA_MAY_CHANGE_BEFORE:
        lost = {name: reason for name, reason in lost.items() if not reason.endswith(_NO_METADATA)}
    for before, more in LANDLOCK_BEFORE.items():
        if abi < before:
            lost |= more
    return lost
