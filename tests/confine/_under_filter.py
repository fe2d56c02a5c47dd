"""
Runs under a seccomp filter: makes system calls and reports what they answer, or
becomes another program.

    python -I -S -c <this text> FD probe ROWS     prints {name: answer} as JSON
    python -I -S -c <this text> FD exec PROGRAM ARGUMENT...

FD is open on the filter; -1 is no filter, for comparison. ROWS is a JSON object of
name: [number, argument...]. An answer is an error number, 0, or "signal N".

Passed as text, because the user it runs as may not be able to read this file.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2

libc = ctypes.CDLL(None, use_errno=True)


def install(fd: int) -> None:
    """
    Puts this process under the filter that *fd* is open on.
    """
    program = os.pread(fd, 1 << 16, 0)
    instructions = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))

    loaded = Program(len(program) // 8, ctypes.addressof(instructions))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter was not taken")


def answer(number: int, *arguments: int) -> int | str:
    """
    What a system call answers, made in a process of its own.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        this = os.getpid()
        result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, arguments))
        if os.getpid() == this:  # clone returns a second time, in its child
            os.write(writing, b"%d" % (ctypes.get_errno() if result == -1 else 0))
        os._exit(0)
    os.close(writing)
    status = os.waitpid(child, 0)[1]
    text = os.read(reading, 16)
    os.close(reading)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else int(text)


def main(fd: str, action: str, *arguments: str) -> None:
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if int(fd) >= 0:
        install(int(fd))
    if action == "exec":
        os.execvp(arguments[0], arguments)
    print(json.dumps({name: answer(*row) for name, row in json.loads(arguments[0]).items()}))


main(*sys.argv[1:])
