"""The outbox in an SQLite file: its log and journal as they grow, and how they are written away."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from commitrelay.errors import ConfigError
from commitrelay.log import JournalBatch, LaneFilter, LaneRecord, Position
from commitrelay.store import EventRecord, SettledPage, Verdict
from commitrelay.stores.sqlite.admin import SqliteAdmin, from_ms, from_text
from commitrelay.stores.status import COUNT_CAP, settled_page

_ABOUT_EVENTS = ("delete_attempts", "delete_edits", "delete_audit_events", "delete_completions")


class SqliteLog(SqliteAdmin):
    """LogStore on one SQLite file."""

    # --- purge ----------------------------------------------------------------------------

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage:
        values = {
            "before_ms": self._before_ms(older_than_seconds),
            "after_seq": after_seq,
            "limit": limit,
        }
        rows = await self._database.read(lambda db: self._all(db, "settled", **values))
        return settled_page(rows, after_seq, limit)

    async def delete_settled(self, seqs: Sequence[int]) -> int:
        return await self._database.write(lambda db: self._delete_settled(db, seqs))

    def _delete_settled(self, db: sqlite3.Connection, seqs: Sequence[int]) -> int:
        gone = self._all(db, "delete_settled", seqs=json.dumps([*seqs]))
        about = {
            "seqs": json.dumps([seq for seq, _ in gone]),
            "ids": json.dumps([event_id for _, event_id in gone]),
        }
        for step in _ABOUT_EVENTS if gone else ():
            self._run(db, step, **about)
        return len(gone)

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int:
        values = {"before_ms": self._before_ms(older_than_seconds), "limit": limit}
        return await self._database.write(lambda db: self._run(db, "trim_journal", **values))

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int:
        return 0  # there are none

    async def count_act(self, audit: int, events: int) -> None:
        await self._database.write(
            lambda db: self._run(db, "count_act", audit=audit, events=events)
        )

    async def read_events(
        self, seqs: Sequence[int], *, payloads: bool = True
    ) -> Sequence[EventRecord]:
        values = {"seqs": json.dumps([*seqs]), "payloads": payloads}
        return await self._database.read(
            lambda db: self._records(db, self._all(db, "read_events", **values))
        )

    # --- tail -----------------------------------------------------------------------------

    async def end_of_log(self) -> Position:
        return Position(*await self._database.read(lambda db: self._one(db, "end_of_log")))

    async def added(self, *, after_seq: int, limit: int) -> Sequence[EventRecord]:
        values = {"after_seq": after_seq, "limit": limit}
        return await self._database.read(
            lambda db: self._records(db, self._all(db, "added", **values))
        )

    async def batches(self, *, after: int, limit: int) -> Sequence[JournalBatch]:
        rows = await self._database.read(
            lambda db: self._all(db, "batches", after=after, limit=limit)
        )
        return [_batch(row) for row in rows]

    # --- lanes ----------------------------------------------------------------------------

    async def lanes(self) -> Sequence[LaneRecord]:
        values = {"cap": COUNT_CAP, "now_ms": self._database.now_ms()}
        rows = await self._database.read(lambda db: self._all(db, "all_lanes", **values))
        return [_lane(row) for row in rows]

    async def set_filter(self, name: str, *, seen: LaneFilter, new: LaneFilter) -> bool:
        values = {
            "name": name,
            "aggregate_types": _json(new.aggregate_types),
            "event_types": _json(new.event_types),
        }

        def change(db: sqlite3.Connection) -> bool:
            row = self._one(db, "lane_filter", name=name)
            if row is None or not LaneFilter(*map(_names, row)).takes_the_same_as(seen):
                return False
            return self._run(db, "set_filter", **values) > 0

        return await self._database.write(change)

    async def close_lane(self, name: str) -> None:
        if not await self._database.write(lambda db: self._run(db, "close_lane", name=name)):
            raise ConfigError(f"there is no lane {name!r}: see commitrelay lanes")

    async def empty_lane(self, name: str, limit: int) -> int:
        return await self._database.write(
            lambda db: self._run(db, "empty_lane", name=name, limit=limit)
        )

    async def remove_lane(self, name: str) -> bool:
        return await self._database.write(lambda db: self._remove_lane(db, name))

    def _remove_lane(self, db: sqlite3.Connection, name: str) -> bool:
        self._run(db, "remove_leases", name=name)
        return self._run(db, "remove_lane", name=name) > 0

    # --- doctor ---------------------------------------------------------------------------

    async def facts(self, query: str, values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        return await self._database.ask(lambda db: self._facts(db, query, values))

    def _facts(
        self, db: sqlite3.Connection, query: str, values: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        known = {"prefix": self._names.prefix, "now_ms": self._database.now_ms(), **values}
        cursor = db.execute(self._sql[query], known)
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]

    def _before_ms(self, older_than_seconds: float) -> int:
        return self._database.now_ms() - ceil(older_than_seconds * 1000)


def _batch(row: tuple[Any, ...]) -> JournalBatch:
    number, lane, verdict, at, relay, seqs = row
    moment = from_ms(at)
    assert moment is not None
    return JournalBatch(
        number, lane, Verdict(verdict).name.lower(), moment, relay, json.loads(seqs)
    )


def _lane(row: tuple[Any, ...]) -> LaneRecord:
    name, paused, aggregate_types, event_types, created_at, waiting, relays = row
    return LaneRecord(
        name=name,
        paused=bool(paused),
        aggregate_types=_names(aggregate_types),
        event_types=_names(event_types),
        created_at=from_text(created_at),
        waiting=waiting,
        relays=relays,
    )


def _names(text: str | None) -> list[str] | None:
    return None if text is None else list(json.loads(text))


def _json(names: Sequence[str] | None) -> str | None:
    return None if names is None else json.dumps([*names])
