"""Commands to Redis, put together by hand, are those that its own client would send."""

from __future__ import annotations

from zlib import crc32

import hiredis
import pytest

from commitrelay.publisher import TOMBSTONE, Message
from commitrelay.publishers.redis import RedisSettings
from commitrelay.publishers.redis.link import Streams

TYPE = ("event-type", "OrderPaid")
MESSAGES = [
    Message("orders", "1", b'{"a": 1}', [("event-id", "x"), TYPE, ("created-at", "now")], "x"),
    Message("orders", "2", b"\x00\r\n\xff", [TYPE, TYPE, ("event-type", "")], "x"),
    Message("örders", "ü", TOMBSTONE, [("größe", "50 €"), TYPE], "x"),
    Message("orders", "", b"", [], "x"),
]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("option", ["", "?maxlen=10", "?streams=3"])
def test_a_command_has_every_word(message: Message, option: str) -> None:
    streams = Streams(RedisSettings.from_url(f"redis://host{option}", {}))
    number = crc32(message.key.encode()) % 3
    stream = f"{message.topic}:{number}" if "streams" in option else message.topic
    trimming = ("MAXLEN", "~", 10) if "maxlen" in option else ()
    headers = [text for header in message.headers for text in header]
    words = ("XADD", stream, *trimming, "*", "key", message.key, "payload", message.value, *headers)
    packed = hiredis.pack_command(words)
    assert [streams.command(message) for _ in range(2)] == [packed, packed]


def test_headers_named_like_our_own_fields_are_left_out() -> None:
    streams = Streams(RedisSettings.from_url("redis://host", {}))
    headers = [("key", "another"), TYPE, ("payload", "none")]
    words = ("XADD", "orders", "*", "key", "1", "payload", b"{}", *TYPE)
    packed = hiredis.pack_command(words)
    assert streams.command(Message("orders", "1", b"{}", headers, "x")) == packed
