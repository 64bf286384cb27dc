"""Each condition of a broker: found when it is made, and silence otherwise."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commitrelay import Event, Outbox, Relay, RelayOptions, RetryPolicy, Route
from commitrelay.connect import open_publisher, open_store
from commitrelay.doctor.encryption import is_loopback
from commitrelay.format import Plain
from commitrelay.urls import hosts_of
from tests.doctor.examined import found, initialised, the_problem
from tests.support.kafka import Topics
from tests.support.nats import Streams
from tests.support.rabbitmq import Queues


@pytest.fixture
def outbox(sqlite_path: Path) -> str:
    """With one event in its log."""
    url = initialised(f"sqlite:///{sqlite_path}")
    with closing(sqlite3.connect(sqlite_path)) as connection:
        Outbox().add(connection, Event("Order", "1", "OrderPaid", {}))
        connection.commit()
    return url


# --- lease ----------------------------------------------------------------------------------


def test_lease(outbox: str) -> None:
    kafka = "kafka://127.0.0.1:1?delivery_timeout_seconds=10"
    assert found("lease", outbox, publish=kafka, lease=30.0) == []
    problem = the_problem("lease", outbox, publish=kafka, lease=12.0)
    assert "a lease of 12s is too short for a delivery timeout of 10s" in problem


# --- is anybody there -----------------------------------------------------------------------


def test_broker(outbox: str, redis_url: str) -> None:
    assert found("broker", outbox, publish=redis_url) == []
    problem = the_problem("broker", outbox, publish="redis://127.0.0.1:1")
    assert "lane default" in problem


# --- Kafka ----------------------------------------------------------------------------------


def test_topics(outbox: str, real_kafka: str, kafka_topic: Topics) -> None:
    kafka = f"kafka://{real_kafka}"
    assert found("topics", outbox, publish=kafka, topic=kafka_topic("there")) == []
    missing = f"missing-{uuid.uuid4().hex}"
    assert f"topic {missing} does not exist" in the_problem(
        "topics", outbox, publish=kafka, topic=missing
    )
    assert the_problem("topics", outbox, publish=kafka, topic=missing), "asking does not create it"
    made = f"{kafka}?create_topics=true"
    assert found("topics", outbox, publish=made, topic=missing) == []


# --- RabbitMQ -------------------------------------------------------------------------------


@pytest.fixture
def queues(rabbitmq_url: str) -> Iterator[Queues]:
    made = Queues(rabbitmq_url)
    yield made
    made.delete_all()


def test_exchanges(outbox: str, queues: Queues) -> None:
    settings = {"publish": queues.url, "topic": queues()}
    assert found("exchanges", outbox, **settings) == []
    missing = f"missing-{uuid.uuid4().hex}"
    problem = the_problem("exchanges", outbox, publish=queues.url, topic=missing)
    assert f"exchange {missing} does not exist" in problem


def test_an_exchange_that_routes_to_no_queue(outbox: str, queues: Queues) -> None:
    exchange = queues(bound=False)
    settings = {"publish": queues.url, "topic": exchange}
    assert found("exchanges", outbox, **settings) == [], "nothing was sent yet"
    relay = Relay(
        open_store(outbox),
        open_publisher(queues.url),
        RelayOptions(until="once", retry=RetryPolicy(delays_seconds=(3600.0,))),
        compose=Plain(Route(exchange)),
    )
    asyncio.run(relay.run())
    assert f"exchange {exchange} routes" in the_problem("exchanges", outbox, **settings)


# --- NATS -----------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_duplicate_window(outbox: str, nats_url: str, named: bool) -> None:
    streams = Streams(nats_url)

    def settings(stream: str) -> dict[str, Any]:
        query = f"?stream={stream}" if named else ""
        return {"publish": f"{nats_url}{query}", "topic": stream}

    try:
        short = asyncio.run(streams.make(duplicate_window=5))
        problem = the_problem("duplicate-window", outbox, **settings(short))
        assert f"stream {short} forgets message ids after 5s" in problem
        few = {"retry_delays": (0.5,), "lease": 1.0}
        long = asyncio.run(streams.make(duplicate_window=3600))
        assert found("duplicate-window", outbox, **settings(long)) == []
        assert found("duplicate-window", outbox, **settings(long), **few) == []
    finally:
        streams.delete_all()


# --- encryption -----------------------------------------------------------------------------

REMOTE = [
    "kafka://kafka.example:9092",
    "kafka://127.0.0.1:9092,kafka.example:9092",
    "amqp://u:p@rabbit.example/",
    "nats://nats.example:4222",
    "redis://10.1.2.3:6379",
    "http://hooks.example/in?allow_http=true",
]
ENCRYPTED = [
    "kafka://kafka.example:9092?security.protocol=SSL",
    "amqps://u:p@rabbit.example/",
    "nats://nats.example:4222?tls=true",
    "rediss://10.1.2.3:6379",
    "https://hooks.example/in",
]
LOCAL = ["kafka://127.0.0.1:9092", "amqp://localhost/", "nats://[::1]:4222", "redis://127.0.0.9"]


@pytest.mark.parametrize("url", REMOTE)
def test_a_way_to_another_machine_in_the_clear(outbox: str, url: str) -> None:
    problem = the_problem("encryption", outbox, publish=url)
    assert "not encrypted" in problem
    assert "u:p@" not in problem


@pytest.mark.parametrize("url", [*ENCRYPTED, *LOCAL])
def test_an_encrypted_or_local_way(outbox: str, url: str) -> None:
    assert found("encryption", outbox, publish=url) == []


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u:p@db.example:5432/shop", ["db.example"]),
        ("postgresql:///shop", [""]),
        ("postgresql:///shop?host=/run/postgresql", ["/run/postgresql"]),
        ("postgresql://a:1,b:2/shop", ["a", "b"]),
        ("nats://[::1]:4222", ["::1"]),
        ("nats://[2001:db8::1]", ["2001:db8::1"]),
    ],
)
def test_hosts_of_a_url(url: str, hosts: list[str]) -> None:
    assert hosts_of(url) == hosts


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ["", "localhost", "127.0.0.1", "::1", "/run/postgresql"]))
    assert not any(map(is_loopback, ["10.0.0.1", "db.example", "2001:db8::1", "0.0.0.0"]))
