"""
The conformance suite as a third party uses it: in a directory of its own, with what is
installed, on a backend that holds and on one that holds little.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxkit.testing.conformance import BEHAVIOURS
from sandboxkit.testing.conformance._behaviours import exported
from sandboxkit.testing.conformance.tools import ROWS

DOCS = Path(__file__).resolve().parents[2] / "docs"
WEAK = (DOCS / "snippets" / "backend.py").read_text().partition("\nasync def main")[0]
"""The backend of the documentation, which takes the network away and no more."""

KEPT = "tools_reach_no_server_of_the_host"
NOT_KEPT = "nothing_is_written_outside_the_roots"


TERMINAL = "nothing_is_typed_into_the_callers_terminal"
"""A behaviour that makes the backend in another process."""

HARMFUL = "killing_everything_inside_leaves_a_right_result"
"""A behaviour that would end the host's processes if a weak backend were made to try it."""

THEIRS: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "holds": ("BubblewrapBackend", {}, (KEPT, NOT_KEPT, TERMINAL)),
    "local": ("lambda: BubblewrapBackend()", {}, (TERMINAL,)),
    "weak": ("UnshareBackend", {}, (KEPT, NOT_KEPT)),
    "named": ("UnshareBackend", {NOT_KEPT: "it hides no file"}, (KEPT, NOT_KEPT)),
    "untrue": ("UnshareBackend", {KEPT: "it used to reach them"}, (KEPT,)),
    "unknown": ("UnshareBackend", {"no_such_behaviour": "whatever"}, (KEPT,)),
    "harmless": ("UnshareBackend", {}, (HARMFUL,)),
    "mute": ("UnshareBackend", {NOT_KEPT: " "}, (NOT_KEPT,)),
}
"""Modules of a third party: what makes the backend, the deviations, and what is chosen."""

SOURCE = """
import pytest
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.testing.conformance import *
from weak import UnshareBackend

@pytest.fixture(scope="session")
def backend_factory():
    return {factory}

@pytest.fixture(scope="session")
def deviations():
    return {deviations!r}
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """
    What one run of pytest says about all of THEIRS, in a directory of their own.
    """
    directory = tmp_path_factory.mktemp("theirs")
    (directory / "weak.py").write_text(WEAK)
    chosen = []
    for name, (factory, deviations, behaviours) in THEIRS.items():
        (directory / f"test_{name}.py").write_text(SOURCE.format(factory=factory, deviations=deviations))
        chosen += [f"test_{name}.py::test_{behaviour}" for behaviour in behaviours]
    paths = os.pathsep.join(path for path in (str(directory), *sys.path) if path)
    # A place of its own: what two runs of pytest share, each clears of dead links, and one then misses them.
    options = ("-p", "no:cacheprovider", "-W", "error", "-rA", "--color=no", f"--basetemp={directory / 'made'}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def outcome(said: str, name: str, behaviour: str) -> str:
    """
    The line about *behaviour* in the module *name* of THEIRS.
    """
    place = f"test_{name}.py::test_{behaviour}"
    words = ("PASSED", "FAILED", "XFAIL", "ERROR", "SKIPPED")
    lines = [line for line in said.splitlines() if place in line and line.startswith(words)]
    assert len(lines) == 1, (place, said)
    return lines[0]


def test_every_behaviour_says_what_it_is() -> None:
    assert len(BEHAVIOURS) >= 110
    assert {behaviour.area for behaviour in BEHAVIOURS.values()} == {
        "claims",
        "faults",
        "files",
        "limits",
        "network",
        "processes",
        "tools",
    }
    assert [name for name, behaviour in BEHAVIOURS.items() if not behaviour.attack.endswith(".")] == []
    assert [name for name, behaviour in BEHAVIOURS.items() if not behaviour.control.endswith(".")] == []
    assert sum(behaviour.control.startswith("none:") for behaviour in BEHAVIOURS.values()) < len(BEHAVIOURS) / 4


def test_a_behaviour_without_a_control_does_not_load() -> None:
    source = "def test_thing():\n    '''Something is attacked.'''"
    module: dict[str, object] = {"__name__": "somewhere.thing"}
    exec(source, module)
    with pytest.raises(ValueError, match=r"thing\.test_thing: its docstring needs .* Control:"):
        exported(module)


def test_the_table_of_ordinary_work_is_whole() -> None:
    keys = {"id", "needs", "script", "exit", "output", "refused", "outside"}
    assert len({row["id"] for row in ROWS}) == len(ROWS) >= 39
    assert not [row["id"] for row in ROWS if row.keys() - keys or ("outside" in row) != row.get("refused", False)]
    assert {row["outside"] for row in ROWS if "outside" in row} <= {"works", "works as root", "fails"}


@pytest.mark.requires("bubblewrap")
@pytest.mark.parametrize("behaviour", [KEPT, NOT_KEPT, TERMINAL])
def test_a_backend_that_holds_passes(said: str, behaviour: str) -> None:
    assert outcome(said, "holds", behaviour).startswith("PASSED")


@pytest.mark.requires("bubblewrap")
def test_a_factory_no_other_process_can_import_is_said_to_be_one(said: str) -> None:
    assert outcome(said, "local", TERMINAL).startswith("FAILED")
    assert "which another process cannot import; give a class, a function of a module" in said


def unshare_works() -> bool:
    command = ["/usr/bin/unshare", "--map-current-user", "--net", "true"]
    return Path(command[0]).exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_unshare = pytest.mark.skipif(not unshare_works(), reason="not applicable: unshare(1) makes no namespace here")


@needs_unshare
def test_a_backend_that_does_not_hold_fails(said: str) -> None:
    assert outcome(said, "weak", KEPT).startswith("PASSED")
    assert outcome(said, "weak", NOT_KEPT).startswith("FAILED")


@needs_unshare
def test_a_named_deviation_is_expected_to_fail(said: str) -> None:
    assert outcome(said, "named", KEPT).startswith("PASSED")
    assert outcome(said, "named", NOT_KEPT).startswith("XFAIL")
    assert "it hides no file" in outcome(said, "named", NOT_KEPT)


@needs_unshare
def test_a_deviation_that_is_kept_fails(said: str) -> None:
    assert outcome(said, "untrue", KEPT).startswith("FAILED")
    assert "[XPASS(strict)] it used to reach them" in said


@needs_unshare
def test_a_deviation_that_names_nothing_or_says_nothing_fails(said: str) -> None:
    assert outcome(said, "unknown", KEPT).startswith("ERROR")
    assert "deviations names no behaviour of this version: no_such_behaviour" in said
    assert outcome(said, "mute", NOT_KEPT).startswith("ERROR")
    assert f"the deviation '{NOT_KEPT}' has no reason; say why it is not kept" in said


@needs_unshare
def test_what_would_harm_the_host_is_not_tried_on_a_weak_backend(said: str) -> None:
    assert outcome(said, "harmless", HARMFUL).startswith("ERROR")
    assert "not tried, because it would harm the host: process.isolation is absent" in said
