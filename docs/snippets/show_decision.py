import sandboxkit as sk

policy = sk.ExecPolicy.default()
evaluation = policy.evaluate("cd build && git push --force origin main")
print(sk.diagnostic(evaluation))

for decision in evaluation.parts:  # the same as values
    part = evaluation.command.parts[decision.part]
    print(decision.action, part.argv, part.span, [match.rule_id for match in decision.matches if match.decided])
