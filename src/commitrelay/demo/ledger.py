"""Ledger: what was committed against what arrived."""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

REMEMBERED_IDS = 500_000
"""A repeated event is told by its id for so long; later, its old version gives it away."""


@dataclass(frozen=True, slots=True)
class Received:
    """One message as the consumer saw it."""

    event_id: str
    order: str
    version: int
    lag_seconds: float


class Lags:
    """Percentiles of delays, from counts in buckets that are 5 % wide."""

    _BASE = math.log(1.05)

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self._counts[math.ceil(math.log(max(seconds, 1e-6)) / self._BASE)] += 1

    def percentile_ms(self, share: float) -> float:
        wanted = share * self._counts.total()
        for bucket in sorted(self._counts):
            wanted -= self._counts[bucket]
            if wanted <= 0:
                return math.exp(bucket * self._BASE) * 1000
        return 0.0


class Ledger:
    """Counts as the writers and the consumer report; safe to use from their threads."""

    def __init__(self) -> None:
        self.added = 0
        self.rolled_back = 0
        self.consumed = 0
        self.duplicates = 0
        self.out_of_order = 0
        self.lags = Lags()
        self.recent_lags = Lags()
        self._changed = threading.Condition()
        self._missing: set[str] = set()  # committed and not yet received
        self._unexplained: set[str] = set()  # received, and not (yet) known to be committed
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._versions: dict[str, int] = {}

    @property
    def backlog(self) -> int:
        return len(self._missing)

    @property
    def lost(self) -> int:
        """Committed but not received; meaningful when writers and relay have stopped."""
        return len(self._missing)

    @property
    def delivered_after_rollback(self) -> int:
        """Received but never committed; meaningful when the writers have stopped."""
        return len(self._unexplained)

    def committed(self, event_ids: Sequence[str]) -> None:
        with self._changed:
            self.added += len(event_ids)
            for event_id in event_ids:
                # A message can be faster than its writer's return from COMMIT.
                if event_id in self._unexplained:
                    self._unexplained.remove(event_id)
                else:
                    self._missing.add(event_id)
            self._changed.notify_all()

    def rolled(self, event_ids: Sequence[str]) -> None:
        with self._changed:
            self.rolled_back += len(event_ids)

    def received(self, messages: Sequence[Received]) -> None:
        with self._changed:
            for message in messages:
                self._receive(message)
            self._changed.notify_all()

    def wait_for_room(self, limit: int, timeout_seconds: float) -> bool:
        """Until fewer than `limit` events are under way; False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._missing) < limit, timeout_seconds)

    def take_recent_lags(self) -> Lags:
        with self._changed:
            recent, self.recent_lags = self.recent_lags, Lags()
            return recent

    def _receive(self, message: Received) -> None:
        self.consumed += 1
        self.lags.add(message.lag_seconds)
        self.recent_lags.add(message.lag_seconds)
        if message.event_id in self._seen:
            self.duplicates += 1
            return
        self._remember(message.event_id)
        if message.version <= self._versions.get(message.order, 0):
            self.out_of_order += 1
        else:
            self._versions[message.order] = message.version
        if message.event_id in self._missing:
            self._missing.remove(message.event_id)
        else:
            self._unexplained.add(message.event_id)

    def _remember(self, event_id: str) -> None:
        self._seen[event_id] = None
        if len(self._seen) > REMEMBERED_IDS:
            self._seen.popitem(last=False)
