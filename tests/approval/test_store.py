"""
The file of remembered approvals: nobody else's, whole, and never a yes by mistake.
"""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit.approval import GrantStore, RememberedGrant
from sandboxkit.approval import _store as room
from sandboxkit.errors import GrantNotFoundError, GrantStoreError, SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable

DAY = 86400.0
GRANT = RememberedGrant("ab" * 32, "npm install x", "/srv", 1000.0, 1000.0 + 30 * DAY, "at the terminal")
OTHER = replace(GRANT, digest="cd" * 32, command="git push")


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> GrantStore:
    return GrantStore(tmp_path / "state" / "grants.json", clock=clock)


def test_what_is_kept_is_found(store: GrantStore) -> None:
    assert (store.grants(), store.find(GRANT.digest)) == ((), None)
    store.add(GRANT)
    store.add(OTHER)
    assert store.grants() == (GRANT, OTHER)
    assert store.find(GRANT.digest) == GRANT
    assert store.find("00" * 32) is None
    assert GrantStore(store.path, clock=Clock()).find(OTHER.digest) == OTHER


def test_looking_creates_nothing(store: GrantStore, tmp_path: Path) -> None:
    store.find(GRANT.digest)
    store.grants()
    assert store.clear() == 0
    assert list(tmp_path.iterdir()) == []


def test_the_same_is_kept_once(store: GrantStore) -> None:
    store.add(GRANT)
    later = replace(GRANT, expires=GRANT.expires + 5)
    store.add(later)
    assert store.grants() == (later,)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_nobody_else_may_read_or_write_it(store: GrantStore, umask: int) -> None:
    before = os.umask(umask)
    try:
        store.add(GRANT)
        store.add(OTHER)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in Path(store.path).parent.iterdir()}
    assert modes == {"grants.json": 0o600, "grants.json.lock": 0o600}
    assert stat.S_IMODE(os.stat(os.path.dirname(store.path)).st_mode) == 0o700


def test_its_directory_is_made_for_one(store: GrantStore) -> None:
    before = os.umask(0)
    try:
        store.prepare()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(os.path.dirname(store.path)).st_mode) == 0o700
    assert store.paths == (os.path.dirname(store.path), store.path)


def test_the_default_lies_in_the_home_the_system_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("XDG_STATE_HOME", "/nowhere")
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert GrantStore().path == f"{home}/.local/state/sandboxkit/grants.json"


# -- expiry and the clock --


def test_what_has_expired_is_asked_again_and_taken_out(store: GrantStore, clock: Clock) -> None:
    store.add(GRANT)
    store.add(replace(OTHER, expires=GRANT.expires + DAY))
    clock.now = GRANT.expires - 1
    assert store.find(GRANT.digest)
    clock.now = GRANT.expires
    assert store.find(GRANT.digest) is None
    assert [row["digest"] for row in json.loads(Path(store.path).read_text())["grants"]] == [OTHER.digest]
    clock.now += DAY
    assert store.grants() == ()


def test_a_clock_that_is_set_back_gives_nothing_more(store: GrantStore, clock: Clock) -> None:
    store.add(GRANT)
    clock.now = GRANT.expires - DAY
    assert store.find(GRANT.digest)
    clock.now = 1000.0 + DAY
    for look in (lambda: store.find(GRANT.digest), store.grants, lambda: store.add(OTHER)):
        with pytest.raises(
            GrantStoreError, match="the clock stands before the time it was last used at; set the clock"
        ):
            look()
    assert store.clear() == 1
    store.add(replace(OTHER, created=clock.now, expires=clock.now + DAY))


def test_a_small_step_back_changes_nothing(store: GrantStore, clock: Clock) -> None:
    store.add(GRANT)
    clock.now -= 200
    assert store.find(GRANT.digest)


def test_a_grant_of_the_future_does_not_count(store: GrantStore) -> None:
    store.add(replace(GRANT, created=1000.0 + DAY))
    assert store.find(GRANT.digest) is None


# -- revoking --


def test_a_grant_is_revoked_by_its_id(store: GrantStore) -> None:
    store.add(GRANT)
    store.add(OTHER)
    assert store.revoke(GRANT.id) == GRANT
    assert store.grants() == (OTHER,)
    assert store.revoke(OTHER.digest) == OTHER
    for wrong in (GRANT.id, "", GRANT.id[:4]):
        with pytest.raises(GrantNotFoundError, match="there is none with the id") as caught:
            store.revoke(wrong)
        assert isinstance(caught.value, LookupError)


