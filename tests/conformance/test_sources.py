"""Every source that we ship, on what it really reads."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast
from zlib import crc32

import pytest

from commitrelay import open_publisher, open_source
from commitrelay.publisher import Message, Outcome, Publisher
from commitrelay.publishers.kafka import KafkaPublisher, KafkaSettings
from commitrelay.source import Source
from commitrelay.sources import kafka as kafka_source
from commitrelay.testing.source_suite import KEYS, SourceOutageSuite, SourceSuite
from tests.conftest import give_up
from tests.support import kafka, nats, rabbitmq, redis
from tests.support.services import DedicatedServer, Unavailable

# --- files --------------------------------------------------------------------------------------


class TestFile(SourceSuite):
    keeps_nulls = True

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.url = f"file://{tmp_path}/topics"

    async def fresh_topic(self) -> str:
        return f"topic-{uuid.uuid4().hex}"

    async def make_publisher(self) -> Publisher:
        return open_publisher(self.url)

    async def make_source(self, topic: str, group: str) -> Source:
        return open_source(self.url, topic=topic, group=group)


# --- Kafka --------------------------------------------------------------------------------------


class _Kafka:
    partitions = 4
    keeps_nulls = True
    query = ""

    @pytest.fixture(autouse=True)
    def _cluster(self, real_kafka: str, kafka_topic: kafka.Topics) -> None:
        self.bootstrap = real_kafka
        self.topics = kafka_topic

    async def fresh_topic(self) -> str:
        return await asyncio.to_thread(self.topics, partitions=self.partitions)

    async def make_publisher(self) -> Publisher:
        return KafkaPublisher(KafkaSettings(self.bootstrap))

    async def make_source(self, topic: str, group: str) -> Source:
        options = {"topic": topic, "group": group}
        return kafka_source.from_url(f"kafka://{self.bootstrap}{self.query}", options)


class TestKafka(_Kafka, SourceSuite):
    # Somebody who is to be noticed as missing is noticed within 6 s, the least that Kafka allows.
    query = "?session.timeout.ms=6000&max.poll.interval.ms=6000&revoke_timeout_seconds=5"
    idle_seconds = 8.0


class TestKafkaEager(_Kafka, SourceSuite):
    idle_seconds = 1.0
    query = "?partition.assignment.strategy=range"


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[DedicatedServer]:
    """A broker for the outages of this module."""
    try:
        server = DedicatedServer("kafka", f"source-outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class TestKafkaOutage(_Kafka, SourceOutageSuite):
    partitions = 1
    query = "?delivery_timeout_seconds=3"

    @pytest.fixture(autouse=True)
    def _cluster(self, own_kafka: DedicatedServer) -> None:
        self.server = own_kafka
        self.bootstrap = kafka.bootstrap(own_kafka.url)
        self.topics = kafka.Topics(self.bootstrap, is_mock=False)

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)


# --- Redis --------------------------------------------------------------------------------------


class _Redis:
    query = ""
    streams = 1
    idle_seconds = 1.0

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> Iterator[None]:
        self.url = redis_url
        self.created: list[str] = []
        yield
        with redis.client(redis_url) as client:
            client.delete(*self.created, "")

    async def fresh_topic(self) -> str:
        topic = f"test-{uuid.uuid4().hex}"
        self.created += [topic, *(f"{topic}:{number}" for number in range(self.streams))]
        return topic

    async def make_publisher(self) -> Publisher:
        return open_publisher(self.url, streams=str(self.streams))

    async def make_source(self, topic: str, group: str) -> Source:
        url = f"{self.url}?{self.query}"
        return open_source(url, topic=topic, group=group, streams=str(self.streams))


class TestRedis(_Redis, SourceSuite):
    query = "lock_seconds=6"
    idle_seconds = 8.0


class TestRedisStreams(_Redis, SourceSuite):
    streams = partitions = 4


@pytest.fixture(scope="module")
def own_redis() -> Iterator[DedicatedServer]:
    try:
        server = DedicatedServer("redis", f"source-outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class TestRedisOutage(_Redis, SourceOutageSuite):
    query = "lock_seconds=2&delivery_timeout_seconds=3"

    @pytest.fixture(autouse=True)
    def _server(self, own_redis: DedicatedServer) -> None:
        self.server = own_redis
        self.url = own_redis.url
        self.created: list[str] = []

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)


class TestRedisFrozen(TestRedisOutage):
    """Connections stay open, and nothing answers."""

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.pause)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.resume)


# --- RabbitMQ -----------------------------------------------------------------------------------


class _RabbitMQ:
    kind = "classic"
    idle_seconds = 1.0
    arguments: ClassVar[dict[str, object]] = {}
    query = ""

    @pytest.fixture(autouse=True)
    def _queues(self, rabbitmq_url: str) -> Iterator[None]:
        self.url = rabbitmq_url
        self.queues = rabbitmq.Queues(rabbitmq_url, self.kind)
        yield
        self.queues.delete_all()

    async def fresh_topic(self) -> str:
        return await asyncio.to_thread(self.queues, self.arguments)

    async def make_publisher(self) -> Publisher:
        return open_publisher(self.url)

    async def make_source(self, topic: str, group: str) -> Source:
        return open_source(f"{self.url}?{self.query}", queue=topic, group=group)


class _OneGroup:
    """A queue is read once, whatever the readers call themselves."""

    test_each_group_gets_everything = None


class TestClassicQueue(_RabbitMQ, _OneGroup, SourceSuite):
    query = "heartbeat=2"
    idle_seconds = 8.0


class TestQuorumQueue(_RabbitMQ, _OneGroup, SourceSuite):
    kind = "quorum"


class TestSingleActiveConsumer(_RabbitMQ, _OneGroup, SourceSuite):
    arguments: ClassVar[dict[str, object]] = {"x-single-active-consumer": True}
    query = "single_active=true"


class TestQueues(_RabbitMQ, _OneGroup, SourceSuite):
    """Several queues behind one exchange, each with some of the keys."""

    partitions = 4

    async def fresh_topic(self) -> str:
        return await asyncio.to_thread(self._make)

    def _make(self) -> str:
        topic = self.queues(bound=False)
        with rabbitmq.channel(self.url) as made:
            for number, queue in enumerate(self._queues_of(topic)):
                made.queue_declare(queue, durable=True)
                for key in (f"k{n}" for n in range(number, KEYS, self.partitions)):
                    made.queue_bind(queue, topic, key)
            for key in ("k", "Schlüssel 1"):
                made.queue_bind(queue, topic, key)
        self.topics.append(topic)
        return topic

    def _queues_of(self, topic: str) -> list[str]:
        return [f"{topic}.{number}" for number in range(self.partitions)]

    @pytest.fixture(autouse=True)
    def _topics(self, _queues: None) -> Iterator[None]:
        self.topics: list[str] = []
        yield
        with rabbitmq.channel(self.url) as made:
            for queue in (queue for topic in self.topics for queue in self._queues_of(topic)):
                made.queue_delete(queue)

    async def make_source(self, topic: str, group: str) -> Source:
        return open_source(self.url, queue=",".join(self._queues_of(topic)), group=group)


@pytest.fixture(scope="module")
def own_rabbitmq() -> Iterator[DedicatedServer]:
    try:
        server = DedicatedServer("rabbitmq", f"source-outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class TestRabbitMQOutage(_RabbitMQ, SourceOutageSuite):
    query = "delivery_timeout_seconds=5"

    @pytest.fixture(autouse=True)
    def _queues(self, own_rabbitmq: DedicatedServer) -> None:
        self.server = own_rabbitmq
        self.url = own_rabbitmq.url
        self.queues = rabbitmq.Queues(self.url, self.kind)

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)


# --- NATS ---------------------------------------------------------------------------------------


class _Nats:
    query = ""
    idle_seconds = 1.0

    @pytest.fixture(autouse=True)
    def _server(self, nats_url: str) -> Iterator[None]:
        self.url = nats_url
        self.streams = nats.Streams(nats_url)
        yield
        self.streams.delete_all()

    async def fresh_topic(self) -> str:
        return await self.streams.make()

    async def make_publisher(self) -> Publisher:
        return open_publisher(self.url)

    async def make_source(self, topic: str, group: str) -> Source:
        return open_source(f"{self.url}?{self.query}", topic=topic, group=group)


class TestNats(_Nats, SourceSuite):
    query = "lease_seconds=6"
    idle_seconds = 8.0


class TestNatsSubjectPerKey(_Nats, SourceSuite):
    query = "subject={topic}.by-key.{key}"

    async def fresh_topic(self) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}.events"
        await self.streams.make(subjects=[f"{name}.>"])
        return name

    async def make_publisher(self) -> Publisher:
        return open_publisher(self.url, subject="{topic}.by-key.{key}")


class _Spread:
    """Sends each key to one of several topics."""

    def __init__(self, inner: Publisher, topics: int) -> None:
        self._inner = inner
        self._topics = topics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        return await self._inner.publish([self._spread(each) for each in messages])

    def _spread(self, message: Message) -> Message:
        number = crc32(message.key.encode()) % self._topics
        return message._replace(topic=f"{message.topic}.{number}")


class TestNatsTopics(_Nats, SourceSuite):
    partitions = 4
    test_arrivals_are_what_was_published = None  # for the topic is another

    async def fresh_topic(self) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        await self.streams.make(subjects=[f"{name}.*"])
        return name

    async def make_publisher(self) -> Publisher:
        return cast(Publisher, _Spread(await super().make_publisher(), self.partitions))

    async def make_source(self, topic: str, group: str) -> Source:
        topics = ",".join(f"{topic}.{number}" for number in range(self.partitions))
        return await super().make_source(topics, group)


@pytest.fixture(scope="module")
def own_nats() -> Iterator[DedicatedServer]:
    try:
        server = DedicatedServer("nats", f"source-outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class TestNatsOutage(_Nats, SourceOutageSuite):
    query = "lease_seconds=2&delivery_timeout_seconds=3"

    @pytest.fixture(autouse=True)
    def _server(self, own_nats: DedicatedServer) -> None:
        self.server = own_nats
        self.url = own_nats.url
        self.streams = nats.Streams(own_nats.url)

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)


class TestNatsFrozen(TestNatsOutage):
    """Connections stay open, and nothing answers."""

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.pause)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.resume)
