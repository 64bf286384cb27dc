"""Row: an event as it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from commitrelay.event import JSON_CONTENT_TYPE


class Row(NamedTuple):
    """An event as it is stored, with its columns in the order of the statement."""

    id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    payload: bytes
    content_type: str
    headers: str
    idempotency_key: str | None
    deliver_at: str | None


EMPTY_HEADERS = "{}"
DEFAULTS = (JSON_CONTENT_TYPE, EMPTY_HEADERS, None, None)
"""What the database puts into the last columns if an INSERT does not name them."""

PLAIN_COLUMNS = len(Row._fields) - len(DEFAULTS)


def insertion(rows: Sequence[tuple[Any, ...]]) -> tuple[str, tuple[Any, ...]]:
    """The query that adds the rows, and its values: no more of them than it takes."""
    query, columns = "add_plain", PLAIN_COLUMNS
    for row in rows:
        if row[PLAIN_COLUMNS:] != DEFAULTS:
            query, columns = "add_event", len(row)
            break
    if len(rows) == 1:
        return query, rows[0][:columns]
    return query, tuple(chain.from_iterable([row[:columns] for row in rows]))
