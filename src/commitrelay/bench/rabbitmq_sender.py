"""Sends AMQP frames, each batch in one piece, not mandatory, and counts the confirms."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

from commitrelay.bench.acknowledgements import Acknowledgements
from commitrelay.bench.encoded_sender import EncodedSender
from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.rabbitmq.channel import Channel
from commitrelay.publishers.rabbitmq.connection import Connection
from commitrelay.publishers.rabbitmq.settings import RabbitMQSettings
from commitrelay.publishers.rabbitmq.wire import (
    BODY,
    END,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT,
    Method,
    Property,
    frame_head,
    long_bytes,
    method,
    short_text,
    u8,
    u16,
    u32,
    u64,
)

CHANNEL = 1
PERSISTENT = b"\x02"
FLAGS = (
    Property.CONTENT_TYPE
    | Property.HEADERS
    | Property.DELIVERY_MODE
    | Property.MESSAGE_ID
    | Property.TIMESTAMP
    | Property.TYPE
)
CONFIRM = struct.Struct(">BHIIQBB")
"""A whole frame: kind, channel, size, method, number, whether of all up to it, end."""

_ID, _KEY, _CREATED_AT = (
    short_text(name) + b"S" for name in ("event-id", "aggregate-id", "created-at")
)


class Sender(EncodedSender):
    """Straight into the queue that has the topic's name."""

    def __init__(self, url: str, topic: str, options: dict[str, str]) -> None:
        self._settings = RabbitMQSettings.from_url(url, options)
        place = u16.pack(0) + short_text("") + short_text(topic) + b"\x00"
        self._publish = method(CHANNEL, Method.BASIC_PUBLISH, place)
        self._kinds: dict[tuple[str, str, str], tuple[bytes, bytes, bytes, bytes]] = {}
        self._seconds: dict[str, bytes] = {}

    async def open(self) -> None:
        self.line = await Line.connect(self._settings)
        channel = Channel(self.line, CHANNEL)
        await channel.open()
        await channel.select_confirms()
        self.line.counts = True

    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        publish, kinds, seconds = self._publish, self._kinds, self._seconds
        start = u16.pack(Method.BASIC_PUBLISH >> 16) + u16.pack(0)
        flags = u16.pack(FLAGS)
        frames: list[bytes] = []
        for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows:
            shared = kinds.get((event_type, kind, content_type))
            content, before, after, type_ = shared or self._learn(event_type, kind, content_type)
            raw_id, raw_key, created = event_id.encode(), key.encode(), created_at.encode()
            table = b"".join(
                (
                    _ID,
                    u32.pack(len(raw_id)),
                    raw_id,
                    before,
                    u32.pack(len(raw_key)),
                    raw_key,
                    after,
                    u32.pack(len(created)),
                    created,
                )
            )
            second = created_at[:19]
            size = len(payload)
            header = b"".join(
                (
                    start,
                    u64.pack(size),
                    flags,
                    content,
                    u32.pack(len(table)),
                    table,
                    PERSISTENT,
                    u8.pack(len(raw_id)),
                    raw_id,
                    seconds.get(second) or self._learn_second(second),
                    type_,
                )
            )
            frames += (
                publish,
                frame_head.pack(HEADER, CHANNEL, len(header)),
                header,
                END,
                frame_head.pack(BODY, CHANNEL, size),
                payload,
                END,
            )
        return b"".join(frames)

    async def write(self, encoded: bytes, count: int) -> None:
        taken = self.line.acknowledgements.expect(count)
        self.line.write(encoded)
        await taken

    async def close(self) -> None:
        await self.line.close()

    def _learn(
        self, event_type: str, kind: str, content_type: str
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """What every event of a kind has in common, in the order in which it is sent."""
        before = _field("event-type", event_type) + _field("aggregate-type", kind) + _KEY
        after = _field("content-type", content_type) + _CREATED_AT
        made = short_text(content_type), before, after, short_text(event_type)
        self._kinds[event_type, kind, content_type] = made
        return made

    def _learn_second(self, text: str) -> bytes:
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
        made = self._seconds[text] = u64.pack(int(at.timestamp()))
        return made


class Line(Connection):
    """Logs in as a publisher does, then only counts."""

    def __init__(self, settings: RabbitMQSettings) -> None:
        super().__init__(settings)
        self.acknowledgements = Acknowledgements()
        self.counts = False
        self._up_to = 0
        self._singly: set[int] = set()

    def data_received(self, data: bytes) -> None:
        if not self.counts:
            super().data_received(data)
            return
        self._heard_at = self._loop.time()
        data = self._rest + data
        place, end = 0, len(data)
        while end - place >= FRAME_OVERHEAD:
            if data[place] == HEARTBEAT:
                place += FRAME_OVERHEAD
                continue
            if end - place < CONFIRM.size:
                break
            _, _, _, name, number, multiple, _ = CONFIRM.unpack_from(data, place)
            if name != Method.BASIC_ACK:
                self._lose(f"{self._settings} did not take a message: the bare loop ends then")
                return
            place += CONFIRM.size
            if multiple & 1:
                self._up_to = number
                self._singly = {each for each in self._singly if each > number}
            else:
                self._singly.add(number)
        self._rest = data[place:]
        self.acknowledgements.taken(self._up_to + len(self._singly))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.acknowledgements.fail(self.lost or BrokerUnreachable("disconnected"))


def _field(name: str, text: str) -> bytes:
    return short_text(name) + b"S" + long_bytes(text.encode())
