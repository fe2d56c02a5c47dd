import sandboxkit as sk

router = sk.AutoSandboxRouter(policy=sk.ExecPolicy.default())

advice = router.should_sandbox("npm install")
assert advice.sandbox
print(advice.action, "-", advice.reason)

assert not router.should_sandbox("pwd").sandbox
