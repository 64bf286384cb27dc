"""RabbitMQPublisher: persistent, mandatory, confirmed; as many messages on their way as are given.

It does not stop at a failure: the broker takes the next message whatever became of the last one.
So the relay keeps one unacknowledged event per key.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Collection, Sequence

from commitrelay.errors import BrokerUnreachable, InvalidEvent, PublisherError
from commitrelay.publisher import (
    NOT_SENT,
    Message,
    Outcome,
    PublisherCapabilities,
    Refused,
    Unreachable,
)
from commitrelay.publishers.rabbitmq.address import Address
from commitrelay.publishers.rabbitmq.channel import Channel, ChannelClosed
from commitrelay.publishers.rabbitmq.connection import Connection, Rejected
from commitrelay.publishers.rabbitmq.places import Places, place_of
from commitrelay.publishers.rabbitmq.sending import Sending
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings

TOGETHER, APART = 1, 2
"""The channels: one for all, and one for messages among which one has ended the first."""

SETTLE_SECONDS = 1.0
"""How long `recover` waits for late confirms before it connects anew."""

_SIZE_LIMIT = re.compile(r"message size \d+ .*max(?:imum)? size:? (\d+)")


class RabbitMQPublisher:
    """Sends to exchanges of RabbitMQ. They are looked up before their first message."""

    capabilities = PublisherCapabilities(stops_at_failure=False)

    def __init__(self, settings: RabbitMQSettings) -> None:
        self.settings = settings
        self.delivery_timeout_seconds = settings.delivery_timeout_seconds
        self._address = Address(settings.exchange, settings.routing_key)
        self._connection: Connection | None = None
        self._places = Places(settings)
        self._channels: dict[int, Channel] = {}
        self._turn = asyncio.Lock()  # fair: calls send in the order in which they were made
        self._apart = asyncio.Lock()
        self._max_message_bytes: int | None = None  # learnt from the broker's first complaint
        self._is_open = False
        self._calls = 0
        self._quiet = asyncio.Event()

    def __str__(self) -> str:
        return str(self.settings)

    # --- life ----------------------------------------------------------------------------------

    async def open(self) -> None:
        try:
            await self._connect()
        except Rejected as error:  # waiting would not help: say so and end
            raise PublisherError(str(error)) from None
        self._is_open = True

    async def recover(self) -> None:
        if not self._is_open:
            raise BrokerUnreachable(f"{self}: the publisher is not open")
        if not await self._is_well():
            await self._connect()

    async def close(self) -> None:
        self._is_open = False
        if self._calls:
            self._quiet.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.delivery_timeout_seconds / 2):
                    await self._quiet.wait()
        await self._disconnect()

    async def _connect(self) -> None:
        await self._disconnect()
        self._connection = await Connection.connect(self.settings)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._channels.clear()
        self._places = Places(self.settings)
        if connection is not None:
            await connection.close()

    async def _is_well(self) -> bool:
        """Whether the connection can go on, with nothing on its way any more."""
        connection = self._connection
        if connection is None or connection.lost is not None:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await connection.ready()
                for channel in self._channels.values():
                    await channel.confirms.idle()
                return connection.lost is None
        if connection.blocked is not None:
            # A new connection would be blocked as well, but only after its first message.
            raise BrokerUnreachable(self._blocked(connection.blocked))
        return False

    def _connected(self) -> Connection:
        if self._connection is None or not self._is_open:
            raise BrokerUnreachable(f"{self}: the publisher is not open")
        if self._connection.lost is not None:
            raise self._connection.lost
        return self._connection

    def _blocked(self, reason: str) -> str:
        return f"{self} takes no messages at the moment ({reason}): give it memory or disk space"

    async def missing_places(self, messages: Sequence[Message]) -> Sequence[str]:
        """What of the exchanges and queues of these messages is not there; need not be open."""
        if self.settings.declare is not None or not messages:
            return []
        places = {place_of(*self._address(message)) for message in messages}
        connection = await Connection.connect(self.settings)
        try:
            return sorted((await Places(self.settings).problems(places, connection)).values())
        finally:
            await connection.close()

    # --- publish -------------------------------------------------------------------------------

    async def publish(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        outcomes: list[Outcome] = [NOT_SENT] * len(messages)
        self._calls += 1
        try:
            async with asyncio.timeout(self.delivery_timeout_seconds):
                await self._publish(messages, outcomes)
                return outcomes
        except TimeoutError:
            reason = self._why_late()
        except BrokerUnreachable as error:
            reason = str(error)
        except ChannelClosed as error:  # over nothing that a message has asked for
            reason = f"{self}: {error.text}"
        finally:
            self._calls -= 1
            if not self._calls:
                self._quiet.set()
        outage = Unreachable(reason)
        return [outage if outcome is NOT_SENT else outcome for outcome in outcomes]

    def _why_late(self) -> str:
        connection = self._connection
        if connection is not None and connection.blocked is not None:
            return self._blocked(connection.blocked)
        return f"{self} did not answer within {self.delivery_timeout_seconds:g} s"

    async def _publish(self, messages: Sequence[Message], outcomes: list[Outcome]) -> None:
        async with self._turn:
            sending = Sending(messages, outcomes)
            await self._write(sending, range(len(messages)), TOGETHER)
        cause = await sending.finished()
        self._look_again(sending)
        if cause is not None:
            async with self._apart:
                await self._publish_apart(messages, outcomes, sending.unknown, cause)

    async def _publish_apart(
        self,
        messages: Sequence[Message],
        outcomes: list[Outcome],
        suspects: list[int],
        cause: ChannelClosed,
    ) -> None:
        """The broker ended the channel over one message and says not which: halve until found."""
        self._learn(cause)
        parts = [suspects]
        while parts:
            part = parts.pop()
            sending = Sending(messages, outcomes)
            await self._write(sending, part, APART)
            failed = await sending.finished()
            self._look_again(sending)
            if failed is None:
                continue
            self._learn(failed)
            unknown = sending.unknown
            if len(part) == 1 and unknown:
                outcomes[part[0]] = Refused(f"{self}: {failed.text}")
            else:
                middle = (len(unknown) + 1) // 2
                parts += [each for each in (unknown[middle:], unknown[:middle]) if each]

    async def _write(self, sending: Sending, positions: Collection[int], number: int) -> None:
        connection = self._connected()
        await self._find_places(sending, positions, connection)
        channel = await self._channel(number, connection)
        messages, encode, add = sending.messages, channel.encode, sending.add
        for position, exchange, routing_key in sending.addressed:
            message = messages[position]
            try:
                add(position, message.event_id, encode(message, exchange, routing_key))
            except ValueError as error:
                sending.outcomes[position] = Refused(f"exchange {exchange!r}: {error}")
        await sending.write(channel)

    async def _find_places(
        self, sending: Sending, positions: Collection[int], connection: Connection
    ) -> None:
        """Say where each message goes; refuse what cannot go anywhere."""
        limit, messages, address = self._max_message_bytes, sending.messages, self._address
        addressed: list[tuple[int, str, str]] = []
        for position in positions:
            message = messages[position]
            if limit is not None and len(message.value) > limit:
                sending.outcomes[position] = Refused(
                    f"the payload has {len(message.value)} bytes, the limit of {self} is {limit}: "
                    "store a reference instead, or raise its max_message_size"
                )
                continue
            try:
                addressed.append((position, *address(message)))
            except InvalidEvent as error:
                sending.outcomes[position] = Refused(str(error))
        # Behind an exchange the routing key does not matter, and there may be many of them.
        places = {
            (exchange, "") if exchange else ("", routing_key)
            for _, exchange, routing_key in addressed
        }
        problems = await self._places.problems(places, connection)
        if not problems:
            sending.addressed = addressed
            return
        for position, exchange, routing_key in addressed:
            problem = problems.get(place_of(exchange, routing_key))
            if problem is None:
                sending.addressed.append((position, exchange, routing_key))
            else:
                sending.outcomes[position] = Refused(problem)

    async def _channel(self, number: int, connection: Connection) -> Channel:
        channel = self._channels.get(number)
        if channel is None or channel.error is not None:
            channel = Channel(connection, number)
            try:
                await channel.open()
                await channel.select_confirms()
            except BaseException:
                connection.abort()  # nobody knows whether that number is taken now
                raise
            self._channels[number] = channel
        return channel

    def _look_again(self, sending: Sending) -> None:
        """At places that did not take a message, before they get the next one."""
        for exchange, routing_key in sending.trouble:
            self._places.forget(place_of(exchange, routing_key))

    def _learn(self, cause: ChannelClosed) -> None:
        self._places.forget_all()
        if match := _SIZE_LIMIT.search(cause.text):
            self._max_message_bytes = int(match[1])
