"""Meeting: an exchange at which the readers of a group hear of each other.

It has a connection of its own: RabbitMQ stops listening to a connection that publishes when it is
short of memory, and then acknowledgements must still get through.
"""

from __future__ import annotations

from collections.abc import Callable

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import Message
from commitrelay.publishers.rabbitmq.channel import EMPTY_TABLE, Channel, ChannelClosed, Delivery
from commitrelay.publishers.rabbitmq.connection import Connection
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings
from commitrelay.publishers.rabbitmq.wire import Method, Reader, short_text, u16
from commitrelay.sources.roll import BYE, HELLO, HERE, Roll

AUTO_DELETE = b"\x04"
EXCLUSIVE = b"\x04"
NO_ACK = b"\x02"


class Meeting:
    def __init__(
        self, settings: RabbitMQSettings, group: str, roll: Roll, heard: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._exchange = f"commitrelay.readers.{group}"
        self._roll = roll
        self._heard = heard
        self._connection: Connection | None = None
        self._channel: Channel | None = None

    async def attend(self) -> None:
        """Say that we are there: `BrokerUnreachable` if nobody could hear it."""
        try:
            if self._channel is None or self._channel.error is not None:
                await self._join()
            else:
                self._say(HERE)
        except ChannelClosed as error:
            raise BrokerUnreachable(f"exchange {self._exchange}: {error.text}") from None

    async def leave(self) -> None:
        if self._channel is not None and self._channel.error is None:
            self._say(BYE)
        await self.disconnect()

    async def disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _join(self) -> None:
        await self.disconnect()
        self._connection = await Connection.connect(self._settings)
        channel = Channel(self._connection, 1)
        channel.on_delivery = self._delivered
        await channel.open()
        name = short_text(self._exchange)
        await channel.call(
            Method.EXCHANGE_DECLARE,
            u16.pack(0) + name + short_text("fanout") + AUTO_DELETE + EMPTY_TABLE,
        )
        made = await channel.call(
            Method.QUEUE_DECLARE, u16.pack(0) + short_text("") + EXCLUSIVE + EMPTY_TABLE
        )
        queue = short_text(Reader(made, 4).text())
        bound = u16.pack(0) + queue + name + short_text("") + b"\x00" + EMPTY_TABLE
        await channel.call(Method.QUEUE_BIND, bound)
        consumed = u16.pack(0) + queue + short_text("") + NO_ACK + EMPTY_TABLE
        await channel.call(Method.BASIC_CONSUME, consumed)
        self._channel = channel
        self._say(HELLO)

    def _delivered(self, delivery: Delivery) -> None:
        if self._roll.hear(delivery.body):
            self._say(HERE)
        self._heard()

    def _say(self, kind: str) -> None:
        if self._channel is None or self._connection is None or self._connection.lost is not None:
            return
        word = Message(self._exchange, "", self._roll.word(kind), [], "")
        self._connection.write(self._channel.encode(word, self._exchange, ""))
