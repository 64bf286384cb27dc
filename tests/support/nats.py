"""NATS for tests: streams of their own, read back by the client that most people use."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import NotFoundError

from commitrelay.publishers.nats.link import KEY_HEADER
from commitrelay.testing.publisher_suite import Received

OWN_HEADERS = {KEY_HEADER, "Nats-Msg-Id", "Nats-Expected-Stream"}


class Streams:
    """Makes streams that no other test uses: a stream's only subject is its name in small."""

    def __init__(self, url: str, **connection: Any) -> None:
        self._url = url
        self._connection = connection
        self._created: list[str] = []

    async def make(self, *, subjects: list[str] | None = None, **settings: Any) -> str:
        """A fresh stream; the subject that it takes."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        config = StreamConfig(name=name, subjects=subjects or [name], **settings)
        async with await nats.connect(self._url, **self._connection) as client:
            await client.jetstream().add_stream(config)
        self._created.append(name)
        return name

    async def delete(self, name: str) -> None:
        async with await nats.connect(self._url, **self._connection) as client:
            await client.jetstream().delete_stream(name)

    async def read(self, stream: str) -> list[Received]:
        return [received for _subject, received in await self.read_subjects(stream)]

    async def read_subjects(self, stream: str) -> list[tuple[str, Received]]:
        """Everything in the stream, in its order, with the subjects."""
        async with await nats.connect(self._url, **self._connection) as client:
            context = client.jetstream()
            count = (await context.stream_info(stream)).state.messages
            if not count:
                return []
            config = ConsumerConfig(ack_policy=AckPolicy.NONE)
            reader = await context.pull_subscribe("", stream=stream, config=config)
            messages: list[Any] = []
            while len(messages) < count:
                messages += await reader.fetch(min(500, count - len(messages)), timeout=10)
            return [(each.subject, _received(each)) for each in messages]

    def delete_all(self) -> None:
        async def delete() -> None:
            for name in self._created:
                try:
                    await self.delete(name)
                except NotFoundError:
                    continue

        run(delete())


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


def _received(message: Any) -> Received:
    headers = {name: text for name, text in message.headers.items() if name not in OWN_HEADERS}
    return Received(message.headers[KEY_HEADER], message.data, headers)
