"""Readers in processes of their own, killed and frozen: the next one goes on where they were."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from commitrelay import open_publisher
from commitrelay.publisher import DELIVERED
from commitrelay.testing.source_suite import numbered
from tests.support import kafka, nats, rabbitmq, redis
from tests.support.reader_process import ReaderProcess

COUNT = 60

Start = Callable[[], ReaderProcess]


@dataclass
class Topic:
    publish: str  # a publisher's URL
    read: str  # a source's URL
    name: str


@pytest.fixture(params=["kafka", "classic", "quorum", "nats", "redis"])
def topic(request: pytest.FixtureRequest) -> Iterator[Topic]:
    """A filled topic on each broker."""
    made = request.getfixturevalue(f"{request.param}_filled")
    asyncio.run(_publish(made, range(COUNT)))
    yield made


@pytest.fixture
def kafka_filled(real_kafka: str, kafka_topic: kafka.Topics) -> Topic:
    url = f"kafka://{real_kafka}"
    return Topic(url, f"{url}?session.timeout.ms=6000", kafka_topic(partitions=2))


@pytest.fixture
def classic_filled(rabbitmq_url: str) -> Iterator[Topic]:
    yield from _queue(rabbitmq_url, "classic")


@pytest.fixture
def quorum_filled(rabbitmq_url: str) -> Iterator[Topic]:
    yield from _queue(rabbitmq_url, "quorum")


def _queue(url: str, kind: str) -> Iterator[Topic]:
    queues = rabbitmq.Queues(url, kind)
    yield Topic(url, f"{url}?heartbeat=3", queues())
    queues.delete_all()


@pytest.fixture
def nats_filled(nats_url: str) -> Iterator[Topic]:
    streams = nats.Streams(nats_url)
    yield Topic(nats_url, f"{nats_url}?lease_seconds=5", asyncio.run(streams.make()))
    streams.delete_all()


@pytest.fixture
def redis_filled(redis_url: str) -> Iterator[Topic]:
    name = f"test-{uuid.uuid4().hex}"
    yield Topic(redis_url, f"{redis_url}?lock_seconds=5", name)
    with redis.client(redis_url) as client:
        client.delete(name)


async def _publish(topic: Topic, numbers: range) -> None:
    publisher = open_publisher(topic.publish)
    await publisher.open()
    try:
        outcomes = await publisher.publish(numbered(topic.name, numbers))
        assert all(each is DELIVERED for each in outcomes)
    finally:
        await publisher.close()


@pytest.fixture
def start(topic: Topic) -> Iterator[Start]:
    """Starts readers of one group."""
    group = uuid.uuid4().hex
    started: list[ReaderProcess] = []

    def one() -> ReaderProcess:
        started.append(ReaderProcess(topic.read, topic=topic.name, group=group))
        return started[-1]

    yield one
    for each in started:
        each.end()


def test_a_killed_reader_is_followed_by_the_next(start: Start) -> None:
    first = start()
    first.wait_for_ids(COUNT)
    whole = first.partitions
    first.ack(4)
    second = start()
    first.kill()
    rest = {partition: ids[4:] for partition, ids in whole.items()}
    second.wait_for_ids(sum(map(len, rest.values())))
    second.settle(0.5)
    assert second.partitions == rest  # all of it, nothing that was done, in order


def test_a_frozen_reader_is_followed_and_changes_nothing_any_more(
    start: Start, topic: Topic
) -> None:
    first = start()
    first.wait_for_ids(COUNT)
    whole = first.partitions
    first.ack(4)
    second = start()
    first.pause()
    try:
        second.wait_for_ids(COUNT - 4 * len(whole))
        second.ack(2)
        first.tell("ack 30")  # it will try when it wakes up
    finally:
        first.resume()
    first.wait_for(lambda said: any(each.get("acked") == 30 for each in said))
    first.kill()
    second.kill()
    third = start()
    rest = {partition: ids[6:] for partition, ids in whole.items()}
    third.wait_for_ids(sum(map(len, rest.values())))
    third.settle(0.5)
    assert third.partitions == rest
    asyncio.run(_publish(topic, range(COUNT, COUNT + 4)))
    third.wait_for_ids(sum(map(len, rest.values())) + 4)
