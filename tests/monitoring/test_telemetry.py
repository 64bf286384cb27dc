"""Telemetry: what the wrapped ports count, with a real relay on SQLite."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commitrelay import Event, Outbox, telemetry
from commitrelay.alerts import duty_of
from commitrelay.errors import LeaseLost
from commitrelay.options import RelayOptions
from commitrelay.publisher import (
    DELIVERED,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.store import Fence, OpenCircuit, Queued, State
from commitrelay.stores.sqlite.store import SqliteStore
from commitrelay.telemetry import LaneMeter, MeteredPublisher, MeteredStore, Telemetry

LANE = "default"


class Broker:
    """Refuses what is bad, and does not answer the first time that it is asked for `late`."""

    capabilities = PublisherCapabilities(stops_at_failure=False)
    delivery_timeout_seconds = 10.0

    def __init__(self) -> None:
        self._late = True

    async def open(self) -> None: ...
    async def recover(self) -> None: ...
    async def close(self) -> None: ...

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return [self._answer(message.value) for message in messages]

    def _answer(self, value: bytes) -> Outcome:
        if value == b"late" and self._late:
            self._late = False
            return Unreachable("nobody home")
        return Refused("bad") if value == b"bad" else DELIVERED


@pytest.fixture
def path(sqlite_path: Path) -> Path:
    async def create() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(create())
    return sqlite_path


def add(path: Path, *events: Event) -> None:
    with closing(sqlite3.connect(path)) as connection:
        Outbox().add(connection, *events)
        connection.commit()


def test_every_outcome_is_counted_once(path: Path) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=200)
    add(
        path,
        *(Event("Order", str(number), "Paid", "ok") for number in range(10)),
        Event("Order", "x", "Paid", "bad"),
        Event("Order", "y", "Paid", "late"),
        Event("Order", "z", "Paid", "scheduled", deliver_at=soon),
    )
    told = Telemetry()
    meter = LaneMeter(told, LANE)
    options = RelayOptions(retry=RetryPolicy((0.01, 0.01), jitter=0))

    async def body() -> None:
        store = MeteredStore(SqliteStore(str(path)), meter)
        relay = Relay(store, MeteredPublisher(Broker(), meter), options)
        async with asyncio.timeout(60), relay:
            while not (relay.stats.published == 12 and relay.stats.dead == 1):
                await asyncio.sleep(0.01)
            assert meter.is_up
            assert meter.relay == relay.name
        assert not meter.is_up

    asyncio.run(body())
    assert told.published.value(LANE) == 12
    assert told.failures.value(LANE, "refused") == 3
    assert told.failures.value(LANE, "unreachable") == 1
    assert told.retries.value(LANE) == 2
    assert told.dead.value(LANE) == 1
    assert told.lease_lost.value(LANE) == 0
    assert told.in_flight.value(LANE) == 0
    assert told.latency.count(LANE) == 11  # the scheduled one is late on purpose
    assert 0 <= told.latency.value(LANE) < 11 * 60
    assert told.duration.count(LANE) == told.batch_size.count(LANE) > 0


def test_a_lost_lease_is_counted_once_however_often_it_is_refused(path: Path) -> None:
    told = Telemetry()
    meter = LaneMeter(told, LANE)

    async def body() -> None:
        store = MeteredStore(SqliteStore(str(path)), meter)
        await store.open()
        lane = await store.lane(LANE)

        async def renew() -> Fence:
            roster = await store.renew(
                lane.id, "me", strategy="partitioned", keep=None, lease_seconds=30
            )
            return Fence(lane.id, "me", roster.token)

        assert meter.relay is None
        fence = await renew()
        assert meter.relay == "me"
        assert meter.is_up
        await store.leave(Fence(lane.id, "me", fence.token))
        assert not meter.is_up
        fence = await renew()
        assert told.lease_lost.value(LANE) == 0  # it was given up, not lost
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM outbox_lease")
            connection.commit()
        for _ in range(3):
            with pytest.raises(LeaseLost):
                await store.settle(fence, telemetry.Settlement(delivered=[1]))
        assert told.lease_lost.value(LANE) == 1
        assert not meter.is_up
        await renew()
        assert told.lease_lost.value(LANE) == 1
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DELETE FROM outbox_lease")
            connection.commit()
        await renew()
        assert told.lease_lost.value(LANE) == 2
        await store.close()

    asyncio.run(body())


def test_one_relay_of_a_lane_leads_and_alone_tells(path: Path) -> None:
    async def body() -> None:
        meters = [LaneMeter(Telemetry(), LANE) for _ in range(2)]
        databases = [SqliteStore(str(path)) for _ in meters]
        stores = [MeteredStore(*pair) for pair in zip(databases, meters, strict=True)]
        lane = 0
        for store in stores:
            await store.open()
            lane = (await store.lane(LANE)).id

        async def renew(number: int) -> Fence:
            roster = await stores[number].renew(
                lane, "ab"[number], strategy="partitioned", keep=None, lease_seconds=30
            )
            return Fence(lane, "ab"[number], roster.token)

        async def telling() -> list[bool]:
            lanes = await databases[0].status()
            return [duty_of({LANE: meter.relay}, lanes).outbox for meter in meters]

        gone = OpenCircuit(0.0, "gone")
        for store, name in zip(reversed(stores), "ba", strict=True):
            await store.tell_circuit(lane, name, gone, valid_seconds=30)
        assert await telling() == [True, False], "both wait for their brokers"
        await renew(1)
        assert await telling() == [False, True]
        first = await renew(0)
        assert await telling() == [True, False]
        await stores[0].leave(first)
        assert await telling() == [False, True]
        for store in stores:
            await store.close()

    asyncio.run(body())


def test_what_other_relays_delivered_is_not_remembered_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry, "MOST_BORN", 5)
    meter = LaneMeter(Telemetry(), LANE)
    for number in range(20):
        names = ("Order", "1", "Paid", b"", "text/plain", "{}", None, "2026-11-15T20:33:45Z")
        meter.claimed([Queued(number, 0, 0, State.PENDING, 0, False, str(number), *names)])
    assert "19" in meter.born
    assert len(meter.born) <= 5 + 1


def lines_of(meter: LaneMeter) -> list[str]:
    return [line for line in meter.telemetry.latency.lines() if "_sum" not in line]


def test_a_large_batch_is_measured_as_its_events_one_by_one() -> None:
    now = 1794774825.0
    chance = random.Random(3)
    ages = [
        chance.choice((0.001, 0.02, 0.3, 4.0, 50.0, 6000.0)) * chance.random() for _ in range(999)
    ]
    ages.append(-5.0)  # the database's clock is ahead
    texts = [
        datetime.fromtimestamp(now - age, UTC).replace(tzinfo=None).isoformat() + "Z"
        for age in ages
    ]
    messages = [Message("t", "k", b"", [], str(number)) for number in range(1000)]
    meters = [LaneMeter(Telemetry(), LANE, wall_clock=lambda: now) for _ in range(2)]
    for meter in meters:
        meter.born = {str(number): text for number, text in enumerate(texts)}
    singly, together = meters
    for message in messages:
        singly.acknowledged([message])
    together.acknowledged(messages)
    assert lines_of(singly) == lines_of(together)
    exact, sampled = (meter.telemetry.latency.value(LANE) for meter in meters)
    assert sampled == pytest.approx(exact, rel=0.3)
    assert together.born == {}


@pytest.mark.parametrize(
    "text",
    ["2026-11-15T20:33:45.500000Z", "2026-11-15T20:33:45.5Z", "2026-11-15T20:33:45.500Z"],
)
def test_moments_are_read(text: str) -> None:
    assert telemetry._age(text, 1794774826.0) == pytest.approx(0.5)
