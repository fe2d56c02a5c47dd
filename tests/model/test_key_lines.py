"""
On which line each key of a TOML or JSON text stands.
"""

from __future__ import annotations

import json
import tomllib

import pytest

from sandboxkit.model import KeyLines

TOML = '''\
version = 1 # [[rules]]
text = """
[[rules]]
id = "not one"
"""
other = \'\'\'
[[rules]]\'\'\'

[[rules]]
id = "one"
prefix = [
  "a", # ]
  ["b",
   "c"],
]
constraints = { max_timeout = 1, denied_arguments = [
  "x",
] }

[rules.spec]
allow_degraded = []
[rules.spec.network]
mode = "none"

[[ rules ]]
"id" = "two"
constraints.max_timeout = 3
[[rules.nested]]
a = 1
[[rules.nested]]
a = 2
[rules.nested.table]
b = 3
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("version",), 1),
        (("text",), 2),
        (("rules",), 9),
        (("rules", 0), 9),
        (("rules", 0, "id"), 10),
        (("rules", 0, "prefix"), 11),
        (("rules", 0, "prefix", 0), 12),
        (("rules", 0, "prefix", 1), 13),
        (("rules", 0, "prefix", 1, 1), 14),
        (("rules", 0, "constraints", "max_timeout"), 16),
        (("rules", 0, "constraints", "denied_arguments", 0), 17),
        (("rules", 0, "constraints", "nothing"), 16),
        (("rules", 0, "spec"), 20),
        (("rules", 0, "spec", "allow_degraded"), 21),
        (("rules", 0, "spec", "network", "mode"), 23),
        (("rules", 1), 25),
        (("rules", 1, "id"), 26),
        (("rules", 1, "constraints", "max_timeout"), 27),
        (("rules", 1, "nested", 0, "a"), 29),
        (("rules", 1, "nested", 1, "a"), 31),
        (("rules", 1, "nested", 1, "table", "b"), 33),
        (("nothing",), None),
    ],
)
def test_toml(key: tuple[str | int, ...], line: int | None) -> None:
    tomllib.loads(TOML)
    assert KeyLines(TOML, is_json=False).line(key) == line


JSON = """\
{ "rules": [
    {"id": "\\u0061, \\"]}",
     "prefix": [
       "x"]},
    {
      "id": "b", "id": "c" }
  ], "rules": 1
}"""


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (("rules",), 1),
        (("rules", 0), 2),
        (("rules", 0, "prefix", 0), 4),
        (("rules", 1), 5),
        (("rules", 1, "id"), 6),
    ],
)
def test_json(key: tuple[str | int, ...], line: int) -> None:
    json.loads(JSON)
    lines = KeyLines(JSON, is_json=True)
    assert lines.line(key) == line
    assert lines.repeated == [("rules", 1, "id"), ("rules",)]
