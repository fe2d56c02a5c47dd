import sandboxkit as sk

order = {"total": 120, "lines": [{"name": "pen", "price": 20}, {"name": "ink", "price": 100}]}

assert sk.safe_eval("order.total * 0.9", {"order": order}) == 108
assert sk.safe_eval("max(order.lines, key=lambda line: line.price).name", {"order": order}) == "ink"

names = "result = []\nfor line in order.lines:\n    result.append(line.name)"
assert sk.safe_eval(names, {"order": order}, mode="exec") == ["pen", "ink"]

for hostile in ("().__class__.__base__.__subclasses__()", "9**9**9", "'9' * 10**10", "open('/etc/passwd')"):
    try:
        sk.safe_eval(hostile, timeout=0.5)
    except sk.SafeEvalError as exc:
        print(f"{type(exc).__name__}: {exc}")
    else:
        raise AssertionError(hostile)
