"""How much a relay takes in hand while the database does not answer: what a crash doubles."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from commitrelay.options import RelayOptions
from commitrelay.publisher import DELIVERED, Message, Outcome, PublisherCapabilities
from commitrelay.relay import Relay
from commitrelay.store import Fence, Settlement
from commitrelay.stores.postgres.store import PostgresStore
from tests.faults.scene import add, initialise

BATCH_SIZE, WINDOW = 10, 3
IN_HAND = BATCH_SIZE * (WINDOW + 2)


class _Counter:
    """Delivers everything, and says when there is as much as a relay may have in hand."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    def __init__(self) -> None:
        self.delivered = 0
        self.is_full = asyncio.Event()

    async def open(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        self.delivered += len(messages)
        if self.delivered >= IN_HAND:
            self.is_full.set()
        return [DELIVERED] * len(messages)

    async def recover(self) -> None: ...

    async def close(self) -> None: ...


class _StuckStore(PostgresStore):
    """Takes no note of what was delivered before it is let to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.let = asyncio.Event()

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        await self.let.wait()
        return await super().settle(fence, settlement)


def test_competing_claims_no_more_than_fits_in_hand(postgres_database: str) -> None:
    initialise(postgres_database)
    add(postgres_database, range(200), keys=200)

    async def case() -> int:
        store, publisher = _StuckStore(postgres_database), _Counter()
        options: dict[str, Any] = {"batch_size": BATCH_SIZE, "window": WINDOW}
        relay = Relay(store, publisher, RelayOptions(strategy="competing", **options))
        async with asyncio.timeout(30), relay:
            await publisher.is_full.wait()
            while relay._publishing:
                await asyncio.wait(relay._publishing)
            may_claim, delivered = relay._may_claim(), publisher.delivered
            store.let.set()
        assert not may_claim
        return delivered

    assert asyncio.run(case()) == IN_HAND
