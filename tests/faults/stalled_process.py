"""A relay from SQLite to files whose notes of what was delivered get stuck; killed by the tests."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from commitrelay.format import Plain
from commitrelay.options import RelayOptions
from commitrelay.publisher import DELIVERED, Message, Outcome, PublisherCapabilities
from commitrelay.publishers.file import FilePublisher
from commitrelay.relay import Relay
from commitrelay.route import Route
from commitrelay.store import Fence, Settlement
from commitrelay.stores.sqlite.store import SqliteStore

NOTED = 3
"""So many settlements get through."""


class CountingPublisher(FilePublisher):
    """Overlaps calls and stops at a failure as the test says."""

    def __init__(self, directory: str, capabilities: PublisherCapabilities) -> None:
        super().__init__(directory, delivery_timeout_seconds=2.0, fsync=False)
        self.capabilities = capabilities
        self.delivered = 0

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes = await super().publish(messages)
        self.delivered += outcomes.count(DELIVERED)
        return outcomes


class StallingStore:
    """Tells with every renewal of the lease how many events are at the broker and not noted."""

    def __init__(self, inner: SqliteStore, publisher: CountingPublisher) -> None:
        self._inner = inner
        self._publisher = publisher
        self._settlements = 0
        self._noted = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def renew(self, *args: Any, **kwargs: Any) -> Any:
        print(self._publisher.delivered - self._noted, flush=True)
        return await self._inner.renew(*args, **kwargs)

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        self._settlements += 1
        if self._settlements > NOTED:
            await asyncio.Event().wait()
        changed = await self._inner.settle(fence, settlement)
        self._noted += len(settlement.delivered)
        return changed


async def main() -> None:
    settings = json.loads(sys.argv[1])
    publisher = CountingPublisher(
        settings["directory"], PublisherCapabilities(**settings["capabilities"])
    )
    store: Any = StallingStore(SqliteStore(settings["database"]), publisher)
    options = RelayOptions(
        batch_size=settings["batch_size"],
        window=settings["window"],
        lease_seconds=settings["lease_seconds"],
    )
    await Relay(store, publisher, options, compose=Plain(Route("orders"))).run()


asyncio.run(main())
