"""
Pydantic models whose fields are described by the text below them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue

__all__ = ["Described"]


class Described(BaseModel):
    """
    A model whose JSON Schema says of each field what the text below the field says.

    Pydantic's own `use_attribute_docstrings` reads the source when a class is made, so
    that every process pays for it; this reads it when a schema is asked for.
    """

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler, /) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _texts(cls):
            if name in properties:
                properties[name].setdefault("description", text)
        return schema


def _texts(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """
    The fields that *model* itself declares, and the texts below them.
    """
    module = ast.parse(inspect.getsource(sys.modules[model.__module__]))
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name == model.__name__:
            for field, below in zip(node.body, node.body[1:], strict=False):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        yield name, inspect.cleandoc(text)
