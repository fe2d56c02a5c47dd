import sandboxkit as sk

policy = sk.ExecPolicy.from_dict(
    {
        "rules": [
            {"id": "publish", "prefix": ["npm", "publish"], "action": "deny"},
            {
                "id": "node-env",
                "prefix": ["env"],
                "action": "allow",
                "constraints": {"allowed_arguments": ["NODE_ENV=*"]},
            },
            {"id": "writes", "prefix": ["tee"], "action": "ask"},
            {
                "id": "count",
                "prefix": ["count-lines"],
                "action": "allow",
                "constraints": {"allowed_arguments": ["-v", "*"], "unknown_arguments": True},
            },
        ]
    }
)
decisions = {
    "timeout 60 npm publish": "deny",
    "for d in a b; do (cd $d && npm publish); done": "deny",
    "NODE_ENV=test ls": "allow",
    "env NODE_ENV=test LD_PRELOAD=./x.so ls": "ask",  # the rule knows only one of the variables
    "ls >list.txt": "ask",
    "ls 2>/dev/null": "allow",
    'count-lines "$file" *.txt': "allow",
    'count-lines "$file" >counts.txt': "ask",
}
for command, action in decisions.items():
    assert str(policy.evaluate(command).action) == action, command
