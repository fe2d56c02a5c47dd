"""
What the kernel holds when the language gate does not: the worker's own program, with its
gate torn out, runs plain Python. Each act is shown to succeed outside as well.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sandboxkit
from sandboxkit.evaluation import _worker, _workers
from sandboxkit.evaluation._codec import pack
from sandboxkit.process import Zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHOUT_GATE = f"""
import ctypes, importlib.util, json, mmap, os, resource, select, signal, socket, struct, sys, threading, time
spec = importlib.util.spec_from_file_location("worker", {_worker.__file__!r})
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
load = worker.load
libc = ctypes.CDLL(None, use_errno=True)

def reply(request, ask, programs):
    names = {{**globals(), "result": None}}
    try:
        exec(request["code"], names)
        return {{"value": names["result"]}}
    except MemoryError:
        return {{"error": "memory"}}
    except BaseException as error:
        return {{"value": f"{{type(error).__name__}} {{getattr(error, 'errno', None)}}"}}

def load_without_gate(libraries):
    load(libraries)
    sys.modules["sandboxkit.evaluation._evaluate"].reply = reply

worker.LOADS["python"] = ("_evaluate", load_without_gate)
worker.main()
"""
HEADER = {"memory_bytes": 64 << 20, "seconds": 10, "stays": False, "waits": None}
REFUSED = ("PermissionError 1", "itimer_error 1", "ValueError None")
"""EPERM, as the modules signal and resource raise it too."""


@pytest.fixture(scope="module")
def ungated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    program = tmp_path_factory.mktemp("ungated") / "ungated.py"
    program.write_text(WITHOUT_GATE)
    zygote = Zygote("ungated worker", program, json.loads(_workers.zygote()._order), "no remedy")
    yield zygote
    zygote.end()


def inside(zygote: Zygote, code: str, **header: object) -> Any:
    """
    What *code* gives inside of a worker of *zygote*.
    """
    worker = zygote.converse(HEADER | header, 1 << 20)
    try:
        worker.send(pack({"code": textwrap.dedent(code)}), time.monotonic() + 10)
        return json.loads(worker.receive(time.monotonic() + 20))
    finally:
        worker.end()


def outside(code: str) -> Any:
    """
    What *code* gives in an ordinary interpreter.
    """
    imports = "import ctypes, json, mmap, os, resource, select, signal, socket, struct, sys, threading, time\n"
    whole = f"{imports}libc = ctypes.CDLL(None, use_errno=True)\nresult = None\n{textwrap.dedent(code)}\nprint(json.dumps(result))"
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True, timeout=30)
    return json.loads(done.stdout)


READ, OPENAT = (0, 257) if os.uname().machine == "x86_64" else (63, 56)

ACTS = {
    "open a file": "result = os.close(os.open('/etc/passwd', os.O_RDONLY))",
    "open a file by the kernel's own call": f"""
        if libc.syscall({OPENAT}, -100, b'/etc/passwd', 0) < 0:
            raise OSError(ctypes.get_errno(), '')
    """,
    "list a directory": "os.listdir('/')",
    "look at a file": "os.stat('/etc/passwd')",
    "make a directory": """
        os.mkdir(f'/tmp/sandboxkit-{os.getpid()}')
        os.rmdir(f'/tmp/sandboxkit-{os.getpid()}')
    """,
    "make a socket": "socket.socket().close()",
    "make a pair of sockets": "a, b = socket.socketpair()",
    "make a pipe": "os.pipe()",
    "fork": """
        pid = os.fork()
        if pid == 0: os._exit(0)
        os.waitpid(pid, 0)
    """,
    "start a program": "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
    "send a signal": "os.kill(os.getpid(), 0)",
    "find a process": "os.close(os.pidfd_open(os.getppid()))",
    "write to another descriptor": "os.write(1, b'')",
    "read from another descriptor": "os.read(0, 0)",
    "make a file in memory": "os.close(os.memfd_create('x'))",
    "set a limit": "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    "turn its timer off": "signal.setitimer(signal.ITIMER_REAL, 0)",
    "watch descriptors": "select.select([], [], [], 0)",
    "be traced": """
        if libc.prctl(4, 1, 0, 0, 0): raise OSError(ctypes.get_errno(), '')
    """,
    "make executable memory": """
        libc.mmap.restype = ctypes.c_long
        if libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0)) == -1: raise OSError(ctypes.get_errno(), '')
    """,
    "make memory executable": """
        libc.mmap.restype = ctypes.c_long
        page = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
        if libc.mprotect(ctypes.c_long(page), ctypes.c_size_t(4096), 5): raise OSError(ctypes.get_errno(), '')
    """,
    "receive a descriptor": """
        try: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=os.dup(0)).recvmsg(1)
        except OSError as error:
            if error.errno == 1: raise
    """,
}


@pytest.mark.parametrize("act", ACTS)
def test_a_worker_without_gate_cannot(act: str, ungated: Zygote) -> None:
    outside(ACTS[act])  # raises where it fails
    assert inside(ungated, ACTS[act])["value"] in REFUSED


def test_a_worker_cannot_start_a_thread(ungated: Zygote) -> None:
    code = "t = threading.Thread(target=int)\nt.start()\nt.join()\nresult = 1"
    assert outside(code) == 1
    assert inside(ungated, code) == {"value": "RuntimeError None"}


def test_a_worker_has_one_descriptor_and_no_environment(ungated: Zygote) -> None:
    code = f"""
        result = [dict(os.environ), []]
        for fd in range(64):
            libc.syscall({READ}, fd, None, 0)
            if ctypes.get_errno() != 1: result[1].append(fd)
            ctypes.set_errno(0)
    """
    assert inside(ungated, code) == {
        "value": [{"TZ": "UTC0", "LC_CTYPE": "C.UTF-8"}, [3]]
    }  # the second is CPython's own


def test_memory_ends_at_the_limit(ungated: Zygote) -> None:
    code = "block = bytearray({} << 20)\nresult = len(block)"
    assert inside(ungated, code.format(200)) == {"error": "memory"}
    assert inside(ungated, code.format(200), memory_bytes=300 << 20) == {"value": 200 << 20}


def test_a_worker_nobody_kills_ends_by_itself(ungated: Zygote) -> None:
    worker = ungated.converse(HEADER | {"seconds": 0.2}, 1 << 20)
    try:
        worker.send(pack({"code": "while True: pass"}), time.monotonic() + 5)
        began = time.monotonic()
        with pytest.raises(EOFError):
            worker.receive(time.monotonic() + 10)
        assert 0.2 < time.monotonic() - began < 3
        deadline = time.monotonic() + 2  # its socket closes a little before it is gone
        while not worker.has_ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert worker.has_ended()
    finally:
        worker.end()


def test_a_worker_that_answers_and_goes_on_is_killed(ungated: Zygote) -> None:
    code = """
        os.write(3, struct.pack('<I', 13) + b'{"value": 7}\\n')
        while True: pass
    """
    assert inside(ungated, code) == {"value": 7}  # `inside` ends it, and the fixture finds what is left


@pytest.mark.parametrize(
    "answer",
    [
        b'{"value": {"$own": "eval"}}',
        b'{"value": {"$refused": "x"}}',
        b'{"value": {"$date": "nonsense"}}',
        b'{"value": {"$set": [[1]]}}',
        b'{"value": {"$int": 5}}',
        b'{"call": "unknown", "arguments": [], "named": {}}',
        b'{"call": "known", "arguments": {}, "named": {}}',
        b'{"next": 5}',
        b'{"value": {"$decimal": "1e99999999"}}',
        b'{"value": {"$set": [' + b",".join(b"%d" % (n * (2**61 - 1)) for n in range(500)) + b"]}}",
        b'{"error": "raised"}',
        b"[]",
        b"nonsense",
        b"[" * 9_000,
        b'{"error": "raised", "type": "\x1b[2J", "text": "x", "line": "y"}',
        b'{"error": "raised", "type": "x", "text": "x", "line": ' + b"9" * 4_000 + b"}",
        b'{"error": "syntax", "text": "x", "source": "", "line": 1, "column": -' + b"9" * 40 + b"}",
    ],
)
def test_a_worker_that_lies_gives_a_typed_error(
    answer: bytes, ungated: Zygote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_workers, "zygote", lambda _: ungated)
    code = f"data = bytes.fromhex('{answer.hex()}')\nos.write(3, struct.pack('<I', len(data)) + data)"
    with pytest.raises(sandboxkit.SafeEvalError) as caught:
        sandboxkit.safe_eval(code, {"known": _known}, timeout=10)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_000


def test_a_message_has_no_more_parts_than_its_values(ungated: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers, "zygote", lambda _: ungated)
    code = """data = b'{"value": [' + b'[],' * 900_000 + b'0]}'
