"""Bundle: the rows of a claim, read as one.

After each row Python's sqlite3 asks for the interpreter's lock again, and gets it when others, who
make messages of the last claim, pause: a thousand rows stand still meanwhile. One row is read
beside them. And what all events have in common, such as a content type, is one object then.

It is for sweeps that go on, where there is a backlog. What does not fit is read row by row: values
with the separator in them, bytes where text should be, databases whose text is not UTF-8 (where
payloads would be converted), and payloads so large that having them twice for a moment matters.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from commitrelay.store import Queued, State

SEPARATOR = "\x1e"

MOST_BYTES = 16 * 1024 * 1024
"""Of the payloads of a claim: if the last one had more, the next one is read row by row."""

as_queued = partial(tuple.__new__, Queued)


class _DoesNotFitError(Exception):
    """A value has a separator in it."""


def bundle_query(sql: Mapping[str, str]) -> str:
    return f"WITH claimed AS ({sql['claim_pending']}) {sql['claim_bundle']}"


class Bundle:
    def __init__(self, sql: Mapping[str, str]) -> None:
        self._statement = bundle_query(sql)
        self._is_utf8: bool | None = None  # not yet asked
        self._is_light = False

    def weigh(self, rows: Sequence[Queued]) -> None:
        """What a claim has brought: the next one will be like it."""
        self._is_light = sum([len(row.payload) for row in rows]) <= MOST_BYTES

    def read(self, db: sqlite3.Connection, values: dict[str, Any]) -> list[Queued] | None:
        """The pending events of a claim; None if they are to be read row by row."""
        if self._is_utf8 is None:
            self._is_utf8 = db.execute("PRAGMA encoding").fetchone()[0] == "UTF-8"
        if not self._is_utf8 or not self._is_light:
            return None
        try:
            count, payloads, lengths, *columns = db.execute(self._statement, values).fetchone()
            return _rows(count, payloads, lengths, columns) if count else []
        except (_DoesNotFitError, sqlite3.DataError, sqlite3.OperationalError):
            return None


def _rows(
    count: int, payloads: bytes | None, lengths: str, columns: list[str | None]
) -> list[Queued]:
    payloads = payloads or b""  # before 3.39, SQLite joins an empty text to NULL
    parts = [_values(count, column or "") for column in (lengths, *columns)]
    sizes, seqs, buckets, attempts, blocked = (map(int, part) for part in parts[:5])
    key, event_id, kind, name, event_type, content_type, headers, idempotency, at = parts[5:]
    return [
        *map(
            as_queued,
            zip(
                seqs,
                key,
                buckets,
                [int(State.PENDING)] * count,
                attempts,
                blocked,
                event_id,
                kind,
                name,
                event_type,
                [payloads[start:end] for start, end in pairwise(accumulate(sizes, initial=0))],
                content_type,
                headers,
                [text or None for text in idempotency],
                at,
                strict=True,
            ),
        )
    ]


def _values(count: int, column: str) -> list[str]:
    first = column.partition(SEPARATOR)[0]
    values = [first] * count
    if column != SEPARATOR.join(values):
        values = column.split(SEPARATOR)
    if len(values) != count:
        raise _DoesNotFitError
    return values
