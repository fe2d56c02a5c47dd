"""
A small virtual machine with another kernel than this one's, to run tests in.

    python tests/vm/machine.py build DIRECTORY [--arch arm64]
    python tests/vm/machine.py run DIRECTORY [--kernel 6.1] [--user tester] [--before SHELL] -- COMMAND

`build` makes a root file system of Debian 12 with systemd as its init, two kernels (Debian's
own, and the one of its backports) and, from wheels, all the tests need. `run` boots it,
copies this checkout into it, runs the shell COMMAND there, prints its output, and ends
with its exit code. Nothing of a run stays: the disk is written to a temporary layer.

What it shows that a container does not: version 2 of control groups with controllers,
login sessions and user managers of systemd, other ABIs of Landlock, settings of Yama and
of user namespaces, another architecture.

Processors are emulated, so that it runs where no hardware can help: a boot takes about a
minute, and programs 10 to 20 times as long. There is no network inside. `build` needs root
and `run` does not; `nox -s vm` installs what both need, and runs what is worth it. For
another architecture, `build` needs Debian's arch-test and qemu-user-static, and
qemu-system-arm besides. What is missing is named before anything is made.

Both can be ended at any moment: what they mount is in a namespace of their own, the
machine dies with this program, and what a killed one has left is removed by the next.
"""

from __future__ import annotations

import argparse
import os
import py_compile
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

__all__ = ["build", "main", "run"]

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
INSIDE = (
    "bash bubblewrap busybox-static dbus dbus-user-session git initramfs-tools kmod libpam-systemd libseccomp2 "
    "passwd procps python3 python3-venv ripgrep systemd systemd-sysv util-linux"
).split()
CARRIED = ("tests", "examples", "docs", "src", "benchmarks", "pyproject.toml", "README.md", "CHANGELOG.md")
USER = "tester"
PYTHON = (3, 11)
"""That of the machine."""
MEMORY_MIB = 2048
DISK = "3G"
EXIT = "the job ended with"
"""The last line a job prints begins so; the number that follows is its exit code."""
SILENCE_S = 60
"""After so long without a word of the machine, one is said for it."""
PROGRAMS = {
    "arch-test": "arch-test",
    "e2fsprogs": "mke2fs",
    "mmdebstrap": "mmdebstrap",
    "qemu-system-x86": "qemu-system-x86_64",
    "util-linux": "unshare",
}
"""The programs that the usual machine needs, by Debian's names of their packages."""
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""What is mounted below it is seen by no other process, and gone with it."""
BOUND = ("setpriv", "--pdeathsig=KILL", "--")
"""Ends what follows with the program that starts it."""


@dataclass(frozen=True)
class Architecture:
    """
    A kind of machine.

    Attributes:
        kernel: Debian's package of its kernel.
        qemu: What emulates it, with what all such machines need. Without `cx16=off` Linux 6.12
            panics while it boots: QEMU 7.2 spoils the flags at its cmpxchg16b.
        consoles: The devices of its first and second console in the machine.
        second: What connects the second console to our standard output.
    """

    kernel: str
    qemu: tuple[str, ...]
    consoles: tuple[str, str]
    second: tuple[str, ...]


ARCHITECTURES = {
    "amd64": Architecture(
        "linux-image-cloud-amd64",
        ("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,cx16=off"),
        ("ttyS0", "ttyS1"),
        ("-serial", "stdio"),
    ),
    "arm64": Architecture(
        "linux-image-cloud-arm64",
        ("qemu-system-aarch64", "-accel", "tcg,thread=multi", "-machine", "virt", "-cpu", "cortex-a72"),
        ("ttyAMA0", "hvc0"),
        ("-device", "virtio-serial-pci", "-device", "virtconsole,chardev=said", "-chardev", "stdio,id=said"),
    ),
}

JOB_UNIT = """
[Unit]
Description=What this machine was started for
After=multi-user.target systemd-logind.service
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir -p /opt/checkout && tar -xf /dev/vdb -C /opt/checkout && exec /bin/sh /opt/checkout/job'
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/{console}
TimeoutStartSec=infinity
"""

JOB = """
echo "the machine is up: Linux $(uname -r), after $(cut -d. -f1 /proc/uptime) of its seconds"
cd /opt/checkout && /opt/venv/bin/python -m compileall -q -j 2 src && chown -R {user}: . || exit
{before}
{session}/bin/sh /opt/checkout/command
echo "{exit} $?"
"""
SESSION = f"systemd-run -q --wait --pipe -p PAMName=login -p User={USER} -p WorkingDirectory=/opt/checkout "
"""Logs the user in, so that the command runs in a group of a session as behind ssh."""
ENVIRONMENT = "export PATH=/opt/venv/bin:/usr/bin:/bin:/usr/sbin:/sbin LANG=C.UTF-8 SANDBOXKIT_MACHINE=1"

NOT_NEEDED = (
    "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer getty@tty1.service"
).split()


def test_requirements() -> list[str]:
    """
    What the tests need besides the package, which is imported from the checkout.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    rows = [*project["project"]["dependencies"], *project["dependency-groups"]["test"]]
    rows += [row for name in ("bwrap", "egress", "eval", "js") for row in extras[name]]
    return [row for row in rows if not row.startswith("sandboxkit")]


