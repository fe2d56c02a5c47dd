"""
The only isolation Windows has: a container of an engine. An application that lacks what
Windows lacks uses a real engine, by a socket and by what is like a named pipe.

Not run on Windows itself: there is none here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sandboxkit as sk
from sandboxkit.backends.docker._labels import is_left

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandboxkit.backends.docker._facts import EngineName

APPLICATION = Path(__file__).with_name("windows_application.py")
ROOT = APPLICATION.parents[3]
OWN = Path(sk.__file__).resolve().parent.parent


def seen_there(*words: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """
    What such an application has seen.
    """
    variables = {**os.environ, **(environ or {}), "PYTHONPATH": f"{OWN}{os.pathsep}{ROOT}"}
    argv = [sys.executable, str(APPLICATION), *words]
    # What is not locked, applications on Linux take for left: those beside it share no directory with it.
    with tempfile.TemporaryDirectory() as own:
        variables["TMPDIR"] = own
        done = subprocess.run(argv, capture_output=True, text=True, env=variables, check=False, timeout=150)
        assert os.listdir(own) == [], "nothing is left there"
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(seen: Mapping[str, Any]) -> None:
    """
    All that works on a host like any other works there.
    """
    assert seen["platform"] == "win32"
    system, uid = seen["routed"]
    assert (system, seen["backend"]) == ("Linux", "docker")
    assert int(uid) != 0, "it is nobody's root"
    assert seen["environment"] == [
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "/home/sandbox",
        "/home/sandbox",
    ], "no path of Windows comes into the box"
    assert seen["file"] == "of the application"
    assert seen["input"]
    assert seen["echoed"]
    assert seen["ended"] == 0
    assert (seen["late"], seen["killed"]) == ("timed_out", "killed")
    assert (seen["cancelled"], seen["after"]) == (True, "still here")
    assert seen["net"] == "enforced"
    assert set(seen["is_left"]) == {False}, "its application lives"
    assert seen["owners"] == [False, True, True], "only a process that is there, since then, is one that lives"
    assert not is_left(seen["labels"], is_running=True), "nobody on Linux takes what it made for left"
    assert seen["active"] == [], "nothing is left"


@pytest.mark.timeout(200)
@pytest.mark.parametrize("way", ["socket", "named pipe"])
def test_an_application_on_windows_runs_commands_in_a_container(kind: EngineName, python_image: str, way: str) -> None:
    if kind != "docker":
        pytest.skip("not applicable: Windows' engine is Docker's")
    seen = seen_there(python_image, *([os.environ["DOCKER_HOST"]] if way == "named pipe" else []))
    check(seen)
    said = seen["refusals"]
    assert "no path of Windows" in said["bind"]
    assert "workspace='copy'" in said["bind"]
    assert "name an image" in said["system"]
    assert "reach it by TLS" in said["ssh"]
    assert said["descriptor"].startswith("SpecError")
    assert "on another kernel" in said["listed"]
