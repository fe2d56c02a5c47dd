"""
The backend's own attack: what the shared one does not try, because other mechanisms are
not by path. Moves, hard links, other spellings of a protected name; and, where its network
lists hosts, another port of the machine's loopback than the one that is open.

It grades what it looked at; a box in which not even what is allowed works proves nothing.
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxkit.backends._temporary import temporary_directory
from sandboxkit.backends._verification import Finding
from sandboxkit.errors import SandboxError
from sandboxkit.model import Control, FilesystemPolicy, Grade, Limits, NetworkPolicy, SandboxSpec
from sandboxkit.process import LoopbackDoor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from sandboxkit.model import ExecResult

__all__ = ["Stage", "judged", "selftest", "stage"]

SCRIPT = Path(__file__).with_name("selftest.sh")
_WALL_SECONDS = 10.0
LOOKED_AT = (Control.FS_READ, Control.FS_WRITE, Control.FS_DENY_INSIDE_ALLOW)


@dataclass(frozen=True, slots=True)
class Stage:
    """
    The files of the attack.

    Attributes:
        root: A private directory.
        canary: What the file outside the box holds.
        secret: What the denied file inside it holds.
        port: A port of the machine's loopback, on which something listens.
    """

    root: str
    canary: str
    secret: str
    port: int

    @property
    def work(self) -> str:
        """
        The writable directory.
        """
        return f"{self.root}/work"

    @property
    def outside(self) -> str:
        """
        The directory nobody named.
        """
        return f"{self.root}/outside"

    def spec(self, degraded: frozenset[Control] = frozenset(), *, is_listed: bool = False) -> SandboxSpec:
        """
        The box it is tried in.

        Args:
            degraded: What may hold less well.
            is_listed: Whether its network is a list of hosts, which is empty, or none.
        """
        files = FilesystemPolicy(base="system", write=(self.work,), deny=(f"{self.work}/in/secret",))
        network = NetworkPolicy(mode="listed" if is_listed else "none")
        return SandboxSpec(
            filesystem=files, network=network, limits=Limits(wall=_WALL_SECONDS), allow_degraded=degraded
        )

    def argv(self) -> tuple[str, ...]:
        """
        The attack itself.
        """
        return ("/bin/sh", "-c", SCRIPT.read_text(), "sh", self.outside, str(self.port))


@contextmanager
def stage() -> Iterator[Stage]:
    """
    Makes the files, and removes them.
    """
    with temporary_directory("sandboxkit-selftest-") as root, closing(LoopbackDoor()) as door:
        made = Stage(root, os.urandom(16).hex(), os.urandom(16).hex(), door.port)
        for name in ("work/in/secret", "outside"):
            os.makedirs(f"{root}/{name}", mode=0o700)
        Path(made.outside, "canary").write_text(made.canary + "\n")
        Path(made.work, "in/secret/key").write_text(made.secret + "\n")
        yield made


async def selftest(run: Callable[[Stage], Awaitable[ExecResult]]) -> tuple[Finding, ...]:
    """
    What *run*, which carries the attack out in a box, shows of that box.
    """
    try:
        with stage() as made:
            result = await run(made)
            return judged(made, result.text())
    except (OSError, SandboxError) as exc:
        return _unverified(f"its own attack could not be carried out: {exc}")


def judged(made: Stage, said: str) -> tuple[Finding, ...]:
    """
    One finding for each control, from what the attack *said* and what it left on the host.
    """
    rows = [tuple(line.split("=", 1)) for line in said.splitlines() if "=" in line]
    if ("done", "yes") not in rows or ("wrote", "yes") not in rows:
        return _unverified("its own attack did not come to its end, or nothing could be written at all")
    seen = set(rows)
    moved = sorted(value for key, value in rows if key in ("moved", "hook", "written"))
    return (
        _finding(Control.FS_READ, "read a file outside" if ("outside", made.canary) in seen else ""),
        _finding(Control.FS_WRITE, _outside(made)),
        _finding(
            Control.FS_DENY_INSIDE_ALLOW,
            "read a denied file"
            if ("secret", made.secret) in seen
            else f"moved or made {', '.join(moved)}"
            if moved
            else "",
        ),
        *_reached(seen),
    )


def _reached(seen: set[tuple[str, ...]]) -> tuple[Finding, ...]:
    """
    What is found of the network; nothing where no port is open to the box.
    """
    control = Control.NET_ALLOWLIST
    if ("proxy", "open") in seen:
        made = ("port", "made") in seen
        return (_finding(control, "connected to another port of the loopback than its proxy's" if made else ""),)
    if ("proxy", "closed") in seen:
        return (Finding(control, Grade.PARTIAL, "could not be verified: its proxy was out of reach"),)
    return ()


def _outside(made: Stage) -> str:
    if os.path.lexists(f"{made.outside}/written"):
        return "wrote a file outside"
    if Path(made.outside, "canary").read_text() != made.canary + "\n":
        return "wrote a file outside through a hard link"
    return "made a hard link to a file outside" if os.path.lexists(f"{made.work}/linked") else ""


def _finding(control: Control, what: str) -> Finding:
    if what:
        return Finding(control, Grade.ABSENT, f"the backend's own attack {what}")
    return Finding(control, Grade.ENFORCED, "the backend's own attack with moves, links, spellings and ports was held")


def _unverified(why: str) -> tuple[Finding, ...]:
    return tuple(Finding(control, Grade.PARTIAL, f"could not be verified: {why}") for control in LOOKED_AT)
