"""A relay that is frozen in the middle of a write keeps nobody from taking over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from commitrelay.store import BUCKETS, Failure, Fence, Settlement
from commitrelay.stores.postgres.store import PostgresStore
from tests.support.freezing_proxy import FreezingProxy

ALL_BUCKETS = frozenset(range(BUCKETS))
LEASE_SECONDS = 0.3


Write = Callable[[PostgresStore, Fence, list[int]], Awaitable[object]]


async def _settle(store: PostgresStore, fence: Fence, seqs: list[int]) -> object:
    failures = [Failure(seq, "refused", 5.0) for seq in seqs[:3]]
    return await store.settle(fence, Settlement(delivered=seqs[3:6], failures=failures))


async def _renew(store: PostgresStore, fence: Fence, seqs: list[int]) -> object:
    return await store.renew(
        fence.lane, fence.relay, strategy="partitioned", keep=None, lease_seconds=LEASE_SECONDS
    )


async def _acquire(store: PostgresStore, fence: Fence, seqs: list[int]) -> object:
    return await store.acquire(fence, ALL_BUCKETS)


@pytest.mark.parametrize("cut", [200, 400, 800])
@pytest.mark.parametrize("write", [_settle, _renew, _acquire])
def test_its_lease_is_taken_over(postgres_database: str, write: Write, cut: int) -> None:
    async def case() -> None:
        other = PostgresStore(postgres_database)
        await other.initialise()
        with psycopg.connect(postgres_database) as connection:
            connection.execute(
                "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload)"
                " SELECT 'Order', n::text, 'Counted', 'x' FROM generate_series(1, 10) AS n"
            )
        proxy = FreezingProxy(postgres_database)
        async with proxy.serving() as url:
            frozen = PostgresStore(url)
            await frozen.open()
            lane = await frozen.lane("default")
            for _ in range(2):  # twice, so that statements are prepared where they ever are
                roster = await frozen.renew(
                    lane.id,
                    "frozen",
                    strategy="partitioned",
                    keep=None,
                    lease_seconds=LEASE_SECONDS,
                )
                fence = Fence(lane.id, "frozen", roster.token)
                await frozen.acquire(fence, ALL_BUCKETS)
            proxy.freeze_after(cut)
            writing = asyncio.create_task(write(frozen, fence, list(range(1, 11))))
            async with asyncio.timeout(10):
                while await _lives(other, lane.id, "frozen"):
                    await asyncio.sleep(0.05)
        await asyncio.gather(writing, return_exceptions=True)
        await frozen.close()
        await other.close()

    asyncio.run(case())


async def _lives(store: PostgresStore, lane: int, relay: str) -> bool:
    roster = await store.renew(lane, "other", strategy="partitioned", keep=None, lease_seconds=60)
    return relay in roster.others
