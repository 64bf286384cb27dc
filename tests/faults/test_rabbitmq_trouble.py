"""RabbitMQ that routes nowhere, is full, is out of memory, or is gone: with a real relay."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from commitrelay.format import Plain
from commitrelay.options import RelayOptions
from commitrelay.publishers.rabbitmq import from_url
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.route import Route
from commitrelay.stores.postgres.store import PostgresStore
from tests.conftest import give_up
from tests.faults.scene import add, first_deliveries, in_order, initialise, wait_until, watched
from tests.support.rabbitmq import Queues, control
from tests.support.services import DedicatedServer, Unavailable

OUTAGE_SECONDS = 20.0
KEYS = 5


@pytest.fixture
def queues(rabbitmq_url: str) -> Iterator[Queues]:
    queues = Queues(rabbitmq_url)
    yield queues
    queues.delete_all()


@pytest.fixture(scope="module")
def own_rabbitmq() -> Iterator[DedicatedServer]:
    try:
        server = DedicatedServer("rabbitmq", f"trouble-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


def _relay(database: str, rabbitmq: str, topic: str, timeout_seconds: float = 5) -> Relay:
    return Relay(
        PostgresStore(database),
        from_url(rabbitmq, {"delivery_timeout_seconds": str(timeout_seconds)}),
        RelayOptions(retry=RetryPolicy(delays_seconds=(0.2,) * 1000)),
        compose=Plain(Route(topic)),
    )


async def _until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    await asyncio.to_thread(wait_until, condition, seconds, what)


@contextmanager
def _load(database: str, pause_seconds: float) -> Iterator[Callable[[], int]]:
    """Adds events all the time; call it for the number of those that were added, and no more."""
    ending, added = threading.Event(), [0]

    def run() -> None:
        while not ending.wait(pause_seconds):
            add(database, range(added[0], added[0] + 10), KEYS)
            added[0] += 10

    def finish() -> int:
        ending.set()
        thread.join()
        return added[0]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield finish
    finally:
        finish()


def _numbers(queues: Queues, topic: str) -> list[tuple[str, int]]:
    return [(each.key, json.loads(each.value)["number"]) for each in queues.read(topic)]


def test_a_queue_that_is_unbound_and_bound_again(postgres_database: str, queues: Queues) -> None:
    """What is unroutable is refused, never published; bound again, everything arrives in order."""
    initialise(postgres_database)
    topic = queues()
    relay = _relay(postgres_database, queues.url, topic)

    async def case() -> int:
        with watched(postgres_database) as database, _load(postgres_database, 0.01) as finish:
            async with relay:
                await _until(lambda: database.published >= 200, "events flow")
                await asyncio.to_thread(queues.unbind, topic)
                arrived = await asyncio.to_thread(queues.length, topic)
                await _until(lambda: relay.stats.refused >= 3 * KEYS, "refused again and again")
                assert database.published <= arrived
                assert await asyncio.to_thread(queues.length, topic) == arrived
                error = database.value("SELECT max(last_error) FROM outbox")
                assert f"exchange {topic} routes" in error
                await asyncio.to_thread(queues.bind, topic)
                total = await asyncio.to_thread(finish)
                await _until(lambda: database.queued == 0, "everything is published")
                assert database.published == total
                return total

    total = asyncio.run(case())
    assert relay.stats.dead == relay.stats.unreachable == 0
    received = _numbers(queues, topic)
    assert len(received) == total, "each exactly once"
    assert first_deliveries(received) == in_order(total, KEYS)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_full_queue_keeps_the_order_of_keys(
    postgres_database: str, rabbitmq_url: str, kind: str
) -> None:
    initialise(postgres_database)
    queues = Queues(rabbitmq_url, kind)
    topic = queues({"x-max-length": 7, "x-overflow": "reject-publish"})
    relay = _relay(postgres_database, rabbitmq_url, topic)
    total = 60
    add(postgres_database, range(total), KEYS)
    received: list[tuple[str, int]] = []

    async def case() -> None:
        with watched(postgres_database) as database:
            async with relay:
                await _until(lambda: relay.stats.refused >= KEYS, "the queue is full")
                while database.queued:
                    received.extend(await asyncio.to_thread(_numbers, queues, topic))

    asyncio.run(case())
    received += _numbers(queues, topic)
    queues.delete_all()
    assert relay.stats.dead == relay.stats.unreachable == 0
    assert first_deliveries(received) == in_order(total, KEYS)
    assert len(received) == total


def test_a_memory_alarm_is_back_pressure(
    postgres_database: str, own_rabbitmq: DedicatedServer
) -> None:
    initialise(postgres_database)
    queues = Queues(own_rabbitmq.url)
    topic = queues()
    relay = _relay(postgres_database, own_rabbitmq.url, topic, timeout_seconds=2)
    total = 100

    async def case() -> None:
        with watched(postgres_database) as database:
            async with relay:
                add(postgres_database, range(0, 50), KEYS)
                await _until(lambda: database.published == 50, "events flow")
                watermark = "set_vm_memory_high_watermark"
                await asyncio.to_thread(control, own_rabbitmq.name, watermark, "0")
                try:
                    add(postgres_database, range(50, total), KEYS)
                    await _until(lambda: relay.stats.unreachable > 0, "the relay waits")
                    assert database.published == 50
                finally:
                    await asyncio.to_thread(control, own_rabbitmq.name, watermark, "0.6")
                await _until(lambda: database.published == total, "everything is published")

    asyncio.run(case())
    assert relay.stats.refused == relay.stats.dead == 0
    assert first_deliveries(_numbers(queues, topic)) == in_order(total, KEYS)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_an_outage_under_load_loses_nothing_and_spends_no_attempt(
    postgres_database: str, own_rabbitmq: DedicatedServer, kind: str
) -> None:
    initialise(postgres_database)
    queues = Queues(own_rabbitmq.url, kind)
    topic = queues()
    relay = _relay(postgres_database, own_rabbitmq.url, topic)

    async def case() -> int:
        with watched(postgres_database) as database, _load(postgres_database, 0.02) as finish:
            async with relay:
                await _until(lambda: database.published >= 100, "events flow")
                await asyncio.to_thread(own_rabbitmq.stop)
                stopped_at = time.monotonic()
                await _until(lambda: relay.stats.unreachable > 0, "the outage is noticed")
                await asyncio.sleep(OUTAGE_SECONDS - (time.monotonic() - stopped_at))
                await asyncio.to_thread(own_rabbitmq.start)
                total = await asyncio.to_thread(finish)
                await _until(lambda: database.published == total, "everything is published")
                return total

    total = asyncio.run(case())
    assert relay.stats.refused == relay.stats.dead == 0
    assert first_deliveries(_numbers(queues, topic)) == in_order(total, KEYS)
