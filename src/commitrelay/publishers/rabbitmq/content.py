"""Content: a message as the frames that publish it, in one piece of bytes."""

from __future__ import annotations

import struct
from datetime import datetime
from typing import TypeVar

from commitrelay.publisher import Message
from commitrelay.publishers.rabbitmq.wire import (
    BODY,
    END,
    FRAME_OVERHEAD,
    HEADER,
    MAX_SHORT_TEXT,
    Method,
    Property,
    frame_head,
    method,
    short_text,
    u8,
    u16,
    u32,
    u64,
)

K = TypeVar("K")

PERSISTENT = b"\x02"
MANDATORY = 1

MAX_CACHED = 4096

EVENT_TYPE_HEADERS = ("event-type", "ce-type", "ce_type", "cloudEvents:type")
TIME_HEADERS = ("created-at", "ce-time", "ce_time", "cloudEvents:time")
CONTENT_TYPE_HEADERS = ("content-type",)

_ALWAYS = Property.HEADERS | Property.DELIVERY_MODE | Property.MESSAGE_ID
_BASIC_CLASS = Method.BASIC_PUBLISH >> 16
_header_start = u16.pack(_BASIC_CLASS) + u16.pack(0)

_ROLES: dict[str, Property] = {
    **dict.fromkeys(CONTENT_TYPE_HEADERS, Property.CONTENT_TYPE),
    **dict.fromkeys(EVENT_TYPE_HEADERS, Property.TYPE),
    **dict.fromkeys(TIME_HEADERS, Property.TIMESTAMP),
}


class TooLarge(ValueError):
    """The headers do not fit into one frame, and AMQP does not split them."""


class Encoder:
    """Writes for one channel. Raises ValueError for what AMQP cannot carry."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self._channel = channel
        self._max_payload = frame_max - FRAME_OVERHEAD
        self._publishes: dict[tuple[str, str], bytes] = {}
        self._names: dict[str, bytes] = {}
        self._times: dict[str, bytes] = {}

    def __call__(self, message: Message, exchange: str, routing_key: str) -> bytes:
        publish = self._publishes.get((exchange, routing_key)) or self._publish(
            exchange, routing_key
        )
        header = self._header(message)
        value = message.value
        size = len(value)
        if not size:
            return publish + header
        if size <= self._max_payload:
            return b"".join(
                (publish, header, frame_head.pack(BODY, self._channel, size), value, END)
            )
        return b"".join((publish, header, *self._pieces(value)))

    def _header(self, message: Message) -> bytes:
        names = self._names
        fields: list[bytes] = []
        content_type = timestamp = type_ = b""
        flags: int = _ALWAYS
        for name, text in message.headers:
            raw = text.encode()
            fields += (names.get(name) or self._name(name), u32.pack(len(raw)), raw)
            role = _ROLES.get(name)
            if role is None:
                continue
            if role is Property.TIMESTAMP:
                timestamp = self._time(text)
                flags |= role if timestamp else 0
            elif len(raw) <= MAX_SHORT_TEXT:
                flags |= role
                if role is Property.TYPE:
                    type_ = u8.pack(len(raw)) + raw
                else:
                    content_type = u8.pack(len(raw)) + raw
        table = b"".join(fields)
        payload = b"".join(
            (
                _header_start,
                u64.pack(len(message.value)),
                u16.pack(flags),
                content_type,
                u32.pack(len(table)),
                table,
                PERSISTENT,
                short_text(message.event_id),
                timestamp,
                type_,
            )
        )
        if len(payload) > self._max_payload:
            raise TooLarge(
                f"the headers have {len(table)} bytes, and RabbitMQ takes {self._max_payload} "
                "in one frame: make them smaller, or raise its frame_max"
            )
        return frame_head.pack(HEADER, self._channel, len(payload)) + payload + END

    def _pieces(self, value: bytes) -> list[bytes]:
        pieces: list[bytes] = []
        for start in range(0, len(value), self._max_payload):
            piece = value[start : start + self._max_payload]
            pieces += (frame_head.pack(BODY, self._channel, len(piece)), piece, END)
        return pieces

    def _publish(self, exchange: str, routing_key: str) -> bytes:
        arguments = (u16.pack(0), short_text(exchange), short_text(routing_key), u8.pack(MANDATORY))
        made = method(self._channel, Method.BASIC_PUBLISH, b"".join(arguments))
        _remember(self._publishes, (exchange, routing_key), made)
        return made

    def _name(self, name: str) -> bytes:
        made = short_text(name) + b"S"
        _remember(self._names, name, made)
        return made

    def _time(self, text: str) -> bytes:
        second = text[:19] if text.endswith("Z") else text  # many events share a second
        known = self._times.get(second)
        if known is None:
            try:
                known = u64.pack(int(datetime.fromisoformat(text).timestamp()))
            except (ValueError, OverflowError, struct.error):
                known = b""
            _remember(self._times, second, known)
        return known


def _remember(cache: dict[K, bytes], key: K, made: bytes) -> None:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = made
