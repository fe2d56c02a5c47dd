"""
When a log goes on in a new file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Rotation"]

_MIN_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Rotation:
    """
    When a log goes on in a new file, and how many old ones stay. Whichever limit is
    reached first counts. The chain goes on over the files.

    The file `audit.jsonl` is then called `audit.jsonl.000001`, the next one
    `audit.jsonl.000002`, and so on: no file is renamed twice.

    Attributes:
        max_bytes: The most a file holds, at least 1024; a single larger record has a
            file of its own. None is without limit. The default, 64 MiB, is some 60,000
            runs.
        max_records: The most records a file holds, or None.
        max_age_s: Seconds between the first record of a file and the last, or None. A
            file is rotated when a record comes, not by a clock.
        keep: How many old files stay, at least 1; older ones are deleted. The default,
            None, keeps all: to delete records is for the application to decide.

    Raises:
        ValueError: A limit is too small.
    """

    max_bytes: int | None = 64 * 1024 * 1024
    max_records: int | None = None
    max_age_s: float | None = None
    keep: int | None = None

    def __post_init__(self) -> None:
        if self.max_bytes is not None and self.max_bytes < _MIN_BYTES:
            raise ValueError(f"max_bytes {self.max_bytes}: give at least {_MIN_BYTES}, or None")
        if self.max_records is not None and self.max_records < 1:
            raise ValueError(f"max_records {self.max_records}: give at least 1, or None")
        if self.max_age_s is not None and not 0 < self.max_age_s < math.inf:
            raise ValueError(f"max_age_s {self.max_age_s}: give a positive number of seconds, or None")
        if self.keep is not None and self.keep < 1:
            raise ValueError(f"keep {self.keep}: give at least 1, since the chain goes on from the newest, or None")

    @property
    def needs_first(self) -> bool:
        """
        Whether a limit depends on the first record of the file.
        """
        return self.max_records is not None or self.max_age_s is not None
