"""
Ordinary programs work under the filter: what libraries and run-times of many kinds
call, started for real.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.confine.conftest import Filtered

PYTHON_WORK = {
    "asyncio subprocess": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("echo", "ok", stdout=asyncio.subprocess.PIPE)
    print((await process.communicate())[0].decode().strip())
asyncio.run(main())
""",
    "threads": """
import threading
done = []
threads = [threading.Thread(target=done.append, args=(n,)) for n in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("ok" if len(done) == 20 else done)
""",
    "processes with a manager": """
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager, context.Pool(2) as pool:
        shared = manager.list(pool.map(abs, [-1, -2]))
        print("ok" if list(shared) == [1, 2] else shared)
""",
    "loopback server": """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"ok")).start()
print(socket.create_connection(server.getsockname()).recv(2).decode())
""",
    "unix socket and interfaces": """
import os, socket
left, right = socket.socketpair()
left.sendall(b"ok")
socket.getaddrinfo("localhost", 80), socket.if_nameindex()
print(right.recv(2).decode())
""",
    "sqlite and temporary files": """
import os, sqlite3, tempfile
with tempfile.TemporaryDirectory() as directory:
    database = sqlite3.connect(os.path.join(directory, "a.db"))
    database.execute("pragma journal_mode=wal")
    database.execute("create table t (x)")
    database.execute("insert into t values ('ok')")
    database.commit()
    print(database.execute("select x from t").fetchone()[0])
""",
    "memfd, pidfd, inotify, eventfd, timers": """
import os, select, signal
os.memfd_create("m"), os.pidfd_open(os.getpid()), os.eventfd(0), select.epoll()
signal.signal(signal.SIGALRM, lambda *_: print("ok"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
""",
    "every way to start a program": """
import os, subprocess
outputs = [subprocess.run(["echo", "ok"], stdout=-1, text=True, start_new_session=new, close_fds=close).stdout for new in (True, False) for close in (True, False)]
os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
if not os.fork():
    os._exit(0)
os.wait()
print(outputs.pop().strip() if len(set(outputs)) == 1 else outputs)
""",
}

C_PROGRAM = r"""
#include <ifaddrs.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/personality.h>
#include <time.h>
static void *work(void *arg) { return arg; }
int main(void) {
    pthread_t thread;
    struct ifaddrs *addresses;
    if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0)) return 1;
    if (getifaddrs(&addresses)) return 2;
    if (personality(0xffffffff) < 0 || sched_yield()) return 3;
    return puts("ok") < 0;
}
"""

JAVA_PROGRAM = """
public class Work {
    public static void main(String[] arguments) throws Exception {
        Process process = new ProcessBuilder("echo", "ok").start();
        System.out.print(new String(process.getInputStream().readAllBytes()));
        System.exit(process.waitFor());
    }
}
"""

GO_PROGRAM = """
package main

import (
	"fmt"
	"net"
	"os/exec"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer listener.Close()
	out, err := exec.Command("echo", "ok").Output()
	if err != nil {
		panic(err)
	}
	fmt.Print(string(out))
}
"""

RUST_PROGRAM = """
fn main() {
    let worker = std::thread::spawn(|| std::process::Command::new("echo").arg("ok").output().unwrap());
    print!("{}", String::from_utf8(worker.join().unwrap().stdout).unwrap());
}
"""

NODE_PROGRAM = """
const { execFileSync } = require("child_process");
const { Worker } = require("worker_threads");
const server = require("http").createServer((_, response) => response.end("ok"));
server.listen(0, "127.0.0.1", async () => {
    const text = await (await fetch(`http://127.0.0.1:${server.address().port}`)).text();
    new Worker("require('fs').readFileSync('/proc/self/status')", { eval: true }).on("exit", () => {
        server.close();
        console.log(execFileSync("echo", [text]).toString().trim());
        process.exit();
    });
});
"""


@pytest.fixture
def inside(user: Filtered, strict_fd: int) -> Filtered:
    return dataclasses.replace(user, fd=strict_fd)


@pytest.fixture
def workplace(user: Filtered, tmp_path: Path) -> Iterator[Path]:
    """
    A directory the user of the test can enter and write.
    """
    if not user.drop:
        yield tmp_path
        return
    place = Path(subprocess.check_output([*user.drop, "mktemp", "-d"], text=True).strip())
    yield place
    subprocess.run([*user.drop, "rm", "-rf", str(place)], check=True)


def needs(*programs: str) -> list[str]:
    found = [path for path in map(shutil.which, programs) if path]
    if len(found) < len(programs):
        pytest.skip(f"not installed: one of {', '.join(programs)}")
    return found


def usable(user: Filtered, program: str, *arguments: str, settings: tuple[str, ...] = ()) -> str:
    """
    The path of *program*, if the user of the test can run it without a filter at all.
    """
    (path,) = needs(program)
    if user.run(["env", *settings, path, *arguments]).returncode:
        pytest.skip(f"{path} does not run for this user even without a filter")
    return path


