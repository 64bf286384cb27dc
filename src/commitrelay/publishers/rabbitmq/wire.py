"""Wire: the parts of AMQP 0-9-1 that publishers and sources need, as bytes. No I/O.

A frame is a type, a channel, a size, a payload and an end mark. A message is three frames or more:
the method that publishes it, its properties, and its body in pieces of at most `frame_max`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum

PREAMBLE = b"AMQP\x00\x00\x09\x01"

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"
FRAME_OVERHEAD = 8
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

MAX_SHORT_TEXT = 255

frame_head = struct.Struct(">BHI")
u8 = struct.Struct(">B")
u16 = struct.Struct(">H")
u32 = struct.Struct(">I")
u64 = struct.Struct(">Q")

Value = str | bool | int | Mapping[str, "Value"]


class Method(IntEnum):
    """The class in the upper half, the method in the lower."""

    CONNECTION_START = 0x000A_000A
    CONNECTION_START_OK = 0x000A_000B
    CONNECTION_TUNE = 0x000A_001E
    CONNECTION_TUNE_OK = 0x000A_001F
    CONNECTION_OPEN = 0x000A_0028
    CONNECTION_OPEN_OK = 0x000A_0029
    CONNECTION_CLOSE = 0x000A_0032
    CONNECTION_CLOSE_OK = 0x000A_0033
    CONNECTION_BLOCKED = 0x000A_003C
    CONNECTION_UNBLOCKED = 0x000A_003D
    CHANNEL_OPEN = 0x0014_000A
    CHANNEL_CLOSE = 0x0014_0028
    CHANNEL_CLOSE_OK = 0x0014_0029
    EXCHANGE_DECLARE = 0x0028_000A
    EXCHANGE_DELETE = 0x0028_0014
    QUEUE_DECLARE = 0x0032_000A
    QUEUE_BIND = 0x0032_0014
    QUEUE_DELETE = 0x0032_0028
    BASIC_QOS = 0x003C_000A
    BASIC_CONSUME = 0x003C_0014
    BASIC_CANCEL = 0x003C_001E
    BASIC_PUBLISH = 0x003C_0028
    BASIC_RETURN = 0x003C_0032
    BASIC_DELIVER = 0x003C_003C
    BASIC_ACK = 0x003C_0050
    BASIC_NACK = 0x003C_0078
    CONFIRM_SELECT = 0x0055_000A


class Property(IntEnum):
    """The flags of a message's properties, in the order in which these follow each other."""

    CONTENT_TYPE = 0x8000
    CONTENT_ENCODING = 0x4000
    HEADERS = 0x2000
    DELIVERY_MODE = 0x1000
    PRIORITY = 0x0800
    CORRELATION_ID = 0x0400
    REPLY_TO = 0x0200
    EXPIRATION = 0x0100
    MESSAGE_ID = 0x0080
    TIMESTAMP = 0x0040
    TYPE = 0x0020


_FIXED_SIZES = {Property.DELIVERY_MODE: 1, Property.PRIORITY: 1}


class TooLong(ValueError):
    """A name that AMQP has only 255 bytes for."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return frame_head.pack(kind, channel, len(payload)) + payload + END


def method(channel: int, name: Method, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, u32.pack(name) + arguments)


def short_text(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_SHORT_TEXT:
        raise TooLong(f"{text[:40]!r}… has {len(raw)} bytes, and AMQP has room for 255")
    return u8.pack(len(raw)) + raw


def long_bytes(raw: bytes) -> bytes:
    return u32.pack(len(raw)) + raw


def table(values: Mapping[str, Value]) -> bytes:
    fields = b"".join(short_text(name) + _field(value) for name, value in values.items())
    return long_bytes(fields)


def _field(value: Value) -> bytes:
    if isinstance(value, bool):
        return b"t" + u8.pack(value)
    if isinstance(value, int):
        return b"l" + struct.pack(">q", value)
    if isinstance(value, str):
        return b"S" + long_bytes(value.encode())
    return b"F" + table(value)


class Reader:
    """Takes values off a payload, one after the other."""

    __slots__ = ("_data", "_place")

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data = data
        self._place = place

    def short(self) -> int:
        return self._number(u16)

    def long(self) -> int:
        return self._number(u32)

    def text(self) -> str:
        size = self._data[self._place]
        start = self._place + 1
        self._place = start + size
        return self._data[start : self._place].decode(errors="replace")

    def raw(self, size: int) -> bytes:
        start = self._place
        self._place += size
        return self._data[start : self._place]

    def _number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack_from(self._data, self._place)[0]
        self._place += kind.size
        return number


def message_id(header: bytes) -> str | None:
    """The message id among the properties of a content header; None if there is none."""
    flags = u16.unpack_from(header, 12)[0]
    reader = Reader(header, 14)
    for each in Property:
        if each is Property.MESSAGE_ID:
            return reader.text() if flags & each else None
        if not flags & each:
            continue
        if each is Property.HEADERS:
            reader.raw(reader.long())
        elif each in _FIXED_SIZES:
            reader.raw(_FIXED_SIZES[each])
        else:
            reader.text()
    return None


def body_size(header: bytes) -> int:
    size: int = u64.unpack_from(header, 4)[0]
    return size
