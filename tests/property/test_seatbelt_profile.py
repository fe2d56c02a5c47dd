"""
A profile of Seatbelt, read by an evaluator that does not know how it was written, decides
what simple reference functions of the spec say, whatever the tree and whatever the names.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.backends.bubblewrap.test_mounts import survey
from tests.backends.seatbelt.sbpl import Query, decide, parse
from tests.reference_tree import PLACES, access

from sandboxkit.backends._layouts import layouts
from sandboxkit.backends._tree import Node
from sandboxkit.backends.seatbelt._nodes import box_nodes
from sandboxkit.backends.seatbelt._profile import Box, Profile, profile
from sandboxkit.model import FilesystemPolicy, SandboxSpec, is_inside

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

ROOT = "/srv"
paths = st.lists(st.sampled_from(PLACES), max_size=5, unique=True)
hostile = st.text(
    st.one_of(st.sampled_from("()\"\\\n;#'$*[]?= "), st.characters(exclude_characters="/\0", codec="utf-8")),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in (".", ".."))
pairs = st.lists(hostile, min_size=2, max_size=2, unique=True)
KINDS = {"deny": (False, False), "unlisted": (False, False), "read": (True, False), "write": (True, True)}


def spelled(place: str, names: Sequence[str]) -> str:
    return "/".join(names["ab".index(letter)] for letter in place.split("/"))


def made(read: Sequence[str], write: Sequence[str], deny: Sequence[str], names: Sequence[str] = "ab") -> Profile:
    readable, writable, denied = (
        tuple(f"{ROOT}/{spelled(place, names)}" for place in places) for places in (read, write, deny)
    )
    spec = SandboxSpec(filesystem=FilesystemPolicy(read=readable, write=writable, deny=denied))
    return profile(Box(box_nodes(spec, survey(spec), "")))


def allows(found: Profile, operation: str, path: str) -> bool:
    query, given_names = Query(operation, path), dict(found.parameters)
    answer = decide(found.text, given_names, query)
    assert decide(found.text, given_names, query, by="operation") == answer, "both readings must agree"
    return answer


@given(paths, paths, paths, pairs)
def test_it_decides_what_the_reference_says(
    read: list[str], write: list[str], deny: list[str], names: list[str]
) -> None:
    found = made(read, write, deny, names)
    for place in PLACES[::3]:
        path = f"{ROOT}/{spelled(place, names)}/file"
        wanted = KINDS[access(f"{place}/file", read, write, deny)]
        assert (allows(found, "file-read-data", path), allows(found, "file-write-data", path)) == wanted, place
        assert allows(found, "process-exec", path) == wanted[0]


@given(paths, paths, paths)
def test_nothing_is_moved_that_leads_to_another_access(read: list[str], write: list[str], deny: list[str]) -> None:
    found = made(read, write, deny)
    named = {*read, *write, *deny}
    for place in PLACES[:14]:
        leads = any(is_inside(other, place) for other in named)
        is_free = access(place, read, write, deny) == "write" and not leads
        for move in ("file-write-unlink", "file-write-create"):
            assert allows(found, move, f"{ROOT}/{place}") == is_free, place


@given(paths, paths, paths, st.randoms(use_true_random=False))
def test_the_order_written_means_nothing(read: list[str], write: list[str], deny: list[str], random: Random) -> None:
    before = made(read, write, deny)
    for places in (read, write, deny):
        random.shuffle(places)
    assert made(read, write, deny) == before


def shape(found: Profile) -> list[str]:
    """
    The characters of its text; which parameter is numbered first depends on the order of names.
    """
    return sorted(re.sub(r'"P[0-9]+"', "", found.text))


@given(paths, paths, paths, pairs)
def test_the_text_holds_no_name(read: list[str], write: list[str], deny: list[str], names: list[str]) -> None:
    found = made(read, write, deny, names)
    plain = made(read, write, deny, ["xxxxxxxx", "yyyyyyyy"])
    assert len(parse(found.text)) == len(parse(plain.text))
    assert shape(found) == shape(plain)


_NODES = st.dictionaries(
    st.sampled_from([f"{ROOT}/{place}" for place in PLACES[:14]]), st.sampled_from(Node), max_size=6
)
_MISSING = st.lists(
    st.tuples(
        st.sampled_from([ROOT, f"{ROOT}/a", f"{ROOT}/b/a"]),
        st.sampled_from(sorted(name for group in layouts().protect.values() for name in group)),
    ),
    max_size=4,
    unique=True,
)


@given(_NODES, _MISSING, st.randoms(use_true_random=False))
def test_a_missing_name_is_not_made_in_any_spelling(
    nodes: dict[str, Node], missing: list[tuple[str, str]], random: Random
) -> None:
    found = profile(Box({ROOT: Node.WRITE, **nodes}, missing=tuple(f"{folder}/{name}" for folder, name in missing)))
    for folder, name in missing:
        odd = "".join(random.choice((letter.lower(), letter.upper())) for letter in name)
        for path in (f"{folder}/{name}", f"{folder}/{odd}", f"{folder}/{odd}/below"):
            assert not allows(found, "file-write-create", path), path
        way = posixpath.dirname(odd)
        while way:
            assert not allows(found, "file-write-create", f"{folder}/{way}"), "it could be moved there full"
            way = posixpath.dirname(way)
