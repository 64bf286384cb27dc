"""The outbox in MySQL or MariaDB: its log and journal, and how they are written away."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from commitrelay.log import JournalBatch, LaneFilter, LaneRecord, Position
from commitrelay.store import EventRecord, SettledPage, Verdict
from commitrelay.stores.mysql.admin import MysqlAdmin
from commitrelay.stores.mysql.link import asked
from commitrelay.stores.status import COUNT_CAP, settled_page

DELETE_STEPS = (
    "lock_log",
    "delete_completions",
    "delete_attempts",
    "delete_edits",
    "delete_audit_events",
    "delete_settled",
)


class MysqlLog(MysqlAdmin):
    """LogStore on MySQL or MariaDB."""

    # --- purge ----------------------------------------------------------------------------

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage:
        values = {"older_than_seconds": older_than_seconds, "after_seq": after_seq, "limit": limit}
        return settled_page((await self._ask("settled", values)).rows, after_seq, limit)

    async def delete_settled(self, seqs: Sequence[int]) -> int:
        steps = [(self._sql[name], {"seqs": seqs}) for name in DELETE_STEPS]
        return (await self._reads.transact(steps))[-1].changed if seqs else 0

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int:
        values = {"older_than_seconds": older_than_seconds, "limit": limit}
        batches = [number for (number,) in (await self._ask("find_empty_batches", values)).rows]
        if batches:
            await self._reads.transact([(self._sql["trim_journal"], {"ids": batches})])
        return len(batches)

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int:
        return 0  # there are none

    async def count_act(self, audit: int, events: int) -> None:
        await self._ask("count_act", {"audit": audit, "events": events})

    async def read_events(
        self, seqs: Sequence[int], *, payloads: bool = True
    ) -> Sequence[EventRecord]:
        values = {"seqs": seqs, "payloads": payloads}
        return await self._records((await self._ask("read_events", values)).rows)

    # --- tail -----------------------------------------------------------------------------

    async def end_of_log(self) -> Position:
        ((seq, batch),) = (await self._ask("end_of_log")).rows
        return Position(int(seq), int(batch))

    async def added(self, *, after_seq: int, limit: int) -> Sequence[EventRecord]:
        values = {"after_seq": after_seq, "limit": limit}
        return await self._records((await self._ask("added", values)).rows)

    async def batches(self, *, after: int, limit: int) -> Sequence[JournalBatch]:
        rows = (await self._ask("batches", {"after": after, "limit": limit})).rows
        return [
            JournalBatch(
                id=number,
                lane=lane,
                status=Verdict(verdict).name.lower(),
                at=at.replace(tzinfo=UTC),
                relay=relay,
                seqs=[int(seq) for seq in seqs.split(",")],
            )
            for number, lane, verdict, at, relay, seqs in rows
        ]

    # --- lanes ----------------------------------------------------------------------------

    async def lanes(self) -> Sequence[LaneRecord]:
        return [await self._lane_record(*row) for row in (await self._ask("all_lanes")).rows]

    async def _lane_record(self, lane: int, *row: Any) -> LaneRecord:
        name, paused, aggregate_types, event_types, created_at, relays = row
        counted = await self._ask("count_lane", {"lane": lane, "cap": COUNT_CAP})
        return LaneRecord(
            name=name,
            paused=bool(paused),
            aggregate_types=None if aggregate_types is None else json.loads(aggregate_types),
            event_types=None if event_types is None else json.loads(event_types),
            created_at=created_at.replace(tzinfo=UTC),
            waiting=counted.rows[0][0],
            relays=relays,
        )

    async def set_filter(self, name: str, *, seen: LaneFilter, new: LaneFilter) -> bool:
        values = {
            "name": name,
            "aggregate_types": _json(new.aggregate_types),
            "event_types": _json(new.event_types),
            "seen_aggregate_types": _json(seen.aggregate_types),
            "seen_event_types": _json(seen.event_types),
        }
        return (await self._ask("set_filter", values)).changed > 0

    async def close_lane(self, name: str) -> None:
        await self._lane(name)
        await self._ask("close_lane", {"name": name})

    async def empty_lane(self, name: str, limit: int) -> int:
        found = (await self._ask("find_in_closed_lane", {"name": name, "limit": limit})).rows
        if not found:
            return 0
        values = {"lane": found[0][1], "seqs": [seq for seq, _ in found]}
        return (await self._reads.transact([(self._sql["empty_lane"], values)]))[0].changed

    async def remove_lane(self, name: str) -> bool:
        steps = [(self._sql[step], {"name": name}) for step in ("remove_leases", "remove_lane")]
        return (await self._reads.transact(steps))[-1].changed > 0

    # --- doctor ---------------------------------------------------------------------------

    async def facts(self, query: str, values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        known = {"prefix": self._names.prefix, "schema": self._names.schema, **values}
        async with self._reads.use() as connection:
            return await asked(connection, self._sql[query], known)


def _json(names: Sequence[str] | None) -> str | None:
    return None if names is None else json.dumps([*names])
