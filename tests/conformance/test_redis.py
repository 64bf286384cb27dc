"""The Redis publisher on a real server."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator

import pytest

from commitrelay.publisher import Publisher
from commitrelay.publishers.redis import from_url
from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received
from tests.conftest import give_up
from tests.support import redis
from tests.support.services import DedicatedServer, Unavailable


class _Redis:
    delivery_timeout_seconds = 5.0

    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> Iterator[None]:
        self.url = redis_url
        self.created: list[str] = []
        yield
        with redis.client(redis_url) as client:
            client.delete(*self.created, "")

    async def make_publisher(self) -> Publisher:
        seconds = str(self.delivery_timeout_seconds)
        return from_url(self.url, {"delivery_timeout_seconds": seconds})

    async def fresh_topic(self) -> str:
        self.created.append(f"test-{uuid.uuid4().hex}")
        return self.created[-1]

    async def read_back(self, topic: str) -> list[Received]:
        return await asyncio.to_thread(redis.read, self.url, topic)


class TestRedis(_Redis, PublisherSuite):
    async def missing_topic(self) -> str:
        topic = await self.fresh_topic()
        with redis.client(self.url) as client:
            client.set(topic, "no stream")
        return topic


class TestRedisLimit(_Redis, PublisherSuite):
    async def oversized(self) -> tuple[str, bytes]:
        with redis.client(self.url) as client:
            client.config_set("proto-max-bulk-len", 1024 * 1024)
        return await self.fresh_topic(), b"x" * (1024 * 1024 + 1)

    @pytest.fixture(autouse=True)
    def _limit(self, redis_url: str) -> Iterator[None]:
        yield
        with redis.client(redis_url) as client:
            client.config_set("proto-max-bulk-len", 512 * 1024 * 1024)


@pytest.fixture(scope="module")
def own_redis() -> Iterator[DedicatedServer]:
    """A server for the outages of this module."""
    try:
        server = DedicatedServer("redis", f"outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class TestRedisOutage(_Redis, OutageSuite):
    delivery_timeout_seconds = 3.0

    @pytest.fixture(autouse=True)
    def _server(self, own_redis: DedicatedServer) -> None:
        self.server = own_redis
        self.url = own_redis.url
        self.created: list[str] = []

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)


class TestRedisStopped(TestRedisOutage):
    """Asked to stop, a server may say more before it goes."""

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.stop)


class TestRedisFrozen(TestRedisOutage):
    """Connections stay open, and nothing answers."""

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.pause)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.resume)
