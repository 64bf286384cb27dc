"""The outbox in PostgreSQL: what operators change, and what they read to decide on it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from commitrelay.operations import (
    WAITING_CAP,
    Act,
    AuditRow,
    Batch,
    BlockedKey,
    Story,
    Target,
    Version,
)
from commitrelay.store import EventFilter, Lane, State, Verdict
from commitrelay.stores.postgres.admin import PostgresAdmin
from commitrelay.stores.stories import audit_row, blocked_keys, first_seq, story

_STORY = ("attempts", "settlements", "edits", "acts", "stuck_behind", "holds")


class PostgresOperations(PostgresAdmin):
    """Operations on PostgreSQL."""

    # --- which events ---------------------------------------------------------------------

    async def find_targets(
        self,
        where: EventFilter,
        *,
        ids: Sequence[str] | None,
        states: Sequence[State],
        limit: int,
    ) -> Sequence[Target]:
        query = "find_targets" if ids is None else "find_targets_by_id"
        listed = ", ".join(str(int(state)) for state in states)
        statement = self._sql[query].replace("{states}", listed)
        async with self._reads.use() as connection:
            values = {**await self._filter(connection, where), "ids": ids, "limit": limit}
            rows = await (await connection.execute(statement, values)).fetchall()
        found = (Target(seq, lane, State(state)) for seq, lane, state in rows)
        return [target for target in found if target.state in states]

    async def find_in_log(
        self,
        where: EventFilter,
        *,
        ids: Sequence[str] | None,
        above_seq: int,
        limit: int,
    ) -> Sequence[int]:
        query = "find_in_log" if ids is None else "find_in_log_by_id"
        async with self._reads.use() as connection:
            values = {**await self._filter(connection, where), "ids": ids, "limit": limit}
            values["above_seq"] = max(above_seq, values["above_seq"])
            return [seq for (seq,) in await self._all(connection, query, values)]

    # --- acts -----------------------------------------------------------------------------

    async def begin_act(self, act: Act) -> int:
        values = {
            "actor": act.actor,
            "action": act.action,
            "act_lane": act.lane,
            "detail": json.dumps(act.detail, ensure_ascii=False),
        }
        async with self._reads.use() as connection:
            return int((await self._one(connection, "begin_act", values))[0])

    async def retry_events(self, audit: int, batch: Batch) -> int:
        return await self._act(["retry_events"], {"audit": audit, **_batch(batch)})

    async def remove_events(self, audit: int, batch: Batch, verdict: Verdict) -> int:
        values = {"audit": audit, "verdict": int(verdict), **_batch(batch)}
        return await self._act(["lock_lane_for_act", "remove_events"], values)

    async def count_edits(self, seqs: Sequence[int]) -> Mapping[int, int]:
        async with self._reads.use() as connection:
            return dict(await self._all(connection, "count_edits", {"seqs": [*seqs]}))

    async def edit_event(self, audit: int, target: Target, new: Version, *, edits: int) -> bool:
        values = {
            "audit": audit,
            "seq": target.seq,
            "lane": target.lane,
            "state": int(target.state),
            "edits": edits,
            "payload": new.payload,
            "content_type": new.content_type,
            "headers": new.headers,
        }
        return await self._act(["lock_target", "edit_event"], values) > 0

    async def replay_events(self, audit: int, lane: Lane, seqs: Sequence[int]) -> int:
        values = {"audit": audit, "lane": lane.id, "seqs": [*seqs]}
        return await self._act(["lock_log", "replay_events"], values)

    async def _act(self, steps: Sequence[str], values: dict[str, Any]) -> int:
        """Statements in one transaction, of which the last answers how many it changed."""
        async with self._reads.use() as connection:
            done = await self._in_one_message(connection, dict.fromkeys(steps, values))
        return int(done[steps[-1]].rows[0][0])

    # --- reads ----------------------------------------------------------------------------

    async def blocked_keys(self, lane: str | None, *, limit: int) -> Sequence[BlockedKey]:
        found: list[BlockedKey] = []
        async with self._reads.use() as connection:
            if lane is None:
                lanes = await self._all(connection, "lane_names")
            else:
                lanes = [await self._lane_row(connection, lane)]
            for number, name, _paused in lanes:
                values = {"lane": number, "cap": WAITING_CAP, "limit": limit - len(found)}
                rows = await self._all(connection, "blocked_keys", values)
                if rows:
                    values["seq"] = first_seq(rows)
                    pending = await self._all(connection, "pending_after", values)
                    found += blocked_keys(_utc, name, rows, pending)
        return found

    async def story(self, seq: int) -> Story:
        about = {"seq": seq}
        async with self._reads.use() as connection:
            parts = [await self._all(connection, query, about) for query in _STORY]
            completed = await self._one(connection, "completed", about)
        return story(_utc, parts, _utc(completed[0]) if completed and completed[0] else None)

    async def list_audit(self, *, before_id: int | None, limit: int) -> Sequence[AuditRow]:
        values = {"before_id": 2**62 if before_id is None else before_id, "limit": limit}
        async with self._reads.use() as connection:
            return [
                audit_row(_utc, row) for row in await self._all(connection, "list_audit", values)
            ]


def _batch(batch: Batch) -> dict[str, Any]:
    return {"lane": batch.lane, "state": int(batch.state), "seqs": [*batch.seqs]}


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
