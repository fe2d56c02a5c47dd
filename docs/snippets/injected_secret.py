import sandboxkit as sk
from sandboxkit.secrets import SecretRegistry

name, secrets = "API_KEY", SecretRegistry()
secrets.add(name, "the-value-of-the-key", hosts=["api.example.com"])
router = sk.AutoSandboxRouter(policy=sk.ExecPolicy.empty(), registry=sk.SandboxRegistry.default(secrets=secrets))

network = sk.NetworkPolicy(
    rules=(sk.EgressRule(action="allow", to="https://api.example.com/v1", methods=("GET",)),),
    inject=(sk.SecretInjection(secret=name, to="api.example.com/v1", methods=("GET",)),),
)
spec = sk.SandboxSpec.workspace_write(".", network=network)

result = sk.sync.run("env", spec=spec, router=router)
assert "API_KEY=<API_KEY>" in result.text().splitlines()
assert "the-value-of-the-key" not in result.text()
assert result.enforcement.grade(sk.Control.NET_INTERCEPT) is sk.Grade.ENFORCED
