"""A direct pass and a relay that polls every millisecond share the same events."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.direct.scene import (
    Database,
    Process,
    arrivals,
    by_key,
    cleaning_up,
    first_of,
    wait_until,
)
from tests.faults.scene import read_topic
from tests.support import redis
from tests.support.kafka import Topics
from tests.support.services import DedicatedServer

EVENTS = 20_000
KEYS = 400


def start(
    database: Database, broker: str, directory: Path, **settings: Any
) -> tuple[Process, Process]:
    database.make_counters(KEYS)
    same = {"database": database.url, "broker": broker, **settings}
    relay = Process("relay_process", directory, **same)
    return relay, application(directory, **same)


def application(directory: Path, **settings: Any) -> Process:
    defaults = {"events": EVENTS, "writers": 3, "keys": KEYS}
    return Process("application_process", directory, **{**defaults, **settings})


def test_nothing_is_delivered_twice_or_out_of_order(
    database: Database, topics: Path, tmp_path: Path
) -> None:
    relay, app = start(database, f"file://{topics}?fsync=false", tmp_path)
    with cleaning_up(relay, app):
        assert app.line() == "started"
        stats = json.loads(app.line())
        wait_until(lambda: database.queued == 0, 60, "everything delivered")
        assert relay.end() == 0
    assert by_key(arrivals(topics)) == database.counters()
    assert database.published() == database.added >= EVENTS
    assert database.published("direct-%") == stats["passed"] > 500, stats
    assert database.published("relay") > 0
    assert (stats["released"], stats["in_hand"]) == (0, 0)


def test_the_same_on_kafka(
    postgres: Database, real_kafka: str, kafka_topic: Topics, tmp_path: Path
) -> None:
    topic = kafka_topic("order.events", partitions=4)
    relay, app = start(
        postgres,
        f"kafka://{real_kafka}",
        tmp_path,
        topic=topic,
        strategy="competing",
        wait_seconds=0.005,
    )
    with cleaning_up(relay, app):
        assert app.line() == "started"
        stats = json.loads(app.line())
        wait_until(lambda: postgres.queued == 0, 60, "everything delivered")
        assert relay.end() == 0
    assert by_key(read_topic(real_kafka, topic)) == postgres.counters()
    assert postgres.published("direct-%") == stats["passed"] > 500, stats


def test_a_broker_that_is_away_for_a_while(
    database: Database, topics: Path, tmp_path: Path
) -> None:
    """The application notices nothing; the relay delivers what could not be passed, in order."""
    relay, app = start(database, f"file://{topics}?fsync=false", tmp_path, events=4000)
    with cleaning_up(relay, app):
        assert app.line() == "started"
        wait_until(lambda: database.published("direct-%") > 500, 60, "500 passed")
        away = topics.rename(tmp_path / "away")
        added = database.added
        wait_until(lambda: database.added > added + 500, 60, "500 more added")
        away.rename(topics)
        stats = json.loads(app.line())
        wait_until(lambda: database.queued == 0, 60, "everything delivered")
        assert relay.end() == 0
    assert by_key(first_of(arrivals(topics))) == database.counters()
    assert database.published() == database.added
    assert stats["left"]["not ready"] > 0
    assert stats["in_hand"] == 0


def read_kafka(url: str) -> list[tuple[str, int]]:
    return read_topic(url.removeprefix("kafka://"), "orders")


def read_redis(url: str) -> list[tuple[str, int]]:
    return [(each.key, json.loads(each.value)["number"]) for each in redis.read(url, "orders")]


class Broker(NamedTuple):
    kind: str
    query: str
    read: Callable[[str], list[tuple[str, int]]]


KAFKA = Broker("kafka", "?create_topics=true", read_kafka)
REDIS = Broker("redis", "", read_redis)


@pytest.mark.parametrize("broker", [KAFKA, REDIS], ids=lambda broker: broker.kind)
def test_a_broker_that_is_stopped_and_started(
    postgres: Database,
    dedicated_server: Callable[[str], DedicatedServer],
    tmp_path: Path,
    broker: Broker,
) -> None:
    server = dedicated_server(broker.kind)
    settings = {"delivery_timeout_seconds": "3"}
    relay, app = start(postgres, f"{server.url}{broker.query}", tmp_path, events=6000, **settings)
    with cleaning_up(relay, app):
        assert app.line() == "started"
        wait_until(lambda: postgres.published("direct-%") > 300, 60, "300 passed")
        server.stop()
        added = postgres.added
        wait_until(lambda: postgres.added > added + 500, 60, "500 more added meanwhile")
        server.start()
        stats = json.loads(app.line())
        wait_until(lambda: postgres.queued == 0, 120, "everything delivered")
        assert relay.end() == 0
    assert by_key(first_of(broker.read(server.url))) == postgres.counters()
    assert postgres.published() == postgres.added
    assert postgres.published("relay") > 500
    assert stats["left"]["not ready"] > 0
    assert stats["in_hand"] == 0


def test_applications_that_are_killed(database: Database, topics: Path, tmp_path: Path) -> None:
    """What they had in hand is the relay's when the claims expire; nothing else comes twice."""
    settings = {"claim_seconds": 2.0, "delivery_timeout_seconds": "1", "max_waiting": 30}
    random = Random(4)
    relay, app = start(database, f"file://{topics}?fsync=false", tmp_path, **settings)
    same = {"database": database.url, "broker": f"file://{topics}?fsync=false", **settings}
    for seed in range(1, 6):
        with cleaning_up(app):
            assert app.line() == "started"
            passed = database.published("direct-%")
            wait_until(lambda before=passed: database.published("direct-%") > before, 60, "passing")
            time.sleep(random.uniform(0.1, 1.0))
            app.send(signal.SIGKILL)
        app = application(tmp_path, **same, seed=seed, events=2000)
    with cleaning_up(relay, app):
        assert app.line() == "started"
        assert json.loads(app.line())["passed"] > 0
        wait_until(lambda: database.queued == 0, 60, "everything delivered")
        assert relay.end() == 0
    arrived = arrivals(topics)
    assert by_key(first_of(arrived)) == database.counters()
    assert len(arrived) - len(first_of(arrived)) <= 5 * 30  # kills, and what each had in hand


def test_an_application_that_is_stopped_beyond_its_claims(
    database: Database, topics: Path, tmp_path: Path
) -> None:
    """The relay takes over; when the application goes on, it sends nothing that it has lost."""
    relay, app = start(
        database,
        f"file://{topics}?fsync=false",
        tmp_path,
        events=3000,
        claim_seconds=2.0,
        delivery_timeout_seconds="1",
    )
    with cleaning_up(relay, app):
        assert app.line() == "started"
        for _ in range(2):
            passed = database.published("direct-%")
            wait_until(lambda before=passed: database.published("direct-%") > before, 60, "passing")
            app.send(signal.SIGSTOP)
            wait_for_the_relay(database)
            app.send(signal.SIGCONT)
        stats = json.loads(app.line())
        wait_until(lambda: database.queued == 0, 60, "everything delivered")
        assert relay.end() == 0
    arrived = arrivals(topics)
    assert by_key(first_of(arrived)) == database.counters()
    assert stats["in_hand"] == 0


def wait_for_the_relay(database: Database) -> None:
    if database.url.startswith("sqlite"):
        time.sleep(3.0)  # the one who is stopped may hold SQLite's write lock
    else:
        wait_until(lambda: database.queued == 0, 60, "the relay has delivered what was claimed")
