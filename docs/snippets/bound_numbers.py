import sandboxkit as sk

rule = sk.PolicyRule(
    id="many-pages",
    prefix=("fetch-pages",),
    action=sk.PolicyAction.ASK,
    constraints=sk.RuleConstraints(more_than={"pages": 25}),
)
policy = sk.ExecPolicy.from_dict({"rules": [rule]})

few = sk.EvaluationContext(numbers={"pages": 25})
many = sk.EvaluationContext(numbers={"pages": 26})
assert policy.evaluate(["fetch-pages"], context=few).action is sk.PolicyAction.SANDBOX
assert policy.evaluate(["fetch-pages"], context=many).action is sk.PolicyAction.ASK

# A number nobody gave does not spare a command from a rule that asks.
assert policy.evaluate(["fetch-pages"]).action is sk.PolicyAction.ASK
