"""What is particular about reading from Kafka, on the real one."""

from __future__ import annotations

import asyncio
import logging
import uuid

import pytest
from confluent_kafka import Producer

from commitrelay.testing.source_suite import fresh_group, ids, numbered
from tests.support import kafka
from tests.support.reading import publish, reading, run


@pytest.fixture
def url(real_kafka: str) -> str:
    return f"kafka://{real_kafka}"


@pytest.fixture
def topic(real_kafka: str, kafka_topic: kafka.Topics) -> str:
    return kafka_topic(partitions=1)


def test_what_is_no_text_survives(url: str, real_kafka: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": real_kafka})
    headers = [("raw", b"\xff\x00\xfe"), ("null", None), ("event-id", b"1")]
    producer.produce(topic, b"v", key=b"\xffkey", headers=headers)
    producer.produce(topic, b"w")
    producer.flush(30)

    async def case() -> None:
        async with reading(url, topic=topic, group=fresh_group()) as reader:
            while len(reader.arrivals) < 2:
                await reader.read()
        first, second = reader.arrivals
        found = dict(first.headers)
        assert found["raw"].encode("utf-8", "surrogateescape") == b"\xff\x00\xfe"
        assert found["null"] == ""
        assert first.key.encode("utf-8", "surrogateescape") == b"\xffkey"
        assert (second.key, second.headers) == ("", [])
        assert second.position[-1] == 1  # type: ignore[index]

    run(case)


def test_transactions_are_read_when_they_are_committed_and_leave_no_lag(
    url: str, real_kafka: str, topic: str
) -> None:
    aborted = Producer({"bootstrap.servers": real_kafka, "transactional.id": uuid.uuid4().hex})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(topic, b"never", headers=[("event-id", b"never")])
    aborted.flush(30)
    aborted.abort_transaction(30)

    async def case() -> None:
        options = {"transactional.id": uuid.uuid4().hex}
        await publish(url, numbered(topic, range(10)), **options)
        async with reading(url, topic=topic, group=fresh_group()) as reader:
            await reader.read_all(10)
            assert "never" not in ids(reader.arrivals)
            assert await reader.source.lag() != 0
            await reader.ack_all()
            async with asyncio.timeout(30):
                while await reader.source.lag() != 0:
                    await reader.read(0.05)

    run(case)


def test_an_acknowledgement_in_vain_comes_to_an_end(
    url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The reader has gone on; who comes later with what it had before changes nothing."""

    async def case() -> None:
        group = fresh_group()
        await publish(url, numbered(topic, range(10)))
        async with reading(url, topic=topic, group=group) as first:
            await first.read_all(10)
            old = first.arrivals
        async with reading(url, topic=topic, group=group) as second:
            await second.read_all(10)
            await second.source.ack(old)  # of a source that is closed
        async with reading(url, topic=topic, group=group) as third:
            await third.read_all(10)
            assert ids(third.arrivals) == ids(old)

    caplog.set_level(logging.WARNING)
    run(case)
    assert not caplog.text


def test_what_nobody_reads_stays_at_the_broker(url: str, topic: str) -> None:
    async def case() -> None:
        await publish(url, numbered(topic, range(8000)))
        async with reading(url, topic=topic, group=fresh_group()) as reader:
            buffer = reader.source._buffer  # type: ignore[attr-defined]
            while not buffer.is_full:
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)
            assert len(buffer) < 4000
            await reader.handle_all(8000)
            assert len(reader.arrivals) == 8000

    run(case)
