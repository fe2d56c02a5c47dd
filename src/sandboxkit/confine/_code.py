"""
The code of the programs that confine themselves, as bytes for an interpreter that
reads nothing of this package.
"""

from __future__ import annotations
import __future__

import ast
import marshal
import pkgutil
from functools import cache
from typing import Literal

from sandboxkit.errors import SpecError

__all__ = ["child_code"]


@cache
def child_code(kind: Literal["boxed", "alone"] = "boxed") -> bytes:
    """
    What a child executes, marshalled by this interpreter.

    Args:
        kind: `boxed` for the first process of a box of namespaces, `alone` for a box
            without any.

    Raises:
        SpecError: The package is incomplete.
    """
    names = ("_child.py", "_alone.py") if kind == "alone" else ("_child.py",)
    modules = [_parsed(name) for name in names]
    for module in modules[:-1]:
        module.body = [node for node in module.body if not isinstance(node, ast.If) or not _is_start(node)]
    whole = ast.Module([node for module in modules for node in module.body], [])
    # The flag instead of the import, which would be one file more to read in every box.
    flags = __future__.annotations.compiler_flag
    return marshal.dumps(compile(whole, "sandboxkit-child", "exec", flags, dont_inherit=True, optimize=2))


def _parsed(name: str) -> ast.Module:
    source = pkgutil.get_data("sandboxkit.confine", name)
    if source is None:
        raise SpecError(f"the file confine/{name} is missing from the installed package; reinstall it")
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and _is_dropped(node.module))]
    return tree


def _is_dropped(module: str | None) -> bool:
    return module == "__future__" or bool(module and module.startswith("sandboxkit."))


def _is_start(node: ast.If) -> bool:
    return ast.unparse(node.test) == "__name__ == '__main__'"
