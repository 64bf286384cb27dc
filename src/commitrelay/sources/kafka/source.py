"""KafkaSource: a member of a consumer group, with commits of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress

from commitrelay.source import Arrival, OnRevoked
from commitrelay.sources.buffer import Buffer
from commitrelay.sources.kafka.check import check
from commitrelay.sources.kafka.member import Member
from commitrelay.sources.kafka.settings import KafkaSourceSettings

JOIN_SECONDS = 10.0
LEAVE_SECONDS = 5.0


class KafkaSource:
    """Reads topics of Kafka. A partition is one of Kafka's: `orders/3`."""

    def __init__(self, settings: KafkaSourceSettings) -> None:
        self.settings = settings
        self._buffer = Buffer()
        self._member: Member | None = None
        self._ack_seconds = settings.kafka.delivery_timeout_seconds

    def __str__(self) -> str:
        return str(self.settings)

    async def open(self, on_revoked: OnRevoked) -> None:
        await asyncio.to_thread(check, self.settings)

        async def revoked(partitions: Collection[str]) -> None:
            await on_revoked(partitions)

        member = Member(self.settings, self._buffer, revoked)
        member.start()
        self._member = member
        with suppress(TimeoutError):  # others may take their time to let go
            async with asyncio.timeout(JOIN_SECONDS):
                await member.joined.wait()

    async def read(self, limit: int, wait_seconds: float) -> Sequence[Arrival]:
        return await self._buffer.take(limit, wait_seconds)

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        if self._member is not None and arrivals:
            await self._member.commit(arrivals, self._ack_seconds)

    async def lag(self) -> int | None:
        if self._member is None:
            return None
        return sum(held.lag for held in self._member.offsets.all())

    async def close(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            await asyncio.to_thread(member.end, LEAVE_SECONDS)
