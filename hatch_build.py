"""
Compiles the rooms that decide, where that is asked for: `SANDBOXKIT_COMPILE=1 pip install .`

Without that setting nothing happens here, and the wheel is pure Python. With it, mypyc
turns the modules that pyproject.toml names into extension modules; they lie beside their
source in the wheel, which stays what people read. Nothing is written into the source tree.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SETTING = "SANDBOXKIT_COMPILE"
REMEDY = f"install a C compiler and the headers of this Python, or leave {SETTING} unset for the pure wheel"


def is_wanted() -> bool:
    """
    Whether `SANDBOXKIT_COMPILE` asks for a compiled build.

    Raises:
        ValueError: It is neither empty, `0` nor `1`.
    """
    value = os.environ.get(SETTING, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{SETTING} is {value!r}; set it to 1 for a compiled build, or to 0")
    return value == "1"


class CompileHook(BuildHookInterface[Any]):
    """
    hatchling's hook: adds the extension modules to the wheel.
    """

    def dependencies(self) -> list[str]:
        """
        What a compiled build needs: mypy reads the types of our own dependencies too.
        """
        return ["mypy>=2.4", "setuptools>=77", *self.metadata.core.dependencies] if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """
        Compiles, unless the wheel is an editable one, whose source is to be changed.
        """
        if version == "editable" or not is_wanted():
            return
        self._directory = tempfile.TemporaryDirectory(prefix="sandboxkit-compiled-")
        built = Path(self._directory.name) / "built"
        compile_into(built, Path(self.root), self._sources())
        libraries = {str(path): str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}
        build_data["force_include"].update(libraries)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """
        Removes what was compiled; the wheel has it.
        """
        if hasattr(self, "_directory"):
            self._directory.cleanup()

    def _sources(self) -> list[str]:
        source = Path(self.root) / "src"
        packages = [source / name.replace(".", "/") for name in self.config["packages"]]
        files = [path for package in packages for path in package.glob("*.py") if path.name != "__init__.py"]
        files += [source / f"{name.replace('.', '/')}.py" for name in self.config["modules"]]
        return sorted(str(path.relative_to(source)) for path in files)


def compile_into(built: Path, root: Path, sources: list[str]) -> None:
    """
    Makes an extension module of each of *sources*.

    Args:
        built: Where they are put, in the layout of the package.
        root: Where pyproject.toml is.
        sources: Paths of modules below `src`.

    Raises:
        RuntimeError: There is no working compiler.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.errors import BaseError

    made = built.parent / "made"
    options = [
        f"--config-file={root / 'pyproject.toml'}",
        "--follow-imports=silent",  # rooms that are not compiled may need extras, which are not here
        f"--cache-dir={made / 'types'}",
        f"--python-version={sys.version_info.major}.{sys.version_info.minor}",
    ]
    # mypyc names modules by their paths below the working directory.
    with contextlib.chdir(root / "src"):
        extensions = mypycify([*options, *sources], opt_level="2", group_name="sandboxkit", target_dir=str(made / "c"))
        made_of: Any = Distribution  # setuptools has types for a part of itself only
        command = made_of({"name": "sandboxkit", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(built), str(made / "objects")
        command.ensure_finalized()
        try:
            command.run()
        except BaseError as error:
            raise RuntimeError(f"the compiled build failed: {error}; {REMEDY}") from error
