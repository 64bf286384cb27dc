"""Outbox: writes events on the caller's connection, in the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Self
from uuid import UUID

from commitrelay.claim import Claimer, DirectPassPort
from commitrelay.completion import Completions, Progress, as_event_id
from commitrelay.conversation import Conversation
from commitrelay.errors import InvalidEvent
from commitrelay.event import Event
from commitrelay.handles import run_on, run_on_async
from commitrelay.mysql_add import MysqlAdd
from commitrelay.row import EMPTY_HEADERS, Row, insertion
from commitrelay.session_hooks import SessionHooks
from commitrelay.sql import Names
from commitrelay.statement import Dialect, Style, statement
from commitrelay.tracing import Tracing
from commitrelay.transaction import Notes, Transaction

MAX_PAYLOAD_BYTES = 1_048_576
MAX_EVENTS_PER_CALL = 3_000
"""Nine values each stay below the 32,766 parameters that every database and driver takes."""


class Added(tuple[UUID, ...]):
    """The ids of the events, in the order in which they were given.

    ``duplicates`` of them were in the outbox already (same id or idempotency key) and were not
    added again; ``new`` were.
    """

    duplicates: int

    def __new__(cls, ids: Iterable[UUID], duplicates: int) -> Self:
        added = tuple.__new__(cls, ids)
        added.duplicates = duplicates
        return added

    @property
    def new(self) -> int:
        return len(self) - self.duplicates

    def __repr__(self) -> str:
        return f"Added({', '.join(map(str, self))}; new={self.new}, duplicates={self.duplicates})"


class Outbox:
    """Where your transactions leave their events. One instance serves the whole application.

    ``schema`` and ``prefix`` name the tables as in ``commitrelay init``. A payload of more than
    ``max_payload_bytes`` is refused. With ``serialize_keys``, transactions that add events of
    the same aggregate wait for each other from ``add`` to commit, so that order holds even if
    the aggregate itself is written or locked after the event. With ``tracing``, every event gets
    a `create` span of OpenTelemetry, whose context travels in its headers. With ``direct``, a
    `DirectPass`, what is added in `transaction` or on a SQLAlchemy session is sent as soon as it is
    committed.
    """

    def __init__(
        self,
        *,
        schema: str | None = None,
        prefix: str = "outbox",
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        serialize_keys: bool = False,
        tracing: bool = False,
        direct: DirectPassPort | None = None,
    ) -> None:
        self.names = Names(schema, prefix)
        self.max_payload_bytes = max_payload_bytes
        self.serialize_keys = serialize_keys
        self._mysql = MysqlAdd(self.names)
        self._tracing = Tracing() if tracing else None
        self._completions = Completions(self.names)
        self._notes = Notes()
        self._claimer: Claimer | None = None
        if direct is not None:
            direct.check(self.names)
            self._claimer = Claimer(self.names, direct)
            self._sessions = SessionHooks(self._claimer)

    def add(self, handle: object, *events: Event) -> Added:
        """Write the events in one statement, in the transaction that is open on ``handle``.

        ``handle`` is a psycopg, PyMySQL, mysqlclient or sqlite3 ``Connection``, a SQLAlchemy
        ``Session`` or ``Connection``, or ``django.db.connection``. Whatever is wrong with an event
        or with the handle is an error before anything is sent to the database.
        """
        rows = self._rows(events)
        count: int = run_on(handle, partial(self._add, rows))
        if self._claimer is not None:
            self._note(self._claimer, handle, rows, count)
        return _added(events, count)

    async def add_async(self, handle: object, *events: Event) -> Added:
        """As ``add``, on a psycopg ``AsyncConnection``, an asyncpg, asyncmy, aiomysql or aiosqlite
        ``Connection``, or a SQLAlchemy ``AsyncSession`` or ``AsyncConnection``.
        """
        rows = self._rows(events)
        count: int = await run_on_async(handle, partial(self._add, rows))
        if self._claimer is not None:
            self._note(self._claimer, handle, rows, count)
        return _added(events, count)

    def transaction(self, connection: object) -> Transaction:
        """``with outbox.transaction(connection):`` on a psycopg or sqlite3 ``Connection``, or
        ``async with`` on a psycopg ``AsyncConnection``, an asyncpg or aiosqlite ``Connection``.

        Commits at the end, or rolls back on an exception, and hands what was added to the direct
        pass, if there is one. Inside of another transaction it is a savepoint. SQLite begins with
        BEGIN IMMEDIATE.
        """
        return Transaction(connection, self._notes, self._claimer)

    def _note(self, claimer: Claimer, handle: object, rows: list[Row], count: int) -> None:
        """Remember what to claim when the transaction commits.

        If some were there already, nothing tells which: a relay may be sending those.
        """
        if count < len(rows):
            claimer.direct.left(count, "duplicates")
            return
        ids = [row.id for row in rows]
        if not (self._notes.add(handle, ids) or self._sessions.add(handle, ids)):
            claimer.direct.left(count, "no transaction")

    def begin(self, handle: object, event_id: str | UUID) -> Progress:
        """Take the work on an event of this outbox: ``"open"``, or ``"completed"`` if it is done.

        Until the transaction ends, whoever else begins the event waits for its outcome. An event
        that is not there is `UnknownEvent`. ``handle`` is what ``add`` takes.
        """
        talk = partial(self._completions.begin, as_event_id(event_id))
        progress: Progress = run_on(handle, talk, called="begin")
        return progress

    def complete(self, handle: object, event_id: str | UUID) -> None:
        """Mark the event, which was begun, as completed, if the transaction commits."""
        talk = partial(self._completions.complete, as_event_id(event_id))
        run_on(handle, talk, called="complete")

    async def begin_async(self, handle: object, event_id: str | UUID) -> Progress:
        """As ``begin``, on a handle of ``add_async``."""
        talk = partial(self._completions.begin, as_event_id(event_id))
        progress: Progress = await run_on_async(handle, talk, called="begin_async")
        return progress

    async def complete_async(self, handle: object, event_id: str | UUID) -> None:
        """As ``complete``, on a handle of ``add_async``."""
        talk = partial(self._completions.complete, as_event_id(event_id))
        await run_on_async(handle, talk, called="complete_async")

    def _rows(self, events: tuple[Event, ...]) -> list[Row]:
        if not events:
            raise InvalidEvent("no event was given: pass at least one after the connection")
        if len(events) > MAX_EVENTS_PER_CALL:
            raise InvalidEvent(
                f"{len(events):,} events were given, one call takes at most "
                f"{MAX_EVENTS_PER_CALL:,}: add them in several calls of the same transaction"
            )
        if self._tracing is not None:
            events = self._tracing.created(events)
        return [as_row(event, self.max_payload_bytes) for event in events]

    def _add(self, rows: list[Row], dialect: Dialect, style: Style) -> Conversation[int]:
        """Returns how many of the events are new."""
        if dialect == "mysql":
            return self._mysql.conversation(rows, style, serialize_keys=self.serialize_keys)
        return self._add_at_once(rows, dialect, style)

    def _add_at_once(self, rows: list[Row], dialect: Dialect, style: Style) -> Conversation[int]:
        if self.serialize_keys:
            keys = dict.fromkeys((row.aggregate_type, row.aggregate_id) for row in rows)
            text = statement("lock_keys", len(keys), dialect, style, self.names)
            if text is not None:
                yield text, tuple(chain.from_iterable(keys))
        query, values = insertion(rows)
        text = statement(query, len(rows), dialect, style, self.names)
        assert text is not None
        return (yield text, values)


def as_row(event: Event, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> Row:
    """The event as it is stored; `InvalidEvent` if it cannot be."""
    if not isinstance(event, Event):
        remedy = "unpack it with *" if isinstance(event, (list, tuple)) else "wrap it in Event(…)"
        raise InvalidEvent(f"a {type(event).__name__} was given where an Event belongs: {remedy}")
    payload, content_type = event.encoded()
    if len(payload) > max_payload_bytes:
        raise InvalidEvent(
            f"the payload of {event.aggregate_type} {event.aggregate_id} {event.event_type} has "
            f"{len(payload):,} bytes, the limit is {max_payload_bytes:,}: "
            "store it elsewhere and send a reference to it"
        )
    return Row(
        str(event.id),
        event.aggregate_type,
        str(event.aggregate_id),
        event.event_type,
        payload,
        content_type,
        as_json(event.headers) if event.headers else EMPTY_HEADERS,
        event.idempotency_key,
        None if event.deliver_at is None else as_utc(event.deliver_at),
    )


def as_json(headers: object) -> str:
    return json.dumps(headers, ensure_ascii=False, separators=(",", ":"))


def as_utc(moment: datetime) -> str:
    """Such as 2026-11-15T20:33:45.123456Z: sorts as text and casts to a timestamp."""
    try:
        return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    except OverflowError:
        raise InvalidEvent(f"deliver_at {moment} is out of range: use an earlier one") from None


def _added(events: tuple[Event, ...], count: int) -> Added:
    ids = [event.id for event in events]
    return Added(ids, len(events) - count)  # type: ignore[arg-type]
