"""
The supervisor passes a signal on also when it comes in the worst moment: just before it
waits. The moment is made by stepping through its instructions.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys

import pytest

PEEKTEXT, SINGLESTEP, GETREGS, DETACH, SYSCALL, SEIZE, INTERRUPT = 1, 9, 12, 17, 24, 0x4206, 0x4207
RIP, RAX, ORIG_RAX = 16, 10, 15
SYSGOOD, EXITKILL = 0x1, 0x100000
SYSCALL_STOP = signal.SIGTRAP | 0x80
WAIT4, RT_SIGTIMEDWAIT, WRITE = 61, 128, 1
MOST_STEPS = 400_000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

PROGRAM = """
import os, sys
from sandboxkit.confine import _child as room
supervisor = room.Supervisor()
supervisor.listen()
supervisor.command = room.spawn(("/bin/sh", "-c", "trap 'exit 5' USR1; echo up; while :; do sleep 0.05; done"), {}, ())
os.read(0, 1)
os.write(2, b"now")
status, usage = supervisor.wait()
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 99)
"""


class Stepped:
    """
    A process that is stopped, and goes on by single instructions.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ask(SEIZE, SYSGOOD | EXITKILL)

    def ask(self, request: int, data: int = 0, address: int = 0) -> int:
        ctypes.set_errno(0)
        place: object = address or None
        if request == PEEKTEXT:  # the library's wrapper returns the word
            return int(libc.ptrace(request, self.pid, place, None))
        answer = int(libc.ptrace(request, self.pid, place, data or None))
        if answer < 0 and ctypes.get_errno():
            raise OSError(ctypes.get_errno(), f"ptrace {request}")
        return answer

    def stop(self) -> int:
        """
        The signal of the next stop.
        """
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSTOPPED(status), status
        return os.WSTOPSIG(status)

    def finish(self, number: int) -> None:
        """
        Runs to the end of the next call *number*.
        """
        while True:
            self.ask(SYSCALL)
            if self.stop() == SYSCALL_STOP:
                registers = self.registers()
                if registers[ORIG_RAX] == number and registers[RAX] < 1 << 63:
                    return

    def registers(self) -> tuple[int, ...]:
        found = ctypes.create_string_buffer(27 * 8)
        libc.ptrace(GETREGS, self.pid, None, found)
        return struct.unpack("27Q", found)

    def is_before(self, number: int) -> bool:
        """
        Whether the next instruction makes the call *number*.
        """
        registers = self.registers()
        return registers[RAX] == number and self.ask(PEEKTEXT, 0, registers[RIP]) & 0xFFFF == 0x050F


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="it reads the registers of x86_64")
def test_a_signal_just_before_the_wait_reaches_the_command() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdin
        assert supervisor.stdout
        assert supervisor.stdout.readline() == b"up\n"
        stepped = Stepped(supervisor.pid)
        stepped.ask(INTERRUPT)
        stepped.stop()
        supervisor.stdin.write(b"x")
        supervisor.stdin.flush()
        stepped.finish(WRITE)
        for _ in range(MOST_STEPS):
            stepped.ask(SINGLESTEP)
            stepped.stop()
            if stepped.is_before(WAIT4) or stepped.is_before(RT_SIGTIMEDWAIT):
                break
        else:
            pytest.fail("it never waits")
        os.kill(supervisor.pid, signal.SIGUSR1)
        stepped.ask(SINGLESTEP)
        stepped.ask(DETACH, signal.SIGUSR1 if stepped.stop() == signal.SIGUSR1 else 0)
        try:
            assert supervisor.wait(timeout=20) == 5
        finally:
            supervisor.kill()
