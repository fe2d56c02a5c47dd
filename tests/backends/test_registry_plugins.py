"""
Third-party backends: loaded when named, and only then.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from sandboxkit.backends import PLUGIN_PRIORITY, SandboxRegistry
from sandboxkit.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEAD = """
from sandboxkit.backends import hookimpl
from tests.backends.raw_bwrap import RawBwrap
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """
    Puts a package with one entry point and this source on the path.
    """
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(name: str, source: str, module: str | None = None) -> None:
        module = module or f"plugin_{name}"
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[sandboxkit.backends]\n{name} = {module}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return installed


def named(registry: SandboxRegistry) -> list[tuple[str, int]]:
    return [(entry.name, entry.priority) for entry in registry._entries]


def test_a_named_plugin_is_loaded_below_the_built_in_ones(install: Callable[[str, str], None]) -> None:
    install(
        "fire",
        HEAD
        + "@hookimpl\ndef sandboxkit_register_backends():\n    return [(RawBwrap(called='fire'), 999), RawBwrap(called='ice')]\n",
    )
    registry = SandboxRegistry.default(plugins=["fire"])
    assert named(registry)[-2:] == [("fire", PLUGIN_PRIORITY), ("ice", 0)]
    assert all(priority > PLUGIN_PRIORITY for _, priority in named(SandboxRegistry.default()))


def test_a_plugin_that_is_not_named_is_not_imported(install: Callable[[str, str], None]) -> None:
    install("mean", "raise SystemExit('imported')")
    SandboxRegistry.default()
    SandboxRegistry.default(plugins=[])
    assert "plugin_mean" not in sys.modules


def test_an_unknown_plugin_is_named_with_those_there_are(install: Callable[[str, str], None]) -> None:
    install("fire", "")
    with pytest.raises(
        PluginError, match=r"plug-in 'water': no installed package offers it .*offered: fire.*install the package"
    ):
        SandboxRegistry.default(plugins=["water"])


BROKEN = [
    ("raise ImportError('no kernel')", "loading plugin_fire failed: ImportError: no kernel"),
    ("raise SystemExit('bye')", "loading plugin_fire failed: SystemExit: bye"),
    ("", "it has no hook sandboxkit_register_backends"),
    ("def sandboxkit_register_backends():\n    return []\n", "it has no hook"),
    (HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    return None\n", "or that returned None"),
    (
        HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    return ['docker']\n",
        "it offers 'docker'; return SandboxBackend objects",
    ),
    (HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    return [RawBwrap]\n", "return SandboxBackend objects"),
    (
        HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    return [(RawBwrap(), 'high')]\n",
        "return SandboxBackend objects",
    ),
    (HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    return RawBwrap()\n", "is not iterable"),
    (HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    raise RuntimeError('boom')\n", "RuntimeError: boom"),
    (HEAD + "@hookimpl\ndef sandboxkit_register_backends(registry):\n    return []\n", "registry"),
    (HEAD + "@hookimpl\ndef sandboxkit_register_backend():\n    return []\n", "sandboxkit_register_backend"),
    (
        HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    return [RawBwrap(called='bubblewrap')]\n",
        "plug-in 'fire': its backend 'bubblewrap': a backend of this name is registered already",
    ),
    (
        HEAD + "@hookimpl\ndef sandboxkit_register_backends():\n    return [RawBwrap(called='Loud Name')]\n",
        "a backend's name is",
    ),
]


@pytest.mark.parametrize(("source", "says"), BROKEN)
def test_a_broken_plugin_is_an_error_that_names_it(install: Callable[[str, str], None], source: str, says: str) -> None:
    install("fire", source)
    with pytest.raises(PluginError, match="plug-in") as caught:
        SandboxRegistry.default(plugins=["fire"])
    assert says in str(caught.value)


def test_one_name_from_two_packages_is_refused(install: Callable[..., None]) -> None:
    install("fire", "", module="plugin_one")
    install("fire", "", module="plugin_two")
    with pytest.raises(PluginError, match=r"several installed packages offer it \(plugin_one, plugin_two\)"):
        SandboxRegistry.default(plugins=["fire"])


def test_a_string_is_no_list_of_names() -> None:
    with pytest.raises(PluginError, match="give a list of names"):
        SandboxRegistry.default(plugins="fire")


def test_hookimpl_is_public_and_pluggy_is_loaded_for_it_only() -> None:
    import subprocess

    code = (
        "import sys, sandboxkit.backends as b; b.SandboxRegistry.default(); first = 'pluggy' in sys.modules; "
        "b.hookimpl; print(first, 'pluggy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False True\n"
