"""
Rules and letters from a file nobody checked: which discount applies, and what is written.

    python examples/evaluate.py
"""

from __future__ import annotations

import sandboxkit as sk

RULES = {
    "large order": "order.total > 100",
    "good customer": "customer.score >= 8 and 'blocked' not in customer.tags",
    "broken": "order.totl > 100",
    "hostile": "().__class__.__base__.__subclasses__()",
    "endless": "max(range(10**12)) > 0",
}
LETTER = "Dear {{ customer.name | title }}: {{ order.total:.2f }} less {{ discount:.0%}} is {{ order.total * (1 - discount):.2f }}."


def main() -> None:
    context = {
        "order": {"total": 120.5},
        "customer": {"name": "alice", "score": 9, "tags": ["early"]},
    }
    with sk.SafeEvaluator(timeout=0.5) as evaluator:
        matching = []
        for name, rule in RULES.items():
            try:
                holds = evaluator.condition(rule, context, on_error="raise")
                print(f"{name:14} {holds}")
            except sk.SafeEvalError as exc:
                holds = False
                print(f"{name:14} does not count: {exc}")
            if holds:
                matching.append(name)
        print(evaluator.interpolate(LETTER, {**context, "discount": 0.05 * len(matching)}))


if __name__ == "__main__":
    main()
