from pathlib import Path

import sandboxkit as sk

Path("rules.toml").write_text("""
[[rules]]
id = "npm-publish"
prefix = ["npm", "publish"]
action = "ask"
reason = "what is published cannot be taken back"
match = ["npm publish"]
not_match = ["npm install"]
""")

policy = sk.ExecPolicy.from_files(user="rules.toml")
evaluation = policy.evaluate("cd package && npm publish --tag next")

assert evaluation.action is sk.PolicyAction.ASK
assert "npm-publish" in [match.rule_id for match in evaluation.matches if match.decided]
