"""Stillness: whether a look that found nothing would find nothing again.

SQLite tells a connection whether others have committed anything since it last asked. As long as
they have not, only time brings something: the moment when the next event is due.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable
from math import inf


class Stillness:
    """What one connection, which never writes, knows of its database."""

    def __init__(self) -> None:
        self._expected = False  # the last look found nothing; while there is work, nobody asks
        self._version = 0
        self._last: tuple[Hashable, int] | None = None  # what was looked for in vain, and when
        self._ends_at_ms = 0.0

    def reigns(self, connection: sqlite3.Connection, what: Hashable, now_ms: int) -> bool:
        """Whether looking for `what` would be in vain. Ask outside of a transaction."""
        if not self._expected:
            return False
        # Before the look: what is committed in between is another version the next time.
        self._version = connection.execute("PRAGMA data_version").fetchone()[0]
        return self._last == (what, self._version) and now_ms < self._ends_at_ms

    def note(self, what: Hashable, found: bool, next_ms: Callable[[], int | None]) -> None:
        """What came of a look; `next_ms` tells when the next event is due, if one is waiting."""
        self._last = None
        if self._expected and not found:
            due_ms = next_ms()
            self._ends_at_ms = inf if due_ms is None else due_ms
            self._last = (what, self._version)
        self._expected = not found
