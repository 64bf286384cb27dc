"""RedisSeat: one stream in our hands, by a lock that expires.

All readers of a group go by one name there, so what one has read and not acknowledged is the next
one's to read again, in the order of the stream. What other programs have pending in the group is
claimed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from commitrelay.publishers.redis.link import KEY, PAYLOAD
from commitrelay.source import Arrival
from commitrelay.sources.buffer import Buffer
from commitrelay.sources.redis import scripts
from commitrelay.sources.redis.settings import RedisSourceSettings
from commitrelay.sources.shared import Place, Seat, SeatLost, in_time, places

CONSUMER = "commitrelay"
BATCH = 200
ACK_BATCH = 1000

_KEY, _PAYLOAD = KEY.encode(), PAYLOAD.encode()


class Ask(Protocol):
    async def __call__(self, stream: str, *command: str | bytes | int) -> Any: ...


class RedisSeat(Seat):
    def __init__(
        self, stream: str, topic: str, me: str, settings: RedisSourceSettings, ask: Ask
    ) -> None:
        super().__init__(stream)
        self._topic = topic
        self._me = me
        self._settings = settings
        self._ask = ask
        self._lock = lock_of(stream, settings.group)
        self._milliseconds = round(settings.lock_seconds * 1000)

    async def take(self) -> bool:
        """Whether the lock is ours now."""
        if not await self._eval(scripts.TAKE, self._milliseconds, keys=1):
            return False
        cursor = b"0-0"
        while True:
            reply = await self._ask(
                self.partition, "XAUTOCLAIM", self.partition, self._settings.group, CONSUMER, 0,
                cursor, "COUNT", BATCH, "JUSTID",
            )  # fmt: skip
            cursor = reply[0]
            if cursor == b"0-0":
                return True

    async def read(self, buffer: Buffer) -> None:
        after = b"0"  # first what is pending
        while True:
            if buffer.is_full:
                await buffer.until_low()
            reply = await self._eval(scripts.READ, self._settings.group, CONSUMER, BATCH, after)
            entries = reply[0][1] if reply else []
            if entries:
                await self._arrived(entries, buffer)
            if after != b">":
                after = entries[-1][0] if entries else b">"
            elif not entries:
                await asyncio.sleep(self._settings.poll_seconds)

    async def hold(self) -> None:
        while True:
            seconds = self._settings.lock_seconds / 3
            await asyncio.sleep(seconds)
            # Not later: until then the lock is ours for certain.
            await in_time(seconds, self._eval(scripts.KEEP, self._milliseconds, keys=1))

    async def ack(self, arrivals: Sequence[Arrival]) -> None:
        await self._ack(places(arrivals))

    async def lag(self) -> int | None:
        groups = await self._ask(self.partition, "XINFO", "GROUPS", self.partition)
        for group in groups:
            facts = dict(zip(group[::2], group[1::2], strict=True))
            if facts[b"name"].decode() == self._settings.group:
                unread = facts.get(b"lag")  # since Redis 7, and not always
                return None if unread is None else int(unread) + int(facts[b"pending"])
        return None

    async def release(self) -> None:
        try:
            await self._eval(scripts.RELEASE, keys=1)
        except SeatLost:
            return

    async def _arrived(self, entries: list[list[Any]], buffer: Buffer) -> None:
        buffer.put(
            _arrival(self, self._topic, entry, fields)
            for entry, fields in entries
            if fields is not None
        )
        gone = [entry for entry, fields in entries if fields is None]
        if gone:  # trimmed before anybody could read them
            await self._ack(gone)

    async def _ack(self, entries: Sequence[str | bytes]) -> None:
        try:
            for start in range(0, len(entries), ACK_BATCH):
                some = entries[start : start + ACK_BATCH]
                await self._eval(scripts.ACK, self._settings.group, *some)
        except SeatLost:
            return  # they are somebody else's

    async def _eval(self, script: str, *arguments: str | bytes | int, keys: int = 2) -> Any:
        names = (self._lock, self.partition)[:keys]
        reply = await self._ask(self.partition, "EVAL", script, keys, *names, self._me, *arguments)
        if reply == scripts.LOST:
            raise SeatLost
        return reply


def lock_of(stream: str, group: str) -> str:
    """The key of the lock; on a cluster it has to be where the stream is."""
    tagged = stream if "{" in stream else f"{{{stream}}}"
    return f"commitrelay:lock:{tagged}:{group}"


def _arrival(seat: Seat, topic: str, entry: bytes, fields: list[bytes]) -> Arrival:
    key = value = None
    headers: list[tuple[str, str]] = []
    for name, content in zip(fields[::2], fields[1::2], strict=True):
        if name == _KEY and key is None:
            key = content
        elif name == _PAYLOAD and value is None:
            value = content
        else:
            headers.append((_text(name), _text(content)))
    return Arrival(
        topic, seat.partition, Place(seat, entry.decode()), _text(key or b""), value or b"", headers
    )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