class MachineError(Exception):
    """
    There is no machine to be had, for the reason that this says.
    """


def need(*packages: str) -> None:
    """
    Raises:
        MachineError: Programs are missing; it says how they are installed.
    """
    if missing := [each for each in packages if not shutil.which(PROGRAMS.get(each, each))]:
        raise MachineError(
            f"{', '.join(missing)} missing; run: apt-get install -y --no-install-recommends {' '.join(missing)}"
        )


def call(*command: str | Path) -> None:
    """
    Runs *command*, which must succeed, and ends it with this program.
    """
    process = subprocess.Popen([str(word) for word in command])
    try:
        code = process.wait()
    finally:
        process.kill()
        process.wait()
    if code:
        raise MachineError(f"{' '.join(map(str, command[:3]))} … ended with {code}; what it said is above")


def tell(start: float, text: str) -> None:
    """
    One line of progress, with the seconds since *start*.
    """
    print(f"[{time.monotonic() - start:4.0f} s] {text}", flush=True)


def build(directory: Path, arch: str) -> None:
    """
    Makes the disk and fetches the kernels of *arch* into *directory*.
    """
    if os.geteuid() != 0:
        raise MachineError("only root can make a machine; a user can run one that is made")
    need("mmdebstrap", "arch-test", "e2fsprogs", "util-linux")
    kind, start, making = ARCHITECTURES[arch], time.monotonic(), directory / "making"
    shutil.rmtree(making, ignore_errors=True)  # of one that was killed
    making.mkdir(parents=True)
    try:
        root, wheels = making / "root", making / "wheels"
        tell(start, f"fetching Debian {SUITE} and two kernels into {directory} (three minutes, half a GiB)")
        fetch_system(root, kind, arch)
        tell(start, "fetching what the tests need of Python")
        fetch_wheels(wheels, arch)
        tell(start, "putting it together")
        furnish(root, wheels, kind)
        for path in [*root.glob("boot/vmlinuz-*"), *root.glob("boot/initrd.img-*")]:
            shutil.copy(path, directory)
        call("mke2fs", "-q", "-t", "ext4", "-d", root, making / "disk.img", DISK)
        (making / "disk.img").replace(directory / "disk.img")
    finally:
        shutil.rmtree(making, ignore_errors=True)
    (directory / "arch").write_text(arch)
    tell(start, f"made, with {', '.join(path.name for path in kernels(directory))}")


def fetch_system(root: Path, kind: Architecture, arch: str) -> None:
    """
    Installs Debian, its kernel and that of its backports into *root*.
    """
    include = ",".join([*INSIDE, kind.kernel])
    backports = f"sed -n 's/^deb \\(\\S*\\) {SUITE} main.*/deb \\1 {SUITE}-backports main/p' /etc/apt/sources.list"
    newer = (
        f"{backports} >/etc/apt/sources.list.d/backports.list && apt-get -q update && "
        f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y install -t {SUITE}-backports {kind.kernel} >/dev/null"
    )
    call(
        *APART,
        *("mmdebstrap", "--quiet", "--mode=root", "--variant=apt", f"--architectures={arch}"),
        *('--aptopt=APT::Install-Recommends "false"', f"--include={include}"),
        *('--customize-hook=chroot "$1" sh -c \'' + newer.replace("'", "'\\''") + "'", SUITE, root),
    )