data = struct.pack('<I', len(data)) + data
while data: data = data[os.write(3, data):]"""
    with pytest.raises(sandboxkit.SafeEvalError, match="more parts than it may"):
        sandboxkit.safe_eval(code, timeout=30)
    monkeypatch.undo()
    whole = "[[timedelta(1, 2, 3)] * 30_000, ['[{'] * 9_000, [{1: 2}] * 4_000, '[' * 99_000]"
    moments, texts, pairs, text = sandboxkit.safe_eval(whole, timeout=30)
    assert (len(moments), len(texts), len(pairs), len(text)) == (30_000, 9_000, 4_000, 99_000)


def test_a_worker_that_says_too_much_is_not_heard(ungated: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers, "zygote", lambda _: ungated)
    code = "os.write(3, struct.pack('<I', 50 << 20))\nwhile True: os.write(3, bytes(9999))"
    with pytest.raises(sandboxkit.SafeEvalError, match="worker ended"):
        sandboxkit.safe_eval(code, timeout=10)


def _known() -> None:
    raise AssertionError("nobody may call this with arguments of another shape")


def test_a_root_caller_lends_no_root() -> None:
    report = _workers.zygote().report()
    assert report["uid"] == (_workers.UNUSED_ID if os.geteuid() == 0 else os.geteuid())
    status = Path(f"/proc/{_workers.zygote().pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status


APPLICATION = """
import os, threading, time, sandboxkit
from sandboxkit.evaluation import _workers
ended = threading.Thread(target=lambda: sandboxkit.safe_eval("max(range(10**12))", timeout=60), daemon=True)
ended.start()
while not (pid := _workers.zygote().pid): time.sleep(0.01)
path = f"/proc/{pid}/task/{pid}/children"
while not (worker := open(path).read().split()): time.sleep(0.01)
time.sleep(0.2)
print(pid, worker[0], flush=True)
time.sleep(60)
"""


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_application(number: signal.Signals) -> None:
    application = subprocess.Popen(
        [sys.executable, "-c", APPLICATION], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert application.stdout
    with application.stdout:
        pids = [int(word) for word in application.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(_is_running, pids))
    application.send_signal(number)
    application.wait(30)
    deadline = time.monotonic() + 5
    while any(map(_is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(_is_running, pids))
