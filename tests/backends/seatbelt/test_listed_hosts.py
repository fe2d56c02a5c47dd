"""
Boxes that list hosts: the proxy on a port of the machine's loopback, its token, and what a
command is told of both. In the place of sandbox-exec(1) is a program that puts no sandbox
on, or Landlock's rules for the one port that the profile opens; the rest is as on a Mac.

Each act that must fail in the box is also done without it, and must succeed.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import shutil
import socket
import ssl
import sys
import threading
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.backends.seatbelt.test_without_sandbox import PROGRAM

from sandboxkit.backends import Detection, _verify
from sandboxkit.backends._kernel import landlock_abi
from sandboxkit.backends._verify import attack_listed
from sandboxkit.backends.seatbelt import SeatbeltBackend, SeatbeltFacts
from sandboxkit.backends.seatbelt._enforcement import enforcement
from sandboxkit.errors import SetupError
from sandboxkit.model import Control, EgressRule, Grade, Invocation, LoopbackProxy, NetworkPolicy, SandboxSpec
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from sandboxkit.backends._launched import LaunchedSandbox
    from sandboxkit.egress import EgressEvent

pytest.importorskip("h11", reason="the proxy is the extra egress")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has the real program: see test_box.py"),
]

HELD = """#!{python} -IS
# Holds a command to TCP on the one port its profile opens, and hides /proc, which a Mac has not.
# Source: landlock(7), linux/landlock.h.
import ctypes, os, re, struct, sys
text, command = sys.argv[2], sys.argv[sys.argv.index("--") + 1 :]
libc = ctypes.CDLL(None, use_errno=True)
ruleset = libc.syscall(444, struct.pack("QQ", 1 << 2, 3), 16, 0)
for name in set(os.listdir("/")) - {"proc"}:
    place = os.open("/" + name, os.O_PATH | os.O_CLOEXEC)
    libc.syscall(445, ruleset, 1, struct.pack("=Qi", 1 << 2, place), 0)
for port in map(int, re.findall(r'[(]remote tcp4 "localhost:([0-9]+)"[)]', text)):
    assert libc.syscall(445, ruleset, 2, struct.pack("QQ", 2, port), 0) == 0
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, ruleset, 0) == 0
os.execv(command[0], command)
"""
LOOPBACK = ("127.0.0.1/32",)
WAIT = "echo $http_proxy; read line"
GET = (
    "import sys, urllib.request\n"
    "for url in sys.argv[1:]:\n"
    "    try: print(urllib.request.urlopen(url, timeout=30).read().decode())\n"
    "    except OSError as exc: print(exc)\n"
)


async def resolver(host: str, _port: int) -> Sequence[str]:
    """
    No real name service is asked.
    """
    return ["127.0.0.1"] if host.endswith(".example") else []


class OnLinux(SeatbeltBackend):
    """
    The backend as it is on a Mac that has *program*.
    """

    def __init__(self, program: Path, **options: Any) -> None:
        super().__init__(**options)
        self._program = program

    async def detect(self, spec: SandboxSpec | None = None) -> Detection:
        found = SeatbeltFacts(
            program=str(self._program), macos="14.5", interpreter=interpreter(), processes=100, has_proxy=True
        )
        return Detection(True, "", "", found if spec is None else found.surveyed(spec))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return _executable(tmp_path / "sandbox-exec", PROGRAM)


@pytest.fixture
def held(tmp_path: Path) -> Path:
    if landlock_abi() < 4:
        pytest.skip("not applicable: this kernel's Landlock has no rules for ports, to stand in for Seatbelt's")
    return _executable(tmp_path / "sandbox-exec", HELD.replace("{python}", interpreter()))


def _executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Server:
    """
    Repeats nothing, says `hi`, and writes down what it was asked, with the fields.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        asked = self.asked

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"hi")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        if context is not None:
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.server.server_port


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    thread = threading.Thread(target=server.server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
        thread.join()


@asynccontextmanager
async def box(program: Path, network: NetworkPolicy, **options: Any) -> AsyncIterator[LaunchedSandbox[SeatbeltFacts]]:
    """
    A box, of which nothing is left afterwards.
    """
    before = _open()
    spec = SandboxSpec.isolated(network=network, allow_degraded=frozenset(Control))
    async with OnLinux(program, resolver=resolver, **options).open(spec) as opened:
        yield opened
        assert sorted(os.listdir(opened._facts.scratch)) == ["home", "tmp"], "no certificate is left"
    assert not os.path.exists(opened._facts.scratch)
    assert _open() <= before, "no listener is left"


def _open() -> set[str]:
    """
    The sockets that this process listens with.
    """
    mine = {os.path.basename(os.readlink(entry.path)) for entry in os.scandir("/proc/self/fd") if _leads(entry.path)}
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine}


