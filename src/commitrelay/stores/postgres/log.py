"""The outbox in PostgreSQL: its log and journal as they grow, and how they are written away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import dict_row

from commitrelay.errors import ConfigError
from commitrelay.log import JournalBatch, LaneFilter, LaneRecord, Position
from commitrelay.store import EventRecord, SettledPage, Verdict
from commitrelay.stores.postgres.admin import PostgresAdmin
from commitrelay.stores.postgres.partitions import Partitions
from commitrelay.stores.status import COUNT_CAP, settled_page


class PostgresLog(PostgresAdmin):
    """LogStore on PostgreSQL."""

    # --- purge ----------------------------------------------------------------------------

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage:
        values = {"older_than_seconds": older_than_seconds, "after_seq": after_seq, "limit": limit}
        async with self._reads.use() as connection:
            rows = await self._all(connection, "settled", values)
        return settled_page(rows, after_seq, limit)

    async def delete_settled(self, seqs: Sequence[int]) -> int:
        if not seqs:
            return 0
        values = {"seqs": [*seqs]}
        async with self._reads.use() as connection:
            done = await self._in_one_message(
                connection, {"lock_log": values, "delete_settled": values}
            )
        return int(done["delete_settled"].rows[0][0])

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int:
        values = {"older_than_seconds": older_than_seconds, "limit": limit}
        async with self._reads.use() as connection:
            return await self._run(connection, "trim_journal", values)

    async def partition_log(self) -> bool:
        """Give a new outbox a log in daily partitions; False if it has one."""
        partitions = Partitions(self._sql, self._names)
        async with self._reads.use() as connection:
            made = await partitions.create(connection)
            await partitions.make_ahead(connection, with_today=made)
        return made

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int:
        partitions = Partitions(self._sql, self._names)
        async with self._reads.use() as connection:
            if not await partitions.exist(connection):
                return 0
            await partitions.make_ahead(connection)
            if older_than_seconds is None:
                return 0
            return await partitions.drop_settled(connection, older_than_seconds)

    async def count_act(self, audit: int, events: int) -> None:
        async with self._reads.use() as connection:
            await self._run(connection, "count_act", {"audit": audit, "events": events})

    async def read_events(
        self, seqs: Sequence[int], *, payloads: bool = True
    ) -> Sequence[EventRecord]:
        values = {"seqs": [*seqs], "payloads": payloads}
        async with self._reads.use() as connection:
            rows = await self._all(connection, "read_events", values)
            return await self._records(connection, rows)

    # --- tail -----------------------------------------------------------------------------

    async def end_of_log(self) -> Position:
        async with self._reads.use() as connection:
            return Position(*await self._one(connection, "end_of_log"))

    async def added(self, *, after_seq: int, limit: int) -> Sequence[EventRecord]:
        async with self._reads.use() as connection:
            rows = await self._all(connection, "added", {"after_seq": after_seq, "limit": limit})
            return await self._records(connection, rows)

    async def batches(self, *, after: int, limit: int) -> Sequence[JournalBatch]:
        async with self._reads.use() as connection:
            rows = await self._all(connection, "batches", {"after": after, "limit": limit})
        return [
            JournalBatch(number, lane, Verdict(verdict).name.lower(), at, relay, seqs)
            for number, lane, verdict, at, relay, seqs in rows
        ]

    # --- lanes ----------------------------------------------------------------------------

    async def lanes(self) -> Sequence[LaneRecord]:
        async with self._reads.use() as connection:
            return [LaneRecord(*row) for row in await self._all(connection, "all_lanes", _CAPPED)]

    async def set_filter(self, name: str, *, seen: LaneFilter, new: LaneFilter) -> bool:
        values = {
            "name": name,
            "aggregate_types": _array(new.aggregate_types),
            "event_types": _array(new.event_types),
            "seen_aggregate_types": _array(seen.aggregate_types),
            "seen_event_types": _array(seen.event_types),
        }
        async with self._reads.use() as connection:
            return await self._run(connection, "set_filter", values) > 0

    async def close_lane(self, name: str) -> None:
        async with self._reads.use() as connection:
            if not await self._run(connection, "close_lane", {"name": name}):
                raise ConfigError(f"there is no lane {name!r}: see commitrelay lanes")

    async def empty_lane(self, name: str, limit: int) -> int:
        async with self._reads.use() as connection:
            return await self._run(connection, "empty_lane", {"name": name, "limit": limit})

    async def remove_lane(self, name: str) -> bool:
        values = {"name": name}
        async with self._reads.use() as connection:
            done = await self._in_one_message(
                connection, {"remove_leases": values, "remove_lane": values}
            )
        return done["remove_lane"].changed > 0

    # --- doctor ---------------------------------------------------------------------------

    async def facts(self, query: str, values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        async with (
            self._reads.use() as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            await cursor.execute(self._sql[query], {"prefix": self._names.prefix, **values})
            return await cursor.fetchall()


_CAPPED = {"cap": COUNT_CAP}


def _array(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else [*names]