@pytest.mark.parametrize("name", PYTHON_WORK)
def test_python(inside: Filtered, workplace: Path, name: str) -> None:
    done = inside.run([inside.python, "-I", "-c", PYTHON_WORK[name]], cwd=workplace)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_shell_pipeline(inside: Filtered, workplace: Path) -> None:
    script = "mkfifo f; (echo ok > f &) ; cat < f | tee g | sort | uniq; ln g h; mv h i; chmod 600 i; ls -l > /dev/null; rm -r f"
    done = inside.run(["sh", "-c", script], cwd=workplace)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_git(inside: Filtered, workplace: Path) -> None:
    needs("git")
    script = "git init -q . && echo ok > a && git add a && git -c user.name=n -c user.email=e commit -qm m && git show HEAD:a && git gc -q && git status -s"
    done = inside.run(["sh", "-c", script], cwd=workplace)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_compiler_and_what_it_makes(inside: Filtered, workplace: Path) -> None:
    needs("cc")
    script = 'printf %s "$1" > a.c && cc -pthread -o a a.c && ./a && cc -static -pthread -o b a.c && ./b'
    done = inside.run(["sh", "-c", script, "sh", C_PROGRAM], cwd=workplace)
    assert (done.stdout, done.returncode) == ("ok\nok\n", 0), done.stderr


def test_sanitizer(inside: Filtered, workplace: Path) -> None:
    needs("cc")
    script = 'printf %s "$1" > a.c && cc -pthread -fsanitize=thread -o a a.c && ./a'
    outside = dataclasses.replace(inside, fd=-1).run(["sh", "-c", script, "sh", C_PROGRAM], cwd=workplace)
    if outside.returncode:
        pytest.skip("the compiler's thread sanitizer does not work here without a filter either")
    assert inside.run(["sh", "-c", script, "sh", C_PROGRAM], cwd=workplace).stdout == "ok\n"


def test_node(user: Filtered, inside: Filtered, workplace: Path) -> None:
    node = usable(user, "node", "--version")
    done = inside.run([node, "-e", NODE_PROGRAM], cwd=workplace)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_java(user: Filtered, inside: Filtered, workplace: Path) -> None:
    java = usable(user, "java", "-version")
    source = workplace / "Work.java"
    subprocess.run(
        [*user.drop, "tee", str(source)], input=JAVA_PROGRAM, text=True, stdout=subprocess.DEVNULL, check=True
    )
    done = inside.run([java, "-XX:-UsePerfData", str(source)], cwd=workplace)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_go(user: Filtered, inside: Filtered, workplace: Path) -> None:
    go = usable(user, "go", "version")
    script = f'printf %s "$1" > a.go && GOTOOLCHAIN=local GOFLAGS=-mod=mod {go} run a.go'
    done = inside.run(["sh", "-c", script, "sh", GO_PROGRAM], cwd=workplace)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_rust(user: Filtered, inside: Filtered, workplace: Path) -> None:
    settings = f"RUSTUP_HOME={os.environ.get('RUSTUP_HOME', Path.home() / '.rustup')}"
    rustc = usable(user, "rustc", "--version", settings=(settings,))
    script = f'printf %s "$1" > a.rs && {settings} {rustc} -o a a.rs && ./a'
    done = inside.run(["sh", "-c", script, "sh", RUST_PROGRAM], cwd=workplace)
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


@pytest.mark.parametrize(
    ("program", "argv"),
    [
        ("strace", ["strace", "-f", "-o", "/dev/null", "echo", "ok"]),
        ("gdb", ["gdb", "-nx", "-batch", "-ex", "run", "--args", "echo", "ok"]),
    ],
)
def test_debuggers_where_the_spec_allows_ptrace(
    user: Filtered, plain_fd: int, strict_fd: int, workplace: Path, program: str, argv: list[str]
) -> None:
    usable(user, program, "--version")
    allowed = dataclasses.replace(user, fd=plain_fd).run(argv, cwd=workplace)
    refused = dataclasses.replace(user, fd=strict_fd).run(argv, cwd=workplace)
    assert "ok\n" in allowed.stdout, allowed.stderr
    assert "ok\n" not in refused.stdout, refused.stdout


def test_randomisation_can_be_switched_off(inside: Filtered) -> None:
    needs("setarch")
    done = inside.run(["setarch", "-R", "echo", "ok"])
    assert (done.stdout, done.returncode) == ("ok\n", 0), done.stderr


def test_nested_sandbox_where_the_spec_allows_it(user: Filtered, nested_fd: int, strict_fd: int) -> None:
    needs("bwrap")
    argv = [
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "echo",
        "ok",
    ]
    if user.run(argv).returncode:
        pytest.skip("bwrap does not work here without a filter either")
    assert dataclasses.replace(user, fd=nested_fd).run(argv).stdout == "ok\n"
    assert dataclasses.replace(user, fd=strict_fd).run(argv).returncode != 0


def test_bwrap_takes_the_filter(user: Filtered, strict_fd: int) -> None:
    needs("bwrap")
    argv = [*user.drop, "bwrap", "--unshare-user", "--ro-bind", "/", "/", "--proc", "/proc"]
    if subprocess.run([*argv, "true"], capture_output=True, check=False).returncode:
        pytest.skip("bwrap does not work here without a filter either")
    os.lseek(strict_fd, 0, os.SEEK_SET)
    command = [*argv, "--seccomp", str(strict_fd), "grep", "^Seccomp:", "/proc/self/status"]
    assert subprocess.check_output(command, pass_fds=(strict_fd,), text=True) == "Seccomp:\t2\n"
