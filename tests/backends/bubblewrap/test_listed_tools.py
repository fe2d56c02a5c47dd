"""
The usual tools, told by their variables alone, fetch from a listed mirror, and fail where
it is not listed. The mirror is a server on loopback whose name looks public.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import ssl
import subprocess
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from sandboxkit import NetworkPolicy, SandboxSpec
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.process import interpreter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytest.importorskip("h11", reason="the proxy is the extra egress")
pytestmark = [pytest.mark.anyio, pytest.mark.requires("bubblewrap"), pytest.mark.timeout(240)]

NAME = "mirror.example"


@pytest.fixture
def anyio_backend() -> str:
    """
    These are about the tools; the proxy itself is tried on both loops elsewhere.
    """
    return "asyncio"


async def resolver(host: str, _port: int) -> Sequence[str]:
    """
    No real name service is asked.
    """
    return ["127.0.0.1"] if host == NAME else []


class Quiet(http.server.SimpleHTTPRequestHandler):
    """
    Serves files, and says nothing of it.
    """

    def log_message(self, *_: Any) -> None:
        pass


def wheel(folder: Path) -> None:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "demo-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("demo.py", "VALUE = 42\n")
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("demo-1.0.dist-info/RECORD", "demo.py,,\n")
    (folder / "index.html").write_text('<a href="demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>')


def package(folder: Path, url: str) -> None:
    folder.mkdir(parents=True)
    with tarfile.open(folder / "demo.tgz", "w:gz") as archive:
        for name, text in {
            "package.json": '{"name":"demo","version":"1.0.0"}',
            "index.js": "module.exports=42",
        }.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    digest = base64.b64encode(hashlib.sha512((folder / "demo.tgz").read_bytes()).digest()).decode()
    version = {
        "name": "demo",
        "version": "1.0.0",
        "dist": {"tarball": f"{url}/npm/demo.tgz", "integrity": f"sha512-{digest}"},
    }
    about = {"name": "demo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (folder / "demo").write_text(json.dumps(about))


def repository(folder: Path) -> None:
    work = folder.with_name("work")
    work.mkdir()
    (work / "file").write_text("42\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*author, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=work, check=True, capture_output=True)
    subprocess.run(["git", "clone", "-q", "--bare", work, folder], check=True, capture_output=True)
    subprocess.run(["git", "update-server-info"], cwd=folder, check=True)


@contextmanager
def mirror(root: Path, authority: Path) -> Iterator[str]:
    """
    A server of *root* over TLS whose authority is in the file *authority*; gives its URL.
    """
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(authority))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(NAME).configure_cert(context)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://{NAME}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


JAVA = """
public class Get {
    public static void main(String[] a) throws Exception {
        System.out.println(new String(new java.net.URL(a[0]).openStream().readAllBytes()).trim());
    }
}
"""


def commands(url: str, ws: Path) -> dict[str, tuple[list[str], str]]:
    """
    By tool: what is run, and what it prints when it got something.
    """
    python = interpreter()
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
    found = {
        "curl": (["curl", "-sS", "-m30", f"{url}/plain"], "42"),
        "pip": (
            ["sh", "-c", f'"$@" && {python} -c "import sys; sys.path.insert(0, \'/tmp/t\'); import demo; print(demo.VALUE)"', "sh",
             *pip, "install", "-q", "--root-user-action=ignore", "--no-deps", "--retries=0", "--target=/tmp/t", f"--index-url={url}/simple/", "demo"],
            "42",
        ),
        "npm": (
            ["sh", "-c", f"cd /tmp && npm install --silent --cafile={ws}/ca.pem --no-audit --no-fund --fetch-retries=0 --registry={url}/npm/ demo && node -p 'require(\"demo\")'"],
            "42",
        ),
        "git": (["sh", "-c", f"git clone -q {url}/demo.git /tmp/clone && cat /tmp/clone/file"], "42"),
        "wget": (["wget", "-qO-", "-T30", "-t1", f"--ca-certificate={ws}/ca.pem", f"{url}/plain"], "42"),
        "python": ([python, "-c", f"import urllib.request as u; print(u.urlopen('{url}/plain').read().decode())"], "42"),
        "node": (
            ["node", "-e", f"fetch('{url}/plain').then(r => r.text()).then(console.log, e => {{ console.error(e.cause ?? e); process.exit(1) }})"],
            "42",
        ),
        "java": (["java", "-XX:TieredStopAtLevel=1", f"-Djavax.net.ssl.trustStore={ws}/ca.jks", "-Djavax.net.ssl.trustStorePassword=changeit", f"{ws}/Get.java", f"{url}/plain"], "42"),
    }  # fmt: skip
    return {tool: row for tool, row in found.items() if tool == "pip" or shutil.which(tool) or tool == "python"}


def _knows_the_switch() -> bool:
    """
    Whether this Node's own fetch reads proxy variables: from 22.21 and 24.5 on.
    """
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    major, minor = (int(found[1]), int(found[2])) if found else (0, 0)
    return (major, minor) >= (24, 5) or (major == 22 and minor >= 21)


@pytest.mark.parametrize("tool", ["curl", "pip", "npm", "git", "wget", "python", "node", "java"])
async def test_a_tool_reaches_the_listed_mirror_and_nothing_else(tool: str, tmp_path: Path) -> None:
    ws, root = (tmp_path / "ws").resolve(), tmp_path / "root"
    ws.mkdir()
    root.mkdir()
    (root / "plain").write_text("42")
    (ws / "Get.java").write_text(JAVA)
    authority = ws / "ca.pem"
    with mirror(root, authority) as url:
        wheel(root / "simple" / "demo")
        package(root / "npm", url)
        repository(root / "demo.git")
        if tool not in commands(url, ws):
            pytest.skip(f"{tool} is not installed")
        if tool == "java":
            _trust(authority, ws / "ca.jks")
        for path in (ws, *ws.iterdir()):
            path.chmod(0o755)
        argv, wanted = commands(url, ws)[tool]
        names = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "NODE_EXTRA_CA_CERTS")
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(Path.home()), **dict.fromkeys(names, str(authority)),
        }  # fmt: skip
        host = url.removeprefix("https://")
        listed = NetworkPolicy(allow_hosts=(f"https://{host}",), permit_networks=("127.0.0.1/32",))
        backend = BubblewrapBackend(resolver=resolver)
        async with backend.open(SandboxSpec.read_only(ws, network=listed)) as box:
            result = await box.run(argv, environment=environment, timeout=90)
        if tool == "node" and not _knows_the_switch():
            assert result.exit_code != 0  # it knows no proxy, so it reaches nothing
            return
        assert (result.exit_code, result.text().strip()) == (0, wanted), result.text("stderr")
        assert result.violations == ()
        other = NetworkPolicy(allow_hosts=("other.example",), permit_networks=("127.0.0.1/32",))
        async with backend.open(SandboxSpec.read_only(ws, network=other)) as box:
            result = await box.run(argv, environment=environment, timeout=90)
        assert result.exit_code != 0
        assert wanted not in result.text().split()
        assert {found.spec_line for found in result.violations} == {f'network.allow_hosts = ["{host}"]'}


def _trust(authority: Path, store: Path) -> None:
    words = ("-importcert", "-noprompt", "-alias", "ca", "-storepass", "changeit")
    subprocess.run(["keytool", *words, "-keystore", store, "-file", authority], check=True, capture_output=True)
