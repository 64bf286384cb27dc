"""A relay with each format, on real brokers: what a consumer there finds."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition

from commitrelay import Event, Outbox
from commitrelay.daemon import start
from commitrelay.errors import ConfigError
from commitrelay.format.choice import OPTIONS
from commitrelay.publisher import TOMBSTONE
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.settings import Settings
from commitrelay.stores.sqlite.store import SqliteStore
from tests.support.kafka import Topics
from tests.support.kafka_reader import consume

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ORDER = {"order": 42}


def add(path: Path, payload: Any) -> str:
    """An outbox with one event in it; its id."""

    async def initialise() -> None:
        store = SqliteStore(str(path))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    event = Event(
        "Order", 42, "OrderPaid", payload,
        headers={"traceparent": TRACE}, idempotency_key="pay-42",
    )  # fmt: skip
    with closing(sqlite3.connect(path)) as connection, connection:
        Outbox().add(connection, event)
    return str(event.id)


def settings(path: Path, publish: str, topic: str, **more: Any) -> Settings:
    routed = {"debezium": {"route.topic.replacement": topic}}
    options = {**routed, **more.pop("options", {})}
    if more.get("format") != "debezium":
        more["topic"] = topic
    database = f"sqlite:///{path}"
    return Settings(database=database, publish=publish, options=options, strategy="leader", **more)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_consumer_on_kafka(
    name: Any, sqlite_path: Path, kafka_bootstrap: str, kafka_topic: Topics
) -> None:
    topic = kafka_topic("orders")
    event_id = add(sqlite_path, ORDER)
    start(settings(sqlite_path, f"kafka://{kafka_bootstrap}", topic, format=name), until="drained")
    [received] = consume(kafka_bootstrap, topic)
    value = json.loads(received.value)
    where = received.headers if name != "cloudevents-structured" else value
    prefix = "ce_" if name == "cloudevents" else ""
    names = {
        "plain": ("event-id", "idempotency-key"),
        "debezium": ("id", "idempotency-key"),
    }.get(name, (f"{prefix}id", f"{prefix}idempotencykey"))
    assert tuple(where[each] for each in names) == (event_id, "pay-42")
    assert received.headers["traceparent"] == TRACE
    assert (value["data"] if name == "cloudevents-structured" else value) == ORDER
    assert received.key == "42"


TOMBSTONES = {"route.tombstone.on.empty.payload": "true"}


@pytest.mark.parametrize("query", ["", "?transactional.id={topic}"])
def test_a_tombstone_is_null_on_kafka(
    query: str, sqlite_path: Path, real_kafka: str, kafka_topic: Topics
) -> None:
    topic = kafka_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
    event_id = add(sqlite_path, b"")
    options = {"debezium": {"route.topic.replacement": topic, **TOMBSTONES}}
    url = f"kafka://{real_kafka}" + query.format(topic=topic)
    chosen = settings(sqlite_path, url, topic, format="debezium", options=options)
    assert start(chosen, until="drained").counts["published"] == 1
    [received] = consume(real_kafka, topic)
    assert received.value is None
    assert (received.key, received.headers["id"]) == ("42", event_id)


@pytest.mark.parametrize("query", ["", "?transactional.id={topic}"])
@pytest.mark.parametrize("column", [None, "timestamp"])
def test_the_time_of_a_record_on_kafka(
    query: str, column: str | None, sqlite_path: Path, real_kafka: str, kafka_topic: Topics
) -> None:
    topic = kafka_topic("orders", partitions=1)
    add(sqlite_path, ORDER)
    long_ago = datetime(2020, 2, 2, 20, 20, 20, 123456, UTC)
    with closing(sqlite3.connect(sqlite_path)) as connection, connection:
        text = long_ago.isoformat().replace("+00:00", "Z")
        connection.execute("UPDATE outbox_event SET created_at = ?", [text])
    stamp = {} if column is None else {"table.field.event.timestamp": column}
    options = {"debezium": {"route.topic.replacement": topic, **stamp}}
    url = f"kafka://{real_kafka}" + query.format(topic=topic)
    started = time.time()
    start(settings(sqlite_path, url, topic, format="debezium", options=options), until="drained")
    milliseconds = record_time_ms(real_kafka, topic)
    if column is None:
        assert started * 1000 - 1 <= milliseconds <= time.time() * 1000
    else:
        assert milliseconds == int(long_ago.timestamp() * 1000)


def record_time_ms(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    assert message is not None
    assert message.error() is None
    consumer.close()
    kind, milliseconds = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    return int(milliseconds)


def test_a_tombstone_in_a_file_is_read_back_as_one(sqlite_path: Path, tmp_path: Path) -> None:
    add(sqlite_path, b"")
    options = {"debezium": {"route.topic.replacement": "orders", **TOMBSTONES}}
    url = (tmp_path / "topics").as_uri()
    start(settings(sqlite_path, url, "", format="debezium", options=options), until="drained")
    [message] = TopicReader(tmp_path / "topics", "orders").poll()
    assert message.value is TOMBSTONE


def test_a_wrong_option_stops_the_relay_at_its_start(sqlite_path: Path) -> None:
    chosen = Settings(
        database=f"sqlite:///{sqlite_path}",
        publish="stdout:",
        format="debezium",
        options={"debezium": {"route.by.feld": "type"}},
    )
    with pytest.raises(ConfigError, match=r"no option .route\.by\.feld"):
        start(chosen)
