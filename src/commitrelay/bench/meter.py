"""Meter: ports with a stopwatch around them. It costs a call per batch, and nothing per event."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

from commitrelay.publisher import DELIVERED, Message, Outcome, Publisher
from commitrelay.store import Fence, Settlement, Store

SAMPLED = "0"
"""One event in 16 is timed: those whose id ends like this."""


class Meter:
    """From the first event that goes to the broker to the last one that is settled."""

    def __init__(self, *, notes_every_event: bool) -> None:
        self.began_at = 0.0
        self.ended_at = 0.0
        self.delivered = 0
        self._cpu_began = self._cpu_ended = 0.0
        self.acknowledged: dict[str, float] = {}
        self._notes_every_event = notes_every_event

    def begin(self) -> None:
        if not self.began_at:
            self.began_at = time.monotonic()
            self._cpu_began = time.process_time()

    def acknowledge(self, event_ids: Sequence[str]) -> None:
        now = time.monotonic()
        if self._notes_every_event:
            self.acknowledged.update(dict.fromkeys(event_ids, now))
        else:
            sampled = [each for each in event_ids if each[-1] == SAMPLED]
            self.acknowledged.update(dict.fromkeys(sampled, now))

    def settle(self, count: int) -> None:
        self.delivered += count
        self.ended_at = time.monotonic()
        self._cpu_ended = time.process_time()

    @property
    def cpu_seconds(self) -> float:
        """Of this process meanwhile, without starting up and winding down."""
        return max(0.0, self._cpu_ended - self._cpu_began)


class MeteredPublisher:
    def __init__(self, publisher: Publisher, meter: Meter) -> None:
        self._publisher = publisher
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        self._meter.begin()
        outcomes = await self._publisher.publish(messages)
        if outcomes.count(DELIVERED) == len(messages):
            self._meter.acknowledge([message.event_id for message in messages])
        return outcomes


class MeteredStore:
    def __init__(self, store: Store, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        changed = await self._store.settle(fence, settlement)
        if settlement.delivered:
            self._meter.settle(len(settlement.delivered))
        return changed


def metered(store: Store, publisher: Publisher, meter: Meter) -> tuple[Store, Publisher]:
    """The same ports; what they are asked beside delivering goes straight through."""
    return (
        cast(Store, MeteredStore(store, meter)),
        cast(Publisher, MeteredPublisher(publisher, meter)),
    )
