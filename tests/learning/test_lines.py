"""
What lines make of a spec, and which may be proposed.
"""

from __future__ import annotations

import pytest

import sandboxkit as sk
from sandboxkit.learning._lines import is_proposed, widened

BASE = sk.SandboxSpec(filesystem=sk.FilesystemPolicy(read=("/srv/w",)))


@pytest.mark.parametrize(
    ("lines", "read", "write"),
    [
        ([], ("/srv/w",), ()),
        (['filesystem.read = ["/srv/a", "/srv/b"]'], ("/srv/a", "/srv/b", "/srv/w"), ()),
        (['filesystem.write = ["/srv/a"]'], ("/srv/w",), ("/srv/a",)),
        (['filesystem.write = ["/srv/w"]'], (), ("/srv/w",)),
        (['filesystem.read = ["/srv/w"]'], ("/srv/w",), ()),
        (['filesystem.write = ["/srv/a"]', 'filesystem.write = ["/srv/b"]'], ("/srv/w",), ("/srv/a", "/srv/b")),
    ],
)
def test_lines_add_to_a_spec(lines: list[str], read: tuple[str, ...], write: tuple[str, ...]) -> None:
    spec = widened(BASE, lines)
    assert (sorted(spec.filesystem.read), sorted(spec.filesystem.write)) == (sorted(read), sorted(write))


def test_a_switch_is_set_and_nothing_else_changes() -> None:
    spec = widened(BASE, ["process.allow_nested_userns = true"])
    assert spec.process.allow_nested_userns
    assert spec.filesystem == BASE.filesystem
    assert spec.limits == BASE.limits


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (None, False),
        ('network.mode = "host"', False),
        ('network.allow_hosts = ["packages.example.org:443"]', True),
        ('network.permit_networks = ["10.0.0.0/8"]', False),
        ('filesystem.read = ["/network"]', True),
        ("process.allow_nested_userns = true", True),
    ],
)
def test_the_whole_network_is_never_proposed(line: str | None, expected: bool) -> None:
    assert is_proposed(sk.Violation("read", "/x", "why", spec_line=line)) is expected
