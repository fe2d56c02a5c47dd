"""
The process that evaluates: it waits for requests and forks a confined worker for each.

It is started bare (`python -I -S`), by the caller's process, with two descriptors: a
channel and a pidfd of the caller. It loads the language, gives up every right but
those of receiving and forking, and says so on the channel. From then on each datagram
brings a limit and one end of a socket pair, and a fork of it becomes the worker of that
conversation. The fork keeps the one descriptor and gives up the rest before it reads a
byte: what it evaluates runs where no file, socket, process or executable memory can be
made, with a ceiling of memory, and under a timer of the kernel in case nobody kills it.

Nothing a worker does reaches the process it was forked from, so each starts clean. It
dies with it (PR_SET_PDEATHSIG), and that one ends when the caller's process is gone.

Imports of the package only what runs bare as well, without running the package's own
`__init__`.

Source: landlock(7), seccomp(2), prctl(2), getrlimit(2), unix(7) SCM_RIGHTS.
"""

from __future__ import annotations

import codecs
import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import types

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from typing import Any

CHANNEL, OWNER, CONVERSATION = 3, 4, 3
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
ENCODINGS = "ascii cp1252 iso8859-15 latin-1 unicode-escape utf-8 utf-8-sig utf-16 utf-16-be utf-16-le utf-32".split()
"""Those a snippet can use: each is a module to import."""
MAX_FRAME = 64 << 20
CHUNK = 1 << 16
LENGTH = struct.Struct("<I").pack
TICK_MS = 100
SPARE_SECONDS = 0.3
"""How long after its deadline a worker that nobody killed lives on."""


def bare_packages(here: str) -> None:
    """
    Makes the package's modules importable without its `__init__` files.
    """
    root = os.path.dirname(here)
    for name, path in (("", root), (".evaluation", here), (".confine", os.path.join(root, "confine"))):
        module = types.ModuleType(f"sandboxkit{name}")
        module.__path__ = [path]
        sys.modules[module.__name__] = module


def load(libraries: str) -> None:
    """
    Loads the language, from *libraries* where RestrictedPython is, and runs each mode
    once, so that no fork has to import anything: it could not.
    """
    sys.path.append(libraries)
    import _strptime  # type: ignore[import-not-found]  # noqa: F401 - datetime.strptime imports it when it is first called
    import time  # noqa: F401 - strftime likewise
    import unicodedata  # noqa: F401 - the parser does, when a name is not ASCII

    if sys.version_info >= (3, 12):
        import _pylong  # type: ignore[import-not-found]  # noqa: F401 - the division of long integers does
    from sandboxkit.evaluation._evaluate import Programs, reply

    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    sys.path.remove(libraries)
    values: dict[str, object] = {"x": [1.5, {"a": {"$date": "2024-05-17"}}]}
    samples = (
        ("expr", "f'{x[0]:.2f}' + str(x[1].a.strftime('%d %b')) + '{}'.format(datetime.strptime('1', '%d'))"),
        ("exec", "result = 0\nfor v in x:\n    result += len(str(v))\nd = {'a': 1}\nd['a'] += 1"),
        ("async", "return [v for v in x]"),
        ("template", "a {{ x[0]:.1f }} {{ x | json | default('b') }}"),
        ("expr", "1 +"),
        ("expr", "x.nothing"),
    )
    for mode, code in samples:
        json.dumps(
            reply({"mode": mode, "code": code, "values": values, "functions": {}, "limit": 9999}, dict, Programs())
        )


def load_javascript(libraries: str) -> None:
    """
    As `load`, for JavaScript, whose engine is in *libraries*.
    """
    sys.path.append(libraries)
    from sandboxkit.evaluation._javascript import Programs, reply

    sys.path.remove(libraries)
    values: dict[str, object] = {"x": [1.5, {"a": {"$date": "2024-05-17"}}]}
    for mode, code in (
        ("expr", "x[0] + x[1].a.getTime()"),
        ("async", "return `${x}`"),
        ("template", "{{ x[0]:.1f }}"),
        ("expr", "1 +"),
    ):
        request = {"mode": mode, "code": code, "values": values, "functions": {}, "limit": 9999}
        json.dumps(reply(request, dict, Programs()))


LOADS = {"python": ("_evaluate", load), "javascript": ("_javascript", load_javascript)}
"""By language the module that evaluates it, and what loads it."""


