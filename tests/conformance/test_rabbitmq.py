"""RabbitMQ: the publisher's suites on a classic queue, a quorum queue and a stream."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator

import pytest

from commitrelay.publisher import Publisher
from commitrelay.publishers.rabbitmq import from_url
from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received
from tests.conftest import give_up
from tests.support.rabbitmq import Queues
from tests.support.services import DedicatedServer, Unavailable


class _RabbitMQ:
    kind = "classic"
    delivery_timeout_seconds = 10.0

    @pytest.fixture(autouse=True)
    def _queues(self, rabbitmq_url: str) -> Iterator[None]:
        self.url = rabbitmq_url
        self.queues = Queues(rabbitmq_url, self.kind)
        yield
        self.queues.delete_all()

    async def make_publisher(self) -> Publisher:
        return from_url(self.url, {"delivery_timeout_seconds": str(self.delivery_timeout_seconds)})

    async def fresh_topic(self) -> str:
        return await asyncio.to_thread(self.queues)

    async def read_back(self, topic: str) -> list[Received]:
        return await asyncio.to_thread(self.queues.read, topic)


class TestClassicQueue(_RabbitMQ, PublisherSuite):
    async def missing_topic(self) -> str:
        return f"missing-{uuid.uuid4().hex}"

    async def oversized(self) -> tuple[str, bytes]:
        return await self.fresh_topic(), b"x" * (1024 * 1024 + 1)


class TestQuorumQueue(TestClassicQueue):
    kind = "quorum"


class TestStream(TestClassicQueue):
    kind = "stream"


@pytest.fixture(scope="module")
def own_rabbitmq() -> Iterator[DedicatedServer]:
    """A broker for the outages of this module."""
    try:
        server = DedicatedServer("rabbitmq", f"outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class _Outage(_RabbitMQ):
    delivery_timeout_seconds = 5.0

    @pytest.fixture(autouse=True)
    def _queues(self, own_rabbitmq: DedicatedServer) -> None:
        self.server = own_rabbitmq
        self.url = own_rabbitmq.url
        self.queues = Queues(self.url, self.kind)

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)
        await asyncio.to_thread(self.queues.bind_all)


class TestClassicQueueOutage(_Outage, OutageSuite):
    pass


class TestQuorumQueueOutage(_Outage, OutageSuite):
    kind = "quorum"

    async def stop_broker(self) -> None:
        # A broker that is killed within seconds of making such a queue has lost it: its registry
        # of them is flushed to disk late (RabbitMQ 3.10). It is told to stop instead.
        await asyncio.to_thread(self.server.stop)


class TestStreamOutage(TestQuorumQueueOutage):
    kind = "stream"

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)
        # Streams come up a moment after their broker; until then they are not routed to.
        await asyncio.to_thread(self.queues.wait_until_up)
