"""Endpoint: /livez, /readyz and /metrics over HTTP/1.1, and nothing else.

One small answer per connection, which is then closed. A client that is slow, sends garbage or
comes in crowds costs a bounded amount of memory and time, and the relay nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

from commitrelay.errors import ConfigError
from commitrelay.kinds import HostPort
from commitrelay.settings import declaration

logger = logging.getLogger("commitrelay.endpoint")

MOST_REQUEST_BYTES = 8192
MOST_CONNECTIONS = 32
CLIENT_SECONDS = 5.0
"""A client that has not sent its request, or not taken its answer, by then is hung up on."""

PLAIN = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    text: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN


Handlers = Mapping[str, Callable[[], Awaitable[Answer]]]


class Endpoint:
    """Serves each path by calling its handler."""

    def __init__(self, host: str, port: int, handlers: Handlers) -> None:
        self._host = host
        self._port = port
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._connections = 0

    @property
    def port(self) -> int:
        """Where it listens, also if it was told port 0: any."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def open(self) -> None:
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=MOST_REQUEST_BYTES
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {self._host}:{self._port} ({error.strerror or error}): "
                "choose another metrics_listen, or none"
            ) from None

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._reply(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (
            TimeoutError,
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            writer.transport.abort()
        finally:
            self._connections -= 1

    async def _reply(self, head: bytes) -> bytes:
        method, path = _request(head)
        answer = await self._answer(method, path)
        body = answer.text.encode()
        lines = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        start = "\r\n".join(lines).encode() + b"\r\n\r\n"
        return start if method == "HEAD" else start + body

    async def _answer(self, method: str, path: str) -> Answer:
        if not method:
            return Answer("bad request\n", HTTPStatus.BAD_REQUEST)
        handler = self._handlers.get(path)
        if handler is None:
            return Answer("not found\n", HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return Answer("method not allowed\n", HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await handler()
        except Exception:
            logger.exception("cannot answer %s", path)
            return Answer("error\n", HTTPStatus.INTERNAL_SERVER_ERROR)


async def listen(where: HostPort | None, handlers: Handlers) -> Endpoint | None:
    """An open endpoint; None if none is wanted, or if the default address is taken."""
    if where is None:
        return None
    endpoint = Endpoint(*where, handlers)
    setting = declaration("metrics_listen")
    try:
        await endpoint.open()
    except ConfigError as error:
        if where != setting.default:
            raise
        # Another process on this machine has it: nobody has asked for it to be this one.
        logger.warning("no metrics: %s", error)
        return None
    logger.info("metrics on http://%s/metrics", setting.kind.show(where))
    return endpoint


def _request(head: bytes) -> tuple[str, str]:
    """Method and path without its query; no method if it is no request at all."""
    with suppress(UnicodeDecodeError, ValueError):
        method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        if version.startswith("HTTP/1.") and method.isupper():
            return method, target.partition("?")[0]
    return "", ""
