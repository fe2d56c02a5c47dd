import sandboxkit as sk

try:
    sk.sync.run("rm -rf /")
except sk.CommandDeniedError as denied:
    print(denied.evaluation.reason)
    for match in denied.evaluation.matches:
        print(match.rule_id, match.action, match.reason)
else:
    raise AssertionError("it ran")
