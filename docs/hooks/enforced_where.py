"""
Writes docs/reference/enforced-where.md: every behaviour of the conformance suite, and who
keeps it. `python docs/hooks/enforced_where.py` after a behaviour or a deviation changed.

It prints no measurement. What it says is true because the suite runs: a behaviour that
is not kept fails there unless it is a named deviation, and a deviation that is kept
fails too.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "enforced-where.md"

sys.path.insert(0, str(ROOT))

from tests.conformance.deviations import DEVIATIONS, LANDLOCK_BEFORE, USER  # noqa: E402 - found by the path above

from sandboxkit.testing.conformance import BEHAVIOURS, Behaviour  # noqa: E402 - stays with the import above

AREAS = {
    "claims": "What a backend says about itself",
    "files": "Files",
    "processes": "Processes and privileges",
    "network": "Network, kernel interfaces and IPC",
    "limits": "Limits",
    "tools": "Ordinary tools",
    "faults": "Faults, crowds and endurance",
}
HEAD = """\
# What is enforced where

<!-- Written by docs/hooks/enforced_where.py; a test compares. -->

Every behaviour of [the conformance suite](../how-to/test-a-backend.md), who keeps it, and
how each is known to prove something: the *control* is the same act without a box. Hold
the name of a behaviour against a failing test, or against a list of deviations.

**kept**: its test passes, with real processes on the real kernel. A number in brackets
leads to a named deviation below the table: its test shows that it is not kept, or not in
every case. **root only**: only root can set the attack up, so nothing is said of others.

`seatbelt` has no column: the suite has not run on macOS, and this page says only what was
run. [What it states](enforcement.md#seatbelt-declared-not-run-here) is another page's.
"""
OLDER = """\
The columns above are those of ABI 6 and newer. With less, `landlock` keeps less besides, for
anyone. The whole suite has run with each ABI from 1 to 7 (`nox -s abis`); the default run
tries what the backend says of itself with each.
"""


def columns() -> list[tuple[str, str]]:
    """
    Each backend with each kind of caller.
    """
    return [(backend, caller) for backend, callers in DEVIATIONS.items() for caller in callers]


def reasons(behaviour: Behaviour, column: tuple[str, str]) -> list[str]:
    """
    Why *behaviour* is not kept, or in which cases.
    """
    backend, caller = column
    deviations = DEVIATIONS[backend][caller]
    return [f"`{name}`: {why}" for name, why in deviations.items() if name.partition("[")[0] == behaviour.name]


def cell(behaviour: Behaviour, column: tuple[str, str], notes: list[str]) -> str:
    """
    One field of the table; what it has to explain is added to *notes*.
    """
    if behaviour.needs_root and column[1] == USER:
        return "root only"
    marks = []
    for reason in reasons(behaviour, column):
        note = f"{' as '.join(column)}: {reason}"
        notes.append(note)
        marks.append(str(len(notes)))
    if not marks:
        return "kept"
    return f"{'not kept' if behaviour.name in DEVIATIONS[column[0]][column[1]] else 'in part'} [{', '.join(marks)}]"


def table(area: str, notes: list[str]) -> str:
    """
    The rows of one area.
    """
    head = ["behaviour", *(f"{backend}, {caller}" for backend, caller in columns()), "what is tried", "control"]
    rows = [head, ["---"] * len(head)]
    for behaviour in BEHAVIOURS.values():
        if behaviour.area == area:
            kept = [cell(behaviour, column, notes) for column in columns()]
            texts = [text.replace("|", "\\|") for text in (behaviour.attack, behaviour.control)]
            rows.append([f"`{behaviour.name}`", *kept, *texts])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page() -> str:
    """
    The whole page.
    """
    notes: list[str] = []
    parts = [HEAD, *(f"## {title}\n\n{table(area, notes)}\n" for area, title in AREAS.items())]
    listed = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    return "\n".join([*parts, f"## Named deviations\n\n{listed or 'None.'}\n", older_kernels()])


def older_kernels() -> str:
    """
    What Landlock keeps less of with an older ABI than the last that matters.
    """
    rows = [
        f"- before ABI {before}, `{name}`: {reason}"
        for before, names in sorted(LANDLOCK_BEFORE.items())
        for name, reason in names.items()
    ]
    listed = "\n".join(rows)
    return f"## Landlock on older kernels\n\n{OLDER}\n{listed}\n"


if __name__ == "__main__":
    PAGE.write_text(page())
