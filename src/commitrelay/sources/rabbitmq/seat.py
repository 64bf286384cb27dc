"""RabbitMQSeat: one queue in our hands, on a channel of its own.

To close the channel gives back what was not acknowledged and lets the next reader in, in one step
of the queue: so the next one gets it first, in the queue's order.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.rabbitmq.channel import EMPTY_TABLE, Channel, ChannelClosed, Delivery
from commitrelay.publishers.rabbitmq.connection import Connection
from commitrelay.publishers.rabbitmq.wire import Method, Reader, short_text, u16, u32, u64
from commitrelay.source import Arrival
from commitrelay.sources.buffer import Buffer
from commitrelay.sources.rabbitmq.message import STREAM_OFFSET, content
from commitrelay.sources.rabbitmq.settings import RabbitMQSourceSettings
from commitrelay.sources.shared import Place, Seat, places

PASSIVE = b"\x01"
EXCLUSIVE = b"\x04"
MULTIPLE = b"\x01"
ACCESS_REFUSED = 403


class RabbitMQSeat(Seat):
    def __init__(
        self, queue: str, number: int, connection: Connection, settings: RabbitMQSourceSettings
    ) -> None:
        super().__init__(queue)
        self._settings = settings
        self._channel = Channel(connection, number)
        self._channel.on_delivery = self._delivered
        self._channel.on_end = self._ended
        self._end: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._buffer: Buffer | None = None
        self._early: list[Arrival] = []  # what comes before anybody reads
        self._last_tag = self._done_tag = 0

    async def take(self) -> bool:
        """Whether the queue is ours; nothing of the channel is left if it is not."""
        await self._channel.open()
        try:
            if self._settings.is_exclusive and (await self._look())[1]:
                await self._channel.close()  # somebody reads it: to try would only fill the log
                return False
            await self._channel.call(
                Method.BASIC_QOS, u32.pack(0) + u16.pack(self._settings.prefetch) + b"\x00"
            )
            names = short_text(self.partition) + short_text("")
            flags = EXCLUSIVE if self._settings.is_exclusive else b"\x00"
            await self._channel.call(
                Method.BASIC_CONSUME, u16.pack(0) + names + flags + EMPTY_TABLE
            )
        except ChannelClosed as error:
            if error.code == ACCESS_REFUSED and "exclusive" in error.text:
                return False
            raise BrokerUnreachable(f"queue {self.partition}: {error.text}") from None
        return True

    async def read(self, buffer: Buffer) -> None:
        self._buffer = buffer
        buffer.put(self._early)
        self._early = []
        error = await self._end
        raise BrokerUnreachable(f"queue {self.partition}: {error}")

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        tag: int = places(arrivals)[-1]
        try:
            self._channel.tell(Method.BASIC_ACK, u64.pack(tag) + MULTIPLE)
        except ChannelClosed:
            return  # they come again
        self._done_tag = tag

    async def lag(self) -> int | None:
        try:
            waiting, _readers = await self._look()
        except ChannelClosed:
            return None
        return waiting + self._last_tag - self._done_tag

    async def release(self) -> None:
        self._buffer = None
        self._channel.on_delivery = None
        try:
            await self._channel.close()
        except ChannelClosed:
            return

    async def _look(self) -> tuple[int, int]:
        """How many messages wait in the queue, and how many readers it has."""
        name = short_text(self.partition)
        reply = await self._channel.call(
            Method.QUEUE_DECLARE, u16.pack(0) + name + PASSIVE + EMPTY_TABLE
        )
        reader = Reader(reply, 4)
        reader.text()
        return reader.long(), reader.long()

    def _delivered(self, delivery: Delivery) -> None:
        try:
            tag, exchange, routing_key, headers, value = content(delivery)
        except (ValueError, IndexError, struct.error) as error:
            self._ended(ValueError(f"a message that cannot be read: {error}"))
            return
        if any(name == STREAM_OFFSET for name, _text in headers):
            self._ended(ValueError("a stream keeps no place for its readers: use a queue"))
            return
        self._last_tag = tag
        # Behind the default exchange the routing key is the queue's name, and says nothing.
        topic, key = (exchange, routing_key) if exchange else (self.partition, "")
        arrival = Arrival(topic, self.partition, Place(self, tag), key, value, headers)
        if self._buffer is None:
            self._early.append(arrival)
        else:
            self._buffer.put([arrival])

    def _ended(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_result(error)
