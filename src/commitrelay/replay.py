"""Replay: events of the log go into a lane's queue again, oldest first and not all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from commitrelay.acts import BATCH, Selection, SteeredStore, checked_id
from commitrelay.errors import ConfigError
from commitrelay.operations import Act
from commitrelay.store import Lane

COUNT_CAP = 100_000
"""A plan counts no further."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    selection: Selection  # of a lane: only what has left its queue
    into: str
    is_new: bool  # the lane is not there yet
    matched: int  # at most COUNT_CAP


@dataclass(frozen=True, slots=True)
class Replayed:
    audit: int
    queued: int
    left_alone: int  # because the lane has to deliver them anyway


class Replay:
    """Puts matching events into a lane, at most `rate` a second.

    The lane may be new: then it takes nothing by itself, and delivers only what is replayed into
    it, by a relay with a topic of its choice. Events keep their ids, so that consumers can tell.
    """

    def __init__(self, store: SteeredStore, actor: str, *, rate: int) -> None:
        self._store = store
        self._actor = actor
        self._rate = rate

    async def plan(self, selection: Selection, into: str) -> ReplayPlan:
        where = selection.where
        if where.status is not None or where.error is not None:
            raise ConfigError("the log knows no status and no error: replay by time, key or type")
        if selection.ids is not None:
            selection = Selection(where, [checked_id(text) for text in selection.ids])
        found = await self._store.find_in_log(
            where, ids=selection.ids, above_seq=0, limit=COUNT_CAP
        )
        known = {lane.name for lane in await self._store.lanes()}
        return ReplayPlan(selection, into, into not in known, len(found))

    async def run(
        self, plan: ReplayPlan, told: Callable[[int], None] = lambda queued: None
    ) -> Replayed:
        """Carry it out; `told` hears how many are queued after each batch."""
        end = (await self._store.end_of_log()).seq
        detail = {**plan.selection.as_detail(), "matched": plan.matched, "rate": self._rate}
        audit = await self._store.begin_act(Act(self._actor, "replay", plan.into, detail))
        lane = await self._lane(plan)
        queued = seen = above_seq = 0
        size = min(BATCH, self._rate)
        while True:
            page = await self._store.find_in_log(
                plan.selection.where, ids=plan.selection.ids, above_seq=above_seq, limit=size
            )
            seqs = [seq for seq in page if seq <= end]
            if not seqs:
                return Replayed(audit, queued, seen - queued)
            queued += await self._store.replay_events(audit, lane, seqs)
            seen += len(seqs)
            above_seq = seqs[-1]
            told(queued)
            if len(page) == size:
                await asyncio.sleep(size / self._rate)

    async def _lane(self, plan: ReplayPlan) -> Lane:
        if plan.is_new:
            return await self._store.add_lane(plan.into, event_types=[])
        return await self._store.lane(plan.into)
