"""
How git's configuration is read.
"""

from __future__ import annotations

import pytest

from sandboxkit.backends._git import settings


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[core]\n\thooksPath = hooks\n", [("core.hookspath", "hooks")]),
        ("[CORE] HooksPath=hooks", [("core.hookspath", "hooks")]),
        ('[core]\nhooksPath = "my hooks" # mine\n', [("core.hookspath", "my hooks")]),
        ("[core]\nhooksPath = a\\\nb ; mine\n", [("core.hookspath", "ab")]),
        ('[includeIf "gitdir:~/w \\"] /"]\npath = "a#b;c"\n', [("includeif.path", "a#b;c")]),
        ('[include]\npath = a\\"b\npath = c\n', [("include.path", 'a"b'), ("include.path", "c")]),
        ("[core]\n# hooksPath = hooks\nbare\n", []),
        ("hooksPath = hooks", [(".hookspath", "hooks")]),
    ],
)
def test_settings_are_read_as_git_reads_them(text: str, wanted: list[tuple[str, str]]) -> None:
    assert list(settings(text)) == wanted
