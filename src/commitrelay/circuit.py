"""Circuit: whether a relay holds off because its broker cannot be reached, and who is told so.

The database is told at once when that changes, and again and again while the circuit is open: what
was told expires, so that nobody believes a relay that died. While it is closed nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from commitrelay.errors import CommitrelayError, StoreUnreachable
from commitrelay.store import OpenCircuit, Store
from commitrelay.urls import scrub

logger = logging.getLogger("commitrelay.relay")

TELL_SECONDS = 3.0
"""An open circuit is told again after so long, or sooner where leases are short."""

FAREWELL_SECONDS = 2.0
"""A relay that ends does not wait longer than this to say that it holds off no more."""


class Circuit:
    """Of one relay. Made closed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._opened_at: float | None = None
        self._error = ""
        self._is_told_open = False  # or may be: the answer of the database was lost
        self._changed = asyncio.Event()

    def open(self, error: str) -> None:
        """The broker did not answer, once more."""
        self._error = scrub(error)
        if self._opened_at is None:
            self._opened_at = self._clock()
            self._changed.set()

    def close(self) -> None:
        """The broker answered, or there is nothing that it is needed for."""
        if self._opened_at is not None:
            self._opened_at = None
            self._changed.set()

    @asynccontextmanager
    async def told(
        self, store: Store, lane: int, relay: str, valid_seconds: float
    ) -> AsyncIterator[None]:
        """Keep the database informed, and take it back in the end."""

        async def tell() -> None:
            await self._tell(store, lane, relay, valid_seconds)

        telling = asyncio.create_task(self._keep_telling(tell, valid_seconds), name="circuit")
        try:
            yield
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
        self.close()
        with suppress(TimeoutError, CommitrelayError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await tell()

    async def _keep_telling(
        self, tell: Callable[[], Awaitable[None]], valid_seconds: float
    ) -> None:
        again_seconds = min(TELL_SECONDS, valid_seconds / 3)
        is_refused = False
        while True:
            self._changed.clear()
            try:
                await tell()
            except StoreUnreachable:
                pass  # who renews the lease says so
            except CommitrelayError as error:
                if not is_refused:
                    logger.warning("status cannot show that the broker is unreachable: %s", error)
                is_refused = True
            with suppress(TimeoutError):
                async with asyncio.timeout(again_seconds if self._is_told_open else None):
                    await self._changed.wait()

    async def _tell(self, store: Store, lane: int, relay: str, valid_seconds: float) -> None:
        opened_at = self._opened_at
        if opened_at is not None:
            self._is_told_open = True
            now = OpenCircuit(self._clock() - opened_at, self._error)
            await store.tell_circuit(lane, relay, now, valid_seconds=valid_seconds)
        elif self._is_told_open:
            await store.tell_circuit(lane, relay, None, valid_seconds=valid_seconds)
            self._is_told_open = False
