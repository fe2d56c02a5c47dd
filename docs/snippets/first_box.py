import sandboxkit as sk

result = sk.sync.run("python3 -c 'print(6 * 7)'")

assert result.text() == "42\n"
assert result.backend == "bubblewrap"
assert result.enforcement.grade(sk.Control.NET_NONE) is sk.Grade.ENFORCED
