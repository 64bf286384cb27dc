"""SQS and SNS: the publisher's suites on an emulator. It is not AWS, and the names say so."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from commitrelay.publisher import Publisher
from commitrelay.publishers.sqs import from_url
from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received
from tests.support import aws


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with aws.emulator(tmp_path_factory.mktemp("aws")) as port, aws.credentials():
        yield port


class _Emulated:
    @pytest.fixture(autouse=True)
    def _gate(self, emulator: int) -> Iterator[None]:
        self.emulator = emulator
        self.gate = aws.Gate(emulator)
        yield
        self.gate.remove()

    async def make_publisher(self) -> Publisher:
        endpoint = f"http://127.0.0.1:{self.gate.port}"
        url = f"sqs://{aws.REGION}/{{topic}}.fifo?endpoint_url={endpoint}"
        return from_url(url, {"delivery_timeout_seconds": "20"})

    async def fresh_topic(self) -> str:
        topic = f"test.{uuid.uuid4().hex}"
        await aws.create_queue(self.emulator, self.queue(topic))
        return topic

    def queue(self, topic: str) -> str:
        return f"{topic.replace('.', '-')}.fifo"

    async def read_back(self, topic: str) -> list[Received]:
        if not hasattr(self, "read"):
            self.read: dict[str, list[Received]] = {}
        seen = self.read.setdefault(topic, [])
        seen += map(aws.received, await aws.read_queue(self.emulator, self.queue(topic)))
        return seen


class TestSqsEmulated(_Emulated, PublisherSuite):
    async def missing_topic(self) -> str:
        return f"missing-{uuid.uuid4().hex}"

    async def oversized(self) -> tuple[str, bytes]:
        topic = f"small-{uuid.uuid4().hex}"
        await aws.create_queue(self.emulator, self.queue(topic), MaximumMessageSize="20000")
        return topic, b"x" * 20_001


class TestSqsEmulatedOutage(_Emulated, OutageSuite):
    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.gate.shut)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.gate.open)


class TestSnsEmulated(_Emulated, PublisherSuite):
    """Read back from a queue that is subscribed to the topic with raw delivery."""

    async def make_publisher(self) -> Publisher:
        endpoint = f"http://127.0.0.1:{self.gate.port}"
        url = f"sns://{aws.REGION}/{aws.ACCOUNT}/{{topic}}.fifo?endpoint_url={endpoint}"
        return from_url(url, {"delivery_timeout_seconds": "20"})

    async def fresh_topic(self) -> str:
        topic = await super().fresh_topic()
        name = self.queue(topic)
        async with aws.client("sns", self.emulator) as sns:
            made = await sns.create_topic(Name=name, Attributes={"FifoTopic": "true"})
            await sns.subscribe(
                TopicArn=made["TopicArn"],
                Protocol="sqs",
                Endpoint=f"arn:aws:sqs:{aws.REGION}:{aws.ACCOUNT}:{name}",
                Attributes={"RawMessageDelivery": "true"},
            )
        return topic

    async def missing_topic(self) -> str:
        return f"missing-{uuid.uuid4().hex}"

    async def oversized(self) -> tuple[str, bytes]:
        return await self.fresh_topic(), b"x" * 262_145
