"""The outbox in MySQL or MariaDB: lanes, and what operators read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from commitrelay.errors import ConfigError, SchemaMissing, StoreError
from commitrelay.sql import Names, queries
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
from commitrelay.stores.migration import latest
from commitrelay.stores.moments import SLACK, floor_of_time
from commitrelay.stores.mysql.link import Link, Result
from commitrelay.stores.mysql.schema import initialise, version
from commitrelay.stores.status import COUNT_CAP, counts_by_name, list_query
from commitrelay.stores.text import readable_headers
from commitrelay.urls import redact


class MysqlAdmin:
    """AdminStore on MySQL or MariaDB."""

    def __init__(self, url: str, *, names: Names | None = None) -> None:
        self._url = url
        self._names = names or Names()
        self._sql = queries("mysql", self._names)
        self._reads = Link(url)
        self._links = [self._reads]

    async def open(self) -> None:
        found = await version(self._reads, self._names)
        wanted = latest("mysql")
        if found < wanted:
            state = "has no outbox" if found == 0 else f"has an outbox of version {found}"
            where = redact(self._url)
            raise SchemaMissing(
                f"{where} {state}, version {wanted} is needed: "
                f"run commitrelay init --database {where}"
            )

    async def close(self) -> None:
        for link in self._links:
            await link.close()

    async def initialise(self) -> Sequence[str]:
        return await initialise(self._reads, self._names, redact(self._url))

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
        try:
            await self._ask("add_lane", values)
        except StoreError:
            if not (await self._ask("find_lane", values)).rows:
                raise
            raise ConfigError(f"there is a lane {name!r} already: choose another name") from None
        return await self._lane(name)

    async def _lane(self, name: str) -> Lane:
        rows = (await self._ask("find_lane", {"name": name})).rows
        if not rows:
            raise ConfigError(f"there is no lane {name!r} in this outbox: add it first")
        return Lane(rows[0][0], rows[0][1], bool(rows[0][2]))

    async def set_paused(self, lane: str, paused: bool) -> None:
        await self._lane(lane)
        await self._ask("set_paused", {"name": lane, "paused": paused})

    # --- reads ----------------------------------------------------------------------------

    async def status(self) -> Sequence[LaneStatus]:
        rows = (await self._ask("lane_status")).rows
        return [await self._lane_status(row) for row in rows]

    async def vitals(self) -> Vitals:
        blocked = {}
        for lane, name in (await self._ask("lanes")).rows:
            values = {"lane": lane, "cap": BLOCKED_CAP}
            blocked[name] = (await self._ask("blocked_keys_count", values)).rows[0][0]
        tables = {noun: self._names.bare(noun) for noun in ("event", "queue")}
        named = {"schema": self._names.schema, **tables}
        size = (await self._ask("table_bytes", named)).rows[0][0]
        return Vitals(blocked, int(size), {})

    async def _lane_status(self, row: tuple[Any, ...]) -> LaneStatus:
        lane, name, paused, oldest_seconds, last_minute, last_at, last_error = row
        counts = {}
        for state in State:
            values = {"lane": lane, "state": int(state), "cap": COUNT_CAP}
            counts[int(state)] = (await self._ask("count_state", values)).rows[0][0]
        relays = (await self._ask("lane_relays", {"lane": lane})).rows
        circuits = (await self._ask("lane_circuits", {"lane": lane})).rows
        has_waiting = counts[State.PENDING] or counts[State.RETRYING]
        return LaneStatus(
            lane=name,
            paused=bool(paused),
            counts=counts_by_name(counts),
            capped_at=COUNT_CAP,
            oldest_pending_seconds=max(0.0, float(oldest_seconds)) if has_waiting else None,
            published_last_minute=int(last_minute),
            last_published_at=_utc(last_at),
            last_error=last_error,
            relays={
                relay: RelayStatus(buckets, float(expires)) for relay, buckets, expires in relays
            },
            open_circuits={
                relay: OpenCircuit(float(seconds), why) for relay, seconds, why in circuits
            },
        )

    async def list_events(
        self, where: EventFilter, *, before_seq: int | None, limit: int, above_seq: int = 0
    ) -> Sequence[EventRecord]:
        statement, values = list_query(where, self._sql)
        values |= {"before_seq": 2**62 if before_seq is None else before_seq, "limit": limit}
        values |= await self._filter(where)
        values["above_seq"] = max(above_seq, values["above_seq"])
        return await self._records((await self._reads.ask(statement, values)).rows)

    async def _filter(self, where: EventFilter) -> dict[str, Any]:
        return {
            "lane": None if where.lane is None else (await self._lane(where.lane)).id,
            "aggregate_type": where.aggregate_type,
            "aggregate_id": where.aggregate_id,
            "event_type": where.event_type,
            "error": where.error,
            "since": None if where.since is None else _literal(where.since),
            "until": None if where.until is None else _literal(where.until),
            "above_seq": 0 if where.since is None else await self._floor(where.since),
        }

    async def _floor(self, since: datetime) -> int:
        """The seq up to which all events were added before a time."""
        ((smallest, largest),) = (await self._ask("log_ends")).rows
        if smallest is None:
            return 0
        search = floor_of_time(smallest, largest)
        try:
            seq = next(search)
            while True:
                values = {"seq": seq, "before": _literal(since - SLACK)}
                rows = (await self._ask("is_older", values)).rows
                seq = search.send(bool(rows and rows[0][0]))
        except StopIteration as found:
            return int(found.value)

    async def show_event(self, event_id: str) -> EventRecord | None:
        try:
            UUID(event_id)
        except ValueError:
            return None
        rows = (await self._ask("show_event", {"id": event_id})).rows
        records = await self._records(rows)
        return records[0] if records else None

    async def _records(self, rows: Sequence[Any]) -> list[EventRecord]:
        """Event rows, joined with their deliveries."""
        values = {"seqs": [row[0] for row in rows]}
        completed = dict((await self._ask("completed_rows", values)).rows)
        deliveries: dict[int, dict[str, Delivery]] = defaultdict(dict)
        journal = (await self._ask("journal_rows", values)).rows
        for seq, lane, verdict, at, relay in journal:
            published_at = _utc(at) if verdict == Verdict.PUBLISHED else None
            status = "completed" if seq in completed else Verdict(verdict).name.lower()
            deliveries[seq][lane] = Delivery(lane, status, 0, None, None, published_at, relay, None)
        queued = (await self._ask("queue_rows", values)).rows
        for seq, lane, state, attempts, due_at, error, waits_for in queued:
            status = State(state).name.lower()
            deliveries[seq][lane] = Delivery(
                lane, status, attempts, _utc(due_at), error, None, None, waits_for
            )
        return [
            _record(row, tuple(deliveries[row[0]].values()), _utc(completed.get(row[0])))
            for row in rows
        ]

    async def _ask(self, query: str, values: Mapping[str, Any] | None = None) -> Result:
        return await self._reads.ask(self._sql[query], values)


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
    return None if moment is None else moment.replace(tzinfo=UTC)


def _literal(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
