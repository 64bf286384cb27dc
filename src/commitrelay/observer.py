"""Observer: reads what the tables hold, for metrics and alerts, at most once in a while.

It has a connection of its own, so that nobody who looks can hold a relay up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from commitrelay.errors import CommitrelayError
from commitrelay.store import AdminStore, EventFilter, EventRecord, LaneStatus, Vitals
from commitrelay.telemetry import Telemetry

FRESH_SECONDS = 5.0
"""What was read is shown for this long before it is read again."""

PATIENCE_SECONDS = 2.0
"""A scrape does not wait longer than this for the database."""


@dataclass(frozen=True, slots=True)
class Observation:
    at: float  # by the monotonic clock
    lanes: Sequence[LaneStatus]
    vitals: Vitals


class Observer:
    """The latest observation of one outbox."""

    def __init__(self, store: AdminStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._opened = False
        self._latest: Observation | None = None
        self._reading: asyncio.Task[Observation] | None = None

    async def look(self, max_age_seconds: float = FRESH_SECONDS) -> Observation:
        """What is so now, or was a moment ago; the error if the database does not tell."""
        if self._latest is not None and self._clock() - self._latest.at < max_age_seconds:
            return self._latest
        return await asyncio.shield(self._read())

    async def glance(self) -> Observation | None:
        """As `look`, but None rather than an error, or than waiting for long."""
        with suppress(CommitrelayError, TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self.look()
        return None

    async def dead_events(self, lane: str, limit: int) -> Sequence[EventRecord]:
        where = EventFilter(status="dead", lane=lane)
        return await self._store.list_events(where, before_seq=None, limit=limit)

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError, CommitrelayError):
                await self._reading
        await self._store.close()

    def _read(self) -> asyncio.Task[Observation]:
        """One reading at a time, whoever asks for it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._observe(), name="observer")
            self._reading.add_done_callback(_forget_error)
        return self._reading

    async def _observe(self) -> Observation:
        if not self._opened:
            await self._store.open()
            self._opened = True
        at = self._clock()
        observation = Observation(at, await self._store.status(), await self._store.vitals())
        self._latest = observation
        return observation


def show(observation: Observation | None, telemetry: Telemetry, lanes: Sequence[str]) -> None:
    """Set the gauges of the lanes; what nobody knows now is not shown at all."""
    gauges = (telemetry.messages, telemetry.oldest, telemetry.blocked_keys)
    for gauge in gauges:
        gauge.clear()
    for status in () if observation is None else observation.lanes:
        if status.lane in lanes:
            for state, count in status.counts.items():
                telemetry.messages.set(count, status.lane, state)
            telemetry.oldest.set(status.oldest_pending_seconds or 0.0, status.lane)
    for lane, count in () if observation is None else observation.vitals.blocked_keys.items():
        if lane in lanes:
            telemetry.blocked_keys.set(count, lane)


def _forget_error(task: asyncio.Task[Observation]) -> None:
    """Whoever waited has got it; if nobody did, it is not worth a complaint of the loop."""
    if not task.cancelled():
        task.exception()
