"""Buffer: arrivals between the broker and whoever reads. Bounded by those who fill it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable

from commitrelay.source import Arrival

MAX_ARRIVALS = 2000
MAX_BYTES = 32 * 1024 * 1024


class Buffer:
    """What has arrived and nobody has read yet. It belongs to the event loop."""

    def __init__(self, max_arrivals: int = MAX_ARRIVALS, max_bytes: int = MAX_BYTES) -> None:
        self._max_arrivals = max_arrivals
        self._max_bytes = max_bytes
        self._arrivals: deque[Arrival] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._arrivals)

    @property
    def is_full(self) -> bool:
        """Nothing more should be fetched; what is under way is still taken."""
        return len(self._arrivals) >= self._max_arrivals or self._bytes >= self._max_bytes

    @property
    def is_low(self) -> bool:
        return (
            len(self._arrivals) <= self._max_arrivals // 2 and self._bytes <= self._max_bytes // 2
        )

    def put(self, arrivals: Iterable[Arrival]) -> None:
        for arrival in arrivals:
            self._arrivals.append(arrival)
            self._bytes += len(arrival.value)
        self._changed.set()

    def drop(self, partitions: Collection[str]) -> None:
        """Forget what has come from these partitions."""
        kept = [each for each in self._arrivals if each.partition not in partitions]
        self._arrivals = deque(kept)
        self._bytes = sum(len(each.value) for each in kept)
        self._changed.set()

    async def take(self, limit: int, wait_seconds: float) -> list[Arrival]:
        """Up to `limit`, as soon as there are any; none after `wait_seconds`."""
        try:
            async with asyncio.timeout(wait_seconds):
                while not self._arrivals:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return []
        taken = [self._arrivals.popleft() for _ in range(min(limit, len(self._arrivals)))]
        self._bytes -= sum(len(each.value) for each in taken)
        self._changed.set()
        return taken

    async def until_low(self) -> None:
        """Wait until there is room for more."""
        while not self.is_low:
            self._changed.clear()
            await self._changed.wait()
