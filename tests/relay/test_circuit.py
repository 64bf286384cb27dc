"""A relay tells the database that it holds off from its broker, and when that is over."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox, circuit
from commitrelay.errors import BrokerUnreachable, StoreError, StoreUnreachable
from commitrelay.options import RelayOptions
from commitrelay.publisher import DELIVERED, Message, Outcome, PublisherCapabilities, Unreachable
from commitrelay.relay import Relay
from commitrelay.store import OpenCircuit
from commitrelay.stores.sqlite.store import SqliteStore

PATIENCE_SECONDS = 60.0
REASON = "cannot reach kafka://relay:hunter2@broker: refused, password=hunter2"
SHOWN = "cannot reach kafka://relay:***@broker: refused, password=***"


class Broker:
    """Takes everything, unless it is away."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 1.0

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away
        self.is_slow = False  # it answers once, and then not in this test
        self.asked = 0

    async def open(self) -> None:
        self.asked += 1
        if self.is_away:
            raise BrokerUnreachable(REASON)

    async def recover(self) -> None:
        """It may be reached, which is not to say that it takes anything."""

    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        self.asked += 1
        if self.is_away:
            return [Unreachable(REASON, retry_after_seconds=0.1)] * len(messages)
        if self.is_slow:
            self.publish = self._never_answer  # type: ignore[method-assign]
        return [DELIVERED] * len(messages)

    async def _never_answer(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        await asyncio.Event().wait()
        raise AssertionError


class Database(SqliteStore):
    """Remembers what it was told of the circuit, and fails at that as it is asked to."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.told: list[bool] = []  # whether it was said to be open
        self.failures: list[Exception] = []

    async def tell_circuit(
        self, lane: int, relay: str, circuit: OpenCircuit | None, *, valid_seconds: float
    ) -> None:
        self.told.append(circuit is not None)
        if self.failures:
            raise self.failures.pop()
        await super().tell_circuit(lane, relay, circuit, valid_seconds=valid_seconds)


class Site:
    """An outbox, a broker, and a relay between them."""

    def __init__(self, path: Path, *, is_away: bool = False, **options: Any) -> None:
        self._path = path
        self.database = Database(path)
        self.broker = Broker(is_away=is_away)
        self.relay = Relay(self.database, self.broker, RelayOptions(**options), name="r")

    def add(self, *keys: str) -> None:
        with closing(sqlite3.connect(self._path, timeout=20)) as connection, connection:
            Outbox().add(connection, *(Event("Order", key, "OrderPaid", {}) for key in keys))

    async def circuits(self) -> dict[str, OpenCircuit]:
        (status,) = await self.database.status()
        return status.open_circuits

    async def lose_broker(self) -> None:
        """Once it was reached, with an event to deliver."""
        self.add("first")
        await eventually(async_of(lambda: self.relay.stats.published))
        self.broker.is_away = True
        self.add("second")

    async def until_open(self) -> OpenCircuit:
        await eventually(self.circuits)
        return (await self.circuits())["r"]

    async def until_closed(self) -> None:
        async def is_closed() -> bool:
            return not await self.circuits()

        await eventually(is_closed)


async def eventually(ask: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await ask():
            await asyncio.sleep(0.01)


def play(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, 2 * PATIENCE_SECONDS))


@pytest.fixture
def path(sqlite_path: Path) -> Path:
    async def initialise() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    return sqlite_path


def test_it_opens_with_the_reason_and_closes_with_the_next_delivery(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit, "TELL_SECONDS", 3600)

    async def case() -> None:
        site = Site(path, lease_seconds=3600)
        async with site.relay:
            site.add(*map(str, range(500)))
            await eventually(async_of(lambda: site.relay.stats.published == 500))
            assert site.database.told == [], "nothing is written while all is well"
            site.broker.is_away = True
            site.add("a")
            assert (await site.until_open()).error == SHOWN
            asked = site.broker.asked
            await eventually(async_of(lambda: site.broker.asked >= asked + 5))
            site.broker.is_away = False
            await site.until_closed()
            assert site.relay.stats.published == 501
            assert site.database.told == [True, False], "not once per attempt"

    play(case())


def test_it_closes_with_a_delivery_however_much_is_left_to_do(path: Path) -> None:
    async def case() -> None:
        site = Site(path, batch_size=1)
        async with site.relay:
            await site.lose_broker()
            site.add("third", "fourth")
            await site.until_open()
            site.broker.is_slow, site.broker.is_away = True, False
            await eventually(async_of(lambda: False in site.database.told))
            assert site.relay.stats.published == 2

    play(case())


def test_it_is_open_before_the_broker_was_ever_reached(path: Path) -> None:
    """Such a relay has no lease: nobody may leave buckets to it."""

    async def case() -> None:
        site = Site(path, is_away=True)
        async with site.relay:
            assert (await site.until_open()).error == SHOWN
            (status,) = await site.database.status()
            assert status.relays == {}
            site.broker.is_away = False
            await site.until_closed()

    play(case())


def test_it_stays_open_as_long_as_it_lasts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told is void after the time of a lease, so it is told again before that."""
    monkeypatch.setattr(circuit, "TELL_SECONDS", 0.05)

    async def case() -> None:
        site = Site(path, is_away=True)
        async with site.relay:
            first = await site.until_open()
            await eventually(async_of(lambda: len(site.database.told) > 5))
            assert (await site.until_open()).open_seconds > first.open_seconds
            assert all(site.database.told)

    play(case())


def test_a_relay_that_stops_takes_it_back(path: Path) -> None:
    async def case() -> None:
        site = Site(path)
        async with site.relay:
            await site.lose_broker()
            await site.until_open()
        await site.database.open()
        assert await site.circuits() == {}
        await site.database.close()

    play(case())


NOTHING_TO_HOLD_OFF = {
    "discarded": "DELETE FROM outbox_queue",
    "paused": "UPDATE outbox_lane SET paused = 1",
    "taken over": "UPDATE outbox_lease SET relay = 'other', expires_at = expires_at + 3600000",
}


@pytest.mark.parametrize("statement", NOTHING_TO_HOLD_OFF.values(), ids=NOTHING_TO_HOLD_OFF)
def test_it_closes_when_nothing_is_held_off_any_more(path: Path, statement: str) -> None:
    async def case() -> None:
        site = Site(path)
        async with site.relay:
            await site.lose_broker()
            await site.until_open()
            with closing(sqlite3.connect(path, timeout=20)) as connection, connection:
                connection.execute(statement)
            await site.until_closed()

    play(case())


def test_a_database_that_was_away_learns_it_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit, "TELL_SECONDS", 0.05)

    async def case() -> None:
        site = Site(path)
        async with site.relay:
            site.database.failures = [StoreUnreachable("away"), StoreUnreachable("away")]
            await site.lose_broker()
            await site.until_open()
            site.database.failures = [StoreUnreachable("away"), StoreUnreachable("away")]
            site.broker.is_away = False
            await site.until_closed()

    play(case())


def test_a_database_that_refuses_it_does_not_stop_the_relay(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An account that lacks the right to write it, say."""
    monkeypatch.setattr(circuit, "TELL_SECONDS", 0.01)

    async def case() -> None:
        site = Site(path)
        async with site.relay:
            site.database.failures = [StoreError("permission denied")] * 1_000_000
            await site.lose_broker()
            await eventually(async_of(lambda: len(site.database.told) > 5))
            site.broker.is_away = False
            await eventually(async_of(lambda: site.relay.stats.published == 2))

    with caplog.at_level(logging.WARNING):
        play(case())
    lines = [record.getMessage() for record in caplog.records]
    assert sum("permission denied" in line for line in lines) == 1


def async_of(ask: Callable[[], Any]) -> Callable[[], Awaitable[Any]]:
    async def asked() -> Any:
        return ask()

    return asked