def fetch_wheels(wheels: Path, arch: str) -> None:
    """
    Downloads what the tests need for the Python of *arch* in the machine.
    """
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[arch]
    tags = [f"--platform=manylinux{tag}_{machine}" for tag in ("2014", "_2_17", "_2_27", "_2_28", "_2_34")]
    only = ("--python-version=3.11", "--implementation=cp", "--only-binary=:all:")
    call(sys.executable, "-m", "pip", "-qq", "download", f"--dest={wheels}", *tags, *only, *test_requirements())


def kernels(directory: Path, beginning: str = "") -> list[Path]:
    """
    The kernels in *directory* whose release begins so, the oldest first.
    """
    found = directory.glob(f"vmlinuz-{beginning}*")
    return sorted(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)[:3]])


def furnish(root: Path, wheels: Path, kind: Architecture) -> None:
    """
    Puts into *root* what makes it run a job: the unit, the user and the packages of Python.
    """
    units = root / "etc/systemd/system"
    (units / "job.service").write_text(JOB_UNIT.format(console=kind.consoles[1]))
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants/job.service").symlink_to("../job.service")
    for name in (*NOT_NEEDED, f"serial-getty@{kind.consoles[0]}.service"):
        (units / name).symlink_to("/dev/null")
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    call("chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", USER)
    call("chroot", root, "python3", "-m", "venv", "/opt/venv")
    place = root / "opt/venv/lib/python3.11/site-packages"
    shutil.copytree(wheels, root / "opt/wheels")
    names = " ".join(f"/opt/wheels/{path.name}" for path in wheels.iterdir())
    call("chroot", root, "sh", "-c", f"/opt/venv/bin/pip install -q --no-index --no-deps {names}")
    shutil.rmtree(root / "opt/wheels")
    (place / "checkout.pth").write_text("/opt/checkout/src\n")


