"""
Everything that checks the project. `nox` alone runs it all; `nox -l` lists the parts.

Run as root, the test sessions have two lanes: root itself, and then an ordinary user
in an environment of its own outside root's home, with the built wheel, a copy of the
tests and every runtime dependency at its lower bound. Otherwise there is only the lane of whoever runs it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import nox
import nox.command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.error_on_external_run = True

ROOT = Path(__file__).resolve().parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = sorted({*nox.project.python_versions(PROJECT), RUNNING}, key=lambda version: int(version.split(".")[1]))
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
IN_CI = bool(os.environ.get("CI"))

ENGINE_NAMES = ("docker", "podman", "runsc")
REQUIRED = os.environ.get("SANDBOXKIT_REQUIRE", "").replace(",", " ").split()
# Only the session that starts engines can require them.
os.environ["SANDBOXKIT_REQUIRE"] = " ".join(name for name in REQUIRED if name not in ENGINE_NAMES)

PASSED_ON = ("CI", "SANDBOXKIT_REQUIRE", "SANDBOXKIT_SOAK_SECONDS", "SANDBOXKIT_SOAK_SEED")
WORKERS = f"--numprocesses={min(4, (os.cpu_count() or 1) + 1)}"
"""One more than there are processors: many tests wait for what they started."""
PARALLEL = (WORKERS, "--dist=loadfile")
SPREAD = (WORKERS, "--dist=worksteal")
"""For few files of many behaviours, some of which take long."""
SUITE = (
    *PARALLEL,
    "--ignore=tests/conformance",
    "--ignore=tests/soak",
    "--ignore=tests/vm",
    "--ignore=tests/backends/docker/test_box.py",
    "--ignore=tests/backends/docker/test_gvisor.py",
    "--ignore=tests/backends/docker/test_hostile.py",
    "--ignore=tests/backends/docker/test_janitor.py",
    "--ignore=tests/backends/docker/test_landlock_inside.py",
    "--ignore=tests/backends/docker/test_listed_hosts.py",
    "--ignore=tests/backends/docker/test_pull.py",
    "--ignore=tests/backends/docker/test_remote.py",
    "--ignore=tests/backends/docker/test_secrets.py",
)
ENGINES = ("tests/conformance/docker", "tests/conformance/podman", "tests/backends/docker")
"""What needs container engines, which the session `engines` starts."""
WITHOUT_ENGINES = ("--ignore=tests/conformance/docker", "--ignore=tests/conformance/podman")
LEFT_OUT_IN_CI = (
    "tests/conformance/docker/test_docker_long.py",
    "tests/conformance/podman/test_podman_long.py",
    "tests/conformance/podman/test_podman.py",  # the plain user has it, where Podman differs more
)
PLAIN_IN_CI = ("tests/conformance/podman/test_podman.py", "tests/backends/docker/test_box.py")
MACHINE = "tests/vm/machine.py"
BEHAVIOURS = {
    "claims": ("the_verifying_attack_finds_what_is_claimed", "the_default_spec_is_met"),
    "files": (
        "nothing_is_written_outside_the_roots",
        "a_readable_file_is_not_changed_in_any_way",
        "a_denied_directory_in_a_writable_one_stays_denied",
        "credentials_are_refused_in_every_spec",
    ),
    "processes": (
        "background_processes_end_with_the_command",
        "processes_of_the_host_cannot_be_reached",
        "the_command_has_no_privileges",
        "no_namespace_is_made",
    ),
    "network": ("servers_of_the_host_are_not_reached",),
}
"""
Of the conformance suite what depends most on the kernel: all of it takes from a quarter of an
hour to hours for each user.
"""
KEPT_ELSEWHERE = tuple(
    f"tests/conformance/{file}::test_{name}"
    for area, names in BEHAVIOURS.items()
    for name in names
    for file in (f"test_{area}.py", "landlock/test_landlock.py")
)
ELSEWHERE = {
    "6.1": {
        "tester": ("tests/process/test_scope.py", "tests/backends/landlock/test_abi.py", *KEPT_ELSEWHERE),
        "root": ("tests/process/test_cgroups_v2.py", *KEPT_ELSEWHERE, "tests/vm"),
    },
    "6.12": {
        "root": ("tests/confine/test_landlock.py", *KEPT_ELSEWHERE),
        "tester": ("tests/process/test_scope.py", "tests/backends/landlock/test_abi.py", *KEPT_ELSEWHERE),
    },
}
"""
What is worth an emulated machine, by its kernel and user: what depends on them, or on systemd.
`tests/vm` comes last, because the last of it cannot be taken back.
"""
COMPILED = (
    "tests/shell",
    "tests/policy",
    "tests/property/test_policy.py",
    "tests/property/test_reader.py",
    "tests/soak/test_fuzz.py",
    "--ignore=tests/policy/test_shortcuts.py",  # it puts rules together otherwise, which compiled values do not take
)
COPIED = ("tests", "examples", "docs", "benchmarks", "pyproject.toml", "README.md", "CHANGELOG.md")

PLAIN_USER = "sandboxkit-test"
PLAIN_HOME = Path("/var/lib/sandboxkit-test")

nox.options.sessions = [
    "lint",
    "typing",
    f"tests-{RUNNING}",
    "conformance",
    "engines",
    *(["minimums"] if not IS_ROOT else []),
    "docs",
    "wheel",
    "bench",
    "soak",
]


def group(name: str) -> tuple[str, ...]:
    """
    The requirements of the dependency group *name*.
    """
    return nox.project.dependency_groups(PROJECT, name)


def own_directory(session: nox.Session) -> Path:
    """
    Where the session may write. Not `create_tmp`: that also moves TMPDIR, below which
    paths get too long for the sockets that tests bind.
    """
    return Path(session.virtualenv.location)


# -- what the machine needs -----------------------------------------------------------


def has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


ENGINE_PACKAGES = {
    "busybox-static": "busybox",
    "docker.io": "dockerd",
    "openssh-server": "/usr/sbin/sshd",
    "podman": "podman",
    "uidmap": "newuidmap",
    **({"runsc": "runsc"} if "runsc" in REQUIRED else {}),
}
"""Programs that the session `engines` needs besides, by Debian's names of their packages."""


