"""
The files rules were read from are known, so that a router can keep them read-only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import sandboxkit as sk

if TYPE_CHECKING:
    from pathlib import Path

RULES = '[[rules]]\nid = "mine"\nprefix = ["frobnicate"]\naction = "ask"\n'


def test_a_policy_names_its_files(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    assert sk.ExecPolicy.from_files(user=path).paths == (str(path.resolve()),)
    assert sk.ExecPolicy.default().paths == ()


@pytest.mark.requires("bubblewrap")
@pytest.mark.anyio
async def test_a_box_cannot_rewrite_the_rules_that_bound_it(tmp_path: Path) -> None:
    workspace = tmp_path.resolve()
    path = workspace / "rules.toml"
    path.write_text(RULES)
    router = sk.AutoSandboxRouter(policy=sk.ExecPolicy.from_files(user=path))
    spec = sk.SandboxSpec.workspace_write(workspace)
    for script in ("echo x > rules.toml", "mv rules.toml away", "rm -f rules.toml"):
        routed = await router.route(["bash", "-c", script], spec=spec, cwd=workspace)
        assert not routed.result.ok, script
    assert path.read_text() == RULES
