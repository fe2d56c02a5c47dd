from dataclasses import dataclass

import anyio
import anyio.lowlevel

import sandboxkit as sk


@dataclass
class Customer:
    name: str
    score: int
    card: str


async def price(sku: str) -> int:
    await anyio.lowlevel.checkpoint()  # a look into a database, say
    return {"pen": 20, "ink": 100}[sku]


async def main() -> None:
    with sk.SafeEvaluator(functions={"price": price}, isolation="reuse") as evaluator:
        evaluator.expose(Customer, "name", "score")  # and not the card
        customer = Customer("Alice", 7, "4111 1111")
        code = "await price('pen') * (1 if customer.score < 10 else 2)"
        assert await evaluator.evaluate_async(code, {"customer": customer}) == 20
        assert evaluator.condition("customer.score > 5", {"customer": customer})
        assert not evaluator.condition("customer.card == '4111 1111'", {"customer": customer})
        assert evaluator.refusals == 1


anyio.run(main)
