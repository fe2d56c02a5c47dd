import sandboxkit as sk

network = sk.NetworkPolicy(
    allow_hosts=("packages.example.org:443", "*.files.example.org:443"),
    ask_hosts=("github.com",),
    deny_hosts=("upload.example.org",),
)
spec = sk.SandboxSpec.workspace_write(".", network=network)

# The rules decide about a command before its box does; here one that says what is boxed.
router = sk.AutoSandboxRouter(policy=sk.ExecPolicy.empty())
result = sk.sync.run("curl -sS http://example.org/", spec=spec, router=router)
for refused in result.violations:
    print(refused.detail)
    print(refused.spec_line)

(refused,) = result.violations
assert refused.kind == "egress"
assert refused.spec_line == 'network.allow_hosts = ["example.org:80"]'
assert result.enforcement.grade(sk.Control.NET_ALLOWLIST) is sk.Grade.ENFORCED
