"""The outbox in an SQLite file: schema, lanes, and what operators read."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from commitrelay.errors import ConfigError, SchemaMissing
from commitrelay.sql import Names, queries, read
from commitrelay.store import (
    BLOCKED_CAP,
    Delivery,
    EventFilter,
    EventRecord,
    Lane,
    LaneStatus,
    OpenCircuit,
    RelayStatus,
    State,
    Verdict,
    Vitals,
)
from commitrelay.stores.migration import latest, migrations
from commitrelay.stores.moments import SLACK, floor_of_time
from commitrelay.stores.sqlite.database import Database, Run
from commitrelay.stores.status import COUNT_CAP, counts_by_name, list_query
from commitrelay.stores.text import readable_headers


class SqliteAdmin:
    """AdminStore on one SQLite file."""

    def __init__(
        self,
        path_or_url: str,
        *,
        names: Names | None = None,
        run: Run | None = None,
        clock: Callable[[], float] = time.time,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        names = names or Names()
        if names.schema is not None:
            raise ConfigError(f"SQLite has no schemas: leave {names.schema!r} out")
        self._names = names
        self._sql = queries("sqlite", names)
        self._database = Database(path_of(path_or_url), run=run, clock=clock, connection=connection)

    async def open(self) -> None:
        version = await self._database.read(self._version)
        wanted = latest("sqlite")
        if version < wanted:
            state = "has no outbox" if version == 0 else f"has an outbox of version {version}"
            raise SchemaMissing(
                f"SQLite database {self._database.path} {state}, version {wanted} is needed: "
                f"run commitrelay init --database sqlite:///{self._database.path}"
            )

    async def close(self) -> None:
        await self._database.close()

    # --- schema ---------------------------------------------------------------------------

    async def initialise(self) -> Sequence[str]:
        await self._database.create()
        return await self._database.write(self._initialise)

    def _initialise(self, db: sqlite3.Connection) -> Sequence[str]:
        version = self._version(db)
        pending = [step for step in migrations("sqlite") if step.number > version]
        scripts = [read("sqlite", "schema.sql")] if version == 0 else [step.sql for step in pending]
        for script in scripts:
            for statement in _statements(self._names.fill(script)):
                db.execute(statement)
        for step in pending:
            self._run(db, "record_migration", number=step.number, name=step.name)
        return [step.name for step in pending]

    def _version(self, db: sqlite3.Connection) -> int:
        if self._one(db, "table_exists", name=self._names.bare("migration")) is None:
            return 0
        row = self._one(db, "schema_version")
        return int(row[0]) if row else 0

    # --- lanes ----------------------------------------------------------------------------

    async def add_lane(
        self,
        name: str,
        *,
        aggregate_types: Sequence[str] | None = None,
        event_types: Sequence[str] | None = None,
    ) -> Lane:
        values = {
            "name": name,
            "aggregate_types": None if aggregate_types is None else json.dumps([*aggregate_types]),
            "event_types": None if event_types is None else json.dumps([*event_types]),
        }
        rows = await self._database.write(lambda db: self._all(db, "add_lane", **values))
        if not rows:
            raise ConfigError(f"there is a lane {name!r} already: choose another name")
        return Lane(rows[0][0], rows[0][1], bool(rows[0][2]))

    async def set_paused(self, lane: str, paused: bool) -> None:
        changed = await self._database.write(
            lambda db: self._run(db, "set_paused", name=lane, paused=int(paused))
        )
        if not changed:
            raise ConfigError(f"there is no lane {lane!r} in {self._database.path}: add it first")

    # --- reads ----------------------------------------------------------------------------

    async def status(self) -> Sequence[LaneStatus]:
        return await self._database.read(
            lambda db: [self._lane_status(db, *row) for row in self._all(db, "lanes")]
        )

    async def vitals(self) -> Vitals:
        return await self._database.read(self._vitals)

    def _vitals(self, db: sqlite3.Connection) -> Vitals:
        blocked = {
            name: self._value(db, "blocked_keys_count", lane=lane, cap=BLOCKED_CAP)
            for lane, name, _paused in self._all(db, "lanes")
        }
        return Vitals(blocked, self._value(db, "table_bytes"), {})

    def _lane_status(self, db: sqlite3.Connection, lane: int, name: str, paused: int) -> LaneStatus:
        now_ms = self._database.now_ms()
        values = {"lane": lane, "cap": COUNT_CAP, "now_ms": now_ms, "since_ms": now_ms - 60_000}
        oldest = self._value(db, "oldest_waiting", **values)
        return LaneStatus(
            lane=name,
            paused=bool(paused),
            counts=self._counts(db, values),
            capped_at=COUNT_CAP,
            oldest_pending_seconds=None if oldest is None else max(0.0, (now_ms - oldest) / 1000),
            published_last_minute=self._value(db, "published_since", **values),
            last_published_at=from_ms(self._value(db, "last_published", **values)),
            last_error=self._value(db, "last_error", **values),
            relays={
                relay: RelayStatus(len(json.loads(buckets)), (expires_at - now_ms) / 1000)
                for relay, buckets, expires_at in self._all(db, "relays", **values)
            },
            open_circuits={
                relay: OpenCircuit((now_ms - opened_at) / 1000, why)
                for relay, opened_at, why in self._all(db, "circuits", **values)
            },
        )

    def _counts(self, db: sqlite3.Connection, values: dict[str, Any]) -> dict[str, int]:
        counts = {int(State.PENDING): self._value(db, "count_pending", **values)}
        for query in ("count_due", "count_dead", "count_waiting"):
            counts.update(self._all(db, query, **values))
        return counts_by_name(counts)

    async def list_events(
        self, where: EventFilter, *, before_seq: int | None, limit: int, above_seq: int = 0
    ) -> Sequence[EventRecord]:
        page = {"before_seq": 2**62 if before_seq is None else before_seq, "limit": limit}
        return await self._database.read(lambda db: self._list(db, where, page, above_seq))

    def _list(
        self, db: sqlite3.Connection, where: EventFilter, page: dict[str, int], above_seq: int
    ) -> list[EventRecord]:
        statement, values = list_query(where, self._sql)
        values |= self._filter(db, where) | page
        values["above_seq"] = max(above_seq, values["above_seq"])
        return self._records(db, db.execute(statement, values).fetchall())

    def _filter(self, db: sqlite3.Connection, where: EventFilter) -> dict[str, Any]:
        return {
            "lane": None if where.lane is None else self._lane_row(db, where.lane)[0],
            "aggregate_type": where.aggregate_type,
            "aggregate_id": where.aggregate_id,
            "event_type": where.event_type,
            "error": where.error,
            "since_ms": None if where.since is None else where.since.timestamp() * 1000,
            "until_ms": None if where.until is None else where.until.timestamp() * 1000,
            "above_seq": 0 if where.since is None else self._floor(db, where.since),
        }

    def _lane_row(self, db: sqlite3.Connection, name: str) -> tuple[int, str, int]:
        row: tuple[int, str, int] | None = self._one(db, "find_lane", name=name)
        if row is None:
            raise ConfigError(f"there is no lane {name!r}: see commitrelay status")
        return row

    def _floor(self, db: sqlite3.Connection, since: datetime) -> int:
        """The seq up to which all events were added before a time."""
        smallest, largest = self._one(db, "log_ends")
        if smallest is None:
            return 0
        before_ms = (since - SLACK).timestamp() * 1000
        search = floor_of_time(smallest, largest)
        try:
            seq = next(search)
            while True:
                is_older = self._value(db, "is_older", seq=seq, before_ms=before_ms)
                seq = search.send(bool(is_older))
        except StopIteration as found:
            return int(found.value)

    async def show_event(self, event_id: str) -> EventRecord | None:
        records = await self._database.read(
            lambda db: self._records(db, self._all(db, "show_event", id=event_id))
        )
        return records[0] if records else None

    def _records(self, db: sqlite3.Connection, rows: list[Any]) -> list[EventRecord]:
        """Event rows, joined with their deliveries."""
        seqs = json.dumps([row[0] for row in rows])
        completed = dict(self._all(db, "completed_rows", seqs=seqs))
        deliveries: dict[int, dict[str, Delivery]] = defaultdict(dict)
        for seq, lane, verdict, at, relay in self._all(db, "journal_rows", seqs=seqs):
            published = from_ms(at) if verdict == Verdict.PUBLISHED else None
            status = "completed" if seq in completed else Verdict(verdict).name.lower()
            deliveries[seq][lane] = Delivery(lane, status, 0, None, None, published, relay, None)
        for seq, lane, state, attempts, due_at, error, waits_for in self._all(
            db, "queue_rows", seqs=seqs
        ):
            deliveries[seq][lane] = Delivery(
                lane,
                State(state).name.lower(),
                attempts,
                from_ms(due_at),
                error,
                None,
                None,
                waits_for,
            )
        return [
            _record(row, tuple(deliveries[row[0]].values()), completed.get(row[0])) for row in rows
        ]

    # --- statements -----------------------------------------------------------------------

    def _run(self, db: sqlite3.Connection, query: str, **values: Any) -> int:
        return db.execute(self._sql[query], values).rowcount

    def _all(self, db: sqlite3.Connection, query: str, **values: Any) -> list[Any]:
        return db.execute(self._sql[query], values).fetchall()

    def _one(self, db: sqlite3.Connection, query: str, **values: Any) -> Any:
        return db.execute(self._sql[query], values).fetchone()

    def _value(self, db: sqlite3.Connection, query: str, **values: Any) -> Any:
        row = self._one(db, query, **values)
        return None if row is None else row[0]


def path_of(path_or_url: str) -> str:
    """The file of `sqlite:///relative`, `sqlite:////absolute`, `sqlite://` or a plain path."""
    if not path_or_url.startswith("sqlite:"):
        return path_or_url
    if not path_or_url.startswith("sqlite://"):
        raise ConfigError(f"{path_or_url!r} is no SQLite URL: write sqlite:///path/to/file")
    host, slash, path = path_or_url.removeprefix("sqlite://").partition("/")
    if host:
        raise ConfigError(
            f"{path_or_url!r} names a host, but SQLite is a file: write sqlite:///{host}{slash}{path}"
        )
    return path or ":memory:"


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: executescript() would commit before running it."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _record(
    row: tuple[Any, ...], deliveries: Sequence[Delivery], completed_at: str | None
) -> EventRecord:
    seq, event_id, aggregate_type, aggregate_id, event_type, content_type, headers = row[:7]
    idempotency_key, created_at, deliver_at, payload = row[7:]
    return EventRecord(
        seq=seq,
        id=event_id,
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        event_type=event_type,
        content_type=content_type,
        headers=readable_headers(headers),
        idempotency_key=idempotency_key,
        created_at=from_text(created_at),
        deliver_at=None if deliver_at is None else from_text(deliver_at),
        payload=payload,
        deliveries=deliveries,
        completed_at=None if completed_at is None else from_text(completed_at),
    )


def from_ms(milliseconds: float | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def from_text(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
