"""Mark: the row that says which consumer has handled which event, and the talk that makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from commitrelay.conversation import Conversation, Value
from commitrelay.errors import InProgress
from commitrelay.sql import Names
from commitrelay.statement import Dialect, Style, step

SQLITE_BUSY = 5


class Mark(NamedTuple):
    consumer: str
    event_id: str
    token: int

    def values(self, dialect: Dialect) -> dict[str, Value]:
        """MySQL compares texts by rules of their own, and bytes as they are."""
        if dialect != "mysql":
            return self._asdict()
        return {
            "consumer": self.consumer.encode(),
            "event_id": self.event_id.encode(),
            "token": self.token,
        }

    def in_progress(self) -> InProgress:
        return InProgress(
            f"event {self.event_id} is being handled for {self.consumer} by another transaction: "
            "leave it, and let it be delivered again"
        )


def mark(
    made: Mark, dialect: Dialect, style: Style, names: Names, *, wait: bool
) -> Conversation[bool]:
    """On PostgreSQL and SQLite: returns whether the event was not marked before."""
    values = made.values(dialect)
    query = "mark" if wait or dialect == "sqlite" else "mark_at_once"
    try:
        marked = yield step(query, values, dialect, style, names)
    except Exception as error:
        if wait or not _is_busy(error):
            raise
        raise made.in_progress() from error
    if marked or wait or dialect == "sqlite":
        return bool(marked)
    if not (yield step("find_mark", values, dialect, style, names)):
        raise made.in_progress()
    return False


def unmark(made: Mark, dialect: Dialect, style: Style, names: Names) -> Conversation[None]:
    yield step("unmark", made.values(dialect), dialect, style, names)


def _is_busy(error: BaseException) -> bool:
    """Whether SQLite has another writer, whoever wrapped its error."""
    codes = (getattr(each, "sqlite_errorcode", 0) for each in _chain(error))
    return any(code & 0xFF == SQLITE_BUSY for code in codes)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = getattr(error, "orig", None) or error.__cause__
