"""Follow: events as they are added and as they leave their lanes, each told once.

Numbers are given out before transactions commit, so a lower one may appear after a higher one. The
gaps below the highest number seen are looked at again for a while: most are filled soon, those of
rolled-back transactions never.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from commitrelay.log import JournalBatch, LogStore
from commitrelay.store import EventRecord

PATIENCE_SECONDS = 60.0
"""For so long a gap may still be filled."""

MAX_GAPS = 1000
PAGE = 500


@dataclass(frozen=True, slots=True)
class Sight:
    """Something that happened to an event."""

    what: str  # added, published, discarded or resolved
    at: datetime
    event: EventRecord
    lane: str | None = None
    relay: str | None = None


class Numbers:
    """Which numbers above a start were seen, and from where to look again."""

    def __init__(self, start: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._highest = start
        self._gaps: dict[int, float] = {}  # number → until when it may still appear
        self._clock = clock

    @property
    def floor(self) -> int:
        """Everything up to here is either seen or given up."""
        return min(self._gaps, default=self._highest + 1) - 1

    def unseen(self, numbers: Iterable[int]) -> list[int]:
        """Those that are new; they are seen from now on. Numbers come in ascending order."""
        now = self._clock()
        fresh = []
        for number in numbers:
            if number > self._highest:
                first_gap = max(self._highest + 1, number - MAX_GAPS)
                self._gaps.update(dict.fromkeys(range(first_gap, number), now + PATIENCE_SECONDS))
                self._highest = number
                fresh.append(number)
            elif self._gaps.pop(number, None) is not None:
                fresh.append(number)
        self._forget(now)
        return fresh

    def _forget(self, now: float) -> None:
        for gap in [gap for gap, until in self._gaps.items() if until < now]:
            del self._gaps[gap]
        for gap in sorted(self._gaps)[: max(0, len(self._gaps) - MAX_GAPS)]:
            del self._gaps[gap]


class Follow:
    """What is new in the log and in the journal since the last look."""

    def __init__(self, store: LogStore, *, seq: int, batch: int) -> None:
        self._store = store
        self._seqs = Numbers(seq)
        self._batches = Numbers(batch)

    async def added(self) -> list[Sight]:
        """Events that were added since, in seq order."""
        found: list[EventRecord] = []
        after = self._seqs.floor
        while page := await self._store.added(after_seq=after, limit=PAGE):
            fresh = set(self._seqs.unseen(event.seq for event in page))
            found += [event for event in page if event.seq in fresh]
            after = page[-1].seq
        return [Sight("added", event.created_at, event) for event in found]

    async def settled(self) -> list[Sight]:
        """Events that have left a lane since, batch by batch."""
        sights: list[Sight] = []
        after = self._batches.floor
        while page := await self._store.batches(after=after, limit=PAGE):
            fresh = set(self._batches.unseen(batch.id for batch in page))
            for batch in page:
                if batch.id in fresh:
                    sights += await self._told(batch)
            after = page[-1].id
        return sights

    async def _told(self, batch: JournalBatch) -> list[Sight]:
        events = await self._store.read_events(batch.seqs, payloads=False)
        return [Sight(batch.status, batch.at, event, batch.lane, batch.relay) for event in events]
