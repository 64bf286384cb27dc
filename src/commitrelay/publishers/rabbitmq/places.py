"""Places: the exchanges and queues that messages go to: looked up first, made if asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from commitrelay.publishers.rabbitmq.channel import (
    EMPTY_TABLE,
    Channel,
    ChannelClosed,
    declare_exchange,
)
from commitrelay.publishers.rabbitmq.connection import Connection
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings
from commitrelay.publishers.rabbitmq.wire import Method, short_text, table, u16

ASKING = 3
"""The channel for questions: a wrong one ends it, so it is nobody else's."""

NOT_FOUND = 404
MISSING_SECONDS = 1.0
"""For so long nobody asks again for what was not there."""

MAX_REMEMBERED = 10_000

BINDINGS = {"topic": "#", "fanout": ""}
"""The routing key with which a queue gets everything from an exchange."""

Place = tuple[str, str]
"""(exchange, ""), or ("", queue) behind the default exchange."""


def place_of(exchange: str, routing_key: str) -> Place:
    return (exchange, "") if exchange else ("", routing_key)


class Places:
    """Remembers what is there, and for a moment what is not."""

    def __init__(self, settings: RabbitMQSettings) -> None:
        self._settings = settings
        self._known: set[Place] = set()
        self._missing: dict[Place, tuple[float, str]] = {}
        self._channel: Channel | None = None
        self._lock = asyncio.Lock()

    async def problems(self, places: Collection[Place], connection: Connection) -> dict[Place, str]:
        """Why some of them cannot be sent to; `BrokerUnreachable` if nobody says."""
        if self._known.issuperset(places):
            return {}
        async with self._lock:
            asked = {place: await self._problem(place, connection) for place in places}
        return {place: problem for place, problem in asked.items() if problem is not None}

    def forget(self, place: Place) -> None:
        """A message came back from it: ask again before the next one."""
        self._known.discard(place)

    def forget_all(self) -> None:
        self._known.clear()
        self._missing.clear()

    async def _problem(self, place: Place, connection: Connection) -> str | None:
        if place in self._known:
            return None
        until, problem = self._missing.get(place, (0.0, None))
        if time.monotonic() < until:
            return problem
        try:
            problem = await self._look_up(place, connection)
        except ChannelClosed as error:
            problem = f"{self._settings}: {error.text}"
        except ValueError as error:  # no name that AMQP can carry
            problem = f"exchange {place[0]!r}, queue {place[1]!r}: {error}"
        if len(self._known) + len(self._missing) >= MAX_REMEMBERED:
            self.forget_all()
        if problem is None:
            self._known.add(place)
        else:
            self._missing[place] = (time.monotonic() + MISSING_SECONDS, problem)
        return problem

    async def _look_up(self, place: Place, connection: Connection) -> str | None:
        exchange, queue = place
        if not exchange:
            if await self._queue_exists(queue, connection):
                return None
            if self._settings.declare is None:
                return f"queue {queue} does not exist: create it or use ?declare=quorum"
            await self._make_queue(queue, connection)
            return None
        exists = await self._exchange_exists(exchange, connection)
        if self._settings.declare is not None:
            await self._make_exchange_and_queue(exchange, connection, exists)
        elif not exists:
            return f"exchange {exchange} does not exist: create it or use ?declare=quorum"
        return None

    async def _make_exchange_and_queue(
        self, name: str, connection: Connection, exists: bool
    ) -> None:
        kind = self._settings.exchange_type
        if not exists:
            arguments = declare_exchange(name, kind, passive=False)
            await self._ask(Method.EXCHANGE_DECLARE, arguments, connection)
        if await self._queue_exists(name, connection) and exists:
            return  # whether they are bound is somebody else's decision
        if not await self._queue_exists(name, connection):
            await self._make_queue(name, connection)
        names = short_text(name) + short_text(name) + short_text(BINDINGS[kind])
        arguments = u16.pack(0) + names + b"\x00" + EMPTY_TABLE
        await self._ask(Method.QUEUE_BIND, arguments, connection)

    async def _make_queue(self, name: str, connection: Connection) -> None:
        assert self._settings.declare is not None
        kind = table({"x-queue-type": self._settings.declare})
        arguments = u16.pack(0) + short_text(name) + b"\x02" + kind
        await self._ask(Method.QUEUE_DECLARE, arguments, connection)

    async def _exchange_exists(self, name: str, connection: Connection) -> bool:
        arguments = declare_exchange(name, "", passive=True)
        return await self._exists(Method.EXCHANGE_DECLARE, arguments, connection)

    async def _queue_exists(self, name: str, connection: Connection) -> bool:
        arguments = u16.pack(0) + short_text(name) + b"\x01" + EMPTY_TABLE
        return await self._exists(Method.QUEUE_DECLARE, arguments, connection)

    async def _exists(self, name: Method, arguments: bytes, connection: Connection) -> bool:
        try:
            await self._ask(name, arguments, connection)
        except ChannelClosed as error:
            if error.code == NOT_FOUND:
                return False
            raise
        return True

    async def _ask(self, name: Method, arguments: bytes, connection: Connection) -> None:
        if self._channel is None or self._channel.error is not None:
            self._channel = Channel(connection, ASKING)
            await self._channel.open()
        await self._channel.call(name, arguments)