def missing_packages(others: Mapping[str, str]) -> list[str]:
    """
    Debian's names of what the tests need and this machine lacks.

    Args:
        others: Further programs that are needed, by package.
    """
    found = {
        "bash": shutil.which("bash"),
        "bubblewrap": shutil.which("bwrap"),
        "git": shutil.which("git"),
        "libseccomp2": has_library("libseccomp.so.2"),
        "procps": shutil.which("pgrep"),
        **{package: shutil.which(program) for package, program in others.items()},
    }
    if IS_ROOT:
        found |= {
            "passwd": shutil.which("useradd"),
            "python3-venv": system_python(),
            "util-linux": shutil.which("setpriv"),
        }
    return sorted(package for package, present in found.items() if not present)


def is_debian() -> bool:
    release = platform.freedesktop_os_release()
    return bool({"debian", "ubuntu"} & {release["ID"], *release.get("ID_LIKE", "").split()})


def prepare(session: nox.Session, others: Mapping[str, str] = MappingProxyType({})) -> None:
    """
    Installs what is missing where that is possible, and says how otherwise.
    """
    if sys.platform != "linux" or not (missing := missing_packages(others)):
        return
    if not is_debian():
        session.error(f"install these with your package manager (Debian's names): {' '.join(missing)}")
    if not IS_ROOT:
        session.error(f"the tests need more of the system; run: sudo apt-get install -y {' '.join(missing)}")
    apt = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    session.run(*apt, "update", external=True, env=quiet)
    session.run(*apt, "install", "-y", "--no-install-recommends", *missing, external=True, env=quiet)
    if still := missing_packages(others):
        session.error(f"still missing after the installation: {' '.join(still)}")


# -- the wheel, built once ------------------------------------------------------------


def wheel(session: nox.Session) -> Path:
    """
    The project's wheel; the first session that asks builds it.
    """
    directory = ROOT / ".nox" / f"wheel-{os.getpid()}"
    if not directory.exists():
        for old in directory.parent.glob("wheel-*"):
            shutil.rmtree(old)
        session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(directory), str(ROOT))
    return next(directory.glob("*.whl"))


