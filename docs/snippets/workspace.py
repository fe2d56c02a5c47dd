from pathlib import Path

import sandboxkit as sk

result = sk.sync.run("echo built > out.txt", spec=sk.SandboxSpec.workspace_write("."))

result.check()  # raises unless it exited with 0
assert Path("out.txt").read_text() == "built\n"

inspected = sk.sync.run("echo again > out.txt", spec=sk.SandboxSpec.read_only("."))

assert not inspected.ok
assert Path("out.txt").read_text() == "built\n"
