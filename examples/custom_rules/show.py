"""
Rules of one's own: what they change about the built-in decisions.

    python examples/custom_rules/show.py
"""

from __future__ import annotations

from pathlib import Path

import sandboxkit as sk

RULES = Path(__file__).with_name("rules.toml")
COMMANDS = ("make test", "make deploy", "git push --force", "git push origin main", "wc -l big.csv", "rm -rf /")


def main() -> None:
    before, after = sk.ExecPolicy.default(), sk.ExecPolicy.from_files(user=RULES)
    context = sk.EvaluationContext(cwd="/srv/project", home="/home/me", workspace_roots=("/srv/project",))
    for command in COMMANDS:
        old, new = (policy.evaluate(command, context=context) for policy in (before, after))
        print(f"{command:24}{old.action!s:>8} -> {new.action!s:8} {new.reason}")

    router = sk.AutoSandboxRouter(policy=after)
    advice = router.should_sandbox("make test")
    print(f"\nmake test: {'in a box' if advice.sandbox else 'directly'}, because {advice.reason}")


if __name__ == "__main__":
    main()
