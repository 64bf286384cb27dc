"""CloudEvents through real brokers: the official SDK reads at the other end what was composed."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.bindings.rabbitmq import RabbitMQMessage, from_rabbitmq_event

from commitrelay import registry
from commitrelay.format.choice import composer
from commitrelay.publisher import DELIVERED, Message
from commitrelay.route import Route
from commitrelay.urls import scheme_of
from tests.support import nats, rabbitmq, redis
from tests.support.webhooks import Receiver
from tests.unit.test_cloudevents import PAYLOAD, TRACE, event, from_nats

NAMES = ("cloudevents", "cloudevents-structured")
SUBJECT = 'Zürich "50 %"'


def publish(url: str, topic: str, name: str, options: dict[str, str] | None = None) -> None:
    compose = composer(name, Route(topic), scheme=scheme_of(url), options={})

    async def send() -> None:
        publisher = registry.publisher(url, options)
        await publisher.open()
        try:
            outcomes = await publisher.publish([compose(event(aggregate_id=SUBJECT))])
            assert list(outcomes) == [DELIVERED]
        finally:
            await publisher.close()

    asyncio.run(send())


def check(read: Any) -> None:
    assert read.get_id() == event().id
    assert read.get_subject() == SUBJECT
    assert read.get_extension("partitionkey") == SUBJECT
    assert read.get_extension("idempotencykey") == "pay-42"
    assert read.get_extension("traceparent") == TRACE
    assert read.get_datacontenttype() == "application/json"
    assert read.get_data() == json.loads(PAYLOAD)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.mark.parametrize("name", NAMES)
def test_http(name: str, receiver: Receiver) -> None:
    publish(receiver.url, "orders", name, {"allow_private": "true"})
    [hook] = receiver.taken
    check(from_http_event(HTTPMessage(hook.headers, hook.body)))


@pytest.mark.parametrize("name", NAMES)
def test_rabbitmq(name: str, rabbitmq_url: str) -> None:
    queues = rabbitmq.Queues(rabbitmq_url)
    topic = queues()
    try:
        publish(rabbitmq_url, topic, name)
        with rabbitmq.channel(rabbitmq_url) as reading:
            _, properties, body = reading.basic_get(topic, auto_ack=True)
    finally:
        queues.delete_all()
    assert properties.message_id == event().id
    headers, content_type = properties.headers, properties.content_type
    check(from_rabbitmq_event(RabbitMQMessage(headers, content_type, body)))


@pytest.mark.parametrize("name", NAMES)
def test_nats(name: str, nats_url: str) -> None:
    streams = nats.Streams(nats_url)
    topic = asyncio.run(streams.make())
    try:
        publish(nats_url, topic, name)
        [received] = asyncio.run(streams.read(topic))
    finally:
        streams.delete_all()
    headers = list(received.headers.items())
    check(from_nats(Message(topic, received.key, received.value, headers, "")))


@pytest.mark.parametrize("name", NAMES)
def test_redis(name: str, redis_url: str) -> None:
    topic = f"test-{uuid.uuid4().hex}"
    publish(redis_url, topic, name)
    [received] = redis.read(redis_url, topic)
    with redis.client(redis_url) as client:
        client.delete(topic)
    headers = dict(received.headers)  # as RabbitMQ's: there is no standard for Redis
    content_type = headers.pop("content-type")
    check(from_rabbitmq_event(RabbitMQMessage(headers, content_type, received.value)))
