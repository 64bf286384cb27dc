"""MysqlAdd: the conversation by which events get into an outbox on MySQL or MariaDB.

It depends on what the server answers. An event that is there already fails the INSERT, which the
server takes back as a whole while the transaction goes on; the events are then added half by half,
down to the one that was there. And a log that has no trigger says so, by a constraint: whoever adds
events to it enqueues them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any
from zlib import crc32

from commitrelay.conversation import Conversation
from commitrelay.row import insertion
from commitrelay.sql import Names
from commitrelay.statement import Style, statement

DUPLICATE = 1062
CHECK_FAILED = frozenset({4025, 3819})
UNKNOWN_COLUMN = 1054

SLOTS = 1024
"""With serialize_keys, so many keys can be written at the same time."""

_DELIVER_AT = 8


class MysqlAdd:
    """Adds events to one outbox and remembers whether its log has a trigger."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._enqueues = False

    def conversation(
        self, rows: Sequence[tuple[Any, ...]], style: Style, *, serialize_keys: bool
    ) -> Conversation[int]:
        rows = [_as_columns(row) for row in rows]
        if serialize_keys:
            slots = sorted({crc32(f"{row[1]}\x1f{row[2]}".encode()) % SLOTS for row in rows})
            yield self._text("lock_keys", len(slots), style), tuple(slots)
        mode = self._enqueues
        try:
            return (yield from self._add(rows, style))
        except Exception as error:
            code = mysql_code(error)
            self._enqueues = code in CHECK_FAILED
            if self._enqueues is mode or not (self._enqueues or code == UNKNOWN_COLUMN):
                raise
        return (yield from self._add(rows, style))

    def _add(self, rows: Sequence[tuple[Any, ...]], style: Style) -> Conversation[int]:
        query, values = insertion(rows)
        if self._enqueues:
            query, values = "add_without_trigger", tuple(chain.from_iterable(rows))
        try:
            yield self._text(query, len(rows), style), values
        except Exception as error:
            if mysql_code(error) != DUPLICATE:
                raise
        else:
            if self._enqueues:
                text = self._text("enqueue_event", 1, style).replace(
                    "IN (%s)", f"IN ({', '.join(['%s'] * len(rows))})"
                )
                yield text, tuple(row[0] for row in rows)
            return len(rows)
        if len(rows) == 1:
            return 0
        middle = len(rows) // 2
        first = yield from self._add(rows[:middle], style)
        return first + (yield from self._add(rows[middle:], style))

    def _text(self, query: str, rows: int, style: Style) -> str:
        text = statement(query, rows, "mysql", style, self._names)
        assert text is not None
        return text


def mysql_code(error: BaseException) -> int:
    """The server's error number, also from inside a wrapper of SQLAlchemy or Django."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        if each is not None and each.args and isinstance(each.args[0], int):
            return each.args[0]
    return 0


def _as_columns(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """MariaDB reads no Z: the column is in UTC anyway."""
    deliver_at = row[_DELIVER_AT]
    return row if deliver_at is None else (*row[:_DELIVER_AT], deliver_at.removesuffix("Z"))
