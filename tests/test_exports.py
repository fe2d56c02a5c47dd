"""
The public names are what they say, and importing the package is cheap.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sandboxkit

PACKAGE = Path(sandboxkit.__file__).parent
HEAVY = ["anyio", "docker", "landlock", "pluggy", "pydantic", "pyseccomp", "tree_sitter", "tree_sitter_bash"]
OWN_NAMES = [name for name in sandboxkit.__all__ if name not in ("__version__", "sync")]


def _type_checking_names() -> set[str]:
    tree = ast.parse(Path(sandboxkit.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_all_is_sorted() -> None:
    assert sandboxkit.__all__ == sorted(sandboxkit.__all__)


def test_all_is_what_type_checkers_see() -> None:
    assert set(sandboxkit.__all__) == _type_checking_names() | {"__version__"}


def test_every_error_is_public() -> None:
    from sandboxkit import errors

    assert set(errors.__all__) <= set(sandboxkit.__all__)


@pytest.mark.parametrize("name", sandboxkit.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(sandboxkit, name) is not None


@pytest.mark.parametrize("name", OWN_NAMES)
def test_every_public_object_has_a_docstring(name: str) -> None:
    thing = getattr(sandboxkit, name)
    assert inspect.getdoc(thing), name
    if inspect.isclass(thing):
        missing = [
            f"{name}.{member}"
            for member, value in vars(thing).items()
            if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
            if not inspect.getdoc(getattr(thing, member))
        ]
        assert missing == []


@pytest.mark.parametrize("name", OWN_NAMES)
def test_every_public_object_comes_from_a_room_that_lists_it(name: str) -> None:
    home = sys.modules[sandboxkit._HOMES.get(name, "sandboxkit.errors")]
    assert name in home.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sandboxkit.nothing


def test_no_room_bears_the_name_of_a_public_function() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms & set(sandboxkit.__all__) == {"sync"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, sandboxkit; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_package_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import sandboxkit as sk; [getattr(sk, n) for n in sk.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True)
    testing = "\ntry: import sandboxkit.testing.conformance\nexcept sk.MissingExtraError as exc: print(exc)"
    done = subprocess.run([sys.executable, "-c", code + testing], capture_output=True, text=True, check=True)
    assert done.stdout == "sandboxkit.testing needs an optional dependency: pip install 'sandboxkit[testing]'\n"


def test_the_conformance_suite_exports_behaviours_and_fixtures_alone() -> None:
    from sandboxkit.testing import conformance
    from sandboxkit.testing.conformance._fixtures import FIXTURES

    rest = set(conformance.__all__) - {f"test_{name}" for name in conformance.BEHAVIOURS} - set(FIXTURES)
    assert rest == {
        "BEHAVIOURS",
        "Behaviour",
        "application",
        "asking_less",
        "loop",
        "private_tmp",
        "secrets",
        "servers",
        "short",
        "told",
    }
    assert [name for name in conformance.__all__ if not hasattr(conformance, name)] == []
    assert {"backend_factory", "deviations"} & set(conformance.__all__) == set(), "these are the user's"


def _loads(command: str) -> list[str]:
    """
    Which of the grammar's packages a fresh interpreter has loaded once it decided about *command*.
    """
    code = (
        "import sys, sandboxkit; "
        f"assert sandboxkit.ExecPolicy.default().evaluate({command!r}).action.name == 'ALLOW'; "
        "print(*sorted(name for name in ('tree_sitter', 'tree_sitter_bash') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_grammar_is_loaded_for_shell_syntax_alone() -> None:
    assert _loads("ls -la") == []
    assert _loads("ls $(pwd)") == ["tree_sitter", "tree_sitter_bash"]
