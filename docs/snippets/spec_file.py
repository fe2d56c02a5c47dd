from pathlib import Path

import sandboxkit as sk

Path("box.toml").write_text("""
[filesystem]
write = ["."]
deny = ["secrets"]

[network]
mode = "none"
""")
Path("secrets").mkdir()
Path("secrets/token").write_text("hunter2")

spec = sk.SandboxSpec.from_file("box.toml")
result = sk.sync.run("cat secrets/token", spec=spec)

assert not result.ok
assert b"hunter2" not in result.stdout
