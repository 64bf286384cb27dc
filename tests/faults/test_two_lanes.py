"""Two lanes of one process: while the broker of one is down, the other one flows."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import pytest

from commitrelay import Event, Outbox, registry
from commitrelay.daemon import Daemon
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.settings import LaneEntry, Settings
from commitrelay.sql import Names
from tests.faults.scene import first_deliveries, in_order, wait_until
from tests.support import redis
from tests.support.services import DedicatedServer

KEYS = 5


class _Outbox:
    """Whose events go to both lanes: files, and a broker that comes and goes."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        self._added = 0

    async def initialise(self) -> None:
        store = registry.database(self.url, Names())
        await store.initialise()
        await store.add_lane("broker")
        await store.close()

    def add(self, count: int) -> None:
        numbers = range(self._added, self._added + count)
        self._added += count
        with closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            events = (Event("Order", n % KEYS, "Counted", {"number": n}) for n in numbers)
            Outbox().add(connection, *events)

    def waiting(self) -> dict[str, int]:
        """How many events each lane has yet to deliver."""
        return dict(
            self._rows(
                "SELECT l.name, count(q.seq) FROM outbox_lane l"
                " LEFT JOIN outbox_queue q ON q.lane = l.id GROUP BY l.name"
            )
        )

    def attempts(self) -> int:
        [(most,)] = self._rows("SELECT max(attempts) FROM outbox_queue")
        return int(most)

    def _rows(self, query: str) -> list[tuple[str, int]]:
        with closing(sqlite3.connect(self._path, timeout=30)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def outbox(sqlite_path: Path) -> _Outbox:
    made = _Outbox(sqlite_path)
    asyncio.run(made.initialise())
    return made


def test_a_broker_that_is_down_at_the_start_and_later_stops_its_own_lane_only(
    outbox: _Outbox, tmp_path: Path, dedicated_server: Callable[[str], DedicatedServer]
) -> None:
    server = dedicated_server("redis")
    server.stop()
    outbox.add(50)
    lanes = (
        LaneEntry("default", overrides={"publish": f"file://{tmp_path / 'files'}"}),
        LaneEntry("broker", overrides={"publish": server.url}),
    )
    daemon = Daemon(Settings(database=outbox.url, topic="orders", lane_entries=lanes))

    async def waiting(default: int, broker: int, when: str) -> None:
        expected = {"default": default, "broker": broker}
        await asyncio.to_thread(wait_until, lambda: outbox.waiting() == expected, 30, when)

    async def deliver() -> None:
        running = asyncio.create_task(daemon.run())
        await waiting(0, 50, "the files have it all, while the broker has never been there")
        assert outbox.attempts() == 0
        await asyncio.to_thread(server.start)
        await waiting(0, 0, "the broker has it all")
        await asyncio.to_thread(server.stop)
        outbox.add(50)
        await waiting(0, 50, "the files have it all, while the broker is gone")
        assert outbox.attempts() == 0
        await asyncio.to_thread(server.start)
        await waiting(0, 0, "the broker has the rest")
        daemon.stop()
        totals = await running
        assert (totals.counts["refused"], totals.counts["dead"]) == (0, 0)

    asyncio.run(deliver())
    in_files = [(each.key, each.value) for each in TopicReader(tmp_path / "files", "orders").poll()]
    in_broker = [(each.key, each.value) for each in redis.read(server.url, "orders")]
    assert _numbers(in_files) == _numbers(in_broker) == in_order(100, KEYS)


def _numbers(received: Iterable[tuple[str, bytes]]) -> dict[str, list[int]]:
    return first_deliveries((key, json.loads(value)["number"]) for key, value in received)
