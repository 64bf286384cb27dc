"""Marks: what a consumer leaves in the database in case that it dies.

A handler that kills its process would do so for ever: nobody is left to count its failures. In
normal operation nothing is written per event for that. A row says who reads a partition, and is
removed when the reader lets go of it; a reader that finds the row of another one follows a dead
one. After several deaths in a row each event is started with care: the start is committed first,
and an event that was started too often and never ended is set aside.
"""

from __future__ import annotations

from enum import Enum

from commitrelay.conversation import Conversation, Step, Value
from commitrelay.handles import Talk
from commitrelay.sql import Names
from commitrelay.statement import Dialect, Style, statement


class Past(Enum):
    """How the last readers of a partition ended."""

    CLEAN = "clean"
    DIED = "died"
    DIED_OFTEN = "died often"


class Marks:
    def __init__(self, consumer: str, reader: str, names: Names) -> None:
        self._consumer = consumer
        self._reader = reader
        self._names = names

    def enter(self, partition: str, deaths_to_suspect: int) -> Talk:
        """Begin to read; the answer is a `Past`."""

        def talk(dialect: Dialect, style: Style) -> Conversation[Past]:
            who = (self._reader, self._consumer, partition)
            if not (yield self._step("take_over", who, dialect, style)):
                yield self._step("begin_reading", who, dialect, style)
                return Past.CLEAN
            values = (self._consumer, partition, deaths_to_suspect)
            often = yield self._step("has_deadly_history", values, dialect, style)
            return Past.DIED_OFTEN if often else Past.DIED

        return talk

    def is_reading(self, partition: str) -> Talk:
        """Whether `enter` was committed."""
        return self._one("has_deadly_history", self._consumer, partition, 0)

    def outlive(self, partition: str) -> Talk:
        """This reader has handled what the others died of."""
        return self._one("outlive", self._reader, self._consumer, partition)

    def leave(self, partition: str) -> Talk:
        """Read no more; the next reader need not worry."""
        return self._one("end_reading", self._reader, self._consumer, partition)

    def start(self, event_id: str, starts_to_set_aside: int) -> Talk:
        """Record a start; the answer is False if there were too many already."""

        def talk(dialect: Dialect, style: Style) -> Conversation[bool]:
            event = (self._consumer, event_id)
            values = (*event, starts_to_set_aside)
            if (yield self._step("is_deadly", values, dialect, style)):
                return False
            if not (yield self._step("start_again", event, dialect, style)):
                yield self._step("start_first", event, dialect, style)
            return True

        return talk

    def end(self, event_id: str) -> Talk:
        """What was started has ended."""
        return self._one("end_start", self._consumer, event_id)

    def _one(self, query: str, *values: Value) -> Talk:
        def talk(dialect: Dialect, style: Style) -> Conversation[int]:
            return (yield self._step(query, values, dialect, style))

        return talk

    def _step(self, query: str, values: tuple[Value, ...], dialect: Dialect, style: Style) -> Step:
        text = statement(query, 1, dialect, style, self._names)
        assert text is not None
        return text, values
