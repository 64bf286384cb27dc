"""Drain: wait until a lane has delivered all that it can deliver now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from commitrelay.acts import SteeredStore
from commitrelay.store import LaneStatus

LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Draining:
    """How far it is."""

    lane: str
    empty: bool
    left: int  # to be delivered now: pending, claimed or retrying
    held: int  # dead, parked behind it, or scheduled for later: they do not count
    paused: bool
    relays: int


async def drain(
    store: SteeredStore, lane: str, *, look_seconds: float = LOOK_SECONDS
) -> AsyncIterator[Draining]:
    """How far it is, again and again; the last one says that the lane is empty."""
    number = (await store.lane(lane)).id
    while True:
        empty = await store.idle(number)
        (status,) = [one for one in await store.status() if one.lane == lane]
        yield _draining(status, empty)
        if empty:
            return
        await asyncio.sleep(look_seconds)


def _draining(status: LaneStatus, empty: bool) -> Draining:
    counts = status.counts
    left = counts["pending"] + counts["claimed"] + counts["retrying"]
    return Draining(
        lane=status.lane,
        empty=empty,
        left=left,
        held=sum(counts.values()) - left,
        paused=status.paused,
        relays=len(status.relays),
    )