def test_all_are_forgotten(store: GrantStore) -> None:
    store.add(GRANT)
    assert store.clear() == 1
    assert store.grants() == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root looks into every directory")
def test_what_cannot_be_looked_at_is_not_forgotten(store: GrantStore) -> None:
    store.add(GRANT)
    folder = os.path.dirname(store.path)
    os.chmod(folder, 0)
    try:
        with pytest.raises(GrantStoreError, match="cannot be opened: Permission denied; give it to this user"):
            store.clear()
    finally:
        os.chmod(folder, 0o700)
    assert store.clear() == 1


# -- what is no store of ours --


def _write(path: str, content: bytes) -> None:
    Path(path).parent.mkdir(mode=0o700, exist_ok=True)
    Path(path).write_bytes(content)
    os.chmod(path, 0o600)


def _content(**changes: Any) -> bytes:
    row = {
        "digest": GRANT.digest, "command": "x", "cwd": "/", "created": 1000.0, "expires": 2000.0, "reason": "",
    }  # fmt: skip
    record = {"version": 1, "seen": 1000.0, "grants": [{**row, **changes.pop("row", {})}], **changes}
    return json.dumps(record).encode()


BROKEN = {
    "empty": b"",
    "text": b"yes",
    "bytes": b"\xff\xfe\x00",
    "half": _content()[:-20],
    "twice": _content() * 2,
    "other version": _content(version=2),
    "no version": b'{"seen": 0, "grants": []}',
    "version as text": _content(version="1"),
    "a list": b"[]",
    "more keys": _content(extra=1),
    "no list": _content(grants={}),
    "a row that is none": _content(grants=[1]),
    "a row with more keys": _content(row={"extra": 1}),
    "no digest": _content(row={"digest": "yes"}),
    "a digest in capitals": _content(row={"digest": "AB" * 32}),
    "a digest as number": _content(row={"digest": 7}),
    "a time that is none": _content(row={"created": "now"}),
    "true as a time": _content(row={"created": True}),
    "no end": _content(row={"expires": math.inf}),
    "not a number": _content(row={"expires": math.nan}),
    "an end before its beginning": _content(row={"expires": 10.0}),
    "an end much too late": _content(row={"expires": 1e11}),
    "seen never": _content(seen=None),
    "the same twice": _content(grants=json.loads(_content())["grants"] * 2),
    "nested": b"[" * 200_000,
    "huge": b" " * ((4 << 20) + 1),
    "a huge number": b'{"version": ' + b"1" * 5000 + b"}",
}


def test_the_row_the_broken_ones_are_made_from_is_right(store: GrantStore) -> None:
    _write(store.path, _content())
    assert store.find(GRANT.digest)


@pytest.mark.parametrize("what", BROKEN)
def test_what_was_not_written_so_is_no_yes(store: GrantStore, what: str) -> None:
    _write(store.path, BROKEN[what])
    for look in (lambda: store.find(GRANT.digest), store.grants, lambda: store.add(OTHER), lambda: store.revoke("x")):
        with pytest.raises(GrantStoreError, match="move it away and grant anew") as caught:
            look()
        assert isinstance(caught.value, SandboxError)
        assert isinstance(caught.value, OSError)
        assert caught.value.path == store.path
        assert store.path in str(caught.value)
    assert Path(store.path).read_bytes() == BROKEN[what]
    store.clear()
    assert store.grants() == ()


def _link(store: GrantStore) -> None:
    os.rename(store.path, store.path + ".real")
    os.symlink(store.path + ".real", store.path)


def _link_folder(store: GrantStore) -> None:
    folder = os.path.dirname(store.path)
    os.rename(folder, folder + ".real")
    os.symlink(folder + ".real", folder)


def _fifo(store: GrantStore) -> None:
    os.unlink(store.path)
    os.mkfifo(store.path, 0o600)


UNSAFE: dict[str, tuple[Callable[[GrantStore], object], str]] = {
    "readable": (lambda store: os.chmod(store.path, 0o640), "chmod 0600"),
    "writable": (lambda store: os.chmod(store.path, 0o602), "chmod 0600"),
    "setuid": (lambda store: os.chmod(store.path, 0o4600), "chmod 0600"),
    "an open directory": (lambda store: os.chmod(os.path.dirname(store.path), 0o755), "chmod 0700"),
    "a link": (_link, "symbolic link"),
    "a link to its directory": (_link_folder, "symbolic link"),
    "a second name": (lambda store: os.link(store.path, store.path + ".2"), "second name"),
    "a pipe": (_fifo, "no regular file"),
}


