"""Channel: one of the conversations on a connection; an error ends it, and not the others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.rabbitmq.confirms import Confirms, Flight
from commitrelay.publishers.rabbitmq.content import Encoder
from commitrelay.publishers.rabbitmq.wire import (
    Method,
    Reader,
    body_size,
    message_id,
    method,
    short_text,
    u16,
    u64,
)

CHUNK_BYTES = 256 * 1024
"""So much is written before looking whether the broker still wants more."""

REJECTED = "a queue rejected it (nack): it is full, or has failed"
NO_ROUTE = 312
REPLY_SUCCESS = 200
EMPTY_TABLE = b"\x00\x00\x00\x00"


class Delivery(NamedTuple):
    """A message that was consumed: its content header, its body, and how it was delivered."""

    header: bytes
    body: bytes
    arguments: bytes


class ChannelClosed(Exception):
    """The broker ended the channel: something that was asked on it was wrong."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Replies:
    """Who waits for which answer. Answers come in the order of the questions."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[bytes]] = deque()

    def expect(self) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def arrived(self, payload: bytes) -> None:
        if self._waiting:
            future = self._waiting.popleft()  # also if its caller has given up
            if not future.done():
                future.set_result(payload)

    def fail(self, error: Exception) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # heard, also if its caller never came to wait for it
        self._waiting.clear()


class Line(Protocol):
    """What a channel needs of its connection."""

    frame_max: int

    def write(self, data: bytes) -> None: ...

    async def ready(self) -> None: ...

    def attach(self, channel: Channel) -> None: ...

    def detach(self, channel: Channel) -> None: ...


class Channel:
    def __init__(self, line: Line, number: int) -> None:
        self.number = number
        self.error: Exception | None = None
        self.confirms = Confirms()
        self.encode = Encoder(number, line.frame_max)
        self.on_delivery: Callable[[Delivery], None] | None = None
        self.on_end: Callable[[Exception], None] | None = None
        self._line = line
        self._replies = Replies()
        self._content: _Content | None = None

    async def open(self) -> None:
        self._line.attach(self)
        await self.call(Method.CHANNEL_OPEN, short_text(""))

    async def select_confirms(self) -> None:
        await self.call(Method.CONFIRM_SELECT, b"\x00")

    async def call(self, name: Method, arguments: bytes) -> bytes:
        """Ask, and wait for the answer; `ChannelClosed` or `BrokerUnreachable`."""
        if self.error is not None:
            raise self.error
        reply = self._replies.expect()
        self._line.write(method(self.number, name, arguments))
        return await reply

    def tell(self, name: Method, arguments: bytes) -> None:
        """Say something that is not answered."""
        if self.error is not None:
            raise self.error
        self._line.write(method(self.number, name, arguments))

    async def close(self) -> None:
        """Give back what was delivered and not acknowledged, and end."""
        if self.error is None:
            reason = u16.pack(REPLY_SUCCESS) + short_text("") + u16.pack(0) + u16.pack(0)
            await self.call(Method.CHANNEL_CLOSE, reason)
            self._line.detach(self)
            self.fail(BrokerUnreachable("the channel is closed"))

    async def send(self, flight: Flight, frames: Sequence[bytes], ids: Sequence[str]) -> None:
        """Write messages, waiting while the broker wants no more; nobody else may send then."""
        start = 0
        while start < len(frames):
            await self._line.ready()
            if self.error is not None:
                raise self.error
            stop, size = start, 0
            while stop < len(frames) and size < CHUNK_BYTES:
                size += len(frames[stop])
                stop += 1
            self._line.write(b"".join(frames[start:stop]))
            self.confirms.sent(flight, ids[start:stop])
            start = stop
        flight.seal()

    def fail(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            self._replies.fail(error)
            self.confirms.fail(error)
            if self.on_end is not None:
                self.on_end(error)

    # --- what the broker says ------------------------------------------------------------------

    def method_arrived(self, name: int, payload: bytes) -> None:
        match name:
            case Method.BASIC_ACK:
                self.confirms.settle(u64.unpack_from(payload, 4)[0], bool(payload[12] & 1))
            case Method.BASIC_NACK:
                self.confirms.settle(
                    u64.unpack_from(payload, 4)[0],
                    bool(payload[12] & 1),
                    REJECTED,
                )
            case Method.BASIC_RETURN | Method.BASIC_DELIVER:
                self._content = _Content(name, payload)
            case Method.CHANNEL_CLOSE:
                self._closed_by_broker(payload)
            case Method.BASIC_CANCEL:
                self.fail(BrokerUnreachable("RabbitMQ ended the consumer: its queue is gone"))
            case _:
                self._replies.arrived(payload)

    def header_arrived(self, payload: bytes) -> None:
        if self._content is None:
            raise ValueError("a header without its method")
        self._content.begin(payload)
        self._finish_content()

    def body_arrived(self, payload: bytes) -> None:
        if self._content is None:
            raise ValueError("a body without its header")
        self._content.add(payload)
        self._finish_content()

    def _finish_content(self) -> None:
        content = self._content
        if content is None or content.missing > 0:
            return
        self._content = None
        if content.method == Method.BASIC_RETURN:
            self.confirms.returned(message_id(content.header), _why_returned(content.arguments))
        elif self.on_delivery is not None:
            body = b"".join(content.pieces)
            self.on_delivery(Delivery(content.header, body, content.arguments))

    def _closed_by_broker(self, payload: bytes) -> None:
        reader = Reader(payload, 4)
        error = ChannelClosed(reader.short(), reader.text())
        self._line.detach(self)
        self._line.write(method(self.number, Method.CHANNEL_CLOSE_OK))
        self.fail(error)


class _Content:
    """A message that the broker sends: it comes in pieces."""

    __slots__ = ("arguments", "header", "method", "missing", "pieces")

    def __init__(self, method: int, arguments: bytes) -> None:
        self.method = method
        self.arguments = arguments
        self.header = b""
        self.pieces: list[bytes] = []
        self.missing = 1

    def begin(self, header: bytes) -> None:
        self.header = header
        self.missing = body_size(header)

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self.missing -= len(piece)


def _why_returned(payload: bytes) -> str:
    reader = Reader(payload, 4)
    code, text, exchange, routing_key = reader.short(), reader.text(), reader.text(), reader.text()
    if code != NO_ROUTE:
        return f"exchange {exchange!r} returned it (routing key {routing_key!r}): {text}"
    if not exchange:
        return f"queue {routing_key} does not exist: create it or use ?declare=quorum"
    return (
        f"exchange {exchange} routes {routing_key!r} to no queue: bind one, or correct routing_key"
    )


def declare_exchange(name: str, kind: str, *, passive: bool) -> bytes:
    flags = b"\x01" if passive else b"\x02"  # passive: only ask; else durable
    return u16.pack(0) + short_text(name) + short_text(kind) + flags + EMPTY_TABLE
