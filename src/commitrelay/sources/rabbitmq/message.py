"""Message: what RabbitMQ delivers, taken apart. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from commitrelay.publishers.rabbitmq.channel import Delivery
from commitrelay.publishers.rabbitmq.wire import Property, u8, u16, u32, u64

BROKERS_HEADERS = frozenset({"x-delivery-count"})
"""What a queue adds when it hands a message out again."""

STREAM_OFFSET = "x-stream-offset"
CONTENT_TYPE = "content-type"


class Content(NamedTuple):
    tag: int
    exchange: str
    routing_key: str
    headers: list[tuple[str, str]]
    value: bytes


def content(delivery: Delivery) -> Content:
    """`ValueError` or `struct.error` if that is no message."""
    how = _Reader(delivery.arguments, 4)
    how.short_text()  # the consumer's tag
    tag = how.number(u64)
    how.number(u8)  # redelivered or not: that is the inbox's business
    exchange, routing_key = how.short_text(), how.short_text()
    return Content(tag, exchange, routing_key, _headers(delivery.header), delivery.body)


def _headers(header: bytes) -> list[tuple[str, str]]:
    flags = u16.unpack_from(header, 12)[0]
    reader = _Reader(header, 14)
    content_type = reader.short_text() if flags & Property.CONTENT_TYPE else ""
    if flags & Property.CONTENT_ENCODING:
        reader.short_text()
    headers: list[tuple[str, str]] = []
    if flags & Property.HEADERS:
        fields = reader.fields(reader.number(u32))
        headers = [(name, text) for name, text in fields if name not in BROKERS_HEADERS]
    if content_type and all(name != CONTENT_TYPE for name, _text in headers):
        headers.append((CONTENT_TYPE, content_type))  # of a publisher that is not ours
    return headers


class _Reader:
    """Takes values of any kind off a payload, as text."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def number(self, kind: struct.Struct) -> Any:
        number = kind.unpack_from(self._data, self._place)[0]
        self._place += kind.size
        return number

    def short_text(self) -> str:
        return self._text(self.number(u8))

    def fields(self, size: int) -> list[tuple[str, str]]:
        end = self._place + size
        found: list[tuple[str, str]] = []
        while self._place < end:
            found.append((self.short_text(), self._value()))
        return found

    def _text(self, size: int) -> str:
        start = self._place
        self._place += size
        return self._data[start : self._place].decode("utf-8", "surrogateescape")

    def _value(self) -> str:
        kind = self._data[self._place : self._place + 1]
        self._place += 1
        if kind in _NUMBERS:
            return str(self.number(_NUMBERS[kind]))
        return _OTHERS[kind](self) if kind in _OTHERS else self._unknown(kind)

    def _boolean(self) -> str:
        return "true" if self.number(u8) else "false"

    def _long_text(self) -> str:
        return self._text(self.number(u32))

    def _table(self) -> str:
        return str(dict(self.fields(self.number(u32))))

    def _array(self) -> str:
        end = self.number(u32) + self._place
        found: list[str] = []
        while self._place < end:
            found.append(self._value())
        return str(found)

    def _decimal(self) -> str:
        scale, number = self.number(u8), self.number(struct.Struct(">i"))
        return str(number / 10**scale)

    def _unknown(self, kind: bytes) -> str:
        raise ValueError(f"a header of the unknown type {kind!r}")


_NUMBERS = {
    b"b": struct.Struct(">b"),
    b"B": struct.Struct(">B"),
    b"s": struct.Struct(">h"),
    b"u": struct.Struct(">H"),
    b"I": struct.Struct(">i"),
    b"i": struct.Struct(">I"),
    b"l": struct.Struct(">q"),
    b"L": struct.Struct(">q"),
    b"T": struct.Struct(">Q"),
    b"f": struct.Struct(">f"),
    b"d": struct.Struct(">d"),
}
_OTHERS: dict[bytes, Callable[[_Reader], str]] = {
    b"S": _Reader._long_text,
    b"x": _Reader._long_text,
    b"t": _Reader._boolean,
    b"F": _Reader._table,
    b"A": _Reader._array,
    b"D": _Reader._decimal,
    b"V": lambda _reader: "",
}
