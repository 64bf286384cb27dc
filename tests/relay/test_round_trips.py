"""The relay asks its database as seldom as it does: counted, not timed.

Whoever adds a statement or a round trip to the path of every event finds out here. The figures
are upper bounds; whoever needs less may lower them.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox
from commitrelay.options import RelayOptions
from commitrelay.publisher import DELIVERED, Message, Outcome, PublisherCapabilities
from commitrelay.relay import Relay
from commitrelay.store import BUCKETS, ClaimRequest, Failure, Fence, Settlement
from commitrelay.stores.mysql.store import MysqlStore
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore
from tests.support import mariadb
from tests.support.wire import Traffic, counted

BATCH = 100
EVERYTHING = frozenset(range(BUCKETS))

Call = Callable[[], Awaitable[Any]]


class Counting:
    """Takes everything at once, and counts how often it is asked."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    def __init__(self) -> None:
        self.calls = 0

    async def open(self) -> None: ...

    async def recover(self) -> None: ...

    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        self.calls += 1
        return [DELIVERED] * len(messages)


class Site:
    """A store whose traffic is counted, and a way to add events past it."""

    def __init__(self, store: Any, traffic: Traffic, connect: Callable[[], Any]) -> None:
        self.store = store
        self.traffic = traffic
        self._connect = connect

    def add(self, count: int) -> None:
        connection, outbox = self._connect(), Outbox()
        for start in range(0, count, 1000):
            numbers = range(start, min(count, start + 1000))
            outbox.add(connection, *(Event("Order", n, "OrderPaid", {"n": n}) for n in numbers))
        connection.commit()
        connection.close()

    async def cost(self, call: Call) -> Traffic:
        before = self.traffic.copy()
        await call()
        return self.traffic - before


