"""Inbox: an event's effect once, on the consumer's connection, in the consumer's transaction.

    inbox = Inbox("billing")
    with inbox.once(connection, event_id) as first:
        if first:
            connection.execute("UPDATE account …")
    connection.commit()

The mark commits together with the effect, so that a delivery finds either both or neither.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from secrets import randbits
from types import TracebackType
from uuid import UUID

from commitrelay.conversation import Conversation
from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.handles import run_on, run_on_async
from commitrelay.mark import Mark, mark, unmark
from commitrelay.mysql_mark import MysqlMarks
from commitrelay.sql import Names
from commitrelay.statement import Dialect, Style

MAX_LENGTH = 255
TOKEN_BITS = 62


class Inbox:
    """What one consumer has handled. One instance serves the whole application.

    ``consumer`` names who handles the events: every consumer of a database handles each event
    once. ``schema`` and ``prefix`` name the tables as in ``commitrelay init``.

    A mark is kept for ``inbox_retention`` (30 days) and then purged: an event that is delivered
    again after that is handled again.
    """

    def __init__(self, consumer: str, *, schema: str | None = None, prefix: str = "outbox") -> None:
        self.consumer = checked("consumer", consumer, ConfigError)
        self.names = Names(schema, prefix)
        self._mysql = MysqlMarks(self.names)

    def once(self, handle: object, event_id: str | UUID, *, wait: bool = True) -> Once:
        """`with` or `async with` it: True for the first delivery, False for a duplicate.

        ``handle`` is what `Outbox.add` takes, in the transaction of the effect; with those of
        `add_async` it is `async with`. While another transaction handles the same event, this one
        waits for its outcome: committed, and this is a duplicate; rolled back, and this is the
        first. With ``wait=False`` that is `InProgress` instead.

        What the body raises takes the mark back, also if you catch it and commit the rest.
        """
        event_id = checked("event id", str(event_id), InvalidEvent)
        return Once(self, handle, Mark(self.consumer, event_id, randbits(TOKEN_BITS)), wait=wait)

    def _mark(self, made: Mark, wait: bool, dialect: Dialect, style: Style) -> Conversation[bool]:
        if dialect == "mysql":
            return self._mysql.mark(made, style, wait=wait)
        return mark(made, dialect, style, self.names, wait=wait)

    def _unmark(self, made: Mark, dialect: Dialect, style: Style) -> Conversation[None]:
        return unmark(made, dialect, style, self.names)


class Once:
    """One delivery of one event, from its mark to the end of its effect."""

    def __init__(self, inbox: Inbox, handle: object, made: Mark, *, wait: bool) -> None:
        self._handle = handle
        self._mark = partial(inbox._mark, made, wait)
        self._unmark = partial(inbox._unmark, made)
        self._first = False

    def __enter__(self) -> bool:
        self._first = run_on(self._handle, self._mark, called="once")
        return self._first

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._first and error is not None:
            with suppress(Exception):  # a transaction that has failed takes the mark along
                run_on(self._handle, self._unmark, called="once")

    async def __aenter__(self) -> bool:
        self._first = await run_on_async(self._handle, self._mark, called="once")
        return self._first

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._first and error is not None:
            with suppress(Exception):
                await run_on_async(self._handle, self._unmark, called="once")


def checked(what: str, text: str, refused: type[ConfigError] | type[InvalidEvent]) -> str:
    """Text that every database keeps to the byte."""
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_LENGTH:
        shown = repr(text) if len(repr(text)) <= 80 else f"{repr(text)[:80]}…"
        raise refused(f"{shown} is no {what}: it has to be a text of 1 to {MAX_LENGTH} characters")
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise refused(f"the {what} {text!r} has characters that no database stores: encode them")
    return text
