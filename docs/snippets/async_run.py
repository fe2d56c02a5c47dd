import anyio

import sandboxkit as sk


async def main() -> None:
    result = await sk.run(["sort"], stdin=b"b\na\n")
    assert result.stdout == b"a\nb\n"


anyio.run(main)