@asynccontextmanager
async def on_sqlite(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    traffic, connect = Traffic(), sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(note)
        return connection

    def note(_statement: str) -> None:
        traffic.statements += 1

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = SqliteStore(str(path))
    await store.initialise()
    yield Site(store, traffic, lambda: connect(path))
    await store.close()


@pytest.fixture(params=["postgres", "mariadb", "sqlite"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """Opens a site on each database."""
    if request.param == "sqlite":
        return lambda: on_sqlite(tmp_path / "outbox.db", monkeypatch)
    url = request.getfixturevalue(f"{request.param}_database")

    @asynccontextmanager
    async def on_server() -> AsyncIterator[Site]:
        async with counted(url) as (proxied, traffic):
            if request.param == "postgres":
                import psycopg  # noqa: PLC0415

                store: Any = PostgresStore(proxied)
                connect: Any = lambda: psycopg.connect(url)  # noqa: E731
            else:
                store = MysqlStore(proxied)
                connect = lambda: mariadb.connect(url)  # noqa: E731
            await store.initialise()
            yield Site(store, traffic, connect)
            await store.close()

    return on_server


# By database: statements and round trips of each call that is made for every batch or so.
# SQLite has no round trips.
CALLS = {
    "PostgresStore": {
        "begin": (3, 1),
        "go on": (1, 1),
        "settle": (1, 1),
        "settle failures": (4, 1),
        "renew": (4, 1),
        "unpark": (1, 1),
        "look in vain": (1, 1),
        "unpark in vain": (1, 1),
    },
    "MysqlStore": {
        "begin": (5, 1),
        "go on": (1, 1),
        "settle": (5, 1),
        "settle failures": (8, 1),
        "renew": (7, 1),
        "unpark": (5, 3),
        "look in vain": (2, 1),
        "unpark in vain": (3, 1),
    },
    "SqliteStore": {
        "begin": (4, 0),
        "go on": (3, 0),
        "settle": (5, 0),
        "settle failures": (8, 0),
        "renew": (7, 0),
        "unpark": (6, 0),
        "look in vain": (1, 0),
        "unpark in vain": (1, 0),
    },
}


async def joined(store: Any) -> Fence:
    lane = await store.lane("default")
    roster = await store.renew(
        lane.id, "relay", strategy="partitioned", keep=None, lease_seconds=30.0
    )
    fence = Fence(lane.id, "relay", roster.token)
    await store.acquire(fence, EVERYTHING)
    return fence


async def calls(site: Site) -> dict[str, Traffic]:
    """What each call costs a store that is warm."""
    store = site.store
    found: dict[str, Traffic] = {}
    fence = await joined(store)
    for _warm in range(2):
        unpark = partial(store.unpark, fence, EVERYTHING, 5000)
        found["unpark in vain"] = await site.cost(unpark)
    site.add(12 * BATCH)
    rows: Sequence[Any] = ()

    async def claim(above_seq: int) -> None:
        nonlocal rows
        request = ClaimRequest(BATCH, EVERYTHING, above_seq=above_seq)
        rows = await store.claim(fence, request)

    async def settle(**results: Any) -> None:
        await store.settle(fence, Settlement(**results))

    async def renew() -> None:
        await store.renew(
            fence.lane, "relay", strategy="partitioned", keep=None, lease_seconds=30.0
        )

    for _warm in range(3):  # the last time counts
        await claim(0)
        found["begin"] = await site.cost(lambda: claim(0))
        found["go on"] = await site.cost(lambda: claim(rows[-1].seq))
        assert len(rows) == BATCH
        first, second, *rest = (row.seq for row in rows)
        found["settle"] = await site.cost(partial(settle, delivered=rest))
        failures = [Failure(first, "refused", 30.0)]
        found["settle failures"] = await site.cost(
            partial(settle, delivered=[second], failures=failures, parked=[second])
        )
        found["renew"] = await site.cost(renew)
        found["unpark"] = await site.cost(unpark)
    for _rest in range(15):
        await claim(0)
        await settle(delivered=[row.seq for row in rows])
    for _warm in range(2):
        found["look in vain"] = await site.cost(lambda: claim(0))
        assert not rows
    return found


def test_each_call(site: Callable[[], Any]) -> None:
    async def case() -> tuple[dict[str, Traffic], str]:
        async with site() as place:
            return await calls(place), type(place.store).__name__

    found, store = asyncio.run(case())
    bounds = CALLS[store]
    assert found.keys() == bounds.keys()
    cost = {name: (each.statements, each.round_trips) for name, each in found.items()}
    assert {
        name: pair
        for name, pair in cost.items()
        if pair[0] > bounds[name][0] or pair[1] > bounds[name][1]
    } == {}, f"of all: {cost}"


class Watched:
    """A store that counts the calls to it that came to something."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*arguments: Any, **options: Any) -> Any:
            result = await method(*arguments, **options)
            self.calls[name] += bool(result)
            return result

        return call


# For 1,000 events of as many keys.
PER_1000 = {"claim": 1, "settle": 1, "publish": 1}
ONCE = 2
"""What a relay does beyond that, in the whole of its life."""

DUTIES = {"lane", "renew", "acquire", "idle"}
"""What is done now and then, whatever there is to deliver."""


async def drain(place: Site, events: int) -> Counter[str]:
    store, publisher = Watched(place.store), Counting()
    options = RelayOptions(until="drained", retention_seconds=None)
    # Its clock stands still, so that nothing is done because time has passed.
    relay = Relay(store, publisher, options, clock=lambda: 1.0)  # type: ignore[arg-type]
    await relay.run()
    assert relay.stats.published == events
    return store.calls + Counter(publish=publisher.calls)


def test_a_backlog_is_delivered_by_so_many_calls(site: Callable[[], Any]) -> None:
    async def case() -> None:
        async with site() as place:
            place.add(10_000)
            made = await drain(place, 10_000)
        for name, count in PER_1000.items():
            assert 0 < made[name] <= 10 * count + ONCE, made
        assert not made.keys() - PER_1000.keys() - DUTIES, made

    asyncio.run(case())
