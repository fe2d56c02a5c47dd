"""
Looks at the host once, so that planning can be pure: which paths exist and as what,
who the caller is, where the tools and this library itself lie.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sandboxkit.backends._exists import is_there, may_hold, mode_of, names_in
from sandboxkit.backends._git import git_identity
from sandboxkit.backends._hard_links import other_names
from sandboxkit.backends._host import homes
from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._other_mounts import shown_elsewhere
from sandboxkit.backends._patterns import denied_by_patterns
from sandboxkit.backends._protection import Watched, protection
from sandboxkit.backends._quarantine import WATCHED, state_places
from sandboxkit.backends._remembered import places
from sandboxkit.backends._replaced import anchors
from sandboxkit.errors import SpecError
from sandboxkit.model import Access, Control, access_of, is_inside, real_now
from sandboxkit.process import interpreter

if sys.platform != "win32":
    import pwd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from sandboxkit.model import SandboxSpec

__all__ = ["OTHER_HOME", "Identity", "Survey", "identity", "survey"]

Kind = Literal["directory", "file"]

# A uid and gid no system hands out: above those of systemd (524288-1879048191) and
# below 2^31, where old file formats end. Never `nobody`, whom other services run as.
_SPARE_ID = 1_900_000_000
_SPARE_IDS = 1000
_WHOLE_RANGE = 0xFFFFFFFF
OTHER_HOME = "/home/sandbox"
"""The box's, where the user's own path cannot be."""
_ADDRESS = re.compile(r"\Aunix:(path=|//)?")
_KEY_LISTS = ("/proc/keys", "/proc/key-users")


@dataclass(frozen=True, slots=True)
class Identity:
    """
    Who the caller is, and who the command is to be.

    Attributes:
        is_root: Whether the caller is the host's root. Uid 0 of a user namespace that
            maps only a part of the ids is an ordinary user.
        uid: The command's user on the host.
        gid: Its group.
        is_named: Whether that user has an entry in the user database.
    """

    is_root: bool
    uid: int
    gid: int
    is_named: bool

    @property
    def keeps_root(self) -> bool:
        """
        Whether the command is the host's root, as the caller is.
        """
        return self.is_root and self.uid == 0


@dataclass(frozen=True, slots=True)
class Survey:
    """
    The host as one spec needs it.

    Attributes:
        identity: Who the caller is, and who the command is to be.
        home: The user's home on the host, real path.
        box_home: Where the box has its own, empty one.
        kinds: What each path below is; a path that is not listed does not exist.
        system: Readable system directories.
        links: Symbolic links to make in the box: (path, text).
        tools: Readable directories of tools.
        runtime: What the in-box child needs to start: always readable.
        launcher: What this library executes or imports: never writable.
        repositories: Directories in which something is held or watched for git; None
            where there may be others.
        key_lists: What of /proc lists the keys of the host's user: their names are not the
            box's business, and no namespace keeps them apart. Source: keyrings(7).
        kept: What it notes for itself, where that lies in a writable directory: never
            writable either, whatever the spec allows.
        denied: Existing credentials.
        protected: Existing names of the protection sets, in writable directories.
        watched: What cannot be held in place, and is looked at after the run.
        git_identity: The user's name and address for git, as a configuration file;
            empty where there is none.
        owners: (uid, gid) of each path the spec lets the box see.
        working_directory: The application's.
        matched: Existing paths that a pattern of the spec denies.
        gaps: Why something of the protection sets, or of the patterns, may not be held.
        anchors: (device, inode) of each path that a mount holds in what the spec shows.
    """

    identity: Identity
    home: str
    box_home: str
    kinds: Mapping[str, Kind]
    system: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    tools: tuple[str, ...]
    runtime: tuple[str, ...]
    launcher: tuple[str, ...]
    denied: tuple[str, ...]
    protected: tuple[str, ...]
    watched: tuple[Watched, ...]
    git_identity: bytes
    owners: Mapping[str, tuple[int, int]]
    working_directory: str
    matched: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    key_lists: tuple[str, ...] = ()
    repositories: frozenset[str] | None = frozenset()
    anchors: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def survey(spec: SandboxSpec, *, programs: Iterable[str] = (), maps_ids: bool = True) -> Survey:
    """
    What the host looks like for *spec*.

    Args:
        spec: Whose paths are looked at.
        programs: Sandbox programs that are executed, to be kept read-only.
        maps_ids: Whether the backend can show a root caller's files to an unprivileged
            uid as its own. Where it cannot, root's files take root.

    Raises:
        SpecError: A named path does not exist, cannot be reached, is reached through
            a symbolic link, or holds a protected name that is a symbolic link.
    """
    if sys.platform == "win32":
        return _of_windows(spec)
    owners = _named(spec)
    home = _home()
    names = names_in(home)
    system, links = _system()
    tools = (*(_tools(home, names) if spec.filesystem.base == "tools" else ()), *_name_service(spec))
    runtime = _runtime()
    sets = protection(spec)
    matched, gaps = denied_by_patterns(spec)
    protected = tuple(sets.held)
    linked = [why for path in (*protected, *matched, *spec.filesystem.deny) if (why := other_names(path))]
    named = [owners[path] for path in (*spec.filesystem.write, *spec.filesystem.read)]
    permits_root = Control.PROCESS_ISOLATION in spec.allow_degraded
    uids = {uid for uid, _ in named}
    takes_root = len(uids) > 1 or 0 in uids
    who = identity(named, keeps_root=permits_root if maps_ids else takes_root)
    tree = spec.filesystem.tree()
    denied = _denied(home, names, who, tree)
    launcher = _launcher(programs)
    kept = _kept(spec.filesystem.write)
    return Survey(
        identity=who,
        home=home,
        box_home=_box_home(home, system),
        kinds=_kinds(
            [*owners, *layouts().private, *system, *tools, *runtime, *denied, *matched, *protected, *launcher, *kept]
        ),
        system=system,
        links=links,
        tools=tools,
        runtime=runtime,
        launcher=launcher,
        kept=kept,
        denied=denied,
        protected=protected,
        watched=tuple(sets.watched.values()),
        git_identity=git_identity(home) if spec.filesystem.base == "tools" else b"",
        owners=owners,
        working_directory=_working_directory(),
        matched=matched,
        repositories=None if sets.repositories is None else frozenset(sets.repositories),
        anchors=anchors((*_denied_in(tree), *matched, *denied, *protected, *launcher, *kept), tree),
        key_lists=tuple(path for path in _KEY_LISTS if is_there(path)),
        gaps=tuple(dict.fromkeys((*sets.gaps, *gaps, *_later(spec), *linked, *_shown_twice(tree, protected, matched)))),
    )


def _of_windows(spec: SandboxSpec) -> Survey:
    """
    Nothing of it: what a box shows is a system of another kind.
    """
    named = [getattr(spec.filesystem, field) for field in ("write", "read")]
    if paths := [path for group in named for path in group]:
        raise SpecError(
            *(
                f"{path!r} cannot be shown in a box on Windows; name no paths, hand files over with box.files or by stdin "
                "and stdout, or run in WSL 2"
                for path in paths
            )
        )
    return Survey(
        identity=identity(),
        home="",
        box_home=OTHER_HOME,
        kinds={},
        system=(),
        links=(),
        tools=(),
        runtime=(),
        launcher=(),
        denied=(),
        protected=(),
        watched=(),
        git_identity=b"",
        owners={},
        working_directory="/",
    )


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"  # it was removed


def _shown_twice(tree: Mapping[str, Access], protected: Iterable[str], matched: Iterable[str]) -> Iterator[str]:
    yield from shown_elsewhere((*_denied_in(tree), *matched), tree, Access.READ)
    yield from shown_elsewhere(protected, tree, Access.WRITE)


def _denied_in(tree: Mapping[str, Access]) -> Iterator[str]:
    return (path for path, access in tree.items() if access is Access.DENY and path != "/")


def _later(spec: SandboxSpec) -> Iterator[str]:
    """
    What *spec* denies in a directory it lets the box read, and does not exist: nothing can be
    mounted there, and the host may make it while the box runs. What the box itself can make
    is watched.
    """
    tree = spec.filesystem.tree()
    for path in _denied_in(tree):
        if mode_of(path) is None and access_of(os.path.dirname(path), tree) is Access.READ:
            yield f"{path!r} does not exist: if it is made outside during the run, it can be read"


def _kinds(paths: Iterable[str]) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for path in paths:
        mode = mode_of(path)
        if mode is not None:
            kinds[path] = "directory" if stat.S_ISDIR(mode) else "file"
    return kinds


def _existing(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(real for path in paths if (real := _real(path))))


def _real(path: str) -> str:
    """
    Where *path* really is; empty where nothing is there.
    """
    if not is_there(path):
        return ""
    if sys.platform != "linux":
        return os.path.realpath(path)
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            return os.readlink(f"/proc/self/fd/{fd}")  # the kernel follows links ten times as fast
        finally:
            os.close(fd)
    except OSError:  # it has just gone; or there is no /proc, or no descriptor left
        return os.path.realpath(path) if is_there(path) else ""


# --- the spec's own paths ---------------------------------------------------------


def _named(spec: SandboxSpec) -> dict[str, tuple[int, int]]:
    problems = []
    owners = {}
    for how in ("write", "read", "deny"):
        for path in (path for path in getattr(spec.filesystem, how) if path.startswith("/")):
            try:
                found = _look(path, for_writing=how == "write")
            except SpecError as exc:
                problems += [f"filesystem.{how}: {problem}" for problem in exc.problems]
            except FileNotFoundError:
                if how != "deny":
                    problems.append(f"filesystem.{how}: {path!r} does not exist; create it first")
                elif (real := real_now(path)) != path:
                    problems.append(f"filesystem.deny: {_linked(path, real)}")
            except OSError as exc:
                problems.append(f"filesystem.{how}: {path!r} cannot be reached: {exc.strerror}")
            else:
                owners[path] = found
    if problems:
        raise SpecError(*problems)
    return owners


def _linked(path: str, real: str) -> str:
    return f"{path!r} is reached through a symbolic link; name its real path {real!r}"


def _look(path: str, *, for_writing: bool) -> tuple[int, int]:
    real = os.path.realpath(path, strict=True)
    if real != path:
        raise SpecError(_linked(path, real))
    found = os.stat(path)
    if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
        raise SpecError(
            f"{path!r} is neither a directory nor a regular file; sockets and devices are not handed into a box by path"
        )
    if not os.access(path, os.R_OK):
        raise SpecError(f"{path!r} cannot be read by this user; give the user access, or leave it out")
    if for_writing and not os.access(path, os.W_OK):
        raise SpecError(f"{path!r} cannot be written by this user; give the user access, or name it in filesystem.read")
    return found.st_uid, found.st_gid


# --- who ------------------------------------------------------------------------


def identity(owners: Iterable[tuple[int, int]] = (), *, keeps_root: bool = False) -> Identity:
    """
    Who the caller is, and who a command over files of *owners* is to be: the owner
    where it is one ordinary user, else an id nobody uses; root itself only if the spec
    permits that.
    """
    if sys.platform == "win32":
        return Identity(False, _SPARE_ID, _SPARE_ID, False)  # its accounts have no numbers
    uid, gid = os.geteuid(), os.getegid()
    if not _is_host_root(uid):
        return Identity(False, uid, gid, _is_named(uid))
    if keeps_root:
        return Identity(True, 0, 0, True)
    found = {owner for owner, _ in owners}
    if len(found) == 1 and 0 not in found:
        uid = found.pop()
        return Identity(True, uid, _group_of(uid), _is_named(uid))
    spare = next(number for number in range(_SPARE_ID, _SPARE_ID + _SPARE_IDS) if not _is_named(number))
    return Identity(True, spare, spare, False)


@cache
def _is_host_root(uid: int) -> bool:
    if uid != 0:
        return False
    try:
        rows = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return True
    return rows == ["0", "0", str(_WHOLE_RANGE)]


@cache
def _is_named(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _group_of(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


def _home() -> str:
    named = os.environ.get("HOME", "")
    if not named.startswith("/"):
        try:
            named = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            named = "/"
    return os.path.realpath(named)


def _box_home(home: str, system: Iterable[str]) -> str:
    """
    The home's own path, unless an empty directory there would hide the system, or cannot be.
    """
    covers = home == "/" or any(is_inside(path, home) for path in system)
    is_taken = os.path.exists(home) and not os.path.isdir(home)
    return OTHER_HOME if covers or is_taken or any(is_inside(home, path) for path in ("/proc", "/dev")) else home


# --- what is readable without being named -----------------------------------------


def _system() -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    directories, links = [], []
    for path in layouts().system:
        mode = mode_of(path)
        if mode is not None and stat.S_ISLNK(mode):
            links.append((path, os.readlink(path)))
        elif mode is not None:
            directories.append(path)
    return tuple(directories), tuple(links)


def _below(home: str, wanted: Iterable[str], names: AbstractSet[str] | None) -> list[str]:
    """
    The paths of *wanted* in *home* that may be there, where *names* is what `names_in` says
    of it.
    """
    prefix = home.rstrip("/")
    return [f"{prefix}/{name}" for name in wanted if may_hold(names, name)]


def _tools(home: str, names: AbstractSet[str] | None) -> tuple[str, ...]:
    wanted = [*_search_path(), *_moved(), *_below(home, layouts().tools, names)]
    return tuple(path for path in _existing(wanted) if not is_inside(home, path) and path != "/")


def _name_service(spec: SandboxSpec) -> tuple[str, ...]:
    """
    Where resolv.conf really is, for a box that may use the host's network: often a link
    into /run, which a box has empty.
    """
    return _existing(["/etc/resolv.conf"]) if spec.network.mode == "host" else ()


def _search_path() -> Iterator[str]:
    for directory in os.environ.get("PATH", "").split(":"):
        if directory.startswith("/") and os.path.isdir(directory):
            yield directory
            environment = os.path.dirname(directory.rstrip("/"))
            if is_there(f"{environment}/pyvenv.cfg"):
                yield environment


def _moved() -> Iterator[str]:
    for row in layouts().variables:
        name, _, below = row.partition("/")
        value = os.environ.get(name, "")
        if value.startswith("/"):
            yield os.path.join(value, below)


def _denied(home: str, names: AbstractSet[str] | None, who: Identity, tree: Mapping[str, Access]) -> tuple[str, ...]:
    elsewhere = [
        path
        for path in (*layouts().denied_system, *layouts().denied_services, *_services(home))
        if is_there(path)
        and (access_of(path, tree) > Access.UNLISTED or (_is_of_system(path) and _may_read(who, path)))
    ]
    return _existing((*elsewhere, *_below(home, layouts().denied_home, names), *_other_credentials(home, tree)))


def _other_credentials(home: str, tree: Mapping[str, Access]) -> Iterator[str]:
    """
    Credentials below what the spec names, in homes other than *home*: HOME may say another
    than the user's own, and root reads everybody's.
    """
    named = [path for path, access in tree.items() if access > Access.UNLISTED]
    for other in homes() if named else ():
        if other != home and any(is_inside(other, path) or is_inside(path, other) for path in named):
            found = _below(other, layouts().denied_home, names_in(other))
            yield from (path for path in found if access_of(path, tree) > Access.UNLISTED)


def _services(home: str) -> Iterator[str]:
    """
    The sockets of the user's services that the environment names.
    """
    for name in layouts().service_variables:
        for address in os.environ.get(name, "").split(";"):
            path = _ADDRESS.sub("", address).partition(",")[0].rstrip("/")
            is_own = path.startswith("/") and not is_inside(home, path) and not _is_of_system(path)
            if is_own and path not in layouts().private:
                yield path


def _is_of_system(path: str) -> bool:
    return any(is_inside(path, top) for top in layouts().system)


def _may_read(who: Identity, path: str) -> bool:
    if not who.is_root:
        return os.access(path, os.R_OK)
    try:
        found = os.stat(path)
    except OSError:
        return False
    return bool(found.st_mode & 0o004) or found.st_uid == who.uid or found.st_gid == who.gid


# --- what this library itself runs from -------------------------------------------


def _kept(roots: Iterable[str]) -> tuple[str, ...]:
    """
    Where this library notes what runs watch, and what it found out about the machine, as
    far as it lies in one of *roots*: made where it is missing, because only what exists
    can be held.

    Raises:
        SpecError: It cannot be made.
    """
    found = []
    for place in (*state_places(WATCHED, ()), *places()):
        if not any(is_inside(place, root) or is_inside(root, place) for root in roots):
            continue
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
        except OSError as exc:
            raise SpecError(
                f"filesystem.write: {place!r}, where this library keeps its notes, cannot be made and held: "
                f"{exc.strerror}; remove what stands there, or set XDG_STATE_HOME to a directory outside"
            ) from exc
        found.append(place)
    return tuple(found)


def _launcher(programs: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*_own_paths(), *_existing(programs))))


@cache
def _runtime() -> tuple[str, ...]:
    return _existing([sys.base_prefix, interpreter()])


@cache
def _own_paths() -> tuple[str, ...]:
    packages = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    here = str(Path(__file__).resolve().parent.parent)
    return _existing([sys.prefix, sys.base_prefix, sys.exec_prefix, interpreter(), here, *packages])