def _leads(path: str) -> bool:
    try:
        os.readlink(path)
    except OSError:
        return False
    return True


def told(url: str) -> tuple[int, str]:
    """
    Port and token of the proxy at *url*.
    """
    match = re.fullmatch(r"http://sandboxkit:([\w-]{32})@127\.0\.0\.1:([0-9]+)", url.strip())
    assert match is not None, url
    return int(match[2]), match[1]


def asked(port: int, target: str, token: str | None = None) -> str:
    """
    The status with which the proxy at *port* answers a program outside of the box.
    """
    shown = b""
    if token is not None:
        shown = b"Proxy-Authorization: Basic " + base64.b64encode(f"x:{token}".encode()) + b"\r\n"
    with socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(b"GET " + target.encode() + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + shown + b"\r\n")
        return client.makefile("rb").readline().decode()[9:12]


def is_closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 30).close()
    except ConnectionRefusedError:
        return True
    return False


async def test_what_is_listed_is_reached_by_the_environment_and_the_rest_is_reported(program: Path) -> None:
    with serving(Server()) as listed, serving(Server()) as unlisted:
        hosts = (f"open.example:{listed.port}", f"127.0.0.1:{listed.port}")
        urls = [f"http://{host}" for host in hosts]
        async with box(program, NetworkPolicy(allow_hosts=hosts, permit_networks=LOOPBACK)) as inside:
            result = await inside.run([sys.executable, "-c", GET, *urls])
            assert (result.text(), result.violations) == ("hi\nhi\n", ()), result
            if curl := shutil.which("curl"):
                result = await inside.run([curl, "-sS", "-m30", *urls])
                assert (result.text(), result.violations) == ("hihi", ()), result
            away = f"http://127.0.0.1:{unlisted.port}/"
            result = await inside.run([sys.executable, "-c", GET, f"http://other.example:{unlisted.port}/", away])
            assert result.text().count("403") == 2, result
            found = {violation.target: violation.spec_line for violation in result.violations}
            assert found == {
                f"http://other.example:{unlisted.port}/": f'network.allow_hosts = ["other.example:{unlisted.port}"]',
                away: f'network.allow_hosts = ["127.0.0.1:{unlisted.port}"]',
            }
            assert "localhost:" not in inside.plan(["true"]).argv[2], "the port may be anybody's now"
            assert result.enforcement.grade(Control.NET_ALLOWLIST) is Grade.ENFORCED
            assert result.enforcement.grade(Control.NET_NONE) is Grade.ABSENT
            assert "listed hosts" in result.enforcement.reason(Control.NET_NONE)
        assert unlisted.asked == []
        assert all("proxy-authorization" not in fields for _, fields in listed.asked), "the token is the proxy's"


async def test_each_command_has_a_port_and_a_token_of_its_own_and_both_end_with_it(program: Path) -> None:
    events: list[EgressEvent] = []
    with serving(Server()) as listed:
        target = f"http://open.example:{listed.port}/"
        network = NetworkPolicy(allow_hosts=(f"open.example:{listed.port}",), permit_networks=LOOPBACK)
        async with box(program, network) as inside, inside.start(["sh", "-c", WAIT], stdin=-1) as one:
            async with inside.start(["sh", "-c", WAIT], stdin=-1, on_egress=events.append) as other:
                assert one.stdout is not None
                assert other.stdout is not None
                assert other.stdin is not None
                first, second = (
                    told((await one.stdout.receive()).decode()),
                    told((await other.stdout.receive()).decode()),
                )
                assert first[0] != second[0]
                assert first[1] != second[1]
                for token, status in ((second[1], "200"), (first[1], "407"), (None, "407"), ("", "407")):
                    assert await anyio.to_thread.run_sync(asked, second[0], target, token) == status
                await other.stdin.aclose()
                result = await other.wait()
            assert result.violations == (), "whoever shows no token may be anybody"
            assert sorted(event.verdict.code for event in events) == ["allowed", "token", "token", "token"]
            assert is_closed(second[0])
            assert await anyio.to_thread.run_sync(asked, first[0], target, first[1]) == "200"
        assert is_closed(first[0]), "also where nobody waited for the command"
        assert len(listed.asked) == 2


