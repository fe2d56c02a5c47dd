"""
Variables and words that no program can be given are refused before anything starts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends._given import checked_variables, checked_words
from sandboxkit.backends.bubblewrap import BubblewrapBackend
from sandboxkit.errors import CommandError
from sandboxkit.model import SandboxSpec

if TYPE_CHECKING:
    from pathlib import Path

WRONG = [{"A=B": "x"}, {"": "x"}, {"A\0": "x"}, {"A": "x\0y"}]


@pytest.mark.parametrize("wrong", WRONG, ids=ascii)
def test_a_variable_that_is_none(wrong: dict[str, str]) -> None:
    with pytest.raises(CommandError):
        checked_variables({"PATH": "/bin", **wrong})
    with pytest.raises(ValueError, match=r"illegal|null byte|embedded"):
        os.execve("/nonexistent", ["x"], wrong)


def test_what_a_program_can_be_given_stays_as_it_is() -> None:
    given = {"A": "", "B": "x=y\n", "ü": "\udc80"}
    assert checked_variables(given) == given
    assert checked_words(["x", "", "\udc80"]) == ("x", "", "\udc80")
    for words in ([], [""], ["x", "\0"]):
        with pytest.raises(CommandError):
            checked_words(words)


@pytest.mark.anyio
async def test_a_box_says_so(tmp_path: Path) -> None:
    backend = BubblewrapBackend()
    if not (detection := await backend.detect()).available:
        pytest.skip(detection.reason)
    async with backend.open(SandboxSpec.workspace_write(tmp_path)) as box:
        for wrong in WRONG:
            with pytest.raises(CommandError):
                await box.run(["/usr/bin/env"], environment=wrong)
            with pytest.raises(CommandError):
                async with box.start(["/usr/bin/env"], environment=wrong):
                    pass
        assert (await box.run(["/usr/bin/env"], environment={"A": "x=y"})).text() == "A=x=y\n"
