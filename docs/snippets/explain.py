import tempfile
from pathlib import Path

import sandboxkit as sk

with tempfile.TemporaryDirectory() as directory:
    place = Path(directory).resolve()
    result = sk.sync.run("touch made", spec=sk.SandboxSpec.read_only(place), cwd=place, explain=True)

    assert result.explained, result.explain_gap
    (refused,) = result.violations
    print(refused.kind, refused.target, refused.error)
    print(refused.spec_line)
    assert refused.spec_line == f'filesystem.write = ["{place}"]'
