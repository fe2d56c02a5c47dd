import datetime

import sandboxkit as sk

letter = "Dear {{ name | title }}, we owe you {{ total:,.2f }} since {{ day:%d %B }}.{{ note | default('') }}"
context = {"name": "alice", "total": 1234.5, "day": datetime.date(2026, 1, 31)}

assert sk.safe_interpolate(letter, context) == "Dear Alice, we owe you 1,234.50 since 31 January."
