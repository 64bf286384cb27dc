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
V = TypeVar("V")

PERSISTENT = b"\x02"
MANDATORY = 1

MAX_CACHED = 4096

EVENT_TYPE_HEADERS = ("event-type", "ce-type", "ce_type", "cloudEvents:type")
TIME_HEADERS = ("created-at", "ce-time", "ce_time", "cloudEvents:time")
CONTENT_TYPE_HEADERS = ("content-type",)

_BASIC_CLASS = Method.BASIC_PUBLISH >> 16
_ALWAYS = int(Property.HEADERS | Property.DELIVERY_MODE | Property.MESSAGE_ID)
_CONTENT_TYPE, _TIMESTAMP, _TYPE = map(
    int, (Property.CONTENT_TYPE, Property.TIMESTAMP, Property.TYPE)
)
_PERSISTENT_AND_SIZE = tuple(PERSISTENT + u8.pack(size) for size in range(MAX_SHORT_TEXT + 1))

_header_head = struct.Struct(">BHIHHQH")
"""A header frame up to its flags: kind, channel, size, class, weight, size of the body, flags."""

_HEADER_HEAD_PAYLOAD = _header_head.size - frame_head.size
_body_head = struct.Struct(">BBHI")
"""The end of the header frame, and the beginning of the body's."""

_TIMES = frozenset(TIME_HEADERS)
_REPEATED = frozenset((*EVENT_TYPE_HEADERS, *CONTENT_TYPE_HEADERS, "aggregate-type"))
"""Headers whose values are few, so that each is made once."""

_ROLES = {
    **dict.fromkeys(CONTENT_TYPE_HEADERS, _CONTENT_TYPE),
    **dict.fromkeys(EVENT_TYPE_HEADERS, _TYPE),
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
        # By header: as a field of the table, as a property, and which one.
        self._repeated: dict[tuple[str, str], tuple[bytes, bytes, int]] = {}

    def __call__(self, message: Message, exchange: str, routing_key: str) -> bytes:
        # One call per message: struct and join do in one go what could be said in many.
        publish = self._publishes.get((exchange, routing_key)) or self._publish(
            exchange, routing_key
        )
        _topic, _key, value, headers, event_id = message
        names, repeated, pack = self._names, self._repeated, u32.pack
        content_type = timestamp = type_ = b""
        fields: list[bytes] = []
        for header in headers:
            known = repeated.get(header)
            if known is None:
                name, text = header
                if name in _REPEATED:
                    known = self._repeat(name, text)
                else:
                    raw = text.encode()
                    fields += (names.get(name) or self._name(name), pack(len(raw)), raw)
                    if name in _TIMES:
                        timestamp = self._time(text) or timestamp
                    continue
            field, shown, role = known
            fields.append(field)
            if role == _TYPE:
                type_ = shown or type_
            elif role == _CONTENT_TYPE:
                content_type = shown or content_type
        table = b"".join(fields)
        raw_id = event_id.encode()
        if len(raw_id) > MAX_SHORT_TEXT:
            short_text(event_id)  # says what is wrong
        rest = b"".join(
            (
                content_type,
                pack(len(table)),
                table,
                _PERSISTENT_AND_SIZE[len(raw_id)],
                raw_id,
                timestamp,
                type_,
            )
        )
        payload_size = _HEADER_HEAD_PAYLOAD + len(rest)
        if payload_size > self._max_payload:
            raise TooLarge(
                f"the headers have {len(table)} bytes, and RabbitMQ takes {self._max_payload} "
                "in one frame: make them smaller, or raise its frame_max"
            )
        size = len(value)
        flags = (
            _ALWAYS
            | (_CONTENT_TYPE if content_type else 0)
            | (_TIMESTAMP if timestamp else 0)
            | (_TYPE if type_ else 0)
        )
        channel = self._channel
        head = _header_head.pack(HEADER, channel, payload_size, _BASIC_CLASS, 0, size, flags)
        if 0 < size <= self._max_payload:
            body = _body_head.pack(END[0], BODY, channel, size)
            return b"".join((publish, head, rest, body, value, END))
        return b"".join((publish, head, rest, END, *self._pieces(value)))

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

    def _repeat(self, name: str, text: str) -> tuple[bytes, bytes, int]:
        raw = text.encode()
        field = (self._names.get(name) or self._name(name)) + u32.pack(len(raw)) + raw
        fits = len(raw) <= MAX_SHORT_TEXT
        made = (field, u8.pack(len(raw)) + raw if fits else b"", _ROLES.get(name, 0))
        _remember(self._repeated, (name, text), made)
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


def _remember(cache: dict[K, V], key: K, made: V) -> None:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = made
