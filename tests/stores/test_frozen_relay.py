"""A relay that is frozen in the middle of a write keeps nobody from taking over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from commitrelay.store import BUCKETS, Failure, Fence, Settlement
from commitrelay.stores.postgres.store import PostgresStore

ALL_BUCKETS = frozenset(range(BUCKETS))
LEASE_SECONDS = 0.3


class FreezingProxy:
    """Forwards to a server; after `freeze_after(n)` only n more bytes get there."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._budget: int | None = None
        self._writers: list[asyncio.StreamWriter] = []

    def freeze_after(self, count: int) -> None:
        self._budget = count

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user, _, _address = self._target.netloc.rpartition("@")
        yield self._target._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        server.close()
        for writer in self._writers:
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(
            self._target.hostname, self._target.port
        )
        self._writers += [writer, upstream]
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(
                self._pump(reader, upstream, self._allowed),
                self._pump(upstream_reader, writer, lambda data: data),
            )

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        allowed: Callable[[bytes], bytes],
    ) -> None:
        while data := await reader.read(65536):
            writer.write(allowed(data))
            await writer.drain()
        writer.close()

    def _allowed(self, data: bytes) -> bytes:
        if self._budget is None:
            return data
        data = data[: self._budget]
        self._budget -= len(data)
        return data


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
