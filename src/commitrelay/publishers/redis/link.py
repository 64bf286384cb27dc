"""RedisLink: messages as XADD commands, and their replies."""

from __future__ import annotations

from typing import Any, TypeVar
from zlib import crc32

from commitrelay.errors import BrokerUnreachable
from commitrelay.publisher import DELIVERED, Message, Refused, Unreachable
from commitrelay.publishers.pipelined import Batch
from commitrelay.publishers.redis.connection import RedisConnection, check, pack
from commitrelay.publishers.redis.outcomes import outcome_of
from commitrelay.publishers.redis.settings import RedisSettings

K = TypeVar("K")

KEY, PAYLOAD = "key", "payload"
OWN_FIELDS = frozenset((KEY, PAYLOAD))
REPEATED = frozenset(("event-type", "aggregate-type", "content-type", "ce_type"))
"""Headers whose values are few, so that each is encoded once."""

MAX_CACHED = 4096
COMMANDS_PER_WRITE = 250
WAIT_SHARE = 0.5
"""Of the delivery timeout: how long replicas may take."""


class Streams:
    """Which stream a message goes to, and the command that puts it there."""

    def __init__(self, settings: RedisSettings) -> None:
        self._count = settings.streams
        limit = settings.max_length
        self._trimming = () if limit is None else ("MAXLEN", "~", str(limit))
        self._own_words = len(("XADD", "stream", *self._trimming, "*", KEY, "…", PAYLOAD, "…"))
        self._begins: dict[str, bytes] = {}
        self._names: dict[str, bytes] = {}
        self._repeated: dict[tuple[str, str], bytes] = {}

    def stream(self, message: Message) -> str:
        if self._count == 1:
            return message.topic
        return f"{message.topic}:{crc32(message.key.encode()) % self._count}"

    def command(self, message: Message) -> bytes:
        # Put together by hand: hiredis's pack_command takes half as long again.
        _topic, key, value, headers, _event_id = message
        names, repeated = self._names, self._repeated
        fields: list[bytes] = []
        for header in headers:
            field = repeated.get(header)
            if field is None:
                name, text = header
                if name in OWN_FIELDS:
                    continue
                raw = text.encode()
                field = b"%b$%d\r\n%b\r\n" % (
                    names.get(name) or _remember(names, name, bulk(name)),
                    len(raw),
                    raw,
                )
                if name in REPEATED:
                    _remember(repeated, header, field)
            fields.append(field)
        stream = self.stream(message)
        raw = key.encode()
        return b"*%d\r\n%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n%b" % (
            self._own_words + 2 * len(fields),
            self._begins.get(stream) or self._begin(stream),
            len(raw),
            raw,
            _PAYLOAD_NAME,
            len(value),
            value,
            b"".join(fields),
        )

    def _begin(self, stream: str) -> bytes:
        words = ("XADD", stream, *self._trimming, "*", KEY)
        return _remember(self._begins, stream, b"".join(map(bulk, words)))


def bulk(text: str) -> bytes:
    """A word of a command."""
    raw = text.encode()
    return b"$%d\r\n%b\r\n" % (len(raw), raw)


_PAYLOAD_NAME = bulk(PAYLOAD)


def _remember(cache: dict[K, bytes], name: K, made: bytes) -> bytes:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[name] = made
    return made


class RedisLink:
    """One connection to one server, or to one node of a cluster."""

    def __init__(self, connection: RedisConnection, settings: RedisSettings) -> None:
        self.connection = connection
        self._streams = Streams(settings)
        self._replicas = settings.wait_replicas
        self._wait = b""
        if self._replicas:
            milliseconds = round(settings.delivery_timeout_seconds * WAIT_SHARE * 1000)
            self._wait = pack(("WAIT", self._replicas, milliseconds))

    @property
    def lost(self) -> str | None:
        return self.connection.lost

    async def check(self) -> None:
        await check(self.connection)

    def drop(self, reason: str) -> None:
        self.connection.drop(reason)

    async def send(self, batch: Batch) -> None:
        await self.send_some(batch, range(len(batch.messages)))

    async def send_some(self, batch: Batch, positions: range | list[int]) -> None:
        """Those at the positions, in order."""
        for start in range(0, len(positions), COMMANDS_PER_WRITE):
            await self.connection.writable()
            if self.lost is not None:
                raise BrokerUnreachable(self.lost)
            self._write(batch, positions[start : start + COMMANDS_PER_WRITE])

    def _write(self, batch: Batch, positions: range | list[int]) -> None:
        messages, command = batch.messages, self._streams.command
        limit = self.connection.max_bulk_bytes
        commands: list[bytes] = []
        sent: list[int] = []
        for position in positions:
            message = messages[position]
            packed = command(message)
            if len(packed) > limit and (reason := self._too_large(message)):
                batch.settle(position, Refused(reason))
            else:
                commands.append(packed)
                sent.append(position)
        if not sent:
            return
        commands.append(self._wait)
        replicas = self._replicas
        waiting = _Added(batch, sent, self._streams) if not replicas else None
        self.connection.ask(
            b"".join(commands), waiting or _Copied(batch, sent, self._streams, replicas)
        )

    def _too_large(self, message: Message) -> str | None:
        limit = self.connection.max_bulk_bytes
        largest = max(len(message.value), *(len(text.encode()) for _, text in message.headers), 0)
        if largest <= limit:
            return None
        return (
            f"stream {self._streams.stream(message)}: a field has {largest} bytes, the server's "
            f"proto-max-bulk-len is {limit}: store a reference instead, or raise it"
        )


class _Added:
    """One reply per message: the id of its entry, or an error."""

    __slots__ = ("_batch", "_positions", "_streams", "left")

    def __init__(self, batch: Batch, positions: list[int], streams: Streams) -> None:
        self._batch = batch
        self._positions = positions
        self._streams = streams
        self.left = len(positions)

    def take(self, reply: Any) -> None:
        position = self._positions[-self.left]
        self.left -= 1
        if type(reply) is bytes:
            self._batch.settle(position, DELIVERED)
        else:
            stream = self._streams.stream(self._batch.messages[position])
            self._batch.settle(position, outcome_of(str(reply), stream))

    def give_up(self, reason: str) -> None:
        self._batch.give_up(reason)


class _Copied:
    """The same, with the number of replicas that have it all as the last reply."""

    __slots__ = ("_added", "_batch", "_positions", "_replicas", "_streams", "left")

    def __init__(self, batch: Batch, positions: list[int], streams: Streams, replicas: int) -> None:
        self._batch = batch
        self._positions = positions
        self._streams = streams
        self._replicas = replicas
        self._added: list[int] = []
        self.left = len(positions) + 1

    def take(self, reply: Any) -> None:
        self.left -= 1
        if not self.left:
            self._copied(reply)
            return
        position = self._positions[-self.left]
        if type(reply) is bytes:
            self._added.append(position)
        else:
            stream = self._streams.stream(self._batch.messages[position])
            self._batch.settle(position, outcome_of(str(reply), stream))

    def _copied(self, reply: Any) -> None:
        for position in self._added:
            if isinstance(reply, int) and reply >= self._replicas:
                self._batch.settle(position, DELIVERED)
            else:
                stream = self._streams.stream(self._batch.messages[position])
                reason = f"stream {stream}: {reply} of {self._replicas} replicas have it in time"
                self._batch.settle(position, Unreachable(reason))

    def give_up(self, reason: str) -> None:
        self._batch.give_up(reason)
