"""NatsSeat: one topic in our hands, by its record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from commitrelay.publishers.nats.connection import Delivery, NatsConnection
from commitrelay.publishers.nats.link import KEY_HEADER
from commitrelay.source import Arrival
from commitrelay.sources.buffer import Buffer
from commitrelay.sources.nats.pull import Pull
from commitrelay.sources.nats.record import Record, Records, Target
from commitrelay.sources.shared import Place, Seat, SeatLost, in_time, places

SERVERS_PREFIX = "nats-"


class NatsSeat(Seat):
    def __init__(
        self,
        topic: str,
        target: Target,
        connection: NatsConnection,
        records: Records,
        lease_seconds: float,
    ) -> None:
        super().__init__(topic)
        self._target = target
        self._connection = connection
        self._records = records
        self._lease_seconds = lease_seconds
        self._record = Record(0, "", 0)
        self._writing = asyncio.Lock()
        self._pull: Pull | None = None
        self._buffer: Buffer | None = None
        self._unacknowledged = 0
        self._is_lost = asyncio.Event()

    async def take(self, seen: Record, me: str) -> None:
        """Take over from what was seen; `SeatLost` if somebody was faster."""
        self._record = await self._records.put(
            self._connection, self._target, seen._replace(reader=me)
        )

    async def read(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._pull = Pull(self._connection, self._target, self._record.done, self._arrived)
        while True:
            if buffer.is_full:
                await buffer.until_low()
            await self._pull.batch()

    async def hold(self) -> None:
        while not self._is_lost.is_set():
            try:
                async with asyncio.timeout(self._lease_seconds / 3):
                    await self._is_lost.wait()
            except TimeoutError:
                await in_time(self._lease_seconds / 3, self._write(self._record.done))
        raise SeatLost

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        done: int = places(arrivals)[-1]
        try:
            await self._write(done)
        except SeatLost:
            return
        self._unacknowledged -= len(arrivals)

    async def lag(self) -> int | None:
        if self._pull is None:
            return 1  # nobody has looked yet: there may be something
        return await self._pull.pending() + self._unacknowledged

    async def release(self) -> None:
        try:
            async with self._writing:
                free = self._record._replace(reader="")
                await self._records.put(self._connection, self._target, free)
        except SeatLost:
            return
        if self._pull is not None:
            await self._pull.end()

    def connection_ended(self) -> None:
        if self._pull is not None:
            self._pull.connection_ended()

    async def _write(self, done: int) -> None:
        async with self._writing:
            record = self._record._replace(done=max(done, self._record.done))
            try:
                self._record = await self._records.put(self._connection, self._target, record)
            except SeatLost:
                self._is_lost.set()
                raise

    def _arrived(self, sequence: int, delivery: Delivery) -> None:
        assert self._buffer is not None, "it is asked for by read"
        self._unacknowledged += 1
        key, headers = _headers(delivery.headers)
        place = Place(self, sequence)
        self._buffer.put(
            [Arrival(self.partition, self.partition, place, key, delivery.payload, headers)]
        )


def _headers(raw: bytes) -> tuple[str, list[tuple[str, str]]]:
    """The key and the publisher's headers; what NATS itself has added is left out."""
    key = ""
    headers: list[tuple[str, str]] = []
    for line in raw.decode("utf-8", "surrogateescape").split("\r\n")[1:]:
        name, colon, text = line.partition(":")
        text = text.removeprefix(" ")
        if not colon or name.lower().startswith(SERVERS_PREFIX):
            continue
        if name == KEY_HEADER:
            key = text
        else:
            headers.append((name, text))
    return key, headers
