"""The outbox in MySQL or MariaDB: what operators change, and what they read to decide on it."""

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
from commitrelay.stores.mysql.admin import MysqlAdmin
from commitrelay.stores.stories import audit_row, blocked_keys, first_seq, story

_STORY = ("attempts", "settlements", "edits", "acts", "stuck_behind", "holds")


class MysqlOperations(MysqlAdmin):
    """Operations on MySQL or MariaDB."""

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
        values = {**await self._filter(where), "ids": ids or (), "limit": limit}
        rows = (await self._reads.ask(statement, values)).rows
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
        values = {**await self._filter(where), "ids": ids or (), "limit": limit}
        values["above_seq"] = max(above_seq, values["above_seq"])
        return [seq for (seq,) in (await self._ask(query, values)).rows]

    # --- acts -----------------------------------------------------------------------------

    async def begin_act(self, act: Act) -> int:
        values = {
            "actor": act.actor,
            "action": act.action,
            "act_lane": act.lane,
            "detail": json.dumps(act.detail, ensure_ascii=False),
        }
        steps = [(self._sql[name], values) for name in ("begin_act", "act_id")]
        return int((await self._reads.transact(steps))[-1].rows[0][0])

    async def retry_events(self, audit: int, batch: Batch) -> int:
        values = {"audit": audit, **_batch(batch)}
        return await self._act(["note_retried", "retry_events"], values)

    async def remove_events(self, audit: int, batch: Batch, verdict: Verdict) -> int:
        values = {"audit": audit, "verdict": int(verdict), **_batch(batch)}
        return await self._act(["note_removed", "journal_removed", "remove_events"], values)

    async def count_edits(self, seqs: Sequence[int]) -> Mapping[int, int]:
        return dict((await self._ask("count_edits", {"seqs": seqs})).rows)

    async def edit_event(self, audit: int, target: Target, new: Version, *, edits: int) -> bool:
        values = {
            "audit": audit,
            **_batch(Batch(target.lane, target.state, [target.seq])),
            "edits": edits,
            "payload": new.payload,
            "content_type": new.content_type,
            "headers": new.headers,
        }
        steps = ["note_edited", "keep_version", "edit_event"]
        return await self._act(steps, values, lock="lock_target") > 0

    async def replay_events(self, audit: int, lane: Lane, seqs: Sequence[int]) -> int:
        values = {"audit": audit, "lane": lane.id, "seqs": seqs}
        return await self._act(["note_replayed", "replay_events"], values, lock="lock_log")

    async def _act(
        self, steps: Sequence[str], values: dict[str, Any], *, lock: str | None = None
    ) -> int:
        """Statements in one transaction, of which the first names and counts what is changed."""
        names = [*([lock] if lock else []), *steps, "count_events"]
        done = await self._reads.transact([(self._sql[name], values) for name in names])
        return done[names.index(steps[0])].changed

    # --- reads ----------------------------------------------------------------------------

    async def blocked_keys(self, lane: str | None, *, limit: int) -> Sequence[BlockedKey]:
        if lane is None:
            lanes = (await self._ask("lane_names")).rows
        else:
            chosen = await self._lane(lane)
            lanes = [(chosen.id, chosen.name)]
        found: list[BlockedKey] = []
        for number, name in lanes:
            values = {"lane": number, "cap": WAITING_CAP, "limit": limit - len(found)}
            rows = (await self._ask("blocked_keys", values)).rows
            if rows:
                values["seq"] = first_seq(rows)
                pending = (await self._ask("pending_after", values)).rows
                found += blocked_keys(_utc, name, rows, pending)
        return found

    async def story(self, seq: int) -> Story:
        steps = [(self._sql[query], {"seq": seq}) for query in (*_STORY, "completed")]
        *parts, completed = [result.rows for result in await self._reads.transact(steps)]
        is_completed = completed and completed[0][0] is not None
        return story(_utc, parts, _utc(completed[0][0]) if is_completed else None)

    async def list_audit(self, *, before_id: int | None, limit: int) -> Sequence[AuditRow]:
        values = {"before_id": 2**62 if before_id is None else before_id, "limit": limit}
        return [audit_row(_utc, row) for row in (await self._ask("list_audit", values)).rows]


def _batch(batch: Batch) -> dict[str, Any]:
    return {"lane": batch.lane, "state": int(batch.state), "seqs": batch.seqs}


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)
