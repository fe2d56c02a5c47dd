import sandboxkit as sk

policy = sk.ExecPolicy.default()

# All of them, or none where anything is wrong. A path to a file is taken too.
policy.import_rules({"rules": [{"id": "deploy", "prefix": ["make", "deploy"], "action": "ask"}]})
policy.set_default_action(sk.PolicyAction.ASK)
assert policy.evaluate("frobnicate").action is sk.PolicyAction.ASK

policy.disable_rule("deploy")  # kept, and out of force
assert policy.evaluate("make deploy").action is sk.PolicyAction.SANDBOX
policy.enable_rule("deploy")

policy.save("rules.toml")  # the rules and the default action
assert sk.ExecPolicy.from_files(user="rules.toml").rules_digest == policy.rules_digest

print(policy.describe())  # tables of all rules
