"""
Records come back as what was written.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.audit.logs import event, written

from sandboxkit.audit import AuditRecord, JsonlAudit, MemoryAudit, Rotation, read_records, record_schema
from sandboxkit.audit._files import at_hand
from sandboxkit.audit._follow import Follower, Notice
from sandboxkit.audit._read import Line, last_lines_of, lines
from sandboxkit.errors import AuditError, SandboxError
from sandboxkit.model import AuditEvent, EvaluationContext, SandboxSpec
from sandboxkit.policy import ExecPolicy
from sandboxkit.router import AutoSandboxRouter
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

ROTATION = Rotation(max_records=3)


def runs(found: Iterable[Line | Notice]) -> list[str]:
    """
    The run of each record, and the notices between them.
    """
    shown: list[str] = []
    for item in found:
        record = None if isinstance(item, Notice) else AuditRecord.of(item)
        shown += [item] if isinstance(item, Notice) else [record.run_id] if record else []
    return shown


def test_records_come_back_over_all_files(tmp_path: Path) -> None:
    written(tmp_path / "a", 7, rotation=ROTATION)
    found = list(read_records(tmp_path / "a"))
    assert [record.run_id for record in found] == [f"run-{n}" for n in range(7)]
    assert [record.head.sequence for record in found] == list(range(1, 8))
    assert [(os.path.basename(record.file), record.line) for record in found[2:4]] == [("a.000001", 3), ("a.000002", 1)]
    assert found[0].kind == "decided"
    assert found[0].time == 1700000000.5
    assert found[0].fields == {"command": "ls"}


def test_what_is_no_record_is_left_out(tmp_path: Path) -> None:
    written(tmp_path / "a", 3)
    os.truncate(tmp_path / "a", (tmp_path / "a").stat().st_size - 30)
    assert len(list(read_records(tmp_path / "a"))) == 2
    with pytest.raises(AuditError, match="No such file"):
        next(read_records(tmp_path / "nothing"))


DECIDE: list[Any] = ["echo 'a  b' | wc -c", ["printf", "%s", "a b", "", "\x1b\u202e\udc80"], "rm -rf /"]


@pytest.mark.parametrize("command", DECIDE, ids=["text", "words", "denied"])
def test_what_was_decided_can_be_decided_again(tmp_path: Path, command: Any) -> None:
    sink = JsonlAudit(tmp_path / "log", secrets=SecretRegistry({"DB": "hunter2"}))
    work = tmp_path / "work"
    work.mkdir()
    router = AutoSandboxRouter(audit=sink, environ={"HOME": "/home/somebody", "PATH": "/usr/bin:/bin"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sandboxkit.router._router.AutoSandboxRouter._way", _refused)
        with pytest.raises(SandboxError):
            anyio.run(lambda: router.route(command, spec=SandboxSpec.workspace_write(work), cwd=work))
    (record,) = read_records(tmp_path / "log")
    assert record.command == (command if isinstance(command, str) else tuple(command))
    assert record.is_exact
    assert (record.cwd, record.home, record.workspace_roots) == (str(work), "/home/somebody", (str(work),))
    place = EvaluationContext(cwd=record.cwd, home=record.home, workspace_roots=record.workspace_roots)
    assert record.command is not None
    assert record.action == str(ExecPolicy.default().evaluate(record.command, context=place).action)


async def _refused(self: object, task: object) -> object:
    raise SandboxError("not here")


@pytest.mark.parametrize(
    ("fields", "is_exact"),
    [
        ({"command": "ls"}, True),
        ({"command": "ls hunter2"}, False),
        ({"command": "ls " + "x" * 5000}, False),
        ({"command": "ls hunter2", "argv": ("ls", "hunter2")}, False),
        ({"command": "ls " + "x" * 4090, "argv": ("ls", "x" * 4090)}, True),
        ({"command": "ls", "argv": ("x" * 30,) * 300}, False),
        ({"command": "ls", "reason": "hunter2"}, True),
        ({"command": "ls", "user": "hunter2"}, False),
        ({"command": "ls", "user": "somebody", "numbers": {"urls": 3}}, True),
        ({"command": "ls", "cwd": "/hunter2"}, False),
        ({"command": "ls", "workspace_roots": ("/w", "/hunter2")}, False),
        ({}, False),
        ({f"f{n}": "x" * 90 for n in range(3000)}, False),
    ],
)
def test_whether_it_is_exact_is_said(tmp_path: Path, fields: dict[str, object], is_exact: bool) -> None:
    place = {"cwd": "/w", "home": None, "workspace_roots": ("/w",)}
    sink = JsonlAudit(tmp_path / "a", secrets=SecretRegistry({"DB": "hunter2"}))
    sink.write(AuditEvent("decided", "r", 1.0, place | fields))
    (record,) = read_records(tmp_path / "a")
    assert record.is_exact is is_exact


def test_a_record_without_its_place_is_not_exact(tmp_path: Path) -> None:
    written(tmp_path / "a", 1)
    (record,) = read_records(tmp_path / "a")
    assert not record.is_exact


def test_a_number_nobody_can_hold_is_none(tmp_path: Path) -> None:
    content = b'{"time":' + b"9" * 400 + b',"seq":1,"prev":"' + b"0" * 64 + b'","hash":"' + b"0" * 64 + b'"}'
    record = AuditRecord.of(Line("a", 1, content))
    assert record is not None
    assert record.time == 0.0


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 100])
def test_the_last_lines_are_found_from_the_end(tmp_path: Path, count: int) -> None:
    sink = written(tmp_path / "a", 7, rotation=ROTATION, max_field_chars=30000)
    sink.write(event(7, text="x" * 20000))
    with at_hand(str(tmp_path / "a")) as files:
        found = runs(lines(last_lines_of(files, count)))
    assert found == [f"run-{n}" for n in range(8)][len(range(8)) - min(count, 8) :]


def test_a_log_is_followed_over_rotations(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 5, rotation=ROTATION)
    follower = Follower(str(tmp_path / "a"), 2)
    assert runs(follower.lines()) == ["run-3", "run-4"]
    assert runs(follower.lines()) == []
    for number in range(5, 16):
        sink.write(event(number))
    assert runs(follower.lines()) == [f"run-{n}" for n in range(5, 16)]
    (tmp_path / "a").rename(tmp_path / "a.000099")
    assert runs(follower.lines()) == []
    sink.write(event(16))
    assert runs(follower.lines()) == ["run-16"]
    follower.close()


def test_a_follower_says_what_it_missed(tmp_path: Path) -> None:
    sink = written(tmp_path / "a", 2, rotation=Rotation(max_records=2, keep=1))
    follower = Follower(str(tmp_path / "a"), 0)
    assert runs(follower.lines()) == []
    for number in range(2, 11):
        sink.write(event(number))
    assert runs(follower.lines()) == ["run-8", "run-9", "run-10"]
    for number in range(11, 20):
        sink.write(event(number))
    assert runs(follower.lines()) == [
        "run-11",  # its file is deleted, and was open
        "records were deleted before they were read", "run-16", "run-17", "run-18", "run-19"
    ]  # fmt: skip
    os.truncate(tmp_path / "a", 0)
    sink.write(event(20))
    cut, last = runs(follower.lines())
    assert "was cut off" in cut
    assert last == "run-20"
    follower.close()


def test_half_a_line_waits_for_the_rest(tmp_path: Path) -> None:
    written(tmp_path / "a", 2)
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[:-40])
    follower = Follower(str(tmp_path / "a"), 1)
    assert runs(follower.lines()) == []
    (tmp_path / "a").write_bytes(whole)
    assert runs(follower.lines()) == ["run-1"]
    follower.close()


# -- the schema -----------------------------------------------------------------------

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
_WORDS = {"$schema", "$id", "$defs", "title", "description", "type", "required", "properties", "const", "enum", "items",
          "pattern", "minimum", "$ref", "allOf", "if", "then", "additionalProperties"}  # fmt: skip


def faults(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> list[str]:
    """
    What of *value* does not fit: as much of JSON Schema as ours makes use of.
    """
    assert schema.keys() <= _WORDS, schema.keys() - _WORDS
    if "$ref" in schema:
        return faults(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root)
    kinds = schema.get("type", list(_TYPES))
    if not any(_TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return [f"{value!r} is no {kinds}"]
    found = [f"{value!r} is not {schema[word]!r}" for word in ("const",) if word in schema and value != schema[word]]
    found += [f"{value!r} is not one of {schema['enum']}"] if value not in schema.get("enum", [value]) else []
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{value!r} does not match")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{value} is too small")
    for item in value if isinstance(value, list) else ():
        found += faults(schema.get("items", {}), item, root)
    if isinstance(value, dict):
        found += [f"{name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, held in value.items():
            found += faults(schema.get("properties", {}).get(name, schema.get("additionalProperties", {})), held, root)
    for part in schema.get("allOf", ()):
        if "if" not in part or not faults(part["if"], value, root):
            found += faults(part.get("then", part), value, root)
    return found


def check(path: Path) -> list[dict[str, Any]]:
    from tests.audit.logs import records

    schema = record_schema()
    found = records(path)
    for record in found:
        assert faults(schema, record, schema) == []
        assert list(record)[-1] == "hash"
    return found


def test_the_schema_finds_faults() -> None:
    schema = record_schema()
    assert faults(schema, {"schema": 1, "kind": "x"}, schema)
    assert faults(schema, {"kind": "decided", "argv": [1]}, schema)


@pytest.mark.requires("bubblewrap")
def test_every_record_of_the_router_fits_the_schema_and_all_is_described(tmp_path: Path) -> None:
    log, work = tmp_path / "log", tmp_path / "work"
    work.mkdir()
    router = AutoSandboxRouter(audit=JsonlAudit(log))

    async def run() -> None:
        await router.route("echo hi", cwd=work)
        await router.route(["ls"], cwd=work)
        await router.route("cat < /dev/null; exit 3", cwd=work)
        for failing in ("rm -rf /", ["no-such-program"], "git push --force"):
            with pytest.raises(SandboxError):
                await router.route(failing, cwd=work)

    anyio.run(run)
    found = check(log)
    schema = record_schema()
    for record in found:
        described = schema["properties"].keys() | schema["$defs"][record["kind"]]["properties"].keys()
        assert record.keys() <= described, record.keys() - described


def test_marks_of_the_chain_fit_the_schema(tmp_path: Path) -> None:
    from sandboxkit.audit import AuditKey

    path = tmp_path / "a"
    sink = JsonlAudit(path, key=AuditKey(b"0123456789abcdef"), secrets=SecretRegistry({"DB": "hunter2"}))
    for number in range(3):
        sink.write(event(number, command="hunter2", text="x" * 9000, action="allow"))
    os.truncate(path, path.stat().st_size - 30)
    sink.write(event())
    last = [line for line in path.read_text().splitlines() if line.endswith("}")]
    path.write_text("\n".join(last) + "\n")
    record = check(path)[-1]
    assert {"torn", "gone", "key"} <= record.keys()


def test_a_ring_can_be_cleared() -> None:
    ring = MemoryAudit(2)
    ring.write(event())
    assert ring.capacity == 2
    ring.clear()
    assert ring.events() == ()


def test_what_a_ring_keeps_does_not_change_with_what_was_given() -> None:
    ring, rows = MemoryAudit(), ["a"]
    ring.write(event(rows=rows))
    rows.append("b")
    assert ring.events()[0].fields["rows"] == ["a"]


def test_a_line_that_claims_to_be_a_record_is_none() -> None:
    chain = b',"seq":1,"prev":"' + b"0" * 64 + b'","hash":"' + b"0" * 64 + b'"}'
    assert AuditRecord.of(Line("a", 1, b'{"kind":1,"time":"x","masked":3' + chain)) is not None
    for text in (b"[1" + chain, b"{" * 10 + chain, b"", b'{"a":' + b"[" * 100000 + chain):
        assert AuditRecord.of(Line("a", 1, text)) is None
