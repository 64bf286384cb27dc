"""Kafka that refuses a message, Kafka that is gone, and Kafka that stands still."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Literal

import psycopg
import pytest

from commitrelay import Event, Outbox
from commitrelay.format import Plain
from commitrelay.options import RelayOptions
from commitrelay.publishers.kafka import from_url
from commitrelay.relay import Relay
from commitrelay.retry import RetryPolicy
from commitrelay.route import Route
from commitrelay.stores.postgres.store import PostgresStore
from tests.faults.scene import (
    Database,
    add,
    first_deliveries,
    in_order,
    initialise,
    read_topic,
    wait_until,
    watched,
)
from tests.support.kafka import Topics, bootstrap
from tests.support.services import DedicatedServer

OUTAGE_SECONDS = 60.0

LANES: list[tuple[str, Literal["partitioned", "leader"], str]] = [
    ("default", "partitioned", "?create_topics=true"),
    ("transactional", "leader", "?create_topics=true&transactional.id=relay"),
]


def _relay(database: str, kafka: str, topic: str, on_dead: Literal["block", "skip"]) -> Relay:
    return Relay(
        PostgresStore(database),
        from_url(kafka, {"delivery_timeout_seconds": "5"}),
        RelayOptions(on_dead=on_dead, retry=RetryPolicy(delays_seconds=(0.1, 0.2))),
        compose=Plain(Route(topic)),
    )


async def _until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    await asyncio.to_thread(wait_until, condition, seconds, what)


@pytest.mark.parametrize("on_dead", ["block", "skip"])
def test_an_oversized_message_in_the_middle_of_a_key(
    postgres_database: str, real_kafka: str, kafka_topic: Topics, on_dead: Literal["block", "skip"]
) -> None:
    """It is retried, then dead; its followers wait or pass, as configured; other keys flow."""
    initialise(postgres_database)
    topic = kafka_topic("orders", partitions=1, config={"max.message.bytes": "20000"})
    with psycopg.connect(postgres_database) as connection:
        for number in range(20):
            key = number % 2
            payload = {"number": number, "filling": "x" * (100_000 if number == 8 else 10)}
            Outbox().add(connection, Event("Order", key, "Counted", payload))

    async def deliver(database: Database) -> Relay:
        relay = _relay(postgres_database, f"kafka://{real_kafka}", topic, on_dead)
        left = {"block": 6, "skip": 1}[on_dead]  # the dead one and its five followers, or it alone
        async with relay:
            dead = "SELECT count(*) FROM outbox WHERE status = 'dead'"
            await _until(lambda: database.value(dead) == 1, "the oversized one is dead")
            await _until(lambda: database.queued == left, f"{left} left in the queue")
        return relay

    with watched(postgres_database) as database:
        relay = asyncio.run(deliver(database))
        dead = database.rows("SELECT retry_count, last_error FROM outbox WHERE status = 'dead'")
        waiting = database.value("SELECT count(*) FROM outbox WHERE status = 'parked'")
    assert dead[0][0] == 3
    assert "large" in dead[0][1].lower()
    assert waiting == {"block": 5, "skip": 0}[on_dead]
    assert relay.stats.dead == 1
    assert relay.stats.retried == 2
    arrived = first_deliveries(read_topic(real_kafka, topic))
    assert arrived["1"] == list(range(1, 20, 2))
    after = [10, 12, 14, 16, 18] if on_dead == "skip" else []
    assert arrived["0"] == [0, 2, 4, 6, *after]


def test_kafka_is_down_for_a_minute_under_load(
    postgres_database: str, dedicated_server: Callable[[str], DedicatedServer]
) -> None:
    """No attempt is spent, nothing is dead, all is delivered after it is back."""
    initialise(postgres_database)
    kafka = dedicated_server("kafka")
    relay = _relay(postgres_database, f"{kafka.url}?create_topics=true", "orders", "block")
    load = _Load(postgres_database)

    async def deliver(database: Database) -> None:
        async with relay:
            load.start()
            await _until(lambda: database.published > 500, "500 events published")
            await asyncio.to_thread(kafka.stop)
            await asyncio.sleep(OUTAGE_SECONDS)
            assert database.value("SELECT max(attempts) FROM outbox_queue") == 0
            await asyncio.to_thread(kafka.start)
            await asyncio.to_thread(load.stop)
            await _until(lambda: database.queued == 0, "everything delivered", 90)

    with watched(postgres_database) as database:
        asyncio.run(deliver(database))
        assert database.published == load.added
    assert relay.stats.refused == relay.stats.dead == 0
    assert relay.stats.unreachable > 0
    arrived = first_deliveries(read_topic(bootstrap(kafka.url), "orders"))
    assert arrived == in_order(load.added, keys=50)


def test_kafka_stands_still_under_load(
    postgres_database: str, dedicated_server: Callable[[str], DedicatedServer]
) -> None:
    """What it takes in late does not change the order, plain or in transactions."""
    initialise(postgres_database)
    asyncio.run(_add_lane(postgres_database, "transactional"))
    kafka = dedicated_server("kafka")
    both = [
        Relay(
            PostgresStore(postgres_database),
            from_url(f"{kafka.url}{query}", {"delivery_timeout_seconds": "3"}),
            RelayOptions(lane=lane, strategy=strategy, retry=RetryPolicy(delays_seconds=(0.1,))),
            compose=Plain(Route(lane)),
        )
        for lane, strategy, query in LANES
    ]
    load = _Load(postgres_database)

    async def deliver(database: Database) -> None:
        async with both[0], both[1]:
            load.start()
            await _until(lambda: all(each.stats.published > 200 for each in both), "published")
            await asyncio.to_thread(kafka.pause)
            try:
                await _until(lambda: all(each.stats.unreachable for each in both), "unreachable")
                assert database.value("SELECT max(attempts) FROM outbox_queue") == 0
            finally:
                await asyncio.to_thread(kafka.resume)
            await asyncio.to_thread(load.stop)
            await _until(lambda: database.queued == 0, "everything delivered")

    with watched(postgres_database) as database:
        asyncio.run(deliver(database))
        assert database.published == 2 * load.added
    for lane, _strategy, _query in LANES:
        arrived = first_deliveries(read_topic(bootstrap(kafka.url), lane))
        assert arrived == in_order(load.added, keys=50), lane


async def _add_lane(url: str, name: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.add_lane(name)
    await store.close()


class _Load:
    """About 400 events a second, until stopped."""

    def __init__(self, url: str) -> None:
        self.added = 0
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.start = self._thread.start

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            add(self._url, range(self.added, self.added + 20), keys=50)
            self.added += 20
            time.sleep(0.05)
