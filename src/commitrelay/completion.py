"""Completions: the log's own inbox, for workflows within one database.

Whoever begins an event holds the row of its completion until commit, so that others who begin it
wait for the outcome.
"""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from commitrelay.conversation import Conversation, Step
from commitrelay.errors import InvalidEvent, NotOpen, UnknownEvent
from commitrelay.mysql_mark import MysqlMarks
from commitrelay.sql import Names
from commitrelay.statement import Dialect, Style, step

Progress = Literal["open", "completed"]
"""How far an event's work is."""


class Completions:
    """Begins and completes the events of one outbox."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._mysql = MysqlMarks(names)

    def begin(self, event_id: str, dialect: Dialect, style: Style) -> Conversation[Progress]:
        if dialect == "mysql":
            yield from self._mysql.begin(event_id, style)
        elif (yield self._step("begin_event", event_id, dialect, style)):
            return "open"
        if (yield self._step("lock_open_event", event_id, dialect, style)):
            return "open"
        if (yield self._step("find_completion", event_id, dialect, style)):
            return "completed"
        raise UnknownEvent(
            f"event {event_id} is not in {self._names.bare('event')}: "
            "it was never committed here, or purged after its retention"
        )

    def complete(self, event_id: str, dialect: Dialect, style: Style) -> Conversation[None]:
        if not (yield self._step("complete_event", event_id, dialect, style)):
            raise NotOpen(
                f"event {event_id} was not begun, or is completed already: "
                'call begin() first, and go on only if it says "open"'
            )

    def _step(self, query: str, event_id: str, dialect: Dialect, style: Style) -> Step:
        return step(query, {"id": event_id}, dialect, style, self._names)


def as_event_id(event_id: str | UUID) -> str:
    """The id in its canonical spelling."""
    try:
        return str(event_id if isinstance(event_id, UUID) else UUID(event_id))
    except (ValueError, AttributeError, TypeError):
        raise InvalidEvent(f"{event_id!r} is no event's id: it has to be a UUID") from None
