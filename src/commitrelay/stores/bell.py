"""Bell: ends a store's sleep from any thread of the same process."""

from __future__ import annotations

import asyncio


class Bell:
    """A signal that is kept until the next `wait`, so that none is lost between two sleeps."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def ring(self) -> None:
        """End the current or the next `wait`; safe from any thread."""
        loop = self._loop
        if loop is None:
            self._rung.set()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> bool:
        """True as soon as the bell rings, False after `seconds`."""
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True
