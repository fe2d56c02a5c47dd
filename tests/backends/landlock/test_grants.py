"""
From what stands where to what is granted: whole values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxkit.backends._tree import Node
from sandboxkit.backends.landlock._grants import Grants, grants

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Mapping[str, tuple[str, ...]] = {"/": ("a", "b"), "/a": ("x", "y", "z"), "/a/x": ("1", "2")}


def names(path: str) -> tuple[str, ...]:
    return NAMES.get(path, ())


def test_what_holds_nothing_lesser_is_granted_whole() -> None:
    nodes = {"/a": Node.READ, "/a/x": Node.WRITE, "/b": Node.HIDDEN}
    assert grants(nodes, names) == Grants(readable=("/a",), writable=("/a/x",))


def test_a_readable_directory_is_divided_around_what_is_hidden() -> None:
    nodes = {"/a": Node.READ, "/a/x/1": Node.HIDDEN}
    assert grants(nodes, names) == Grants(readable=("/a/x/2", "/a/y", "/a/z"))


def test_a_writable_directory_is_divided_and_named() -> None:
    nodes = {"/a": Node.WRITE, "/a/x/1": Node.READ, "/a/y": Node.HIDDEN}
    assert grants(nodes, names) == Grants(
        readable=("/a/x/1",), writable=("/a/x/2", "/a/z"), split=("/a", "/a/x"), held=("/a/x/1", "/a/y")
    )


def test_what_a_hidden_directory_opens_again_is_granted_by_itself() -> None:
    nodes = {"/a": Node.WRITE, "/a/x": Node.HIDDEN, "/a/x/2": Node.WRITE}
    assert grants(nodes, names).writable == ("/a/y", "/a/z", "/a/x/2")
