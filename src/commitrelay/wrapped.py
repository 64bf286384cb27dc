"""WrappedStore and WrappedPublisher: the two ports, passed on to another adapter.

What is to happen beside the work of an adapter (counting, tracing, dead letters) derives from
these and overrides the calls that it is about.
"""

from __future__ import annotations

from collections.abc import Sequence

from commitrelay.publisher import Message, Outcome, Publisher, PublisherCapabilities
from commitrelay.store import (
    ClaimRequest,
    Fence,
    Lane,
    OpenCircuit,
    Queued,
    Roster,
    SettledPage,
    Settlement,
    Store,
    StoreCapabilities,
)


class WrappedStore:
    """Store, by way of `inner`."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __str__(self) -> str:
        return str(self._inner)

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._inner.capabilities

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    async def lane(self, name: str) -> Lane:
        return await self._inner.lane(name)

    async def renew(
        self,
        lane: int,
        relay: str,
        *,
        strategy: str,
        keep: frozenset[int] | None,
        lease_seconds: float,
    ) -> Roster:
        return await self._inner.renew(
            lane, relay, strategy=strategy, keep=keep, lease_seconds=lease_seconds
        )

    async def acquire(self, fence: Fence, buckets: frozenset[int]) -> frozenset[int]:
        return await self._inner.acquire(fence, buckets)

    async def leave(self, fence: Fence) -> None:
        await self._inner.leave(fence)

    async def tell_circuit(
        self, lane: int, relay: str, circuit: OpenCircuit | None, *, valid_seconds: float
    ) -> None:
        await self._inner.tell_circuit(lane, relay, circuit, valid_seconds=valid_seconds)

    async def claim(self, fence: Fence, request: ClaimRequest) -> list[Queued]:
        return await self._inner.claim(fence, request)

    async def claim_heads(self, fence: Fence, limit: int, claim_seconds: float) -> list[Queued]:
        return await self._inner.claim_heads(fence, limit, claim_seconds)

    async def settle(self, fence: Fence, settlement: Settlement) -> int:
        return await self._inner.settle(fence, settlement)

    async def unpark(self, fence: Fence, buckets: frozenset[int], limit: int) -> int:
        return await self._inner.unpark(fence, buckets, limit)

    async def settled(
        self, *, older_than_seconds: float, after_seq: int, limit: int
    ) -> SettledPage:
        return await self._inner.settled(
            older_than_seconds=older_than_seconds, after_seq=after_seq, limit=limit
        )

    async def delete_settled(self, seqs: Sequence[int]) -> int:
        return await self._inner.delete_settled(seqs)

    async def tend_partitions(self, *, older_than_seconds: float | None) -> int:
        return await self._inner.tend_partitions(older_than_seconds=older_than_seconds)

    async def trim_journal(self, *, older_than_seconds: float, limit: int) -> int:
        return await self._inner.trim_journal(older_than_seconds=older_than_seconds, limit=limit)

    async def purge_inbox(self, *, older_than_seconds: float, limit: int) -> int:
        return await self._inner.purge_inbox(older_than_seconds=older_than_seconds, limit=limit)

    async def idle(self, lane: int) -> bool:
        return await self._inner.idle(lane)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    def wake(self) -> None:
        self._inner.wake()


class WrappedPublisher:
    """Publisher, by way of `inner`."""

    def __init__(self, inner: Publisher) -> None:
        self._inner = inner

    def __str__(self) -> str:
        return str(self._inner)

    @property
    def capabilities(self) -> PublisherCapabilities:
        return self._inner.capabilities

    @property
    def delivery_timeout_seconds(self) -> float:
        return self._inner.delivery_timeout_seconds

    async def open(self) -> None:
        await self._inner.open()

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return await self._inner.publish(messages)

    async def recover(self) -> None:
        await self._inner.recover()

    async def close(self) -> None:
        await self._inner.close()
