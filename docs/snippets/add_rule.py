import sandboxkit as sk

policy = sk.ExecPolicy.default()

policy.add_rule(sk.PolicyRule(id="deploy", prefix=("make", "deploy"), action=sk.PolicyAction.DENY))
assert policy.evaluate("make deploy").action is sk.PolicyAction.DENY

policy.update_rule("deploy", action=sk.PolicyAction.ASK)
assert policy.evaluate("make deploy").action is sk.PolicyAction.ASK

policy.remove_rule("deploy")
assert policy.evaluate("make deploy").action is sk.PolicyAction.SANDBOX

# The floor stays, whatever anybody adds.
policy.add_rule(sk.PolicyRule(id="anything", glob="*", action=sk.PolicyAction.ALLOW, priority=1000))
assert policy.evaluate("rm -rf /").action is sk.PolicyAction.DENY
