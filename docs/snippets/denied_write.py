from pathlib import Path

import sandboxkit as sk

victim = Path.home() / "precious.txt"
victim.write_text("irreplaceable")

result = sk.sync.run(["python3", "-c", f"open({str(victim)!r}, 'w').write('gone')"])

assert result.exit_code == 1  # their command failed; nothing of ours did
assert "FileNotFoundError" in result.text("stderr") or "PermissionError" in result.text("stderr") or result.ok
assert victim.read_text() == "irreplaceable"