async def test_clients_that_show_the_token_only_when_asked_are_not_reported(program: Path) -> None:
    events: list[EgressEvent] = []
    git = shutil.which("git")
    if git is None:
        pytest.skip("not applicable: there is no git")
    with serving(Server()) as listed:
        network = NetworkPolicy(allow_hosts=(f"open.example:{listed.port}",), permit_networks=LOOPBACK)
        async with box(program, network) as inside:
            url = f"http://open.example:{listed.port}/r"
            result = await inside.run([git, "ls-remote", url], on_egress=events.append)
        assert {event.verdict.code for event in events} == {"token", "allowed"}, "it did come without first"
        assert result.violations == ()
        assert listed.asked[0][0] == "/r/info/refs?service=git-upload-pack"


async def test_ordinary_tools_take_the_token_from_the_variables(program: Path) -> None:
    with serving(Server()) as listed:
        url = f"http://open.example:{listed.port}/"
        tools = {
            "wget": ["wget", "-qO-", "-t1", "-T30", url],
            "npm": ["npm", "view", "package", "--registry", url, "--fetch-retries=0"],
            "pip": ["pip", "download", "package", "--index-url", url, "--trusted-host", "open.example", "--retries=0"],
        }
        network = NetworkPolicy(allow_hosts=(f"open.example:{listed.port}",), permit_networks=LOOPBACK)
        async with box(program, network) as inside:
            for words in (words for name, words in tools.items() if shutil.which(name)):
                listed.asked.clear()
                result = await inside.run(words)
                assert (bool(listed.asked), result.violations) == (True, ()), (words, result)


async def test_tls_is_looked_into_by_a_certificate_the_box_reads(program: Path, tmp_path: Path) -> None:
    from sandboxkit.egress._authority import Authority

    authority = Authority(3600)
    (known := tmp_path / "authority.pem").write_bytes(authority.certificate)
    with serving(Server(authority.context("open.example"))) as listed:
        rule = EgressRule(action="allow", to=f"https://open.example:{listed.port}/open", methods=("GET",))
        network = NetworkPolicy(intercept=True, rules=(rule,), permit_networks=LOOPBACK)
        urls = [f"https://open.example:{listed.port}/{path}" for path in ("open/x", "other")]
        async with box(program, network, ssl_context=ssl.create_default_context(cafile=known)) as inside:
            result = await inside.run([sys.executable, "-c", GET, *urls])
            assert result.text().splitlines()[0] == "hi", result
            assert "403" in result.text().splitlines()[1]
            assert [violation.target for violation in result.violations] == [urls[1]]
            files = (await inside.run(["sh", "-c", "echo $SSL_CERT_FILE; cat $SSL_CERT_FILE"])).text().splitlines()
            assert files[0].startswith(f"{inside._facts.scratch}/proxy-")
            assert files[1] == "-----BEGIN CERTIFICATE-----"
            assert "\n".join(files[1:]) not in known.read_text()
        assert [path for path, _ in listed.asked] == ["/open/x"]