class Confinement:
    """
    The order of the caller for giving rights up, carried out in two steps.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        from sandboxkit.confine._child import SYS_PRCTL, restrict_files, syscall

        self._syscall, self._restrict = syscall, restrict_files
        self._prctl = SYS_PRCTL[os.uname().machine]
        # Made once: a fork finds them at the same address.
        self._wide, self._narrow = (program_of(bytes.fromhex(order[name])) for name in ("wide", "narrow"))
        self._domains = order["landlock"]
        self._uid = order["uid"]
        self.language = sys.modules[f"sandboxkit.evaluation.{LOADS[order['language']][0]}"]
        self._base_bytes = 0

    def prctl(self, *arguments: int) -> None:
        """
        prctl(2).
        """
        self._syscall(self._prctl, *arguments, *(0,) * (5 - len(arguments)))

    def widely(self) -> dict[str, object]:
        """
        What the waiting process gives up; returns what holds from now on.
        """
        if os.geteuid() == 0:
            self._drop_root()
        self.prctl(PR_SET_NO_NEW_PRIVS, 1)
        self.prctl(PR_SET_DUMPABLE, 0)
        with open("/proc/self/statm", "rb") as file:
            self._base_bytes = int(file.read().split()[0]) * resource.getpagesize()
        for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK):
            resource.setrlimit(limit, (0, 0))
        abi = self._enter_landlock()
        uid = os.geteuid()
        self._filter(self._wide)
        return {"landlock_abi": abi, "uid": uid}

    def _drop_root(self) -> None:
        try:
            os.setgroups([])
            os.setresgid(self._uid, self._uid, self._uid)
            os.setresuid(self._uid, self._uid, self._uid)
        except OSError:
            pass  # a user namespace that maps no other uid; what is reported says so

    def _enter_landlock(self) -> int:
        try:
            abi = self._syscall(444, 0, 0, 1)
        except OSError:
            return 0
        fs, net, scoped, level = self._domains[min(abi, len(self._domains)) - 1]
        self._restrict((fs, net, scoped, (), level))
        return abi

    def narrowly(self, memory_bytes: int, seconds: float | None) -> None:
        """
        What a worker gives up besides, before it reads what it is to evaluate.
        """
        ceiling = self._base_bytes + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        if seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, seconds + SPARE_SECONDS)
        self._filter(self._narrow)

    def _filter(self, program: tuple[object, bytes]) -> None:
        try:
            self._syscall(self._prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program[1], 0, 0)
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, "an error")
            raise RuntimeError(f"the kernel takes no seccomp filter ({code})") from error


def program_of(instructions: bytes) -> tuple[object, bytes]:
    """
    The memory of a filter, to be kept, and the `sock_fprog` that points there.
    """
    held = ctypes.create_string_buffer(instructions, len(instructions))
    return held, struct.pack("HxxxxxxQ", len(instructions) // 8, ctypes.addressof(held))


class Conversation:
    """
    A worker's end: messages with their length in front.

    Args:
        reads: The descriptor they come by.
        writes: The one they go by.
    """

    def __init__(self, reads: int = CONVERSATION, writes: int = CONVERSATION) -> None:
        from sandboxkit.evaluation._codec import dumps, unpack

        self._reads, self._writes = reads, writes
        self._unpack, self._dumps = unpack, dumps
        self._rest = b""

    def read(self) -> Any:
        """
        The next message; ends the worker when there is none to come.
        """
        data = self._rest or self._more()
        if len(data) > 4 and data[:4] == LENGTH(len(data) - 4):  # as most come: one, and whole
            self._rest = b""
            return self._unpack(data[4:])
        while len(data) < 4:
            data += self._more()
        length = int.from_bytes(data[:4], "little")
        if length > MAX_FRAME:
            os._exit(1)
        pieces, missing = [data], 4 + length - len(data)
        while missing > 0:
            pieces.append(self._more())
            missing -= len(pieces[-1])
        data = b"".join(pieces)
        self._rest = data[4 + length :]
        return self._unpack(data[4 : 4 + length])

    def _more(self) -> bytes:
        data = os.read(self._reads, CHUNK)
        if not data:
            os._exit(1)
        return data

    def write(self, message: object) -> None:
        """
        Sends *message*.
        """
        body = self._dumps(message)
        data = memoryview(LENGTH(len(body)) + body)
        while data:
            data = data[os.write(self._writes, data) :]

    def ask(self, message: dict[str, object]) -> object:
        """
        Puts a call to the caller and waits for the answer.
        """
        self.write(message)
        return self.read()


def practise(language: Any) -> None:
    """
    Evaluates something of its own: what that touches is copied from the waiting process
    now, and not when somebody waits for an answer.
    """
    request = {"mode": "expr", "code": "x + y", "values": {"x": 1, "y": 2}, "functions": {}, "limit": 9999}
    language.reply(request, dict, language.Programs())


def is_asked(end: socket.socket, seconds: float) -> bool:
    """
    Whether a request comes within *seconds*. Nothing of it is read yet.
    """
    poll = select.poll()
    poll.register(end, select.POLLIN)
    if poll.poll(seconds * 1000):
        return True
    # Closes the door first, and serves who stands in it already.
    end.shutdown(socket.SHUT_RD)
    try:
        return bool(end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


def work(header: dict[str, Any], confinement: Confinement, parent: int) -> None:
    """
    Says which process this is, gives up the rest of its rights, and evaluates.
    """
    language = confinement.language
    confinement.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # With family and type given, making the object asks the kernel nothing it may refuse.
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=CONVERSATION)
    socket.send_fds(end, [bytes(4)], [pidfd := os.pidfd_open(os.getpid())])
    os.close(pidfd)
    programs = language.Programs()
    if header["waits"] is not None:
        practise(language)
        if not is_asked(end, header["waits"]):
            return
    end.detach()
    conversation = Conversation()
    confinement.narrowly(header["memory_bytes"], header["seconds"])
    while True:
        request = conversation.read()
        answer = language.reply(request, conversation.ask, programs)
        conversation.write(answer)
        if not header["stays"]:
            return
        programs.prepare()


def become_worker(end: int, header: dict[str, Any], confinement: Confinement, parent: int) -> None:
    """
    The fork: keeps one descriptor, works, and ends whatever happens.
    """
    try:
        os.dup2(end, CONVERSATION, inheritable=False)
        os.closerange(0, CONVERSATION)
        os.closerange(CONVERSATION + 1, 1024)
        work(header, confinement, parent)
    finally:
        os._exit(0)


def serve(channel: socket.socket, confinement: Confinement, idle_seconds: float) -> None:
    """
    Forks a worker for every datagram, until the caller is gone or there was nothing to do
    for *idle_seconds*.
    """
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(OWNER, select.POLLIN)
    is_retiring = False
    while True:
        ready = {fd for fd, _ in poll.poll(TICK_MS if is_retiring else idle_seconds * 1000)}
        if OWNER in ready:
            return
        if CHANNEL in ready:
            if fork_worker(channel, confinement):
                continue
            if not is_retiring:
                return  # the caller let go of it
            poll.unregister(channel)
        elif not is_retiring and not has_children():
            # Closes the door first, and serves who stands in it already.
            channel.shutdown(socket.SHUT_RD)
            is_retiring = True
        elif is_retiring and not has_children():
            return


def fork_worker(channel: socket.socket, confinement: Confinement) -> bool:
    """
    Forks the worker the next datagram asks for; False where there is none to come.
    """
    data, fds, _, _ = socket.recv_fds(channel, 4096, 4)
    if not data:
        return False
    me = os.getpid()
    if os.fork() == 0:
        become_worker(fds[0], json.loads(data), confinement, me)
    os.close(fds[0])
    return True


def has_children() -> bool:
    """
    Whether a worker is alive: the kernel collects those that ended.
    """
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def main() -> None:
    """
    Takes the order from the channel, confines itself, reports, and serves.
    """
    channel = socket.socket(fileno=CHANNEL)
    os.closerange(OWNER + 1, max(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    try:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN if number != signal.SIGTERM else signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        order = json.loads(channel.recv(1 << 20))
        bare_packages(os.path.dirname(os.path.abspath(__file__)))
        LOADS[order["language"]][1](order["libraries"])
        confinement = Confinement(order)
        os.chdir("/")
        gc.collect()
        gc.freeze()  # a collection in a fork leaves the pages it shares alone
        report = confinement.widely()
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller is to hear of it
        channel.send(json.dumps({"error": (str(error) or type(error).__name__)[:1000]}).encode())
        return
    channel.send(json.dumps(report).encode())
    serve(channel, confinement, order["idle_seconds"])


if __name__ == "__main__":
    main()
