"""RabbitMQSource: queues, each with one reader of the group at a time."""

from __future__ import annotations

from collections.abc import Collection

from commitrelay.errors import BrokerUnreachable, ConfigError, PublisherError
from commitrelay.publishers.rabbitmq.connection import Connection, Rejected
from commitrelay.publishers.rabbitmq.places import Place as ExchangeOrQueue
from commitrelay.publishers.rabbitmq.places import Places
from commitrelay.source import OnRevoked
from commitrelay.sources.rabbitmq.meeting import Meeting
from commitrelay.sources.rabbitmq.seat import RabbitMQSeat
from commitrelay.sources.rabbitmq.settings import RabbitMQSourceSettings
from commitrelay.sources.roll import Roll
from commitrelay.sources.shared import Seat, SharedSource

FIRST_CHANNEL = 10


class RabbitMQSource(SharedSource):
    """Reads queues of RabbitMQ. A partition is a queue."""

    def __init__(self, settings: RabbitMQSourceSettings) -> None:
        super().__init__(
            settings.queues,
            timeout_seconds=settings.rabbitmq.delivery_timeout_seconds,
            revoke_timeout_seconds=settings.revoke_timeout_seconds,
        )
        self.settings = settings
        self._connection: Connection | None = None
        self._roll = Roll(self.me)
        self._meeting = Meeting(settings.rabbitmq, settings.group, self._roll, self._heard)
        self._channels = {queue: FIRST_CHANNEL + n for n, queue in enumerate(self._partitions)}

    def __str__(self) -> str:
        return str(self.settings)

    async def open(self, on_revoked: OnRevoked) -> None:
        try:
            await super().open(on_revoked)
        except Rejected as error:  # waiting would not help: say so and end
            raise PublisherError(str(error)) from None

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None and self._connection.lost is None

    async def _connect(self) -> None:
        self._connection = await Connection.connect(self.settings.rabbitmq)
        places: set[ExchangeOrQueue] = {("", queue) for queue in self.settings.queues}
        if self.settings.rabbitmq.declare is not None:
            # As the publisher does, so that it does not matter who comes first.
            places = {(queue, "") for queue in self.settings.queues}
        problems = await Places(self.settings.rabbitmq).problems(places, self._connection)
        for problem in problems.values():
            raise ConfigError(f"{self}: {problem}")

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        await self._meeting.disconnect()

    def _give_up_connection(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def _take(self, partition: str) -> Seat | None:
        if self._connection is None:
            raise BrokerUnreachable(f"{self}: not connected")
        number = self._channels[partition]
        seat = RabbitMQSeat(partition, number, self._connection, self.settings)
        return seat if await seat.take() else None

    async def _meet(self) -> Collection[str]:
        if self.settings.is_exclusive:
            await self._meeting.attend()
        return self._roll.members

    async def _part(self) -> None:
        await self._meeting.leave()

    def _heard(self) -> None:
        self._met(self._roll.members)

    def _is_mine(self, partition: str) -> bool:
        """Who shares a queue, or leaves it to the queue who reads, reads every one."""
        return not self.settings.is_exclusive or super()._is_mine(partition)
