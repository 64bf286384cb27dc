"""NATS and Redis are stopped for 20 s and started again under load, with a real relay.

Nothing is lost, no attempt is spent, nothing is dead, and every key arrives in order.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox, registry
from commitrelay.format import Plain
from commitrelay.options import RelayOptions
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.route import Route
from commitrelay.stores.sqlite.store import SqliteStore
from commitrelay.testing.publisher_suite import Received
from tests.faults.scene import first_deliveries, in_order, wait_until
from tests.support import nats, redis
from tests.support.services import DedicatedServer

OUTAGE_SECONDS = 20.0
KEYS = 50

Read = Callable[[str], Awaitable[list[Received]]]


async def _read_nats(url: str) -> list[Received]:
    return await nats.Streams(url).read("orders")


async def _read_redis(url: str) -> list[Received]:
    return await asyncio.to_thread(redis.read, url, "orders")


@dataclass(frozen=True)
class Broker:
    kind: str
    query: str
    read: Read

    def __str__(self) -> str:
        return self.kind


NATS = Broker("nats", "?stream=orders&create_stream=orders", _read_nats)
REDIS = Broker("redis", "", _read_redis)


@pytest.mark.parametrize("broker", [NATS, REDIS], ids=str)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_stopped_for_20_seconds_under_load(
    sqlite_path: Path,
    dedicated_server: Callable[[str], DedicatedServer],
    broker: Broker,
    how: str,
) -> None:
    server = dedicated_server(broker.kind)
    database = _Database(sqlite_path)
    relay = Relay(
        SqliteStore(str(sqlite_path)),
        registry.publisher(f"{server.url}{broker.query}", {"delivery_timeout_seconds": "5"}),
        RelayOptions(retry=RetryPolicy(delays_seconds=(0.1, 0.2))),
        compose=Plain(Route("orders")),
    )

    async def deliver() -> list[Received]:
        async with relay:
            database.start_load()
            await _until(lambda: relay.stats.published > 300, "300 events published")
            await asyncio.to_thread(getattr(server, how))
            await asyncio.sleep(OUTAGE_SECONDS)  # the outage itself
            assert database.value("SELECT max(attempts) FROM outbox_queue") == 0
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(database.stop_load)
            await _until(lambda: database.value("SELECT count(*) FROM outbox_queue") == 0, "empty")
        return await broker.read(server.url)

    received = asyncio.run(deliver())
    assert relay.stats.refused == relay.stats.dead == 0
    assert relay.stats.unreachable > 0
    arrived = [(each.key, json.loads(each.value)["number"]) for each in received]
    assert first_deliveries(arrived) == in_order(database.added, KEYS)


async def _until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, 60, what)


class _Database:
    """An outbox that is written to, about 400 events a second."""

    def __init__(self, path: Path) -> None:
        self.added = 0
        self._path = path
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._load)
        self.start_load = self._thread.start
        asyncio.run(_initialise(path))

    def stop_load(self) -> None:
        self._stopping.set()
        self._thread.join()

    def value(self, query: str) -> Any:
        connection = sqlite3.connect(self._path, timeout=30)
        try:
            return connection.execute(query).fetchone()[0]
        finally:
            connection.close()

    def _load(self) -> None:
        connection = sqlite3.connect(self._path, timeout=30)
        while not self._stopping.is_set():
            numbers = range(self.added, self.added + 20)
            events = [Event("Order", n % KEYS, "Counted", {"number": n}) for n in numbers]
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                Outbox().add(connection, *events)
            self.added += len(events)
            time.sleep(0.05)  # the pace of the load
        connection.close()


async def _initialise(path: Path) -> None:
    store = SqliteStore(str(path))
    await store.initialise()
    await store.close()
