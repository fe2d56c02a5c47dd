"""
Several processes write one log and are killed in the middle, again and again.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandboxkit.audit import examine, read_records

if TYPE_CHECKING:
    from pathlib import Path

_KILLED = """
import os, random, select, signal, sys, time
from sandboxkit.audit import JsonlAudit, Rotation
from sandboxkit.model import AuditEvent

path, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
rotation = Rotation(max_records=4) if len(sys.argv) > 4 else None


def work(ready, number):
    sink = JsonlAudit(path, rotation=rotation)
    while True:
        sink.write(AuditEvent("decided", f"{number}", time.time(), {"text": "x" * (number % 700)}))
        os.write(ready, b"%d\\n" % number)  # only what was acknowledged counts as written
        number += 1


acknowledged = []
for round in range(rounds):
    reading, ready = os.pipe()
    children = []
    for index in range(3):
        child = os.fork()
        if child == 0:
            try:
                work(ready, round * 1_000_000 + index * 100_000)
            except BaseException as error:
                os.write(2, repr(error).encode())
            finally:
                os._exit(1)
        children.append(child)
    os.close(ready)
    select.select([reading], [], [], 10)
    time.sleep(chance.random() * 0.01)
    for child in children:
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
    with open(reading, "rb") as file:
        acknowledged += file.read().split()
print(b" ".join(acknowledged).decode())
"""


@pytest.mark.parametrize("rotating", [False, True], ids=["one-file", "rotating"])
def test_writers_are_killed_and_no_record_is_lost(tmp_path: Path, rotating: bool) -> None:
    log = tmp_path / "a"
    words = [sys.executable, "-c", _KILLED, str(log), "60", "7", *(["rotating"] if rotating else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=50)
    assert done.stderr == ""
    acknowledged = done.stdout.split()
    assert len(acknowledged) > 60
    found = examine(log)
    assert found.is_whole, found.problem
    runs = [record.run_id for record in read_records(log)]
    assert len(runs) == found.records
    assert len(set(runs)) == len(runs)
    assert set(acknowledged) <= set(runs)
    assert len(runs) - len(acknowledged) <= 60 * 3  # at most one in the making for each that was killed
    assert (len(found.files) > 20) is rotating


_ENDURING = """
import sys, time
from sandboxkit.audit import JsonlAudit, Rotation
from sandboxkit.model import AuditEvent

sink = JsonlAudit(sys.argv[1], rotation=Rotation(max_records=10))
for number in range(300):
    sink.write(AuditEvent("decided", f"{sys.argv[2]}-{number}", time.time(), {}))
"""


def test_processes_of_different_programs_share_a_log(tmp_path: Path) -> None:
    log = tmp_path / "a"
    writers = [subprocess.Popen([sys.executable, "-c", _ENDURING, str(log), str(n)]) for n in range(3)]
    for writer in writers:
        assert writer.wait(50) == 0
    found = examine(log)
    assert found.is_whole, found.problem
    runs = [record.run_id for record in read_records(log)]
    assert set(runs) == {f"{n}-{number}" for n in range(3) for number in range(300)}
    assert len(runs) == 900
    assert len(found.files) == 90
    for n in range(3):
        mine = [run for run in runs if run.startswith(f"{n}-")]
        assert mine == sorted(mine, key=lambda run: int(run.partition("-")[2]))
