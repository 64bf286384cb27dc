"""Scene: an empty outbox with one relay in it, and hands to change it from outside."""

from __future__ import annotations

import asyncio
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Protocol

from commitrelay.log import LogStore
from commitrelay.operations import Operations
from commitrelay.purge import Purge
from commitrelay.sql import Names
from commitrelay.store import (
    BUCKETS,
    AdminStore,
    ClaimRequest,
    Failure,
    Fence,
    Queued,
    Settlement,
    Store,
)

_REQUIRED_COLUMNS = ("aggregate_type", "aggregate_id", "event_type", "payload")
ALL_BUCKETS = frozenset(range(BUCKETS))


class FullStore(Store, AdminStore, LogStore, Operations, Protocol):
    """What an adapter is: all ports in one object."""


class StoreHarness(ABC):
    """What the suite needs to know of a database: the adapter's author writes one."""

    names = Names()

    @abstractmethod
    def new_store(self) -> FullStore:
        """A new store object on the database of this test, which is empty at first."""

    @abstractmethod
    def connect(self) -> Any:
        """A new DB-API connection with `execute`, `commit`, `rollback` and `close`."""

    @abstractmethod
    def moment(self, seconds: float) -> str:
        """The database's time in so many seconds, as a literal for a timestamp column."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Return when so much of the database's time has passed: turn its clock, or wait."""


class Scene:
    """One open store with a relay "a" that holds every bucket of the lane "default"."""

    def __init__(self, harness: StoreHarness, stack: AsyncExitStack) -> None:
        self.harness = harness
        self._stack = stack
        self._numbers = itertools.count(1)

    async def set_up(self) -> None:
        self.store = await self.another_store(initialise=True)
        self.lane = await self.store.lane("default")
        self.fence = await self.join("a")
        await self.store.acquire(self.fence, ALL_BUCKETS)

    async def another_store(self, *, initialise: bool = False) -> FullStore:
        store = self.harness.new_store()
        if initialise:
            await store.initialise()
        await store.open()
        self._stack.push_async_callback(store.close)
        return store

    async def join(
        self,
        relay: str,
        *,
        strategy: str = "partitioned",
        lease_seconds: float = 60,
        store: FullStore | None = None,
    ) -> Fence:
        roster = await (store or self.store).renew(
            self.lane.id, relay, strategy=strategy, keep=None, lease_seconds=lease_seconds
        )
        return Fence(self.lane.id, relay, roster.token)

    # --- writing --------------------------------------------------------------------------

    def add(self, *keys: str, connection: Any = None, **columns: str) -> list[int]:
        """Commit one event per key with a plain INSERT; their seqs. Or use an open connection."""
        if connection is not None:
            return self._insert(connection, keys, columns)
        with self.connected() as own:
            return self._insert(own, keys, columns)

    def _insert(self, connection: Any, keys: Sequence[str], columns: dict[str, str]) -> list[int]:
        names = dict.fromkeys((*_REQUIRED_COLUMNS, *columns))
        table = self.harness.names.qualified("event")
        rows = ", ".join(self._row(key, columns) for key in keys)
        connection.execute(f"INSERT INTO {table} ({', '.join(names)}) VALUES {rows}")  # noqa: S608
        newest = f"SELECT seq FROM {table} ORDER BY seq DESC LIMIT {len(keys)}"  # noqa: S608
        return sorted(int(seq) for (seq,) in connection.execute(newest).fetchall())

    def _row(self, key: str, columns: dict[str, str]) -> str:
        payload = f'{{"number": {next(self._numbers)}}}'
        values = dict(zip(_REQUIRED_COLUMNS, ("Order", key, "OrderPaid", payload), strict=True))
        values |= columns
        return (
            "(" + ", ".join("'" + text.replace("'", "''") + "'" for text in values.values()) + ")"
        )

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A connection of an application: committed at the end, rolled back on an error."""
        connection = self.harness.connect()
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def run(self, text: str) -> None:
        with self.connected() as connection:
            connection.execute(self.harness.names.fill(text))

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with self.connected() as connection:
            rows = connection.execute(self.harness.names.fill(text)).fetchall()
        return [tuple(row) for row in rows]

    # --- reading and settling -------------------------------------------------------------

    async def claim(self, **request: Any) -> list[Queued]:
        wanted = {"limit": 100, "buckets": ALL_BUCKETS, **request}
        return await self.store.claim(self.fence, ClaimRequest(**wanted))

    async def seqs(self, **request: Any) -> list[int]:
        return [row.seq for row in await self.claim(**request)]

    async def deliver(self, *seqs: int) -> int:
        return await self.store.settle(self.fence, Settlement(delivered=list(seqs)))

    async def fail(
        self, seq: int, retry_in: float | None, *, blocks: bool = True, error: str = "no"
    ) -> int:
        failure = Failure(seq, error, retry_in, blocks)
        return await self.store.settle(self.fence, Settlement(failures=[failure]))

    async def park(self, *seqs: int) -> int:
        return await self.store.settle(self.fence, Settlement(parked=list(seqs)))

    async def unpark(self, limit: int = 100, buckets: frozenset[int] = ALL_BUCKETS) -> int:
        return await self.store.unpark(self.fence, buckets, limit)

    async def purge(self, older_than_seconds: float, *, page: int = 100) -> int:
        """One pass over the log; how many events it deleted."""
        purge = Purge(self.store, retention_seconds=older_than_seconds, pause_seconds=0, page=page)
        return (await purge.run()).deleted

    def states(self) -> dict[int, int]:
        """The state of every queue row by its seq."""
        rows = self.query("SELECT seq, state FROM @queue ORDER BY seq")
        return {int(seq): int(state) for seq, state in rows}

    def queue(self) -> list[tuple[Any, ...]]:
        """The whole queue, to see that nothing has changed."""
        return self.query(
            "SELECT lane, seq, state, attempts, due_at, last_error, claim_token "
            "FROM @queue ORDER BY lane, seq"
        )

    def journalled(self) -> int:
        """How many events the journal knows."""
        return int(self.query("SELECT coalesce(sum(events), 0) FROM @delivery")[0][0])

    def added(self) -> int:
        return int(self.query("SELECT count(*) FROM @event")[0][0])


@asynccontextmanager
async def opened(harness: StoreHarness) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        scene = Scene(harness, stack)
        await scene.set_up()
        yield scene


def scenario(
    case: Callable[[Any, Scene], Awaitable[None]],
) -> Callable[[Any, StoreHarness], None]:
    """Make an async case on a `Scene` a plain test that asks for the fixture `harness`."""

    async def play(suite: Any, harness: StoreHarness) -> None:
        async with opened(harness) as scene:
            await case(suite, scene)

    @functools.wraps(case)
    def test(self: Any, harness: StoreHarness) -> None:
        asyncio.run(play(self, harness))

    del test.__wrapped__  # pytest would look for a fixture "scene"
    return test
