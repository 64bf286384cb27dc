"""Reading with a source in a test: open, read, close."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from commitrelay import open_publisher, open_source
from commitrelay.publisher import DELIVERED, Message
from commitrelay.testing.source_suite import Reader


@asynccontextmanager
async def reading(url: str, **options: str) -> AsyncIterator[Reader]:
    reader = Reader(open_source(url, **options))
    await reader.open()
    try:
        yield reader
    finally:
        await reader.source.close()


async def publish(url: str, messages: list[Message], **options: str) -> None:
    publisher = open_publisher(url, **options)
    await publisher.open()
    try:
        await publisher.recover()
        assert all(each is DELIVERED for each in await publisher.publish(messages))
    finally:
        await publisher.close()


def run(case: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120):
            await case()

    asyncio.run(main())
