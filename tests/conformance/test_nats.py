"""The NATS publisher on a real server."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator

import pytest

from commitrelay.publisher import Publisher
from commitrelay.publishers.nats import from_url
from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received
from tests.conftest import give_up
from tests.support import nats
from tests.support.services import DedicatedServer, Unavailable


class _Nats:
    delivery_timeout_seconds = 5.0
    query = ""

    @pytest.fixture(autouse=True)
    def _server(self, nats_url: str) -> Iterator[None]:
        self.url = nats_url
        self.streams = nats.Streams(nats_url)
        yield
        self.streams.delete_all()

    async def make_publisher(self) -> Publisher:
        seconds = str(self.delivery_timeout_seconds)
        return from_url(f"{self.url}{self.query}", {"delivery_timeout_seconds": seconds})

    async def fresh_topic(self) -> str:
        return await self.streams.make()

    async def read_back(self, topic: str) -> list[Received]:
        return await self.streams.read(topic)


class TestNats(_Nats, PublisherSuite):
    async def missing_topic(self) -> str:
        return f"missing.{uuid.uuid4().hex}"

    async def oversized(self) -> tuple[str, bytes]:
        return await self.fresh_topic(), b"x" * 1024 * 1024


class TestNatsStreamLimit(_Nats, PublisherSuite):
    """A stream's own limit is below the server's: JetStream refuses, not we."""

    async def oversized(self) -> tuple[str, bytes]:
        return await self.streams.make(max_msg_size=20_000), b"x" * 30_000


@pytest.fixture(scope="module")
def own_nats() -> Iterator[DedicatedServer]:
    """A server for the outages of this module."""
    try:
        server = DedicatedServer("nats", f"outages-{os.getpid()}")
    except Unavailable as error:
        give_up(str(error))
    yield server
    server.remove()


class TestNatsOutage(_Nats, OutageSuite):
    delivery_timeout_seconds = 3.0

    @pytest.fixture(autouse=True)
    def _server(self, own_nats: DedicatedServer) -> None:
        self.server = own_nats
        self.url = own_nats.url
        self.streams = nats.Streams(own_nats.url)

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.kill)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.start)


class TestNatsStopped(TestNatsOutage):
    """Asked to stop, a server says more before it goes."""

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.stop)


class TestNatsFrozen(TestNatsOutage):
    """Connections stay open, and nothing answers."""

    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.server.pause)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.server.resume)
