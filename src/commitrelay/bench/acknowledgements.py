"""Acknowledgements: how many messages a broker has taken, not which. No I/O.

Whoever sent a batch is woken once, when as many are taken as had been sent with it.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Acknowledgements:
    def __init__(self) -> None:
        self._sent = 0
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None

    def expect(self, count: int) -> asyncio.Future[None]:
        """So many more are about to be written; done when as many are taken as were sent then."""
        if self._error is not None:
            raise self._error
        self._sent += count
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._sent, taken))
        return taken

    async def room(self, count: int, limit: int) -> None:
        """Until so many more are no more than the limit, or nothing else is on its way."""
        while self._waiting and self._sent - self._taken + count > limit:
            await asyncio.wait([self._waiting[0][1]])

    def add(self, count: int) -> None:
        self.taken(self._taken + count)

    def taken(self, total: int) -> None:
        self._taken = total
        waiting = self._waiting
        while waiting and waiting[0][0] <= total:
            reached = waiting.popleft()[1]
            if not reached.done():
                reached.set_result(None)

    def fail(self, error: Exception) -> None:
        """Nothing more will be heard."""
        self._error = error
        while self._waiting:
            reached = self._waiting.popleft()[1]
            if not reached.done():
                reached.set_exception(error)
