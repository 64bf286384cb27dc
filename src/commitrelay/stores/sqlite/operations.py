"""The outbox in an SQLite file: what operators change, and what they read to decide on it."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
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
from commitrelay.stores.sqlite.admin import SqliteAdmin, from_ms, from_text
from commitrelay.stores.stories import audit_row, blocked_keys, first_seq, story

_PAGE_BITS = 12
"""A journal row holds seqs of one page of 4,096, by which the events' deliveries are found."""


_STORY = ("attempts", "settlements", "edits", "acts", "stuck_behind", "holds")


class SqliteOperations(SqliteAdmin):
    """Operations on one SQLite file."""

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

        def find(db: sqlite3.Connection) -> list[Target]:
            values = {**self._filter(db, where), "ids": _json(ids or ()), "limit": limit}
            found = (
                Target(seq, lane, State(state))
                for seq, lane, state in db.execute(statement, values)
            )
            return [target for target in found if target.state in states]

        return await self._database.read(find)

    async def find_in_log(
        self,
        where: EventFilter,
        *,
        ids: Sequence[str] | None,
        above_seq: int,
        limit: int,
    ) -> Sequence[int]:
        query = "find_in_log" if ids is None else "find_in_log_by_id"

        def find(db: sqlite3.Connection) -> list[int]:
            values = {**self._filter(db, where), "ids": _json(ids or ()), "limit": limit}
            values["above_seq"] = max(above_seq, values["above_seq"])
            return [seq for (seq,) in self._all(db, query, **values)]

        return await self._database.read(find)

    # --- acts -----------------------------------------------------------------------------

    async def begin_act(self, act: Act) -> int:
        values = {
            "now_ms": self._database.now_ms(),
            "actor": act.actor,
            "action": act.action,
            "lane": act.lane,
            "detail": json.dumps(act.detail, ensure_ascii=False),
        }
        return int(await self._database.write(lambda db: self._value(db, "begin_act", **values)))

    async def retry_events(self, audit: int, batch: Batch) -> int:
        def retry(db: sqlite3.Connection) -> int:
            changed = self._all(db, "retry_events", **self._batch(batch))
            return self._note(db, audit, batch.lane, [seq for (seq,) in changed])

        return await self._database.write(retry)

    async def remove_events(self, audit: int, batch: Batch, verdict: Verdict) -> int:
        def remove(db: sqlite3.Connection) -> int:
            gone = [seq for (seq,) in self._all(db, "remove_events", **self._batch(batch))]
            actor = self._value(db, "actor", audit=audit)
            self._journal(db, batch.lane, actor, verdict, gone)
            return self._note(db, audit, batch.lane, gone)

        return await self._database.write(remove)

    async def count_edits(self, seqs: Sequence[int]) -> Mapping[int, int]:
        return await self._database.read(
            lambda db: dict(self._all(db, "count_edits", seqs=_json(seqs)))
        )

    async def edit_event(self, audit: int, target: Target, new: Version, *, edits: int) -> bool:
        values = {
            "seq": target.seq,
            "lane": target.lane,
            "state": int(target.state),
            "now_ms": self._database.now_ms(),
            "edits": edits,
            "payload": new.payload,
            "content_type": new.content_type,
            "headers": new.headers,
        }

        def edit(db: sqlite3.Connection) -> bool:
            actor = self._value(db, "actor", audit=audit)
            if not self._run(db, "keep_version", actor=actor, **values):
                return False
            self._run(db, "change_event", **values)
            self._note(db, audit, target.lane, [target.seq])
            return True

        return await self._database.write(edit)

    async def replay_events(self, audit: int, lane: Lane, seqs: Sequence[int]) -> int:
        def replay(db: sqlite3.Connection) -> int:
            added = self._all(db, "replay_events", lane=lane.id, seqs=_json(seqs))
            return self._note(db, audit, lane.id, [seq for (seq,) in added])

        return await self._database.write(replay)

    def _batch(self, batch: Batch) -> dict[str, Any]:
        return {
            "lane": batch.lane,
            "state": int(batch.state),
            "seqs": _json(batch.seqs),
            "now_ms": self._database.now_ms(),
        }

    def _note(self, db: sqlite3.Connection, audit: int, lane: int, seqs: Sequence[int]) -> int:
        if seqs:
            self._run(db, "note_events", audit=audit, lane=lane, seqs=_json(seqs))
            self._run(db, "count_events", audit=audit, events=len(seqs))
        return len(seqs)

    def _journal(
        self, db: sqlite3.Connection, lane: int, who: str, verdict: Verdict, gone: Iterable[int]
    ) -> None:
        """Write down that events left a lane's queue."""
        now_ms = self._database.now_ms()
        for seqs in _paged(sorted(gone)):
            self._run(
                db,
                "journal",
                lane=lane,
                relay=who,
                verdict=int(verdict),
                now_ms=now_ms,
                smallest=seqs[0],
                largest=seqs[-1],
                events=len(seqs),
                seqs=_json(seqs),
            )

    # --- reads ----------------------------------------------------------------------------

    async def blocked_keys(self, lane: str | None, *, limit: int) -> Sequence[BlockedKey]:
        def read(db: sqlite3.Connection) -> list[BlockedKey]:
            lanes = self._all(db, "lanes") if lane is None else [self._lane_row(db, lane)]
            found: list[BlockedKey] = []
            for number, name, _paused in lanes:
                values = {"lane": number, "cap": WAITING_CAP, "limit": limit - len(found)}
                rows = self._all(db, "blocked_keys", **values)
                if rows:
                    values["seq"] = first_seq(rows)
                    pending = self._all(db, "pending_after", **values)
                    found += blocked_keys(_at, name, rows, pending)
            return found

        return await self._database.read(read)

    async def story(self, seq: int) -> Story:
        def read(db: sqlite3.Connection) -> Story:
            completed = self._value(db, "completed", seq=seq)
            values = {"seq": seq, "now_ms": self._database.now_ms()}
            parts = [self._all(db, query, **values) for query in _STORY]
            return story(_at, parts, None if completed is None else from_text(completed))

        return await self._database.read(read)

    async def list_audit(self, *, before_id: int | None, limit: int) -> Sequence[AuditRow]:
        values = {"before_id": 2**62 if before_id is None else before_id, "limit": limit}
        rows = await self._database.read(lambda db: self._all(db, "list_audit", **values))
        return [audit_row(_at, row) for row in rows]


def _at(milliseconds: float) -> datetime:
    moment = from_ms(milliseconds)
    assert moment is not None
    return moment


def _json(values: Sequence[int] | Sequence[str]) -> str:
    return json.dumps(list(values), separators=(",", ":"))


def _paged(seqs: Sequence[int]) -> Iterator[Sequence[int]]:
    """In order, those of one page of the journal at a time."""
    start = 0
    while start < len(seqs):
        next_page = ((seqs[start] >> _PAGE_BITS) + 1) << _PAGE_BITS
        end = bisect_left(seqs, next_page, start)
        yield seqs[start:end]
        start = end
