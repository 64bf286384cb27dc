"""RabbitMQTopic: the demo's queue on RabbitMQ, made for one run and deleted after it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from commitrelay.demo.ledger import Received
from commitrelay.demo.topic import received
from commitrelay.errors import BrokerUnreachable, PublisherError
from commitrelay.publishers.rabbitmq.channel import EMPTY_TABLE, Channel, ChannelClosed, Delivery
from commitrelay.publishers.rabbitmq.connection import Connection
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings
from commitrelay.publishers.rabbitmq.wire import Method, message_id, short_text, table, u16

OWN_OPTIONS = "exchange=&routing_key={topic}"
"""Straight into the queue of that name, whatever else the URL says."""

WAIT_SECONDS = 0.02
NO_ACK = b"\x02"
DURABLE = b"\x02"

T = TypeVar("T")


class RabbitMQTopic:
    title = "RabbitMQ"

    def __init__(self, url: str, name: str, queue_type: str = "quorum") -> None:
        self.url = f"{url}{'&' if '?' in url else '?'}{OWN_OPTIONS}"
        self.name = name
        self._queue_type = queue_type
        self._settings = RabbitMQSettings.from_url(self.url, {})
        # Made and read by one thread, polled by another, never by two at once.
        self._loop = asyncio.new_event_loop()
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._deliveries: list[Delivery] = []
        self._arrived = asyncio.Event()

    def prepare(self) -> None:
        try:
            self._run(self._prepare())
        except BaseException:
            self._loop.close()
            raise

    def subscribe(self) -> None:
        self._run(self._consume())

    def poll(self) -> list[Received]:
        return self._run(self._poll())

    def close(self) -> None:
        """The connection stays for `remove`, which comes after it."""
        if self._connection is None:
            self._loop.close()

    def remove(self) -> None:
        try:
            self._run(self._remove())
        finally:
            self._loop.close()

    async def _prepare(self) -> None:
        await self._connect()
        kind = table({"x-queue-type": self._queue_type})
        queue = u16.pack(0) + short_text(self.name) + DURABLE + kind
        await self._call(Method.QUEUE_DECLARE, queue)

    async def _consume(self) -> None:
        names = short_text(self.name) + short_text(self.name)
        await self._call(Method.BASIC_CONSUME, u16.pack(0) + names + NO_ACK + EMPTY_TABLE)

    async def _connect(self) -> None:
        self._connection = await Connection.connect(self._settings)
        self._channel = Channel(self._connection, 1)
        self._channel.on_delivery = self._note
        await self._channel.open()

    async def _call(self, name: Method, arguments: bytes) -> None:
        assert self._channel is not None
        await self._channel.call(name, arguments)

    async def _poll(self) -> list[Received]:
        if self._connection is None or self._connection.lost is not None:
            await self._reconnect()
        self._arrived.clear()
        if not self._deliveries:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await self._arrived.wait()
            except TimeoutError:
                return []
        taken, self._deliveries = self._deliveries, []
        return [received(message_id(each.header) or "", each.body) for each in taken]

    async def _reconnect(self) -> None:
        try:
            await self._connect()
            await self._consume()
        except BrokerUnreachable:
            await asyncio.sleep(WAIT_SECONDS)  # the relay says it; here one only waits

    async def _remove(self) -> None:
        if self._connection is None or self._connection.lost is not None:
            await self._connect()
        await self._call(Method.QUEUE_DELETE, u16.pack(0) + short_text(self.name) + b"\x00")
        assert self._connection is not None
        await self._connection.close()

    def _note(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._arrived.set()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run_until_complete(work)
        except ChannelClosed as error:
            raise PublisherError(f"{self._settings}: {error.text}") from None


from_url = RabbitMQTopic
