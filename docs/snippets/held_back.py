from pathlib import Path

import sandboxkit as sk

diary = Path.home() / "diary.txt"
diary.write_text("private")

read = sk.sync.run(["cat", str(diary)])

assert read.exit_code == 1  # their command failed, and nothing of ours did
assert "No such file or directory" in read.text("stderr")

written = sk.sync.run(f"echo gone > {diary} && cat {diary}")

assert written.text() == "gone\n"  # in a home of its own, which ended with the box
assert diary.read_text() == "private"
