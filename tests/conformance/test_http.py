"""Webhooks: the publisher's suites on a real HTTP server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from aiohttp import web

from commitrelay.publisher import Publisher
from commitrelay.publishers.http import from_url
from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received
from tests.support.webhooks import Hook, Receiver

OURS = {"commitrelay-topic", "commitrelay-key", "idempotency-key", "content-type", "user-agent"}
OURS |= {"webhook-id", "webhook-timestamp", "host", "content-length"}


class _Webhooks:
    @pytest.fixture(autouse=True)
    def _receiver(self) -> Iterator[None]:
        self.receiver = Receiver()
        self.receiver.answer = self.answer
        yield
        self.receiver.close()

    async def answer(self, hook: Hook) -> web.Response | None:
        if hook.topic == "missing":
            return web.Response(status=404)
        return web.Response(status=413) if len(hook.body) > 20_000 else None

    async def make_publisher(self) -> Publisher:
        options = {"allow_private": "true", "delivery_timeout_seconds": "6"}
        return from_url(f"{self.receiver.url}/{{topic}}", options)

    async def fresh_topic(self) -> str:
        return f"topic-{uuid.uuid4().hex}"

    async def read_back(self, topic: str) -> list[Received]:
        return [
            Received(
                hook.key,
                hook.body,
                {name: unquote(value) for name, value in hook.headers.items() if name not in OURS},
            )
            for hook in self.receiver.taken
            if hook.topic == topic
        ]


class TestHttp(_Webhooks, PublisherSuite):
    async def missing_topic(self) -> str:
        return "missing"

    async def oversized(self) -> tuple[str, bytes]:
        return await self.fresh_topic(), b"x" * 20_001


class TestHttpOutage(_Webhooks, OutageSuite):
    async def stop_broker(self) -> None:
        await asyncio.to_thread(self.receiver.stop)

    async def start_broker(self) -> None:
        await asyncio.to_thread(self.receiver.start)
