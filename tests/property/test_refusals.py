"""
The line that a refusal proposes is read back as the very path, whatever its name.
"""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st
from tests.backends.test_refusals import judged, refused

names = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1)


@given(names.filter(lambda name: name not in (".", "..")))
def test_every_name_survives_the_spec_file(name: str) -> None:
    found = judged(refused("read", f"/opt2/{name}"))
    assert found.spec_line
    assert tomllib.loads(found.spec_line) == {"filesystem": {"read": [f"/opt2/{name}"]}}