async def test_the_plan_opens_the_port_and_names_the_token_nowhere(program: Path) -> None:
    spec = SandboxSpec.isolated(network=NetworkPolicy(allow_hosts=("open.example",)))
    found = (await OnLinux(program).detect(spec)).facts
    shown = SeatbeltBackend().plan(Invocation(("true",)), spec, found)
    assert "network-outbound" not in shown.argv[2]
    assert any("only way out is a port" in note for note in shown.notes)
    given = (("NO_PROXY", "*"), ("HTTPS_PROXY", "http://elsewhere:1"), ("JAVA_TOOL_OPTIONS", "-Xmx1g"))
    made = SeatbeltBackend().plan(Invocation(("true",), given, proxy=LoopbackProxy(3128, "the-token")), spec, found)
    assert made.argv[2] == shown.argv[2] + '(allow network-outbound (remote tcp4 "localhost:3128"))\n'
    for text in (
        *made.argv,
        made.describe(),
        json.dumps(made.to_dict()),
        str(Invocation(("true",), proxy=LoopbackProxy(1, "the-token"))),
    ):
        assert "the-token" not in text
    assert made.confinement is not None
    told = dict(made.confinement.environment)
    assert told["HTTPS_PROXY"] == told["http_proxy"] == "http://sandboxkit:the-token@127.0.0.1:3128"
    assert told["NO_PROXY"] == told["no_proxy"] == "", "its loopback is the machine's, and nothing of it is open"
    assert told["JAVA_TOOL_OPTIONS"] == "-Xmx1g", "Java's options have no place for a token"


async def test_a_port_that_cannot_be_had_is_an_error_of_the_setup(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with box(program, NetworkPolicy(intercept=True, allow_hosts=("open.example",))) as inside:
        monkeypatch.setattr("sandboxkit.backends._launched.LoopbackDoor", full)
        with pytest.raises(SetupError, match=r"proxy of the box cannot be made: .*Too many open files"):
            await inside.run(["true"])


async def test_without_the_extra_it_is_absent_and_says_so() -> None:
    spec = SandboxSpec.isolated(network=NetworkPolicy(allow_hosts=("open.example",)))
    claim = enforcement(spec, SeatbeltFacts())
    for control in (Control.NET_ALLOWLIST, Control.NET_INTERCEPT):
        assert claim.grade(control) is Grade.ABSENT
        assert "pip install" in claim.reason(control)


async def test_the_attack_finds_a_box_out_that_holds_nothing_back(program: Path) -> None:
    (finding,) = (await attack_listed(OnLinux(program))).findings
    assert (finding.grade, finding.reason) == (Grade.ABSENT, "the attack reached a server that is not listed")


async def test_the_attack_believes_a_box_that_opens_the_one_port(held: Path) -> None:
    (finding,) = (await attack_listed(OnLinux(held))).findings
    assert finding.grade is Grade.ENFORCED, finding


async def test_the_attack_needs_no_program_that_macos_has_not(
    held: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _verify._LISTED_SCRIPT.read_text()
    assert "command -v timeout" in text
    without = _executable(tmp_path / "attack.sh", text.replace("command -v timeout", "command -v no-such-program"))
    monkeypatch.setattr(_verify, "_LISTED_SCRIPT", without)
    (finding,) = (await attack_listed(OnLinux(held))).findings
    assert finding.grade is Grade.ENFORCED, finding


async def test_the_attack_finds_a_proxy_that_asks_for_no_token(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxkit.egress._http._has_token", lambda *_: True)
    (finding,) = (await attack_listed(OnLinux(held))).findings
    assert (finding.grade, finding.reason) == (Grade.ABSENT, "the attack was let through without the token")


async def test_another_port_of_the_loopback_is_out_of_reach(held: Path) -> None:
    code = (
        "import os, socket, sys\n"
        "for port in [*sys.argv[1:], os.environ['http_proxy'].rpartition(':')[2]]:\n"
        "    try: socket.create_connection(('127.0.0.1', int(port)), 30); print('made')\n"
        "    except PermissionError: print('refused')\n"
    )
    with serving(Server()) as listed, serving(Server()) as unlisted:
        ports = [str(server.port) for server in (listed, unlisted)]
        network = NetworkPolicy(allow_hosts=(f"127.0.0.1:{listed.port}",), permit_networks=LOOPBACK)
        async with box(held, network) as inside:
            result = await inside.run([sys.executable, "-c", code, *ports])
        assert result.text().split() == ["refused", "refused", "made"], result
        async with box(_executable(held, PROGRAM), network) as inside:
            result = await inside.run([sys.executable, "-c", code, *ports])
        assert result.text().split() == ["made"] * 3, result
