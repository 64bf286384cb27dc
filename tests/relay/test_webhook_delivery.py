"""The relay with webhooks: what a receiver says is heard, and an outage costs nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from commitrelay import Event, Outbox
from commitrelay.options import RelayOptions
from commitrelay.publishers.http import from_url
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.stores.sqlite.store import SqliteStore
from tests.support.webhooks import Hook, Receiver

QUICK = RetryPolicy((0.05, 0.05), jitter=0)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def outbox_path(sqlite_path: Path) -> Path:
    async def initialise() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    return sqlite_path


def add(path: Path, keys: int, events: int) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for number in range(events):
            key = f"k{number % keys}"
            Outbox().add(connection, Event("Order", key, "Counted", str(number)))
    connection.close()


def new_relay(path: Path, receiver: Receiver, retry: RetryPolicy = QUICK) -> Relay:
    options = {"allow_private": "true", "delivery_timeout_seconds": "4"}
    publisher = from_url(f"{receiver.url}/events", options)
    return Relay(SqliteStore(str(path)), publisher, RelayOptions(until="drained", retry=retry))


def in_order(receiver: Receiver, keys: int, events: int) -> None:
    """Every event was taken once, those of a key in order."""
    assert sorted(int(hook.body) for hook in receiver.taken) == list(range(events))
    for key in (f"k{number}" for number in range(keys)):
        taken = [int(hook.body) for hook in receiver.taken if hook.key == key]
        assert taken == sorted(taken)


@pytest.mark.parametrize("status", [429, 503, 500, 425])
def test_retry_after_is_honoured(outbox_path: Path, receiver: Receiver, status: int) -> None:
    asked_at: list[float] = []

    async def answer(_hook: Hook) -> web.Response | None:
        asked_at.append(time.monotonic())
        if len(asked_at) == 1:
            return web.Response(status=status, headers={"Retry-After": "2"})
        return None

    receiver.answer = answer
    add(outbox_path, keys=1, events=3)
    relay = new_relay(outbox_path, receiver)
    asyncio.run(relay.run())
    in_order(receiver, keys=1, events=3)
    assert len(asked_at) == 4
    assert 2.0 <= asked_at[1] - asked_at[0] < 4.0
    assert relay.stats.dead == 0
    assert relay.stats.refused == (1 if status in (500, 425) else 0)


def test_a_receiver_that_throttles_everything_kills_no_event(
    outbox_path: Path, receiver: Receiver
) -> None:
    """More 429 than a policy of three attempts would survive."""
    asked = 0

    async def answer(_hook: Hook) -> web.Response | None:
        nonlocal asked
        asked += 1
        return web.Response(status=429, headers={"Retry-After": "0"}) if asked % 3 else None

    receiver.answer = answer
    add(outbox_path, keys=4, events=20)
    relay = new_relay(outbox_path, receiver)
    asyncio.run(relay.run())
    in_order(receiver, keys=4, events=20)
    assert relay.stats.dead == relay.stats.refused == 0


def test_an_endpoint_that_is_down_for_a_while_kills_nothing(
    outbox_path: Path, receiver: Receiver
) -> None:
    add(outbox_path, keys=5, events=300)

    async def case() -> Relay:
        relay = new_relay(outbox_path, receiver)
        running = asyncio.create_task(relay.run())
        while len(receiver.taken) < 50:
            await asyncio.sleep(0.005)
        await asyncio.to_thread(receiver.stop)
        while not relay.stats.unreachable:
            await asyncio.sleep(0.005)
        await asyncio.sleep(1.0)  # as long as the outage lasts
        await asyncio.to_thread(receiver.start)
        async with asyncio.timeout(60):
            await running
        return relay

    relay = asyncio.run(case())
    assert relay.stats.dead == 0
    assert relay.stats.unreachable >= 1
    assert {int(hook.body) for hook in receiver.taken} == set(range(300))
    for key in (f"k{number}" for number in range(5)):
        seen = dict.fromkeys(int(hook.body) for hook in receiver.taken if hook.key == key)
        assert list(seen) == sorted(seen)


def test_an_endpoint_that_says_500_gets_every_attempt_and_then_the_event_is_dead(
    outbox_path: Path, receiver: Receiver
) -> None:
    async def answer(hook: Hook) -> web.Response | None:
        return web.Response(status=500) if hook.key == "k0" else None

    receiver.answer = answer
    add(outbox_path, keys=2, events=4)
    relay = new_relay(outbox_path, receiver)
    asyncio.run(relay.run())
    assert [int(hook.body) for hook in receiver.taken] == [1, 3]
    assert len([hook for hook in receiver.requests if hook.key == "k0"]) == 3
    assert relay.stats.dead == 1


def test_every_attempt_has_the_same_id_and_its_own_time(
    outbox_path: Path, receiver: Receiver
) -> None:
    async def answer(_hook: Hook) -> web.Response | None:
        return web.Response(status=500) if len(receiver.requests) == 1 else None

    receiver.answer = answer
    add(outbox_path, keys=1, events=1)
    asyncio.run(new_relay(outbox_path, receiver, RetryPolicy((1.1,), jitter=0)).run())
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert int(first.headers["webhook-timestamp"]) < int(second.headers["webhook-timestamp"])
