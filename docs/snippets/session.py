import anyio

import sandboxkit as sk


async def main() -> None:
    async with sk.open_sandbox(sk.SandboxSpec.workspace_write(".")) as box:
        await box.run(["python3", "-c", "open('state', 'w').write('kept')"])
        result = await box.run(["cat", "state"], timeout=5)
        assert result.text() == "kept"


anyio.run(main)
