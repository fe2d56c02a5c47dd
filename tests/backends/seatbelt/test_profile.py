"""
What a profile of Seatbelt says, read by the reference evaluator. No macOS is needed, and
nothing here shows that a Mac does what the text says: `sandboxkit doctor` does, there.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.backends.bubblewrap.test_mounts import survey
from tests.backends.seatbelt.sbpl import Query, decide, parse, rules

from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._tree import Node
from sandboxkit.backends.seatbelt._nodes import box_nodes
from sandboxkit.backends.seatbelt._profile import Box, Profile, profile
from sandboxkit.errors import SpecError
from sandboxkit.model import FilesystemPolicy, SandboxSpec

READ, WRITE = "file-read-data", "file-write-data"
MOVES = ("file-write-unlink", "file-write-create")


def allowed(made: Profile, operation: str, path: str | None = None, **facts: str) -> bool:
    query = Query(operation, path, **facts)
    found = {decide(made.text, dict(made.parameters), query, by=by) for by in ("order", "operation")}
    assert len(found) == 1, f"both readings of the language must agree about {query}"
    return found.pop()


def of(nodes: dict[str, Node], **fields: object) -> Profile:
    return profile(replace(Box(nodes), **fields))  # type: ignore[arg-type]  # each test names real fields


DEVICES = " ".join(f'(literal "/dev/{name}")' for name in ("dtracehelper", "null", "random", "urandom", "zero"))
SPELLED = '(regex (string-append "^" (regex-quote (param "P1")) "/[.][eE][nN][vV][rR][cC](/.*)?$"))'


def test_the_whole_text() -> None:
    made = of({"/w": Node.WRITE, "/w/s": Node.HIDDEN}, missing=("/w/.envrc",), mark="m", proxy_port=3128)
    tree = made.text[made.text.index("(allow file-read* file-map") :].splitlines()
    assert tree == [
        '(allow file-read* file-map-executable process-exec* file-write* (subpath (param "P1")))',
        f'(deny file-write* (subpath (param "P2")) {SPELLED})',
        '(deny file-read* file-map-executable process-exec* file-write* (subpath (param "P3")))',
        '(allow file-read-metadata (literal "/etc") (literal "/tmp") (literal "/var"))',
        '(allow file-read* (literal "/dev") (subpath "/dev/fd"))',
        '(allow file-write-data (subpath "/dev/fd"))',
        f"(allow file-read* {DEVICES})",
        f"(allow file-write-data file-ioctl (require-all (require-any {DEVICES}) (vnode-type CHARACTER-DEVICE)))",
        '(deny file-write-unlink file-write-create (literal (param "P1")))',
        '(allow network-outbound (remote tcp4 "localhost:3128"))',
    ]
    assert made.parameters == (("P0", "m"), ("P1", "/w"), ("P2", "/w/.envrc"), ("P3", "/w/s"))
    assert made.arguments()[:4] == ("-p", made.text, "-DP0=m", "-DP1=/w")
    assert made.arguments()[-1] == "--"


def test_a_denial_in_an_allowance_in_a_denial() -> None:
    made = of(
        {"/a": Node.READ, "/a/b": Node.HIDDEN, "/a/b/c": Node.WRITE, "/a/b/c/d": Node.HIDDEN, "/a/b/c/d/e": Node.READ}
    )
    shown = {
        path: (allowed(made, READ, path), allowed(made, WRITE, path))
        for path in ("/a/x", "/a/b/x", "/a/b/c/x", "/a/b/c/d/x", "/a/b/c/d/e/x", "/x")
    }
    assert shown == {
        "/a/x": (True, False),
        "/a/b/x": (False, False),
        "/a/b/c/x": (True, True),
        "/a/b/c/d/x": (False, False),
        "/a/b/c/d/e/x": (True, False),
        "/x": (False, False),
    }
    for operation in ("process-exec", "file-map-executable"):
        assert allowed(made, operation, "/a/b/c/x")
        assert not allowed(made, operation, "/a/b/c/d/x")


def test_what_leads_to_a_denial_cannot_be_moved_and_what_lies_beside_it_can() -> None:
    made = of({"/w": Node.WRITE, "/w/a/b/secret": Node.HIDDEN, "/w/lib/ro": Node.READ})
    for path in ("/w", "/w/a", "/w/a/b", "/w/a/b/secret", "/w/lib", "/w/lib/ro"):
        assert not any(allowed(made, move, path) for move in MOVES), path
    for path in ("/w/other", "/w/a/other", "/w/a/b/other", "/w/a/b/secrets", "/w/lib/x"):
        assert all(allowed(made, move, path) for move in MOVES), path
    assert allowed(made, "file-write-times", "/w/a"), "only moves are held, so that files can be made in it"


def test_what_is_made_in_a_held_directory_stays_possible() -> None:
    made = of({"/w": Node.WRITE, "/w/.git/hooks": Node.READ, "/w/.git/config": Node.READ})
    assert allowed(made, "file-write-create", "/w/.git/index.lock")
    assert allowed(made, "file-write-unlink", "/w/.git/index.lock")
    assert not allowed(made, "file-write-create", "/w/.git/hooks/pre-commit")
    assert not allowed(made, "file-write-unlink", "/w/.git")


@pytest.mark.parametrize("group", sorted(layouts().protect))
def test_protected_names_hold_whether_they_exist_or_not(group: str) -> None:
    for name in layouts().protect[group]:
        there = of({"/w": Node.WRITE, f"/w/{name}": Node.READ})
        missing = of({"/w": Node.WRITE}, missing=(f"/w/{name}",))
        for made in (there, missing):
            for place in (f"/w/{name}", f"/w/{name}/below"):
                assert allowed(made, READ, place)
                assert not any(allowed(made, act, place) for act in (WRITE, *MOVES)), place
        assert allowed(missing, "file-write-create", f"/w/{name}x")


@pytest.mark.parametrize("spelling", [".GIT/hooks", ".Git/HOOKS", ".git/Hooks", ".GIT/hooks/pre-commit"])
def test_a_missing_name_is_held_in_any_spelling(spelling: str) -> None:
    made = of({"/w": Node.WRITE}, missing=("/w/.git/hooks",))
    assert not allowed(made, "file-write-create", f"/w/{spelling}")
    assert not allowed(made, "file-write-create", f"/w/{spelling.split('/')[0]}"), "it could be moved there full"
    assert allowed(made, "file-write-create", "/w/sub.git/hooks")
    assert allowed(made, "file-write-create", f"/w/sub/{spelling}"), "another directory is another matter"


def test_a_deeper_name_of_the_spec_is_stronger_than_a_missing_one() -> None:
    made = of({"/w": Node.WRITE, "/w/.claude/mine": Node.WRITE}, missing=("/w/.claude",))
    assert allowed(made, WRITE, "/w/.claude/mine/x")
    assert not allowed(made, WRITE, "/w/.claude/yours")


def test_links_of_the_system_are_followed() -> None:
    made = of({"/tmp/w": Node.WRITE, "/etc": Node.READ, "/var/db/x": Node.HIDDEN, "/tmpx": Node.READ})
    assert allowed(made, WRITE, "/private/tmp/w/x")
    assert allowed(made, READ, "/private/etc/hosts")
    assert allowed(made, READ, "/tmpx/a")
    assert ("P0", "/tmp/w") not in made.parameters
    for link in ("/tmp", "/var", "/etc"):
        assert allowed(made, "file-read-metadata", link)
        assert not allowed(made, READ, link)


def test_the_stricter_of_two_names_for_one_place_holds() -> None:
    for nodes in (
        {"/tmp/w": Node.WRITE, "/private/tmp/w": Node.HIDDEN},
        {"/private/tmp/w": Node.HIDDEN, "/tmp/w": Node.WRITE},
    ):
        assert not allowed(of(nodes), READ, "/private/tmp/w/x")


HOSTILE = [
    '/w/a") (allow default) (literal "/',
    "/w/(allow default)",
    "/w/new\nline",
    "/w/back\\slash",
    "/w/é\u202e日本",
    "/w/; comment",
    '/w/#"raw',
    "/w/a=b=c",
    "/w/$HOME `id` [x]*?",
    "/w/-D",
    "/w/.git/hooks\n(allow default)",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_no_path_says_anything_in_the_language(path: str) -> None:
    tame = "/w" + "/n" * path.removeprefix("/w").count("/")
    plain = of({"/w": Node.WRITE, tame: Node.HIDDEN}, missing=(tame + "y",), sockets=(tame + "z",))
    made = of({"/w": Node.WRITE, path: Node.HIDDEN}, missing=(path + "y",), sockets=(path + "z",))
    assert made.text == plain.text, "the text does not depend on what is named"
    assert rules(made.text) == rules(plain.text)
    assert not allowed(made, READ, path)
    assert not allowed(made, READ, path + "/below")
    assert allowed(made, READ, path + "beside")
    assert not allowed(made, READ, "/etc/passwd")
    assert path in dict(made.parameters).values()


def test_no_program_is_given_a_nul_byte() -> None:
    with pytest.raises(SpecError, match="NUL"):
        of({"/w\0": Node.READ})


def test_without_a_network_nothing_is_reached() -> None:
    made = of({"/w": Node.WRITE}, sockets=("/s",))
    for address in ("127.0.0.1:80", "[::1]:80", "10.0.0.1:80"):
        for act in ("network-outbound", "network-inbound", "network-bind"):
            assert not allowed(made, act, address=address)
    assert not allowed(made, "network-outbound", "/private/var/run/docker.sock")
    assert not allowed(made, "network-outbound", "/w/host.sock"), "a socket of the host may lie in the workspace"
    assert allowed(made, "network-outbound", "/s/own.sock")
    assert allowed(made, "network-bind", "/s/own.sock")
    assert not allowed(made, "mach-lookup", name="com.apple.trustd")


@pytest.mark.parametrize("mode", ["none", "listed"])
def test_only_the_proxys_port_is_open(mode: str) -> None:
    made = of({"/w": Node.WRITE}, network=mode, proxy_port=3128)
    assert allowed(made, "network-outbound", address="127.0.0.1:3128")
    for address in ("127.0.0.1:3129", "127.0.0.1:53", "10.0.0.1:3128", "8.8.8.8:53", "[::1]:3128", "10.0.0.1:80"):
        assert not allowed(made, "network-outbound", address=address)
    assert not allowed(made, "network-outbound", address="127.0.0.1:3128", transport="udp")
    for act in ("network-bind", "network-inbound"):
        for address in ("127.0.0.1:3128", "127.0.0.1:8000", "[::1]:3128"):
            assert not allowed(made, act, address=address)
    assert not allowed(made, "network-outbound", "/private/var/run/mDNSResponder"), "names are the proxy's to look up"


@pytest.mark.parametrize("port", [0, -1, 1 << 16, 99999])
def test_a_port_is_one(port: int) -> None:
    with pytest.raises(SpecError, match="from 1 to 65535"):
        of({"/w": Node.WRITE}, proxy_port=port)


def test_the_hosts_network() -> None:
    made = of({"/w": Node.WRITE}, network="host")
    assert allowed(made, "network-outbound", address="10.0.0.1:443")
    assert allowed(made, "network-bind", address="127.0.0.1:8000")
    assert allowed(made, "network-outbound", "/private/var/run/mDNSResponder")
    assert not allowed(made, "network-outbound", "/private/var/run/docker.sock"), "a socket by path is no network"


def test_a_list_of_hosts_without_a_proxy_opens_nothing() -> None:
    assert of({"/w": Node.WRITE}, network="listed").text == of({"/w": Node.WRITE}).text


def test_a_network_it_does_not_know_is_refused() -> None:
    with pytest.raises(SpecError, match="cannot be kept by Seatbelt"):
        of({"/w": Node.WRITE}, network="other")


def test_processes_reach_only_their_own_box() -> None:
    made = of({"/w": Node.WRITE}, mark="org.example.box")
    for operation in ("signal", "process-info-pidinfo", "mach-priv-task-port"):
        assert allowed(made, operation, target="same-sandbox")
        assert not allowed(made, operation, target="others")
    assert not allowed(of({}, debugging=False), "mach-priv-task-port", target="same-sandbox")
    assert allowed(made, "mach-lookup", name="org.example.box")
    assert not allowed(made, "mach-lookup", name="org.example.box.other")
    assert not allowed(made, "mach-register", name="anything")
    assert not allowed(made, "sysctl-read", name="kern.procargs2")
    assert not allowed(made, "sysctl-read", name="kern.proc.all")
    assert allowed(made, "sysctl-read", name="hw.ncpu")
    assert not allowed(made, "appleevent-send")
    assert allowed(made, "ipc-posix-shm-write-create", name="/psm_1a2b3c4d")
    assert not allowed(made, "ipc-posix-shm-read-data", name="/somebody.elses")
    assert not allowed(made, "file-link", "/w/x")


def test_devices_and_terminals() -> None:
    for made, is_open in ((of({}), False), (of({}, terminal=True), True)):
        assert allowed(made, WRITE, "/dev/null", vnode="CHARACTER-DEVICE")
        assert not allowed(made, WRITE, "/dev/null"), "a file put there is none"
        assert not allowed(made, WRITE, "/dev/disk0", vnode="CHARACTER-DEVICE")
        assert allowed(made, WRITE, "/dev/ttys001", vnode="CHARACTER-DEVICE") is is_open
        assert allowed(made, "pseudo-tty") is is_open
    assert not allowed(of({"/dev": Node.HIDDEN}), READ, "/dev/null")


def box(spec: SandboxSpec, **host: object) -> Profile:
    found = survey(spec, **host)  # type: ignore[arg-type]  # each test names real fields
    return of(dict(box_nodes(spec, found, "/private/var/folders/s")), sockets=("/private/var/folders/s",))


def test_a_whole_box() -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=("/home/u/ws",), deny=("/home/u/ws/secret",)))
    made = box(spec, denied=("/home/u/.ssh",))
    assert allowed(made, WRITE, "/home/u/ws/x")
    assert not allowed(made, READ, "/home/u/ws/secret/x")
    for hidden in (
        "/home/u/.ssh/id",
        "/home/u/x",
        "/private/tmp/x",
        "/System/Volumes/Data/Users/u/x",
        "/Volumes/usb/x",
    ):
        assert not allowed(made, READ, hidden), hidden
    for readable in ("/usr/bin/true", "/System/Library/x", "/private/etc/hosts", "/Library/Developer/x", "/"):
        assert allowed(made, READ, readable), readable
        assert not allowed(made, WRITE, readable)
    for own in ("home", "tmp"):
        assert allowed(made, WRITE, f"/private/var/folders/s/{own}/x")
        assert not allowed(made, "file-write-unlink", f"/private/var/folders/s/{own}")
    assert not allowed(made, READ, "/private/var/folders/t/x")
    assert allowed(made, "file-read-metadata", "/home/u")
    assert not allowed(made, READ, "/home/u"), "the way to a directory is not listed"


def test_a_writable_home_keeps_what_launchd_starts() -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(write=("/home/u",)))
    made = box(spec)
    assert allowed(made, WRITE, "/home/u/x")
    assert not allowed(made, "file-write-create", "/home/u/Library/LaunchAgents/evil.plist")
    assert not allowed(made, "file-write-unlink", "/home/u/Library")


def test_what_a_spec_names_is_stronger_than_the_systems_own() -> None:
    spec = SandboxSpec(
        filesystem=FilesystemPolicy(deny=("/usr/local",), write=("/private/tmp",), read=("/Volumes/usb",))
    )
    made = box(spec)
    assert not allowed(made, READ, "/usr/local/bin/x")
    assert allowed(made, READ, "/usr/bin/x")
    assert allowed(made, WRITE, "/private/tmp/x")
    assert allowed(made, READ, "/Volumes/usb/x")


def test_the_root_of_everything_is_denied() -> None:
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=("/",)))
    made = box(spec)
    assert allowed(made, READ, "/Applications/x")
    assert not allowed(made, READ, "/System/Volumes/Data/Users/u/x"), "files of all users, once more"
    assert not allowed(made, READ, "/private/var/run/docker.sock")
    assert parse(made.text)