def run(directory: Path, command: str, *, kernel: str, user: str, before: str, timeout: float) -> int:
    """
    Boots the machine in *directory* and runs the shell *command* in it.

    Args:
        directory: What `build` has made.
        command: What a shell gets, in the checkout.
        kernel: How the kernel's release begins; the first of those that do is taken.
        user: Who runs it: root, or `tester`, who is logged in for it.
        before: What root's shell does first.
        timeout: Seconds until the machine is switched off.

    Returns:
        The exit code of *command*; 125 where the machine did not tell it.
    """
    start = time.monotonic()
    kind, image = ready(directory, kernel)
    name = f"Linux {image.name.removeprefix('vmlinuz-')}"
    session = "" if user == "root" else SESSION
    with tempfile.TemporaryDirectory(prefix="sandboxkit-machine-") as scratch:
        cargo, console = Path(scratch, "cargo.tar"), Path(scratch, "console")
        job = JOB.format(user=USER, before=before, session=session, exit=EXIT)
        load(cargo, {"job": job, "command": f"{ENVIRONMENT}\n{command}\n"})
        tell(start, f"booting {name} for {user}, about a minute on an idle host")
        process = subprocess.Popen(
            [*BOUND, *qemu(kind, image, directory / "disk.img", cargo, console)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        try:
            code = follow(process, start, timeout)
        finally:
            process.kill()
            process.wait()
        if code is None:
            print(f"the machine told no exit code; its console:\n{console.read_text(errors='replace')[-3000:]}")
    tell(start, f"{name} is off; {EXIT} {125 if code is None else code}")
    return 125 if code is None else code


def ready(directory: Path, kernel: str) -> tuple[Architecture, Path]:
    """
    The kind of the machine in *directory*, and its kernel of that beginning.

    Raises:
        MachineError: There is none, or nothing to emulate it with.
    """
    if not (directory / "arch").exists():
        raise MachineError(
            f"there is no machine in {directory}; make one: python tests/vm/machine.py build {directory}"
        )
    arch = (directory / "arch").read_text()
    need("qemu-system-x86" if arch == "amd64" else "qemu-system-arm", "util-linux")
    if not (found := kernels(directory, kernel)):
        has = ", ".join(path.name for path in kernels(directory))
        raise MachineError(f"no kernel of the machine begins with {kernel}; it has {has}")
    return ARCHITECTURES[arch], found[0]


def qemu(kind: Architecture, image: Path, disk: Path, cargo: Path, console: Path) -> list[str]:
    """
    The command that emulates the machine.
    """
    initrd = image.with_name(image.name.replace("vmlinuz", "initrd.img"))
    return [
        *kind.qemu,
        *("-m", str(MEMORY_MIB), "-smp", str(min(2, os.cpu_count() or 1)), "-no-reboot"),
        *("-display", "none", "-nodefaults", "-serial", f"file:{console}", *kind.second),
        *("-kernel", str(image), "-initrd", str(initrd)),
        *("-append", f"root=/dev/vda rw console={kind.consoles[0]} quiet panic=-1 mitigations=off no_timer_check"),
        *("-drive", f"file={disk},format=raw,if=virtio,snapshot=on"),
        *("-drive", f"file={cargo},format=raw,if=virtio,readonly=on"),
    ]


def follow(process: subprocess.Popen[bytes], start: float, timeout: float) -> int | None:
    """
    Prints what the machine says, as it comes, and that it says nothing where it does not.

    Returns:
        The exit code it names, or None where it ended or was ended without.
    """
    last, end = b"", time.monotonic() + timeout
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := end - time.monotonic()) > 0:
            if not selector.select(min(left, SILENCE_S)):
                tell(start, "…")
            elif not (chunk := os.read(process.stdout.fileno(), 65536)):
                break
            else:
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
                last = (last + chunk)[-1000:]
        else:
            tell(start, f"switched off: it was given {timeout:.0f} s (--timeout)")
    found = re.search(rf"^{EXIT} (\d+)", last.decode(errors="replace"), re.MULTILINE)
    return int(found[1]) if found else None


def load(cargo: Path, texts: dict[str, str]) -> None:
    """
    Writes the archive the machine sees as its second disk, with byte code where this is the
    Python it has: to make that there takes minutes.
    """

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in info.name else info

    with tarfile.open(cargo, "w") as archive:
        for name in CARRIED:
            archive.add(ROOT / name, name, filter=kept)
        if sys.version_info[:2] == PYTHON:
            compiled = cargo.with_name("compiled")
            for source in (ROOT / "src").rglob("*.py"):
                py_compile.compile(str(source), str(compiled), doraise=True)
                place = source.parent.relative_to(ROOT) / "__pycache__"
                archive.add(compiled, str(place / f"{source.stem}.{sys.implementation.cache_tag}.pyc"))
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            archive.addfile(info, BytesIO(text.encode()))


def main() -> int:
    """
    The command line.
    """
    parser = argparse.ArgumentParser(description="A virtual machine with another kernel, to run tests in.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    builder = verbs.add_parser("build", help="make the disk and fetch the kernels; needs root")
    builder.add_argument("directory", type=Path)
    builder.add_argument("--arch", choices=ARCHITECTURES, default="amd64")
    runner = verbs.add_parser("run", help="boot it and run a command in it")
    runner.add_argument("directory", type=Path)
    runner.add_argument("--kernel", default="", help="how its release begins, such as 6.1 (default: the oldest)")
    runner.add_argument("--user", choices=("root", USER), default="root")
    runner.add_argument("--before", default="", help="what root's shell does first, such as sysctl -w NAME=VALUE")
    runner.add_argument("--timeout", type=float, default=3600, help="seconds until it is switched off")
    runner.add_argument("command", help="what a shell in the checkout runs")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # with what `finally` puts away
    try:
        if given.verb == "build":
            build(given.directory, given.arch)
            return 0
        return run(
            given.directory,
            given.command,
            kernel=given.kernel,
            user=given.user,
            before=given.before,
            timeout=given.timeout,
        )
    except MachineError as error:
        print(f"machine.py: {error}", file=sys.stderr)
        return 125
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
