from pathlib import Path

import sandboxkit as sk
from sandboxkit.audit import AuditKey, FileAnchor, Rotation, read_records, verify

logs = Path.home() / "logs"  # outside of every directory a box may write
logs.mkdir(mode=0o700, exist_ok=True)
Path(logs / "key").write_bytes(b"keep 32 random bytes in a file that only you can read")
(logs / "key").chmod(0o600)

key = AuditKey.from_file(logs / "key")
log = sk.JsonlAudit(
    logs / "audit.jsonl",
    key=key,
    rotation=Rotation(max_bytes=16 * 1024 * 1024, max_age_s=7 * 86400, keep=50),
    anchor=FileAnchor(logs / "heads"),  # better on another machine: any callable will do
    anchor_every=100,
)
router = sk.AutoSandboxRouter(audit=log)
sk.sync.run("touch made && ls", router=router)

assert verify(logs / "audit.jsonl", key=key, anchors=logs / "heads") == 2
decided, finished = read_records(logs / "audit.jsonl")
assert decided.command == "touch made && ls"
assert decided.run_id == finished.run_id
