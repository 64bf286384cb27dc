"""A proxy that stops forwarding, as a network does that drops packets without a word."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class FreezingProxy:
    """Forwards to a server; after `freeze_after(n)` only n more bytes get there."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._budget: int | None = None
        self._writers: list[asyncio.StreamWriter] = []

    def freeze_after(self, count: int) -> None:
        self._budget = count

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user, _, _address = self._target.netloc.rpartition("@")
        yield self._target._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        server.close()
        for writer in self._writers:
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream = await asyncio.open_connection(
            self._target.hostname, self._target.port
        )
        self._writers += [writer, upstream]
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(
                self._pump(reader, upstream, self._allowed),
                self._pump(upstream_reader, writer, lambda data: data),
            )

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        allowed: Callable[[bytes], bytes],
    ) -> None:
        while data := await reader.read(65536):
            writer.write(allowed(data))
            await writer.drain()
        writer.close()

    def _allowed(self, data: bytes) -> bytes:
        if self._budget is None:
            return data
        data = data[: self._budget]
        self._budget -= len(data)
        return data
