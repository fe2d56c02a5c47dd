import sandboxkit as sk

ours = sk.SandboxSpec.workspace_write(".", network=sk.NetworkPolicy(mode="host"))
theirs = sk.SandboxSpec.read_only(".", limits=sk.Limits(wall=10))

both = ours.tighten(theirs)

assert both == theirs.tighten(ours)
assert both.network.mode == "none"
assert both.limits.wall == 10
assert both.filesystem.write == ()
