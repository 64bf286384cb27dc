"""Every source that we ship, on what it really reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from commitrelay.publisher import Publisher
from commitrelay.publishers.kafka import KafkaPublisher, KafkaSettings
from commitrelay.source import Source
from commitrelay.sources import kafka as kafka_source
from commitrelay.testing.source_suite import SourceOutageSuite, SourceSuite
from tests.conftest import give_up
from tests.support import kafka
from tests.support.services import DedicatedServer, Unavailable

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
