"""A consumer on every broker, from the relay's message to the effect, run by the command line."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli import as_json
from tests.consumer import services
from tests.consumer.test_kafka_group import counted
from tests.support import kafka, nats, rabbitmq, redis
from tests.support.reading import publish

HANDLERS = """
import os
from commitrelay import Consumer, Received

consumer = Consumer(os.environ["CONSUMER"])

@consumer.on("Counted")
def handle(connection, event: Received) -> None:
    connection.execute(
        "INSERT INTO effects VALUES (?, ?)", (event.payload["number"], event.aggregate_id))
"""

Where = tuple[str, str]
"""A broker's URL, and a topic there."""


@pytest.fixture
def on_kafka(real_kafka: str, kafka_topic: kafka.Topics) -> Where:
    return f"kafka://{real_kafka}", kafka_topic()


@pytest.fixture
def on_rabbitmq(rabbitmq_url: str) -> Iterator[Where]:
    queues = rabbitmq.Queues(rabbitmq_url, "quorum")
    yield rabbitmq_url, queues()
    queues.delete_all()


@pytest.fixture
def on_nats(nats_url: str) -> Iterator[Where]:
    streams = nats.Streams(nats_url)
    yield nats_url, asyncio.run(streams.make())
    streams.delete_all()


@pytest.fixture
def on_redis(redis_url: str) -> Iterator[Where]:
    topic = f"test-{uuid.uuid4().hex}"
    yield redis_url, topic
    with redis.client(redis_url) as client:
        client.delete(topic)


@pytest.mark.parametrize("broker", ["kafka", "rabbitmq", "nats", "redis"])
def test_each_event_has_one_effect(
    broker: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url, topic = request.getfixturevalue(f"on_{broker}")
    database = f"sqlite:///{tmp_path}/effects.db"
    services.initialise(database)
    (tmp_path / "handlers.py").write_text(HANDLERS)
    messages = [counted(topic, str(number % 7), number) for number in range(200)]
    asyncio.run(publish(url, messages))
    asyncio.run(publish(url, messages[:20]))  # again, under the same ids
    variables = {
        "COMMITRELAY_DATABASE": database,
        "COMMITRELAY_FROM": f"{url}?topic={topic}",
        "COMMITRELAY_MODULE": "handlers",
        "CONSUMER": uuid.uuid4().hex,
    }
    done = as_json("consume", "--until-idle", cwd=tmp_path, **variables)
    assert done["handled"] == 200, json.dumps(done)
    assert services.effects(database) == services.in_order(200, 7)
    again = as_json("consume", "--until-idle", cwd=tmp_path, **variables)
    assert (again["handled"], again["duplicates"]) == (0, 0)
