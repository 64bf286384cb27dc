"""Sends HPUB frames, each batch in one piece, and counts JetStream's answers on one inbox."""

from __future__ import annotations

import asyncio
from typing import Any

from commitrelay.bench.acknowledgements import Acknowledgements
from commitrelay.bench.encoded_sender import EncodedSender
from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.nats import NatsSettings
from commitrelay.publishers.nats.connection import NatsConnection
from commitrelay.publishers.nats.link import MAX_PENDING
from commitrelay.publishers.nats.login import log_in

ANSWER_END = b"}\r\n"
LARGEST_BATCH = MAX_PENDING // 2


class Sender(EncodedSender):
    def __init__(self, url: str, topic: str, options: dict[str, str]) -> None:
        self._settings = NatsSettings.from_url(url, options)
        self._subject = topic.encode()

    async def open(self) -> None:
        lines: list[Line] = []

        def make(name: str) -> Line:
            lines.append(Line(name))
            return lines[-1]

        await log_in(self._settings, make)
        self.line = lines[-1]
        await self.line.ping()
        self.line.counts = True

    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        place = b"HPUB %b %b0" % (self._subject, self.line.acknowledge_to)
        frames = []
        for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows:
            head = (
                f"NATS/1.0\r\nNats-Msg-Id: {event_id}\r\nmessage-key: {key}\r\n"
                f"event-id: {event_id}\r\nevent-type: {event_type}\r\naggregate-type: {kind}\r\n"
                f"aggregate-id: {key}\r\ncontent-type: {content_type}\r\n"
                f"created-at: {created_at}\r\n\r\n"
            ).encode()
            size = len(head)
            frames.append(
                b"%b %d %d\r\n%b%b\r\n" % (place, size, size + len(payload), head, payload)
            )
        return b"".join(frames)

    async def send(self, rows: list[tuple[Any, ...]]) -> None:
        parts = [
            rows[start : start + LARGEST_BATCH] for start in range(0, len(rows), LARGEST_BATCH)
        ]
        await asyncio.gather(*(self.write(self.encode(part), len(part)) for part in parts))

    async def write(self, encoded: bytes, count: int) -> None:
        acknowledgements = self.line.acknowledgements
        await acknowledgements.room(count, MAX_PENDING)
        taken = acknowledgements.expect(count)
        self.line.write(encoded)
        await taken

    async def close(self) -> None:
        self.line.drop("closed")


class Line(NatsConnection):
    """Logs in as a publisher does, then only counts."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.acknowledgements = Acknowledgements()
        self.counts = False
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        if not self.counts:
            super().data_received(data)
            return
        data = self._rest + data
        if b'"error"' in data or b"-ERR" in data or b"NATS/1.0 503" in data:
            self.drop("a message was not taken: the bare loop ends then")
            return
        if b"PING\r\n" in data:
            self.write(b"PONG\r\n")
        self.acknowledgements.add(data.count(ANSWER_END))
        self._rest = data[data.rfind(b"\n") + 1 :]

    def ended(self, reason: str) -> None:
        super().ended(reason)
        self.acknowledgements.fail(BrokerUnreachable(reason))