def copy_tests(target: Path) -> None:
    """
    Copies all that the tests read, and not the package.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # The repository is not there to be looked at.
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "test_repository.py"))
        elif source.exists():
            shutil.copy(source, target)


# -- the plain user's lane ------------------------------------------------------------


def system_python() -> str | None:
    """
    A Python outside root's home that is new enough and can make environments.
    """
    works = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if (
            Path(path).exists()
            and subprocess.run([path, "-c", works], capture_output=True, check=False).returncode == 0
        ):
            return path
    return None


def plain_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    path = f"{PLAIN_HOME / 'venv/bin'}:/usr/local/bin:/usr/bin:/bin"
    return {"HOME": str(PLAIN_HOME), "LANG": "C.UTF-8", "PATH": path, "USER": PLAIN_USER, **kept}


def prepare_plain_user(session: nox.Session) -> None:
    """
    Makes the user, its environment from the built wheel, and its copy of the tests.
    """
    built = wheel(session)
    marker = PLAIN_HOME / "venv" / built.parent.name
    if marker.exists():
        return
    if subprocess.run(["id", PLAIN_USER], capture_output=True, check=False).returncode:
        create = ("useradd", "--system", "--user-group", "--create-home", "--home-dir", str(PLAIN_HOME), PLAIN_USER)
        session.run(*create, external=True)
    python = system_python()
    if python is None:
        session.error("the plain user's lane needs a Python of 3.11 or newer, with venv, in /usr/bin or /usr/local/bin")
    session.run(python, "-m", "venv", "--clear", str(PLAIN_HOME / "venv"), external=True)
    pip = (str(PLAIN_HOME / "venv/bin/python"), "-m", "pip", "install", "-q")
    session.run(*pip, f"{built}[all]", *group("test"), "--constraint", lower_bounds(session), external=True)
    copy_tests(PLAIN_HOME / "checkout")
    marker.touch()
    session.run("chown", "-R", "--no-dereference", f"{PLAIN_USER}:", str(PLAIN_HOME), external=True)


def run_as_plain_user(session: nox.Session, *command: str, env: dict[str, str], around: tuple[str, ...] = ()) -> None:
    """
    Runs a command of the plain user's Python.

    Args:
        session: The session.
        command: What Python is given.
        env: Further variables.
        around: What root runs, with the whole as its last arguments.
    """
    session.log(f"the same again as the plain user {PLAIN_USER}")
    prepare_plain_user(session)
    drop = ("setpriv", f"--reuid={PLAIN_USER}", f"--regid={PLAIN_USER}", "--init-groups", "--")
    with session.chdir(PLAIN_HOME / "checkout"):
        session.run(
            *around,
            *drop,
            str(PLAIN_HOME / "venv/bin/python"),
            *command,
            external=True,
            env=plain_environment() | env,
            include_outer_env=False,
        )


def pytest_in_lanes(session: nox.Session, *arguments: str, env: dict[str, str] | None = None) -> None:
    """
    Runs pytest on the built wheel as the user that runs nox, and, where that is
    root, as a plain user again.
    """
    prepare(session)
    session.install(f"{wheel(session)}[all]", *group("test"))
    command = ("-m", "pytest", *arguments, *session.posargs)
    lanes: dict[str, Callable[[], object]] = {"this user": partial(session.run, "python", *command, env=env or {})}
    if IS_ROOT and sys.platform == "linux":
        lanes[PLAIN_USER] = partial(run_as_plain_user, session, *command, env=env or {})
    if failed := [name for name, lane in lanes.items() if not passes(lane)]:
        session.error(f"failed as {' and as '.join(failed)}")


def passes(lane: Callable[[], object]) -> bool:
    """
    Whether *lane* passes; that it does not must not keep the next one from running.
    """
    try:
        lane()
    except nox.command.CommandFailed:
        return False
    return True


# -- sessions -------------------------------------------------------------------------


@nox.session
def lint(session: nox.Session) -> None:
    """
    Style, forbidden calls and the import contracts.
    """
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-cache", env={"PYTHONPATH": "src"})


@nox.session
def typing(session: nox.Session) -> None:
    """
    mypy, strict, over everything that is Python.
    """
    session.install(f"{wheel(session)}[all]", *group("typing"))
    targets = ("src", "tests", "examples", "docs/snippets", "docs/hooks", "benchmarks", "noxfile.py", "hatch_build.py")
    session.run("mypy", *(target for target in targets if (ROOT / target).exists()))


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """
    The whole suite on the built wheel, in every lane.
    """
    pytest_in_lanes(session, *SUITE)


@nox.session
def conformance(session: nox.Session) -> None:
    """
    What every backend must keep, on each backend this machine can run.
    """
    pytest_in_lanes(session, *SPREAD, "tests/conformance", *WITHOUT_ENGINES)


@nox.session
def engines(session: nox.Session) -> None:
    """
    Containers on engines of one's own, Docker and Podman, which are stopped again and must have
    kept nothing; as root, and as the plain user, whose Podman is rootless. Needs root.

    In CI without what takes hundreds of containers, and each kind of caller with the engine
    that differs most from the others.
    """
    if sys.platform != "linux" or not IS_ROOT:
        session.skip("only root can start an engine; run the tests of an own one with DOCKER_HOST and pytest")
    prepare(session, ENGINE_PACKAGES)
    session.install(f"{wheel(session)}[all]", *group("test"))
    left_out = [f"--ignore={path}" for path in LEFT_OUT_IN_CI] if IN_CI else []
    env = {"SANDBOXKIT_REQUIRE": " ".join(("docker", "podman", *(name for name in REQUIRED if name == "runsc")))}
    start = ("tests/engine.py", "--with=docker,podman")
    pytest = ("-m", "pytest", *SPREAD)
    root = partial(session.run, "python", *start, "python", *pytest, *ENGINES, *left_out, *session.posargs, env=env)
    prepare_plain_user(session)
    number_range(session)
    around = (str(session.virtualenv.bin) + "/python", *start, f"--as={PLAIN_USER}")
    what = PLAIN_IN_CI if IN_CI else ENGINES
    user = partial(run_as_plain_user, session, *pytest, *what, *session.posargs, env=env, around=around)
    lanes: dict[str, Callable[[], object]] = {"root": root, PLAIN_USER: user}
    if failed := [name for name, lane in lanes.items() if not passes(lane)]:
        session.error(f"failed as {' and as '.join(failed)}")


def number_range(session: nox.Session) -> None:
    """
    Gives the plain user the user ids that a rootless engine needs.
    """
    if PLAIN_USER not in Path("/etc/subuid").read_text():
        first = 1_000_000
        numbers = f"{first}-{first + 65535}"
        session.run("usermod", "--add-subuids", numbers, "--add-subgids", numbers, PLAIN_USER, external=True)


@nox.session
def abis(session: nox.Session) -> None:
    """
    The conformance suite on the landlock backend as older kernels would have it, one ABI after
    another, in every lane. Not part of `nox` alone: each takes two minutes a lane.
    """
    for abi in range(1, 8):
        session.log(f"with Landlock ABI {abi}")
        pytest_in_lanes(session, *SPREAD, "tests/conformance/landlock/test_landlock.py", f"--landlock-abi={abi}")


@nox.session
@nox.parametrize("kernel", [nox.param(kernel, id=kernel) for kernel in ELSEWHERE])
def vm(session: nox.Session, kernel: str) -> None:
    """
    On another kernel, with systemd and version 2 of control groups, in an emulated machine.
    Arguments take the place of the tests. Not part of `nox` alone: it needs root and, where
    nothing else runs, from five minutes to half an hour.

    `nox -s "vm(6.1)"` is one of the two. The machine is made once, in .nox/machine; remove
    that to have it made anew.
    """
    if sys.platform != "linux" or not IS_ROOT:
        session.skip("only root can make the machine")
    prepare(session, runpy.run_path(MACHINE)["PROGRAMS"])
    run = partial(session.run, "python", MACHINE, interrupt_timeout=20, terminate_timeout=20)
    machine = ROOT / ".nox" / "machine"
    if not (machine / "arch").exists():
        run("build", str(machine))
    pytest = ("python", "-m", "pytest", "-p", "no:cacheprovider", "-v", "--timeout=900")
    lanes: dict[str, Callable[[], object]] = {}
    for user, tests_there in ELSEWHERE[kernel].items():
        what = shlex.join([*pytest, *(session.posargs or tests_there)])
        lanes[user] = partial(run, "run", f"--kernel={kernel}.", f"--user={user}", str(machine), what)
    if failed := [name for name, lane in lanes.items() if not passes(lane)]:
        session.error(f"failed as {' and as '.join(failed)}")


@nox.session
def minimums(session: nox.Session) -> None:
    """
    The suite with every runtime dependency at its lower bound, as the plain user's lane
    of `tests` has it: for whoever isn't root, and has no such lane.
    """
    prepare(session)
    session.install(f"{wheel(session)}[all]", *group("test"), "--constraint", lower_bounds(session))
    session.run("python", "-m", "pytest", *SUITE, *session.posargs)


def lower_bounds(session: nox.Session) -> str:
    """
    A file of constraints: each runtime dependency at the least version it allows.
    """
    extras = PROJECT["project"]["optional-dependencies"]
    of_extras = [each for name in ("bwrap", "docker", "egress", "eval", "js") for each in extras[name]]
    requirements = [*PROJECT["project"]["dependencies"], *of_extras]
    constraints = own_directory(session) / "minimums.txt"
    constraints.write_text("".join(sorted(f"{each.replace('>=', '==', 1)}\n" for each in requirements)))
    return str(constraints)


@nox.session
def docs(session: nox.Session) -> None:
    """
    Builds the documentation; a broken link is an error. The tests run its snippets.
    """
    session.install(*group("docs"))
    session.run("mkdocs", "build", "--strict", "--site-dir", str(own_directory(session) / "site"))


@nox.session(name="wheel")
def wheel_session(session: nox.Session) -> None:
    """
    The wheel holds every file of the package, and works without extras or `src`.
    """
    prepare(session)
    built = wheel(session)
    package = ROOT / "src" / "sandboxkit"
    files = {
        f"sandboxkit/{p.relative_to(package)}"
        for p in package.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    if lacking := sorted(files - set(zipfile.ZipFile(built).namelist())):
        session.error(f"the wheel lacks {' '.join(lacking)}")
    session.install(str(built), *group("test"))
    copy = own_directory(session) / "checkout"
    copy_tests(copy)
    with session.chdir(copy):
        session.run("sandboxkit", "demo")
        # A package of somebody else, installed beside it.
        plugin = "examples/backend_plugin"
        session.install("--no-deps", plugin)
        session.run("sandboxkit", "backends", "--allow", "queued")
        session.run("python", "-m", "pytest", *SPREAD, f"{plugin}/tests{'/test_claims.py' * IN_CI}")
        # What is nearest to a user; the lanes of `tests` run all of it on this wheel.
        command_line = ("tests/cli/test_main.py", "tests/cli/test_check.py")
        public = (*command_line, "tests/test_docs.py", "tests/test_examples.py", "tests/test_exports.py")
        session.run("python", "-m", "pytest", *PARALLEL, *public, *session.posargs)


@nox.session
def compiled(session: nox.Session) -> None:
    """
    The compiled build decides every row as the pure one does. Not part of `nox` alone: it
    needs a C compiler and several minutes.
    """
    prepare(session)
    copy = own_directory(session) / "checkout"
    copy_tests(copy)
    session.install(str(wheel(session)), *group("test"))
    pure = decisions(session, copy)
    session.install("--no-deps", "--force-reinstall", str(compiled_wheel(session)))
    with session.chdir(copy):
        for module in ("sandboxkit.shell._word", "sandboxkit.policy._decide"):
            session.run("python", "-c", f"import {module} as m; assert m.__file__.endswith('.so'), m.__file__")
        session.run("python", "-m", "pytest", *PARALLEL, *COMPILED, *session.posargs)
        session.run("python", "benchmarks/policy.py")
    if decisions(session, copy) != pure:
        session.error("the compiled build decides otherwise than the pure one: compare benchmarks/decisions.py of both")


def compiled_wheel(session: nox.Session) -> Path:
    """
    The wheel with extension modules, built anew.
    """
    directory = own_directory(session) / "compiled"
    shutil.rmtree(directory, ignore_errors=True)
    build = ("python", "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(directory), str(ROOT))
    session.run(*build, env={"SANDBOXKIT_COMPILE": "1"})
    return next(directory.glob("*.whl"))


def decisions(session: nox.Session, checkout: Path) -> str:
    """
    Every decision about the corpora, by the build that is installed.
    """
    with session.chdir(checkout):
        found = session.run("python", "benchmarks/decisions.py", silent=True)
    return str(found)


@nox.session
def bench(session: nox.Session) -> None:
    """
    The benchmarks, short; `nox -s bench -- ARGUMENTS` runs them otherwise.
    """
    prepare(session)
    session.install(f"{wheel(session)}[all]")
    measured = ("run", "policy", "evaluation", "guard", "egress")
    for program in (f"benchmarks/{name}.py" for name in measured):
        session.run("python", program, *(session.posargs or ["--quick"]))


@nox.session
def soak(session: nox.Session) -> None:
    """
    Long fuzzing and endurance. In CI each runs 5 s with a fixed seed.
    """
    seconds = os.environ.get("SANDBOXKIT_SOAK_SECONDS", "5" if IN_CI else "120")
    env = {"SANDBOXKIT_SOAK_SECONDS": seconds}
    if IN_CI:
        env["SANDBOXKIT_SOAK_SEED"] = "0"
    prepare(session)
    session.install(f"{wheel(session)}[all]", *group("test"))
    # At CI's length the faults are those of the session `conformance`.
    what = ("tests/soak", "--ignore=tests/soak/test_conformance.py") if IN_CI else ("tests/soak",)
    session.run("python", "-m", "pytest", *what, f"--timeout={int(seconds) + 100}", *session.posargs, env=env)
