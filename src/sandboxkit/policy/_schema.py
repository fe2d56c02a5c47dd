"""
The form of a rule file, for editors and programs in any language.
"""

from __future__ import annotations

import json
import sys
import textwrap
from importlib.resources import files
from typing import Any

from sandboxkit.model import Grade, PolicyAction
from sandboxkit.policy._load import VERSION
from sandboxkit.policy._rule import PolicyRule
from sandboxkit.policy._trial import RuleTest

__all__ = ["generated_schema", "rules_schema"]

_FILE = "rule-file.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PATTERN = {"type": "string", "minLength": 1, "maxLength": 500}
_EXAMPLES = {
    "type": "array",
    "items": {"anyOf": [_PATTERN, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
}
_PLACE = {"type": "string", "pattern": "^(/|~/|~$)", "maxLength": 500}
_NUMBER_NAME = "^[a-z][a-z0-9_]{0,49}$"
_ID = "^(?!builtin\\.|floor\\.)[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$"


def rules_schema() -> dict[str, Any]:
    """
    The JSON Schema (2020-12) of a rule file, in JSON or as TOML reads it. A new copy
    each time.

    What it takes may still be refused: rules that never decide, examples that do not
    hold, regular expressions that are not linear, and what project files may not say
    are not in it.
    """
    text = files("sandboxkit.policy").joinpath("data", _FILE).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def generated_schema() -> dict[str, Any]:
    """
    The schema made from the models, with what they check in code put in by hand.

    The file that is shipped holds it: `python -m sandboxkit.policy._schema` prints it.
    """
    rule = PolicyRule.model_json_schema()
    test = RuleTest.model_json_schema()
    definitions = {**rule.pop("$defs"), **test.pop("$defs", {})}
    properties = {
        "$schema": {"type": "string", "description": "The address of this schema, for editors."},
        "version": {"const": VERSION, "description": "The version of the file format."},
        "default": {"$ref": "#/$defs/PolicyAction", "description": "What is done with commands no rule matches."},
        "rules": {"type": "array", "items": {"$ref": "#/$defs/PolicyRule"}},
        "tests": {"type": "array", "items": {"$ref": "#/$defs/RuleTest"}},
    }
    schema = {
        "$schema": _DIALECT,
        "title": "sandboxkit rule file",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": {**definitions, "PolicyRule": rule, "RuleTest": test},
    }
    cleaned: dict[str, Any] = _cleaned(schema, is_named=False)
    _by_hand(cleaned["$defs"])
    cleaned["$defs"] = dict(sorted(cleaned["$defs"].items()))
    return cleaned


def _cleaned(value: Any, *, is_named: bool) -> Any:
    """
    *value* without titles, without the null that stands for a key left out, and with
    descriptions on one line. Names of properties are no keywords.
    """
    if isinstance(value, list):
        return [_cleaned(item, is_named=False) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, dict):
        return value
    if is_named:
        return {name: _cleaned(item, is_named=False) for name, item in value.items()}
    kept = {
        key: _cleaned(item, is_named=key in ("properties", "$defs"))
        for key, item in value.items()
        if not (key == "title" and "$defs" not in value) and not (key == "default" and item is None)
    }
    if "description" in kept:
        kept["description"] = textwrap.dedent(kept["description"]).replace("\n", " ").replace("  ", " ")
    options = [option for option in kept.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        del kept["anyOf"]
        return {**options[0], **kept}
    return kept | ({"anyOf": options} if options else {})


def _by_hand(definitions: dict[str, Any]) -> None:
    """
    Puts in what the models check in code.
    """
    actions = [str(action) for action in PolicyAction]
    definitions["PolicyAction"] = {"enum": actions, "description": definitions["PolicyAction"]["description"]}
    definitions["Grade"] = {"enum": [str(grade) for grade in Grade], "description": definitions["Grade"]["description"]}
    # What older releases of pydantic write otherwise is written here.
    definitions["Control"]["type"] = "string"
    definitions["SandboxSpec"]["properties"]["require"]["propertyNames"] = {"$ref": "#/$defs/Control"}
    definitions["FilesystemPolicy"]["properties"]["protect"]["default"].sort()
    _limits_with_null(definitions["Limits"]["properties"])
    rule = definitions["PolicyRule"]
    rule["oneOf"] = [{"required": [matcher]} for matcher in ("prefix", "glob", "regex")]
    properties = rule["properties"]
    del properties["direct"]  # only the built-in table has it
    word = {"anyOf": [_PATTERN, {"type": "array", "items": _PATTERN, "minItems": 1, "uniqueItems": True}]}
    properties["id"]["pattern"] = _ID
    properties["prefix"] |= {"items": word, "minItems": 1}
    for name in ("glob", "regex"):
        properties[name] |= _PATTERN
    for name in ("match", "not_match"):
        properties[name] |= _EXAMPLES
    constraints = definitions["RuleConstraints"]
    constraints["dependentRequired"] = {"max_operands": ["allowed_arguments"]}
    for name in ("allowed_arguments", "denied_arguments"):
        constraints["properties"][name]["items"] = _PATTERN
    for name in ("allowed_directories", "denied_directories"):
        constraints["properties"][name]["items"] = _PLACE
    constraints["properties"]["more_than"]["propertyNames"] = {"pattern": _NUMBER_NAME}


def _limits_with_null(properties: dict[str, Any]) -> None:
    # In a limit null is a value: it lifts the limit. JSON can say it, TOML cannot.
    for name in ("wall", "cpu", "memory_bytes", "processes", "file_size_bytes"):
        limit = properties[name]
        limit["type"] = [limit["type"], "null"]


def _main() -> None:
    sys.stdout.write(json.dumps(generated_schema(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _main()
