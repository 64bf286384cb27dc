"""Every publisher that we ship, on what it really publishes to."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commitrelay.publisher import Publisher
from commitrelay.publishers.file import FilePublisher
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.publishers.jsonline import decode_line
from commitrelay.publishers.kafka import KafkaPublisher, KafkaSettings, TransactionalKafkaPublisher
from commitrelay.publishers.stdout import StdoutPublisher
from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received
from tests.conftest import KAFKA_URL, give_up
from tests.support import kafka
from tests.support.kafka_reader import consume
from tests.support.services import DedicatedServer, Unavailable

# --- files ------------------------------------------------------------------------------------


class _Files:
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "topics"

    async def make_publisher(self) -> Publisher:
        return FilePublisher(self.directory, max_message_bytes=20_000, delivery_timeout_seconds=3)

    async def fresh_topic(self) -> str:
        return f"topic-{uuid.uuid4().hex}"

    async def read_back(self, topic: str) -> list[Received]:
        return [
            Received(each.key, each.value, dict(each.headers))
            for each in TopicReader(self.directory, topic).poll()
        ]


class TestFile(_Files, PublisherSuite):
    async def missing_topic(self) -> str:
        return "../elsewhere"

    async def oversized(self) -> tuple[str, bytes]:
        return await self.fresh_topic(), b"x" * 20_001


class TestFileOutage(_Files, OutageSuite):
    async def stop_broker(self) -> None:
        self.directory.parent.mkdir(exist_ok=True)
        if self.directory.exists():
            self.directory.rename(self.directory.with_suffix(".gone"))
        self.directory.write_text("in the way")

    async def start_broker(self) -> None:
        self.directory.unlink()
        gone = self.directory.with_suffix(".gone")
        if gone.exists():
            gone.rename(self.directory)


# --- standard output ----------------------------------------------------------------------------


class TestStdout(PublisherSuite):
    @pytest.fixture(autouse=True)
    def _pipe(self) -> Iterator[None]:
        reading, self.writing = os.pipe()
        self.lines: list[bytes] = []

        def read() -> None:
            with os.fdopen(reading, "rb") as pipe:
                self.lines.extend(pipe)

        self.reader = threading.Thread(target=read)
        self.reader.start()
        yield
        self._end_of_output()

    def _end_of_output(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1
        self.reader.join()

    async def make_publisher(self) -> Publisher:
        return StdoutPublisher(self.writing)

    async def fresh_topic(self) -> str:
        return uuid.uuid4().hex

    async def read_back(self, topic: str) -> list[Received]:
        self._end_of_output()
        received = map(decode_line, self.lines)
        return [Received(m.key, m.value, dict(m.headers)) for m in received if m.topic == topic]


# --- Kafka --------------------------------------------------------------------------------------


class _Kafka:
    delivery_timeout_seconds = 10.0

    @pytest.fixture(autouse=True)
    def _cluster(self, kafka_bootstrap: str, kafka_topic: kafka.Topics) -> None:
        self.bootstrap = kafka_bootstrap
        self.topics = kafka_topic

    def settings(self) -> KafkaSettings:
        return KafkaSettings(self.bootstrap, delivery_timeout_seconds=self.delivery_timeout_seconds)

    async def make_publisher(self) -> Publisher:
        return KafkaPublisher(self.settings())

    async def fresh_topic(self) -> str:
        return await asyncio.to_thread(self.topics)

    async def read_back(self, topic: str) -> list[Received]:
        return await asyncio.to_thread(consume, self.bootstrap, topic)


class TestKafka(_Kafka, PublisherSuite):
    async def missing_topic(self) -> str:
        self._need_real_kafka()
        return f"missing-{uuid.uuid4().hex}"

    async def oversized(self) -> tuple[str, bytes]:
        self._need_real_kafka()
        config = {"max.message.bytes": "20000"}
        return await asyncio.to_thread(lambda: self.topics(config=config)), b"x" * 30_000

    def _need_real_kafka(self) -> None:
        if KAFKA_URL is None:
            pytest.skip("the mock creates every topic and takes every size")


@pytest.mark.usefixtures("real_kafka")
class TestKafkaTransactional(TestKafka):
    async def make_publisher(self) -> Publisher:
        settings = replace(self.settings(), transactional_id=uuid.uuid4().hex)
        return TransactionalKafkaPublisher(settings)


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[DedicatedServer]:
    """A broker for the outages of this module."""
    try:
        server = DedicatedServer("kafka", f"outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class _OwnKafka(_Kafka):
    delivery_timeout_seconds = 5.0

    @pytest.fixture(autouse=True)
    def _cluster(self, own_kafka: DedicatedServer) -> None:
        self.server = own_kafka
        self.bootstrap = kafka.bootstrap(own_kafka.url)
        self.topics = kafka.Topics(self.bootstrap, is_mock=False)

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)


class TestKafkaOutage(_OwnKafka, OutageSuite):
    pass


class TestKafkaTransactionalOutage(_OwnKafka, OutageSuite):
    async def make_publisher(self) -> Publisher:
        settings = replace(self.settings(), transactional_id=uuid.uuid4().hex)
        return TransactionalKafkaPublisher(settings)
