from __future__ import annotations

import json
from typing import Any

import pytest

from commitrelay.errors import InvalidEvent
from commitrelay.format import MAX_CACHED_KINDS, Plain
from commitrelay.publisher import Message
from commitrelay.route import Route
from commitrelay.store import Queued
from tests.unit.test_route import event

ID = "0193a3c0-0000-7000-8000-000000000001"


def compose(**changes: Any) -> Message:
    return Plain(Route())(event()._replace(**changes))


def test_the_plain_message() -> None:
    assert compose() == Message(
        topic="orderitem.events",
        key="42",
        value=b"{}",
        headers=[
            ("event-id", ID),
            ("event-type", "OrderPaid"),
            ("aggregate-type", "OrderItem"),
            ("aggregate-id", "42"),
            ("content-type", "application/json"),
            ("created-at", "2026-11-15T20:33:45.123456Z"),
        ],
        event_id=ID,
    )


def test_idempotency_key_and_then_the_users_headers_follow() -> None:
    headers = {"traceparent": "00-ab-cd-01", "Zürich": "東京"}
    message = compose(idempotency_key="pay-42", headers=json.dumps(headers))
    assert message.headers[6:] == [("idempotency-key", "pay-42"), *headers.items()]


@pytest.mark.parametrize("name", ["event-id", "Event-ID", "created-at", "idempotency-key"])
def test_ours_win_over_a_users_header_of_the_same_name(name: str) -> None:
    message = compose(idempotency_key="mine", headers=json.dumps({name: "theirs", "x": "y"}))
    assert "theirs" not in dict(message.headers).values()
    assert message.headers[-1] == ("x", "y")


def test_a_users_idempotency_key_header_stays_where_there_is_none_of_ours() -> None:
    message = compose(headers=json.dumps({"idempotency-key": "theirs"}))
    assert message.headers[-1] == ("idempotency-key", "theirs")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "JSON array"),
        ("null", "JSON null"),
        ('"text"', "JSON string"),
        ("3", "JSON number"),
        ('{"a": 1}', "header 'a' .* JSON number"),
        ('{"a": true}', "JSON boolean"),
        ('{"a": {}}', "JSON object"),
        ('{"": "x"}', "empty name"),
        (r'{"a": "x\r\ny"}', "NUL, CR or LF"),
        (r'{"a\u0000": "x"}', "NUL, CR or LF"),
        (r'{"a": "\ud800"}', "lone surrogate"),
        ('{"a": "x\ny"}', "not JSON"),
    ],
)
def test_headers_that_a_plain_insert_got_wrong_refuse_the_event(headers: str, said: str) -> None:
    with pytest.raises(InvalidEvent, match=said) as caught:
        compose(headers=headers)
    assert ID in str(caught.value)


def test_a_spread_route_is_asked_for_every_event() -> None:
    plain = Plain(Route("{aggregate_id}"))
    assert plain(event()).topic == "42"
    assert plain(event()._replace(aggregate_id="43")).topic == "43"


def test_kinds_are_told_apart_by_content_type_too() -> None:
    plain = Plain(Route())
    one: Queued = event()
    assert ("content-type", "application/json") in plain(one).headers
    assert ("content-type", "text/plain") in plain(one._replace(content_type="text/plain")).headers


def test_memory_is_bounded_by_the_number_of_kinds() -> None:
    plain = Plain(Route())
    for number in range(MAX_CACHED_KINDS + 10):
        plain(event(event_type=f"E{number}"))
    assert len(plain._kinds) <= MAX_CACHED_KINDS
