"""
What Landlock is asked to grant never goes beyond what a box is to show.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxkit.backends._tree import Node, Tree
from sandboxkit.backends.landlock._grants import grants
from sandboxkit.model import is_inside

_NAMES = {"/": ("a", "b"), "/a": ("x", "y", "z"), "/a/x": ("1", "2")}
_PLACES = ["/", "/a", "/b", "/a/x", "/a/y", "/a/z", "/a/x/1", "/a/x/2"]
_RANKS = {None: 0, Node.HIDDEN: 0, Node.PRIVATE: 0, Node.READ: 1, Node.WRITE: 2}


@given(st.dictionaries(st.sampled_from(_PLACES), st.sampled_from(Node)))
def test_nothing_is_granted_beyond_the_tree_and_no_leaf_less(nodes: dict[str, Node]) -> None:
    found = grants(nodes, lambda path: _NAMES.get(path, ()))
    for path in _PLACES:
        rank = 2 if any(is_inside(path, root) for root in found.writable) else 0
        rank = rank or (1 if any(is_inside(path, root) for root in found.readable) else 0)
        wanted = _RANKS[Tree(nodes, frozenset()).at(path)]
        assert rank <= wanted
        if path not in _NAMES:
            assert rank == wanted