@pytest.mark.parametrize("what", UNSAFE)
def test_what_others_could_have_written_is_no_yes(store: GrantStore, what: str) -> None:
    store.add(GRANT)
    change, says = UNSAFE[what]
    change(store)
    for look in (lambda: store.find(GRANT.digest), store.grants, lambda: store.add(OTHER)):
        with pytest.raises(GrantStoreError, match=says):
            look()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", ["file", "directory"])
def test_what_belongs_to_another_is_no_yes(store: GrantStore, what: str) -> None:
    store.add(GRANT)
    os.chown(store.path if what == "file" else os.path.dirname(store.path), 12345, -1)
    with pytest.raises(GrantStoreError, match="belongs to the user 12345, not to 0"):
        store.find(GRANT.digest)


def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = GrantStore(tmp_path / "file" / "grants.json")
    with pytest.raises(GrantStoreError):
        store.add(GRANT)
    for look in (store.grants, store.clear):
        with pytest.raises(GrantStoreError, match=r"file is none: it or one above it is a file; name a file in"):
            look()


# -- writing --


def test_a_write_that_fails_leaves_what_was_there(store: GrantStore) -> None:
    import resource

    store.add(GRANT)
    before = Path(store.path).read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # the disk is full after 100 bytes
    try:
        with pytest.raises(GrantStoreError):
            store.add(OTHER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert Path(store.path).read_bytes() == before
    assert {path.name for path in Path(store.path).parent.iterdir()} == {"grants.json", "grants.json.lock"}


@pytest.mark.parametrize(
    "changes",
    [{"expires": math.inf}, {"expires": GRANT.created}, {"digest": "x"}, {"created": math.nan}, {"created": -5.0}],
)
def test_what_could_not_be_read_again_is_not_written(store: GrantStore, changes: dict[str, Any]) -> None:
    store.add(OTHER)
    with pytest.raises(GrantStoreError, match="this cannot be kept"):
        store.add(replace(GRANT, **changes))
    assert store.grants() == (OTHER,)


def test_what_a_crash_left_is_taken_away(store: GrantStore) -> None:
    store.add(GRANT)
    Path(store.path + ".new").write_text("half")
    store.add(OTHER)
    assert store.grants() == (GRANT, OTHER)
    assert not os.path.exists(store.path + ".new")


def test_it_does_not_grow_without_bound(store: GrantStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_GRANTS", 1)
    store.add(GRANT)
    with pytest.raises(GrantStoreError, match="holds 1 already; revoke what is not needed"):
        store.add(OTHER)


def test_a_lock_that_is_never_given_up_is_said(store: GrantStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(room, "_LOCK_SECONDS", 0.05)
    store.add(GRANT)
    with open(store.path + ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(GrantStoreError, match="another process has held the lock"):
            store.add(OTHER)
    store.add(OTHER)


WRITER = """
import hashlib, sys
from sandboxkit.approval import GrantStore, RememberedGrant
store = GrantStore(sys.argv[1], clock=lambda: 1000.0)
for number in range(int(sys.argv[3])):
    digest = hashlib.sha256(f"{sys.argv[2]} {number}".encode()).hexdigest()
    store.add(RememberedGrant(digest, "x", "/", 1000.0, 2000.0))
    assert store.find(digest)
"""


def _start(store: GrantStore, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", WRITER, store.path, name, str(count)], stderr=subprocess.PIPE
    )


def test_several_processes_lose_nothing(store: GrantStore) -> None:
    children = [_start(store, str(number), 15) for number in range(6)]
    for child in children:
        with child:
            assert child.communicate(timeout=50)[1] == b""
    assert len(store.grants()) == 90


def test_a_process_that_is_killed_leaves_a_whole_file(store: GrantStore) -> None:
    store.add(GRANT)
    seen = 0
    for number in range(4):
        with _start(store, str(number), 10_000) as child:
            try:
                while len(store.grants()) <= seen + 2 and child.poll() is None:
                    pass
            finally:
                child.kill()
        assert store.find(GRANT.digest)
        seen = len(store.grants())
    store.add(OTHER)
    assert not os.path.exists(store.path + ".new")
