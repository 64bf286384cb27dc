"""Sends XADD commands, each batch in one piece, and counts the replies."""

from __future__ import annotations

from typing import Any

import hiredis

from commitrelay.bench.acknowledgements import Acknowledgements
from commitrelay.bench.encoded_sender import EncodedSender
from commitrelay.errors import BrokerUnreachable
from commitrelay.publishers.redis import RedisSettings
from commitrelay.publishers.redis.connection import RedisConnection, connect
from commitrelay.publishers.redis.link import bulk


class Sender(EncodedSender):
    def __init__(self, url: str, topic: str, options: dict[str, str]) -> None:
        self._settings = settings = RedisSettings.from_url(url, options)
        stream = topic if settings.streams == 1 else f"{topic}:0"
        limit = [] if settings.max_length is None else ["MAXLEN", "~", str(settings.max_length)]
        words = ["XADD", stream, *limit, "*", "key"]
        self._begin = b"*%d\r\n" % (len(words) + 15) + b"".join(map(bulk, words))
        self._kinds: dict[tuple[str, str, str], tuple[bytes, bytes]] = {}

    async def open(self) -> None:
        settings = self._settings
        self.line = Line(f"Redis at {settings.host}:{settings.port}")
        await connect(settings, settings.host, settings.port, make=lambda _name: self.line)
        self.line.counts = True

    def encode(self, rows: list[tuple[Any, ...]]) -> bytes:
        begin, kinds = self._begin, self._kinds
        commands = []
        for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows:
            shared = kinds.get((event_type, kind, content_type))
            before, after = shared or self._learn(event_type, kind, content_type)
            raw = key.encode()
            bulk = b"$%d\r\n%b\r\n" % (len(raw), raw)
            created = created_at.encode()
            commands.append(
                b"%b%b$7\r\npayload\r\n$%d\r\n%b\r\n$8\r\nevent-id\r\n$36\r\n%b\r\n%b%b%b$%d\r\n%b\r\n"
                % (
                    begin,
                    bulk,
                    len(payload),
                    payload,
                    event_id.encode(),
                    before,
                    bulk,
                    after,
                    len(created),
                    created,
                )
            )
        return b"".join(commands)

    async def write(self, encoded: bytes, count: int) -> None:
        taken = self.line.acknowledgements.expect(count)
        self.line.write(encoded)
        await taken

    async def close(self) -> None:
        self.line.drop("closed")

    def _learn(self, event_type: str, kind: str, content_type: str) -> tuple[bytes, bytes]:
        """What lies between the id, the key and the time of every event of a kind."""
        before = ("event-type", event_type, "aggregate-type", kind, "aggregate-id")
        after = ("content-type", content_type, "created-at")
        made = b"".join(map(bulk, before)), b"".join(map(bulk, after))
        self._kinds[event_type, kind, content_type] = made
        return made


class Line(RedisConnection):
    """Logs in as a publisher does, then only counts."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.acknowledgements = Acknowledgements()
        self.counts = False
        self._replies = hiredis.Reader()

    def data_received(self, data: bytes) -> None:
        if not self.counts:
            super().data_received(data)
            return
        self._replies.feed(data)
        gets, count = self._replies.gets, 0
        while (reply := gets()) is not False:
            if type(reply) is not bytes:
                self.drop(f"a message was not taken ({reply}): the bare loop ends then")
                return
            count += 1
        self.acknowledgements.add(count)

    def ended(self, reason: str) -> None:
        super().ended(reason)
        self.acknowledgements.fail(BrokerUnreachable(reason))
