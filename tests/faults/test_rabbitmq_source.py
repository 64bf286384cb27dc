"""What is particular about reading from RabbitMQ, on the real one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pika
import pytest

from commitrelay.testing.source_suite import check_order, fresh_group, ids, numbered
from tests.support import rabbitmq
from tests.support.reading import publish, reading, run


@pytest.fixture
def queues(rabbitmq_url: str) -> Iterator[rabbitmq.Queues]:
    made = rabbitmq.Queues(rabbitmq_url)
    yield made
    made.delete_all()


def test_headers_of_other_publishers(rabbitmq_url: str, queues: rabbitmq.Queues) -> None:
    name = queues()
    headers = {
        "event-id": "1",
        "number": 42,
        "large": 2**40,
        "flag": True,
        "when": datetime(2026, 11, 15, tzinfo=UTC),
        "nested": {"a": 1},
        "list": ["x", 2],
        "nothing": None,
        "raw": b"\xff",
    }
    with rabbitmq.channel(rabbitmq_url) as channel:
        properties = pika.BasicProperties(headers=headers, content_type="text/plain")
        channel.basic_publish("", name, b"body", properties)
        channel.basic_publish("", name, b"bare")

    async def case() -> None:
        async with reading(rabbitmq_url, queue=name, group=fresh_group()) as reader:
            while len(reader.arrivals) < 2:
                await reader.read()
        first, bare = reader.arrivals
        found = dict(first.headers)
        assert found["number"] == "42"
        assert found["large"] == str(2**40)
        assert found["flag"] == "true"
        assert found["nothing"] == ""
        assert found["raw"].encode("utf-8", "surrogateescape") == b"\xff"
        assert found["content-type"] == "text/plain"
        assert (first.topic, first.key, first.value) == (name, "", b"body")
        assert (bare.headers, bare.value) == ([], b"bare")

    run(case)


def test_what_is_missing_is_made_as_the_publisher_makes_it(rabbitmq_url: str) -> None:
    name = f"test-{uuid.uuid4().hex[:12]}"

    async def case() -> None:
        options = {"queue": name, "group": fresh_group(), "declare": "classic"}
        async with reading(rabbitmq_url, **options) as reader:
            await publish(rabbitmq_url, numbered(name, range(5)))
            await reader.read_all(5)

    try:
        run(case)
    finally:
        with rabbitmq.channel(rabbitmq_url) as channel:
            channel.queue_delete(name)
            channel.exchange_delete(name)


def test_a_queue_that_goes_and_comes_back(rabbitmq_url: str, queues: rabbitmq.Queues) -> None:
    name = queues()

    def anew() -> None:
        with rabbitmq.channel(rabbitmq_url) as channel:
            channel.queue_delete(name)
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, name, "#")

    async def case() -> None:
        await publish(rabbitmq_url, numbered(name, range(5)))
        async with reading(rabbitmq_url, queue=name, group=fresh_group()) as reader:
            await reader.read_all(5)
            await asyncio.to_thread(anew)
            await reader.read_until(lambda: reader.revoked == [name])
            await publish(rabbitmq_url, numbered(name, range(5, 10)))
            await reader.read_all(10)

    run(case)


def test_relaxed_readers_share_a_queue(rabbitmq_url: str, queues: rabbitmq.Queues) -> None:
    name = queues()

    async def case() -> None:
        options = {"queue": name, "group": fresh_group(), "order": "relaxed", "prefetch": "5"}
        await publish(rabbitmq_url, numbered(name, range(40)))
        async with reading(rabbitmq_url, **options) as one, reading(rabbitmq_url, **options) as two:
            while len(set(ids(one.arrivals + two.arrivals))) < 40:
                for reader in (one, two):
                    await reader.read(0.05)
                    await reader.ack_all()
            assert one.arrivals
            assert two.arrivals
            assert len(one.arrivals) + len(two.arrivals) == 40

    run(case)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_broken_connection_is_made_anew_and_order_holds(rabbitmq_url: str, kind: str) -> None:
    queues = rabbitmq.Queues(rabbitmq_url, kind)
    name = queues()

    async def case() -> None:
        await publish(rabbitmq_url, numbered(name, range(60)))
        async with reading(rabbitmq_url, queue=name, group=fresh_group()) as reader:
            await reader.read_all(60)
            await reader.source.ack(reader.arrivals[:10])
            reader.source._connection._transport.abort()  # type: ignore[attr-defined]
            await publish(rabbitmq_url, numbered(name, range(60, 70)))
            await reader.read_all(70)
            check_order(reader.arrivals)
            again = reader.arrivals[60:]
            assert ids(again)[:50] == ids(reader.arrivals[10:60])
            assert reader.revoked == [name]

    try:
        run(case)
    finally:
        queues.delete_all()
