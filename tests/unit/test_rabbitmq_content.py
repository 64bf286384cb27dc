"""Frames, read back by another client: headers, and the properties that are made of them."""

from __future__ import annotations

from typing import Any

import pytest
from pika import BasicProperties
from pika.frame import Body, Header, decode_frame

from commitrelay.publisher import TOMBSTONE, Message
from commitrelay.publishers.rabbitmq.content import Encoder, TooLarge
from commitrelay.publishers.rabbitmq.wire import TooLong

FRAME_MAX = 4096
SECOND = 1_794_774_825  # 2026-11-15T20:33:45Z
TIME = ("created-at", "2026-11-15T20:33:45.123456Z")
TYPES = [("event-type", "OrderPaid"), ("aggregate-type", "Order")]


def sent(*messages: Message) -> list[tuple[BasicProperties, bytes]]:
    encode = Encoder(1, FRAME_MAX)
    found: list[tuple[BasicProperties, bytes]] = []
    for message in messages:
        data = encode(message, "", "orders")
        properties, body = BasicProperties(), b""
        while data:
            size, frame = decode_frame(data)
            data = data[size:]
            assert size <= FRAME_MAX
            if isinstance(frame, Header):
                properties = frame.properties
                assert frame.body_size == len(message.value)
            elif isinstance(frame, Body):
                body += frame.fragment
        found.append((properties, body))
    return found


def message(headers: list[tuple[str, str]], value: bytes = b"{}", event_id: str = "x") -> Message:
    return Message("orders", "1", value, headers, event_id)


def properties_of(*headers: tuple[str, str]) -> Any:
    return sent(message(list(headers)))[0][0]


def test_what_is_remembered_of_one_message_is_right_for_the_next() -> None:
    headers = [*TYPES, ("content-type", "text/plain"), TIME, ("größe", "50 €")]
    for properties, body in sent(message(headers), message(headers), message(TYPES[:1])):
        assert properties.type == "OrderPaid"
        assert properties.message_id == "x"
        assert properties.delivery_mode == 2
        assert body == b"{}"
        if len(properties.headers) > 1:
            assert properties.headers == dict(headers)
            assert properties.content_type == "text/plain"
            assert properties.timestamp == SECOND
        else:
            assert properties.content_type is None
            assert properties.timestamp is None


def test_other_values_of_a_repeated_header_are_not_mixed_up() -> None:
    found = sent(*(message([("event-type", name)]) for name in ("A", "B", "A")))
    assert [properties.type for properties, _ in found] == ["A", "B", "A"]


def test_what_is_too_long_for_a_property_is_a_header_only() -> None:
    properties = properties_of(("event-type", "x" * 256), ("content-type", "y" * 256))
    assert properties.type is None
    assert properties.content_type is None
    assert properties.headers == {"event-type": "x" * 256, "content-type": "y" * 256}


def test_what_is_no_time_is_a_header_only() -> None:
    assert properties_of(("created-at", "yesterday")).timestamp is None
    assert properties_of(TIME, ("ce-time", "yesterday")).timestamp == SECOND


@pytest.mark.parametrize("value", [b"", TOMBSTONE, b"x" * 4088, b"x" * 4089, b"x" * 10_000])
def test_bodies_of_any_size(value: bytes) -> None:
    assert sent(message(TYPES, value))[0][1] == value


def test_what_amqp_cannot_carry() -> None:
    with pytest.raises(TooLarge):
        sent(message([("note", "x" * FRAME_MAX)]))
    with pytest.raises(TooLong):
        sent(message([], event_id="x" * 256))
