"""Settler: writes what became of events, joining finished batches into one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from commitrelay.errors import LeaseLost, StoreUnreachable
from commitrelay.outage import Outage
from commitrelay.store import Failure, Fence, Queued, Settlement, Store
from commitrelay.window import Key, Window


class Settler:
    """Collects results while the last ones are being written; nothing is written twice."""

    def __init__(
        self,
        store: Store,
        window: Window,
        *,
        fence: Callable[[], Fence],
        outage: Outage,
        on_settled: Callable[[], None],
        on_lease_lost: Callable[[], None],
    ) -> None:
        self._store = store
        self._window = window
        self._fence = fence
        self._outage = outage
        self._on_settled = on_settled
        self._on_lease_lost = on_lease_lost
        self._next = Settlement()
        self._refused_keys: list[Key] = []
        self._forgotten = 0  # grows with `forget`: what is being written then is void
        self._stirred = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    # --- results --------------------------------------------------------------------------

    def deliver(self, seqs: Sequence[int]) -> None:
        self._next.delivered.extend(seqs)
        self._stir()

    def fail(self, row: Queued, failure: Failure, waiting: Sequence[int]) -> None:
        self._next.failures.append(failure)
        self._next.parked.extend(waiting)
        self._refused_keys.append(row.key)
        self._stir()

    def park(self, seqs: Sequence[int]) -> None:
        self._next.parked.extend(seqs)
        self._stir()

    def release(self, seqs: Sequence[int]) -> None:
        self._next.released.extend(seqs)
        self._stir()

    def forget(self) -> None:
        """The lease is lost: nothing of this may be written any more."""
        self._next = Settlement()
        self._refused_keys = []
        self._forgotten += 1
        self._idle.set()

    def _stir(self) -> None:
        if self._next:
            self._idle.clear()
            self._stirred.set()

    # --- writing --------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return self._idle.is_set()

    async def all_settled(self) -> None:
        """Wait until every result so far is in the database, or forgotten."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self._next:
                settlement, self._next = self._next, Settlement()
                keys, self._refused_keys = self._refused_keys, []
                if await self._write(settlement):
                    self._window.settled(settlement.delivered)
                    self._window.settled([each.seq for each in settlement.failures], keys)
                    self._on_settled()
            self._idle.set()

    async def _write(self, settlement: Settlement) -> bool:
        """False if the lease was lost meanwhile, and with it the right to write."""
        forgotten = self._forgotten
        while forgotten == self._forgotten:
            try:
                await self._store.settle(self._fence(), settlement)
            except StoreUnreachable as error:
                await asyncio.sleep(self._outage.goes_on(error))
            except LeaseLost:
                if forgotten == self._forgotten:
                    self._on_lease_lost()
            else:
                self._outage.is_over()
                return forgotten == self._forgotten
        return False
