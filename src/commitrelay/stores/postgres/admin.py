"""The outbox in PostgreSQL: schema, lanes, and what operators read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncClientCursor, AsyncConnection
from psycopg import sql as composed

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
from commitrelay.stores.postgres.link import READING_SETTINGS, Link, checked_url
from commitrelay.stores.status import COUNT_CAP, counts_by_name, list_query
from commitrelay.stores.text import readable_headers
from commitrelay.urls import redact


class Result(NamedTuple):
    """What one statement of several answered."""

    rows: list[Any]
    changed: int


class PostgresAdmin:
    """AdminStore on PostgreSQL."""

    def __init__(
        self, url: str, *, names: Names | None = None, prepare_threshold: int | None = 0
    ) -> None:
        self._url = checked_url(url)
        self._names = names or Names()
        self._sql = queries("postgres", self._names)
        self._prepare_threshold = prepare_threshold
        keeps_session = prepare_threshold is not None
        self._reads = Link(
            self._url,
            prepare_threshold=None,
            settings=READING_SETTINGS if keeps_session else None,
        )
        self._links = [self._reads]

    async def open(self) -> None:
        async with self._reads.use() as connection:
            version = await self._version(connection)
        wanted = latest("postgres")
        if version < wanted:
            state = "has no outbox" if version == 0 else f"has an outbox of version {version}"
            where = redact(self._url)
            raise SchemaMissing(
                f"{where} {state}, version {wanted} is needed: "
                f"run commitrelay init --database {where}"
            )

    async def close(self) -> None:
        for link in self._links:
            await link.close()

    # --- schema ---------------------------------------------------------------------------

    async def initialise(self) -> Sequence[str]:
        async with self._reads.use() as connection, connection.transaction():
            await connection.execute(self._sql["lock_schema"], {"outbox": self._names.key})
            await self._create_schema(connection)
            version = await self._version(connection)
            pending = [step for step in migrations("postgres") if step.number > version]
            fresh = [read("postgres", "schema.sql")]
            for script in fresh if version == 0 else [step.sql for step in pending]:
                await connection.execute(composed.SQL(self._names.fill(script)))
            for step in pending:
                values = {"number": step.number, "name": step.name}
                await connection.execute(self._sql["record_migration"], values)
        return [step.name for step in pending]

    async def _create_schema(self, connection: AsyncConnection[Any]) -> None:
        schema = self._names.schema
        if schema is None:
            return
        row = await self._one(connection, "schema_exists", {"schema": schema})
        if not row[0]:
            statement = composed.SQL(self._sql["create_schema"])
            await connection.execute(statement.format(schema=composed.Identifier(schema)))

    async def _version(self, connection: AsyncConnection[Any]) -> int:
        exists = await self._one(connection, "migration_table_exists")
        if not exists[0]:
            return 0
        row = await self._one(connection, "schema_version")
        return int(row[0])

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
            "aggregate_types": None if aggregate_types is None else [*aggregate_types],
            "event_types": None if event_types is None else [*event_types],
        }
        async with self._reads.use() as connection:
            row = await self._one(connection, "add_lane", values)
        if row is None:
            raise ConfigError(f"there is a lane {name!r} already: choose another name")
        return Lane(*row)

    async def set_paused(self, lane: str, paused: bool) -> None:
        async with self._reads.use() as connection:
            changed = await self._run(connection, "set_paused", {"name": lane, "paused": paused})
        if not changed:
            raise ConfigError(f"there is no lane {lane!r} in this outbox: add it first")

    # --- reads ----------------------------------------------------------------------------

    async def status(self) -> Sequence[LaneStatus]:
        async with self._reads.use() as connection:
            rows = await self._all(connection, "lane_status", {"cap": COUNT_CAP})
            return [await self._lane_status(connection, row) for row in rows]

    async def vitals(self) -> Vitals:
        async with self._reads.use() as connection:
            blocked = await self._all(connection, "blocked_keys_count", {"cap": BLOCKED_CAP})
            size = await self._one(connection, "table_bytes")
            slots = await self._all(connection, "slot_lag")
        return Vitals(dict(blocked), size[0], dict(slots))

    async def _lane_status(
        self, connection: AsyncConnection[Any], row: tuple[Any, ...]
    ) -> LaneStatus:
        lane, name, paused, pending, oldest_seconds, last_minute, last_at, last_error = row
        values = {"lane": lane, "cap": COUNT_CAP}
        counted = dict(await self._all(connection, "lane_counts", values))
        relays = await self._all(connection, "lane_relays", values)
        circuits = await self._all(connection, "lane_circuits", values)
        return LaneStatus(
            lane=name,
            paused=paused,
            counts=counts_by_name({**counted, State.PENDING: pending}),
            capped_at=COUNT_CAP,
            oldest_pending_seconds=None if oldest_seconds is None else max(0.0, oldest_seconds),
            published_last_minute=last_minute,
            last_published_at=_utc(last_at),
            last_error=last_error,
            relays={relay: RelayStatus(buckets, expires) for relay, buckets, expires in relays},
            open_circuits={relay: OpenCircuit(seconds, why) for relay, seconds, why in circuits},
        )

    async def list_events(
        self, where: EventFilter, *, before_seq: int | None, limit: int, above_seq: int = 0
    ) -> Sequence[EventRecord]:
        statement, values = list_query(where, self._sql)
        values |= {"before_seq": 2**62 if before_seq is None else before_seq, "limit": limit}
        async with self._reads.use() as connection:
            values |= await self._filter(connection, where)
            values["above_seq"] = max(above_seq, values["above_seq"])
            cursor = await connection.execute(statement, values)
            return await self._records(connection, await cursor.fetchall())

    async def _filter(self, connection: AsyncConnection[Any], where: EventFilter) -> dict[str, Any]:
        lane = None if where.lane is None else await self._lane_row(connection, where.lane)
        floor = 0 if where.since is None else await self._floor(connection, where.since)
        return {
            "lane": None if lane is None else lane[0],
            "aggregate_type": where.aggregate_type,
            "aggregate_id": where.aggregate_id,
            "event_type": where.event_type,
            "error": where.error,
            "since": where.since,
            "until": where.until,
            "above_seq": floor,
        }

    async def _lane_row(self, connection: AsyncConnection[Any], name: str) -> tuple[int, str, bool]:
        row: tuple[int, str, bool] | None = await self._one(connection, "find_lane", {"name": name})
        if row is None:
            raise ConfigError(f"there is no lane {name!r}: see commitrelay status")
        return row

    async def _floor(self, connection: AsyncConnection[Any], since: datetime) -> int:
        """The seq up to which all events were added before a time."""
        smallest, largest = await self._one(connection, "log_ends")
        if smallest is None:
            return 0
        search = floor_of_time(smallest, largest)
        try:
            seq = next(search)
            while True:
                values = {"seq": seq, "before": since - SLACK}
                row = await self._one(connection, "is_older", values)
                seq = search.send(row is not None and row[0])
        except StopIteration as found:
            return int(found.value)

    async def show_event(self, event_id: str) -> EventRecord | None:
        try:
            UUID(event_id)
        except ValueError:
            return None
        async with self._reads.use() as connection:
            rows = await self._all(connection, "show_event", {"id": event_id})
            records = await self._records(connection, rows)
        return records[0] if records else None

    async def _records(
        self, connection: AsyncConnection[Any], rows: Sequence[Any]
    ) -> list[EventRecord]:
        """Event rows, joined with their deliveries."""
        values = {"seqs": [row[0] for row in rows]}
        completed = dict(await self._all(connection, "completed_rows", values))
        deliveries: dict[int, dict[str, Delivery]] = defaultdict(dict)
        for seq, lane, verdict, at, relay in await self._all(connection, "journal_rows", values):
            published_at = _utc(at) if verdict == Verdict.PUBLISHED else None
            status = "completed" if seq in completed else Verdict(verdict).name.lower()
            deliveries[seq][lane] = Delivery(lane, status, 0, None, None, published_at, relay, None)
        for seq, lane, state, attempts, due_at, error, waits_for in await self._all(
            connection, "queue_rows", values
        ):
            status = State(state).name.lower()
            deliveries[seq][lane] = Delivery(
                lane, status, attempts, _utc(due_at), error, None, None, waits_for
            )
        return [
            _record(row, tuple(deliveries[row[0]].values()), _utc(completed.get(row[0])))
            for row in rows
        ]

    # --- statements -----------------------------------------------------------------------

    async def _run(
        self, connection: AsyncConnection[Any], query: str, values: dict[str, Any] | None = None
    ) -> int:
        return (await connection.execute(self._sql[query], values)).rowcount

    async def _all(
        self, connection: AsyncConnection[Any], query: str, values: dict[str, Any] | None = None
    ) -> list[Any]:
        return await (await connection.execute(self._sql[query], values)).fetchall()

    async def _in_one_message(
        self, connection: AsyncConnection[Any], steps: Mapping[str, dict[str, Any]]
    ) -> dict[str, Result]:
        """Several statements as one transaction, sent as one message of the simple protocol.

        The server runs it when it has all of it, to the end: a process that is frozen in the
        middle of sending holds no lock, as it would between the messages of a pipeline, where no
        time-out of the server's applies.
        """
        async with AsyncClientCursor(connection) as cursor:
            texts = [cursor.mogrify(self._sql[step], values) for step, values in steps.items()]
            await cursor.execute(";\n".join(texts), prepare=False)
            results: dict[str, Result] = {}
            for step in steps:
                rows = await cursor.fetchall() if cursor.description is not None else []
                results[step] = Result(rows, cursor.rowcount)
                cursor.nextset()
        return results

    async def _one(
        self, connection: AsyncConnection[Any], query: str, values: dict[str, Any] | None = None
    ) -> Any:
        return await (await connection.execute(self._sql[query], values)).fetchone()


def _record(
    row: tuple[Any, ...], deliveries: Sequence[Delivery], completed_at: datetime | None
) -> EventRecord:
    *values, created_at, deliver_at, payload = row
    seq, event_id, aggregate_type, aggregate_id, event_type, content_type, headers, key = values
    created_at = _utc(created_at)
    assert created_at is not None
    return EventRecord(
        seq=seq,
        id=event_id,
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        event_type=event_type,
        content_type=content_type,
        headers=readable_headers(headers),
        idempotency_key=key,
        created_at=created_at,
        deliver_at=_utc(deliver_at),
        payload=payload,
        deliveries=deliveries,
        completed_at=completed_at,
    )


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC)
