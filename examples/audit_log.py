"""
A log of what was decided and what came of it; what shows when somebody touches it, and
what only a head that was kept elsewhere shows.

    python examples/audit_log.py
"""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path

import sandboxkit as sk
from sandboxkit.audit import AuditKey, Verification, examine, read_records


def shown(what: str, found: Verification) -> None:
    said = f"BROKEN, {found.problem}" if found.problem else f"whole, {found.records} records"
    print(f"{what:34}{said}")


def main() -> None:
    with tempfile.TemporaryDirectory() as logs, tempfile.TemporaryDirectory() as workspace:
        path = Path(logs) / "audit.jsonl"
        key = AuditKey(secrets.token_bytes(32))
        log = sk.JsonlAudit(path, key=key)
        router = sk.AutoSandboxRouter(audit=log)

        sk.sync.run(["touch", "made"], router=router, cwd=workspace)
        try:
            sk.sync.run("rm -rf /", router=router, cwd=workspace)
        except sk.CommandDeniedError as refusal:
            print(refusal)
        head = log.head()  # keep it where whoever can write the log cannot

        for record in read_records(path):
            print(record.head.sequence, record.kind, record.fields["outcome"], record.fields.get("command", ""))

        shown("as it was written:", examine(path, key=key, expect_head=head))

        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"rm -rf /", b"ls -la /"))
        shown("a command was changed:", examine(path, key=key))

        path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
        shown("the end was cut off:", examine(path, key=key))
        shown("the same, with the head:", examine(path, key=key, expect_head=head))


if __name__ == "__main__":
    main()
