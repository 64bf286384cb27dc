"""NatsSource: topics of JetStream, each with one reader of the group at a time."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress

from commitrelay.errors import BrokerUnreachable, ConfigError, PublisherError
from commitrelay.publishers.nats.connection import Delivery, NatsConnection, must
from commitrelay.publishers.nats.login import log_in
from commitrelay.publishers.nats.streams import check_stream, stream_info
from commitrelay.sources.nats.record import Record, Records, Target
from commitrelay.sources.nats.seat import NatsSeat
from commitrelay.sources.nats.settings import NatsSourceSettings
from commitrelay.sources.roll import BYE, HELLO, HERE, Roll
from commitrelay.sources.shared import Seat, SeatLost, SharedSource


class NatsSource(SharedSource):
    """Reads subjects of streams. A partition is a topic."""

    def __init__(self, settings: NatsSourceSettings) -> None:
        super().__init__(
            settings.topics,
            timeout_seconds=settings.nats.delivery_timeout_seconds,
            revoke_timeout_seconds=settings.revoke_timeout_seconds,
        )
        self.settings = settings
        self._connection: NatsConnection | None = None
        self._records = Records(settings)
        self._streams: dict[str, str] = {}  # by topic
        self._seen: dict[str, tuple[int, float]] = {}  # another's record, and since when
        self._roll = Roll(self.me)
        self._meeting = f"commitrelay.readers.{settings.group.encode().hex()}"

    def __str__(self) -> str:
        return str(self.settings)

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None and self._connection.lost is None

    async def _connect(self) -> None:
        connection = await log_in(self.settings.nats, NatsConnection)
        connection.on_end = self._ended
        self._connection = connection
        for topic in self.settings.topics:
            self._streams[topic] = await self._stream_of(topic, connection)
        await self._records.prepare(connection)
        if len(self.settings.topics) > 1:
            connection.subscribe(self._heard, self._meeting)
            connection.publish(self._meeting, self._roll.word(HELLO))

    async def _disconnect(self) -> None:
        self._give_up_connection()

    def _give_up_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop(f"{self}: closed")

    def _ended(self, _reason: str) -> None:
        for seat in self._seats.values():
            if isinstance(seat, NatsSeat):
                seat.connection_ended()

    async def _stream_of(self, topic: str, connection: NatsConnection) -> str:
        """The stream that keeps a topic: `ConfigError` if none does."""
        nats, subject = self.settings.nats, self.settings.subject_of(topic)
        stream = nats.stream
        if stream is None:
            answer = await connection.api("STREAM.NAMES", {"subject": subject})
            streams = must(answer, f"{self}: subject {subject}").get("streams") or []
            if not streams:
                raise ConfigError(
                    f"{self}: no stream takes subject {subject}: create one, "
                    "or use ?stream=NAME&create_stream=SUBJECTS"
                )
            stream = streams[0]
        else:
            try:
                await check_stream(connection, nats, stream)
            except BrokerUnreachable:
                raise
            except PublisherError as error:
                raise ConfigError(str(error)) from None
        found = await stream_info(connection, stream)
        retention = "limits" if found is None else found["config"].get("retention", "limits")
        if retention != "limits":
            raise ConfigError(
                f"{self}: stream {stream} keeps messages by {retention}, so they may go before "
                "they are read: use one that keeps them by limits"
            )
        return stream

    async def _take(self, partition: str) -> Seat | None:
        connection = self._connection
        if connection is None:
            raise BrokerUnreachable(f"{self}: not connected")
        target = Target(self._streams[partition], self.settings.subject_of(partition))
        record = await self._records.get(connection, target)
        if not self._may_take(partition, record):
            return None
        seat = NatsSeat(partition, target, connection, self._records, self.settings.lease_seconds)
        try:
            await seat.take(record, self.me)
        except SeatLost:
            return None
        return seat

    def _may_take(self, partition: str, record: Record) -> bool:
        """Nobody has it, we had it, or who had it has not been heard of for a lease."""
        now = time.monotonic()
        revision, since = self._seen.get(partition, (-1, now))
        if record.reader in ("", self.me):
            return True
        if revision != record.revision:
            self._seen[partition] = (record.revision, now)
            return False
        return now - since > self.settings.lease_seconds

    async def _meet(self) -> Collection[str]:
        if self._connection is not None:
            self._connection.publish(self._meeting, self._roll.word(HERE))
        return self._roll.members

    async def _part(self) -> None:
        if len(self._partitions) > 1 and self._connection is not None:
            self._connection.publish(self._meeting, self._roll.word(BYE))
            await self._connection.ping()

    def _heard(self, delivery: Delivery) -> None:
        if self._roll.hear(delivery.payload) and self._connection is not None:
            with suppress(BrokerUnreachable):
                self._connection.publish(self._meeting, self._roll.word(HERE))
        self._met(self._roll.members)
