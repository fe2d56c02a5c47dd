"""
The spawn broker: a small single-threaded process that starts and ends every box.

The application cannot do it itself: a box dies with the *thread* that started it
(`bwrap --die-with-parent`), `fork` of a large or threaded application is slow or
unsafe, and after a SIGKILL nobody would be left to end the boxes. The broker is one
thread that lives as long as the application's process and no longer: it holds a pidfd
of it, because a forked worker keeps the channel open.

Runs under `python -I -S`, standard library only, and imports nothing of the package.

Channel (SEQPACKET): one datagram a launch, with descriptors attached: a control
socket, a memfd with the plan as JSON, then what the plan's `fds` names, and last, where it
says `trace`, a file for what the command was refused. On the control socket the broker
reports once, when all has ended, as a JSON object; the application sends `kill` or
`signal N`, and closing the socket kills.

Source: pidfd_open(2), prctl(2) PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

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
import time

TYPE_CHECKING = False  # as in typing, whose import is spared
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandboxkit.process import _box, _leaves, _staging, _starting, _watcher

MAX_FDS = 250
PR_SET_CHILD_SUBREAPER = 36
LONGEST_SECONDS = 3600.0
"""For one wait: epoll_wait(2) takes no more than 24 days. Nothing is due more often for it."""
ALL_SIGNALS = [number for number in range(1, signal.NSIG) if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]


def import_beside(name: str, room: str = "process") -> Any:
    """
    The module *name* of a room of this package, which -I leaves out of the path. It must
    be one that starts bare, as this does. Only who needs it pays for its import.
    """
    place = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), room)
    if place not in sys.path:
        sys.path.append(place)
    return __import__(name)


if not TYPE_CHECKING:
    _box, _starting = import_beside("_box"), import_beside("_starting")


def tell(control: socket.socket, message: dict[str, object]) -> None:
    """
    Reports *message* to the application, if it still listens.
    """
    try:
        control.send(json.dumps(message).encode())
    except OSError:
        pass  # it went away; its end of the socket says so too


def children() -> set[int]:
    """
    The process ids of this process's children.
    """
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return {int(pid) for pid in file.read().split()}
    except OSError:
        found = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        return {pid for pid in found if _box.parent_of(pid) == os.getpid()}


class Broker:
    """
    The event loop over the channel, the application and the boxes.
    """

    def __init__(self, channel: socket.socket, owner: int, idle_seconds: float) -> None:
        self.channel = channel
        self.idle_seconds = idle_seconds
        self.boxes: dict[int, _box.Box] = {}
        self.stages: _staging.Stages | None = None
        self.nursery: _leaves.Nursery | None = None
        self.is_closing = False
        self.actions: dict[int, Callable[[], None]] = {}
        self.poll = select.epoll()
        self.watch(channel.fileno(), self.take)
        self.watch(owner, self.close)

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """
        Calls *action* whenever *fd* is ready to be read.
        """
        self.actions[fd] = action
        self.poll.register(fd, select.EPOLLIN)

    def forget(self, *fds: int) -> None:
        """
        Stops watching *fds*.
        """
        for fd in fds:
            if self.actions.pop(fd, None):
                self.poll.unregister(fd)

    def serve(self) -> None:
        """
        Works until the application goes, or nothing was asked of it for a while.
        """
        while not self.is_closing:
            if not self.act(self.patience() if self.boxes else self.idle_seconds) and not self.boxes:
                self.retire()

    def close(self) -> None:
        """
        Ends the loop: the application is gone.
        """
        self.is_closing = True

    def retire(self) -> None:
        """
        Closes the door, serves what already stands in it, and ends the loop.
        """
        self.channel.shutdown(socket.SHUT_RD)
        while self.accept():
            pass
        self.forget(self.channel.fileno())
        while self.boxes and not self.is_closing:
            self.act(self.patience())
        self.close()

    def act(self, seconds: float | None) -> bool:
        """
        Waits at most *seconds* and does what became ready, and what is due; False when
        nothing was ready.
        """
        events = self.poll.poll(seconds)
        for fd, _ in events:
            if action := self.actions.get(fd):
                action()
        now = time.monotonic()
        for box in self.boxes.values():
            box.look(now)
        return bool(events)

    def patience(self) -> float | None:
        """
        The seconds until the next deadline, or None where there is none.
        """
        due = [moment for box in self.boxes.values() if (moment := box.due()) is not None]
        return min(LONGEST_SECONDS, max(0.0, min(due) - time.monotonic())) if due else None

    def take(self) -> None:
        """
        Takes one launch; the channel's end means that the application is done with us.
        """
        if not self.accept():
            self.close()

    def hear(self, box: _box.Box) -> None:
        """
        Takes what was reported from inside *box*.
        """
        if not box.read_status():
            self.forget(box.status)

    def obey(self, box: _box.Box) -> None:
        """
        Takes one message of the application about *box*; its end kills.
        """
        try:
            message = box.control.recv(64)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message.startswith(b"signal "):
            box.send(int(message[7:]))
            return
        box.kill()
        if not message:
            self.forget(box.control.fileno())

    def accept(self) -> bool:
        """
        Takes one launch from the channel; False when there is none and never will be.
        """
        try:
            data, ancillary, _, _ = self.channel.recvmsg(
                16, socket.CMSG_SPACE(MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return True
        except OSError:
            return False
        fds = [fd for _, _, raw in ancillary for fd in struct.unpack(f"{len(raw) // 4}i", raw)]
        if not data and not fds:
            return False
        if len(fds) < 2:
            _starting.close_all(fds)
            return True
        control = socket.socket(fileno=fds.pop(0))
        try:
            self.launch(control, fds.pop(0), fds)
        finally:
            _starting.close_all(fds)
        return True

    def launch(self, control: socket.socket, plan: int, fds: list[int]) -> None:
        """
        Starts what the memfd *plan* describes.
        """
        control.setblocking(False)
        status, report = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(report, True)
        try:
            with open(plan, "rb") as file:
                order = json.loads(file.read())
            pid, launcher, leaves = self.start(order, fds, report)
        except (OSError, ValueError, KeyError, TypeError) as error:
            tell(control, {**_starting.failure(error), "done": -1})
            control.close()
            os.close(status)
            return
        finally:
            os.close(report)
        box = _box.Box(control, pid, launcher, status, order, leaves, self.open_watcher(order, launcher, leaves, fds))
        self.boxes[pid] = box
        self.watch(box.status, lambda: self.hear(box))
        self.watch(box.pidfd, lambda: self.finish(box))
        self.watch(box.control.fileno(), lambda: self.obey(box))
        if leaves and leaves.shortage is not None:
            self.watch(leaves.shortage, lambda: self.starve(box))

    def open_watcher(
        self, order: dict[str, Any], launcher: int, leaves: _leaves.Leaves | None, fds: list[int]
    ) -> _watcher.Watcher | None:
        """
        What looks at the limits of a whole box that none of its control groups holds.
        """
        held = leaves.controls() if leaves else ()
        limits = {name: value for control, name, value in order["watched"] if control not in held}
        if not limits:
            return None
        watcher: _watcher.Watcher = import_beside("_watcher").Watcher(
            launcher, limits.get("cpu_us"), limits.get("memory_bytes"), frozenset(os.fstat(fd).st_ino for fd in fds)
        )
        return watcher

    def starve(self, box: _box.Box) -> None:
        """
        Ends *box* if it has reached its limit of memory: the kernel only ends single
        processes of it, and files in memory stay.
        """
        if box.leaves is None or box.leaves.shortage is None:
            return
        os.eventfd_read(box.leaves.shortage)
        if box.leaves.is_short():
            self.forget(box.leaves.shortage)
            box.stop("memory_limit")

    def start(self, order: dict[str, Any], fds: list[int], report: int) -> tuple[int, int, _leaves.Leaves | None]:
        """
        The process id of our new child for *order*, that of the program it asks for, and
        its control groups. The two differ where a tracer stands between.
        """
        begin = self.start_traced if order["trace"] else self.start_untraced
        nursery = self.nursery
        if nursery is None and order["groups"]:
            nursery = self.nursery = self.open_nursery()
        leaves = nursery.take(order["groups"]) if nursery else None
        if nursery is None or leaves is None:
            return *begin(order, fds, report), None
        try:
            pids = begin(order, fds, report)
        except BaseException:
            leaves.leave()
            nursery.clear(leaves)
            raise
        nursery.move_on(leaves, order["groups"])
        return *pids, leaves

    def start_untraced(self, order: dict[str, Any], fds: list[int], report: int) -> tuple[int, int]:
        """
        Starts the program of *order* as our own child.
        """
        pid = self.start_program(order, fds, report)
        return pid, pid

    def start_traced(self, order: dict[str, Any], fds: list[int], report: int) -> tuple[int, int]:
        """
        Starts the program of *order* as the child of a tracer, which is ours. The last of
        *fds* is where the tracer writes what it found.

        A process of its own, not a thread: waiting in one thread takes the stops of the
        others, and the uid and mounts that `stage` changes are the whole process's.
        """
        found = fds.pop()
        try:
            if order["staging"]:
                self.open_stages().namespaces(order["staging"])  # kept here for later runs, too
            pid, answer = self.fork_tracer(order, fds, report, found)
        finally:
            os.close(found)
        if "launcher" in answer:
            return pid, int(answer["launcher"])
        os.waitpid(pid, 0)
        raise _starting.LaunchFailure(answer or {"error": "broker", "errno": errno.EIO, "text": "the tracer ended"})

    def fork_tracer(self, order: dict[str, Any], fds: list[int], report: int, found: int) -> tuple[int, dict[str, Any]]:
        """
        The process id of a new tracer, and what it says once the program was started.
        """
        owner, (ready, told) = os.getpid(), os.pipe2(os.O_CLOEXEC)
        try:
            pid = os.fork()
            if pid == 0:
                try:
                    self.trace(order, fds, report, found, told, owner)
                finally:
                    os._exit(70)
            os.close(told)
            told = -1
            with open(ready, "rb", closefd=False) as file:
                answer: dict[str, Any] = json.loads(file.read() or b"{}")
            return pid, answer
        finally:
            _starting.close_all([fd for fd in (ready, told) if fd >= 0])

    def trace(self, order: dict[str, Any], fds: list[int], report: int, found: int, told: int, owner: int) -> None:
        """
        In the tracer of the broker *owner*: starts the program of *order*, follows its
        processes to the end and writes to *found* what they were refused. Ends as the
        program did.
        """
        gate = os.pipe2(os.O_CLOEXEC)
        try:
            launcher = self.start_program(order, fds, report, gate)
        except (OSError, ValueError, KeyError, TypeError) as error:
            os.write(told, json.dumps(_starting.failure(error)).encode())
            return
        # Not before: taking another uid and coming back has cleared it.
        _starting.libc.prctl(_starting.PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        tracer, verdict = import_beside("_tracer"), import_beside("_verdict", "confine")
        for group in order["groups"]["groups"] if order["groups"] else ():
            import_beside("_leaves").go(group["home"])  # or the box's limits would be ours, too
        _starting.keep_only([report, found, told, gate[1]])
        os.close(report)  # the box's end is seen by its last writer
        if os.getppid() == owner:
            os._exit(tracer.trace(launcher, order["trace"], verdict, told=told, gate=gate[1], found=found))

    def open_nursery(self) -> _leaves.Nursery:
        """
        What makes control groups. Only who may make some pays for its import.
        """
        nursery: _leaves.Nursery = import_beside("_leaves").Nursery()
        return nursery

    def clear(self, leaves: _leaves.Leaves) -> None:
        """
        Removes the control groups of a run that has ended.
        """
        if self.nursery:
            self.nursery.clear(leaves)

    def start_program(
        self, order: dict[str, Any], fds: list[int], report: int, gate: tuple[int, int] | None = None
    ) -> int:
        """
        The process id of the newly started program of *order*. With a *gate* it waits
        for a byte through that.
        """
        targets = order["fds"]
        reports = order["report_fds"]
        floor = max([*targets, *reports, 2]) + 1
        copies = _starting.above([*fds, *[report] * len(reports)], floor)
        try:
            moves = list(zip(copies, [*targets, *reports], strict=True))
            if order["is_direct"]:
                return _starting.fork(order, moves, report)
            if gate is None:
                return self.as_ordered(order, lambda: _starting.spawn(order, moves), moves)
            (said,) = _starting.above([report], floor)
            copies.append(said)
            return self.as_ordered(order, lambda: _starting.fork_held(order, moves, said, gate), moves)
        finally:
            _starting.close_all(copies)

    def as_ordered(self, order: dict[str, Any], action: Callable[[], int], moves: list[tuple[int, int]]) -> int:
        """
        What *action* gives with the uid and the files that the staging of *order* gives.
        """
        staging = order["staging"]
        if not staging:
            return action()
        return self.open_stages().act(staging, action, moves)

    def open_stages(self) -> _staging.Stages:
        """
        What takes a root caller's program to another user, made when it is first needed.
        """
        if self.stages is None:
            self.stages = import_beside("_staging").Stages()
        return self.stages

    def finish(self, box: _box.Box) -> None:
        """
        Collects a box whose launched process has ended, and whatever it left behind.
        """
        _, status = os.waitpid(box.pid, 0)
        del self.boxes[box.pid]
        self.forget(box.pidfd, box.status, box.control.fileno())
        self.sweep()
        while box.read_status():
            if not select.select([box.status], [], [], 0)[0]:
                break
        message: dict[str, Any] = {**box.records, "done": status}
        if box.leaves:
            message.update(box.leaves.report())
            if box.leaves.shortage is not None:
                self.forget(box.leaves.shortage)
            self.clear(box.leaves)
        if box.seen:
            message["figures"] = box.seen | message.get("figures", {})  # a group knows better
        tell(box.control, message)
        box.close()

    def sweep(self) -> None:
        """
        Ends every child that belongs to no box: what outlived the program it came from.

        A box's first process becomes the broker's child when the program that built
        the box was killed too early to take it along.
        """
        while orphans := children() - self.boxes.keys():
            for pid in orphans:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                except OSError:
                    pass  # it ended by itself

    def end(self) -> None:
        """
        Ends every box and waits until nothing is left.
        """
        self.forget(self.channel.fileno())
        for box in self.boxes.values():
            self.forget(box.control.fileno())
            box.kill()
        deadline = time.monotonic() + 5
        while self.boxes and time.monotonic() < deadline:
            self.act(0.2)
        self.boxes.clear()
        self.sweep()
        if self.nursery:
            self.nursery.close()


def main() -> None:
    """
    Serves the channel. Arguments: its descriptor, the application's pidfd, and after
    how many idle seconds to end.
    """
    channel, owner = int(sys.argv[1]), int(sys.argv[2])
    _starting.keep_only([channel, owner])
    os.set_inheritable(channel, False)
    os.set_inheritable(owner, False)
    for number in ALL_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    for number in _starting.IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _starting.libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.chdir("/")
    broker = Broker(socket.socket(fileno=channel), owner, float(sys.argv[3]))
    gc.disable()  # a collection would touch, and so copy, every page in each forked child
    gc.freeze()
    try:
        broker.serve()
    finally:
        broker.end()


if __name__ == "__main__":
    main()
    os._exit(0)  # everything has ended; taking this interpreter down would keep the application waiting for its memory
