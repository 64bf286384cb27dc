"""Event as a value: what it takes, what it refuses, and what becomes of its payload."""

from __future__ import annotations

import json
import math
import time
from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitrelay import Event, InvalidEvent
from commitrelay.event import uuid7

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: st.lists(children) | st.dictionaries(st.text(max_size=5), children),
    max_leaves=10,
)


def paid(payload: Any = None, **fields: Any) -> Event:
    return Event("Order", "42", "OrderPaid", payload, **fields)


# --- the payload ---------------------------------------------------------------------------


@given(st.binary())
def test_bytes_stay_as_they_are(payload: bytes) -> None:
    for given_as in (payload, bytearray(payload), memoryview(payload)):
        assert paid(given_as).encoded() == (payload, "application/octet-stream")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_travels_as_utf8(payload: str) -> None:
    assert paid(payload).encoded() == (payload.encode(), "text/plain; charset=utf-8")


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_everything_else_makes_the_round_trip_through_json(payload: Any) -> None:
    body, content_type = paid(payload).encoded()
    assert content_type == "application/json"
    assert json.loads(body) == payload


def test_json_is_compact_and_keeps_order_and_letters() -> None:
    assert paid({"b": 1, "a": ["ü", None]}).encoded()[0] == '{"b":1,"a":["ü",null]}'.encode()


def test_json_knows_what_everybody_writes_as_a_string() -> None:
    payload = [
        datetime(2030, 1, 2, tzinfo=UTC),
        date(2030, 1, 2),
        Decimal("9.90"),
        UUID(int=1),
    ]
    assert json.loads(paid(payload).encoded()[0]) == [
        "2030-01-02T00:00:00+00:00",
        "2030-01-02",
        "9.90",
        "00000000-0000-0000-0000-000000000001",
    ]


def test_a_content_type_of_ones_own_wins() -> None:
    assert paid(b"\x0a", content_type="application/protobuf").encoded()[1] == "application/protobuf"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(number: float) -> None:
    with pytest.raises(InvalidEvent, match="replace NaN and infinity by null"):
        paid({"deep": [number]}).encoded()


@pytest.mark.parametrize("payload", [object(), {1, 2}, {"a": 1j}, {("tuple",): 1}])
def test_what_json_cannot_say_is_refused(payload: object) -> None:
    with pytest.raises(InvalidEvent, match="pass bytes or str"):
        paid(payload).encoded()


@pytest.mark.parametrize("payload", ["\ud800", {"a": "\ud800"}])
def test_a_lone_surrogate_in_the_payload_is_refused(payload: object) -> None:
    with pytest.raises(InvalidEvent, match="lone surrogate"):
        paid(payload).encoded()


# --- names, keys and headers ---------------------------------------------------------------

NAMES = ("aggregate_type", "aggregate_id", "event_type", "idempotency_key", "content_type")


def with_name(name: str, value: Any) -> Event:
    fields: dict[str, Any] = {
        "aggregate_type": "Order", "aggregate_id": "42", "event_type": "Paid", "payload": {},
    }  # fmt: skip
    return Event(**(fields | {name: value}))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0b", "NUL"),
        ("a\rb", "CR"),
        ("a\nb", "LF"),
        ("\ud800", "lone surrogate"),
        ("", "empty"),
        ("x" * 256, "256 characters, the limit is 255"),
        (b"bytes", "must be a str, not bytes"),
        (True, "must be a str, not bool"),
    ],
)
def test_a_bad_name_is_refused_by_name(name: str, value: object, reason: str) -> None:
    with pytest.raises(InvalidEvent, match=rf"^{name} .*{reason}"):
        with_name(name, value)


@pytest.mark.parametrize("name", NAMES)
def test_the_longest_name_and_any_letters_are_fine(name: str) -> None:
    assert getattr(with_name(name, "😀" * 255), name) == "😀" * 255


@pytest.mark.parametrize("aggregate_id", [42, UUID(int=42)])
def test_an_aggregate_id_may_be_a_number_or_a_uuid(aggregate_id: int | UUID) -> None:
    assert Event("Order", aggregate_id, "Paid", {}).aggregate_id == str(aggregate_id)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"a": "x\r\ny: z"}, "CR"),
        ({"a\n": "x"}, "LF"),
        ({"a": "\0"}, "NUL"),
        ({"": "x"}, "empty name"),
        ({"a": 1}, "must map a str to a str"),
        ({1: "a"}, "must map a str to a str"),
        ([("a", "b")], "must be a mapping"),
    ],
)
def test_bad_headers_are_refused(headers: Any, reason: str) -> None:
    with pytest.raises(InvalidEvent, match=reason):
        paid(headers=headers)


def test_headers_are_the_events_own() -> None:
    mine = {"a": "b"}
    event = paid(headers=mine)
    mine["a"] = "\0"
    assert event.headers == {"a": "b"}
    assert paid(headers=None).headers == {}


# --- time ----------------------------------------------------------------------------------


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=r"deliver_at has no time zone.*datetime\.now"):
        paid(deliver_at=datetime(2030, 1, 1))


@pytest.mark.parametrize("moment", ["2030-01-01", 1_900_000_000, date(2030, 1, 1)])
def test_deliver_at_must_be_a_datetime(moment: Any) -> None:
    with pytest.raises(InvalidEvent, match="deliver_at must be a datetime"):
        paid(deliver_at=moment)


def test_any_time_zone_is_fine() -> None:
    moment = datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert paid(deliver_at=moment).deliver_at == moment


# --- ids -----------------------------------------------------------------------------------


def test_ids_are_unique_version_7_and_in_order_of_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid7() for _ in range(10_000)]
    after = time.time_ns() // 1_000_000
    assert len(set(ids)) == len(ids)
    assert {(id_.version, id_.variant) for id_ in ids} == {(7, "specified in RFC 4122")}
    milliseconds = [id_.int >> 80 for id_ in ids]
    assert milliseconds == sorted(milliseconds)
    assert before <= milliseconds[0] <= milliseconds[-1] <= after


def test_every_event_has_an_id() -> None:
    assert paid().id != paid().id
    chosen = uuid4()
    assert paid(id=chosen).id == chosen


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_an_idempotency_key_decides_the_id(one: str, other: str) -> None:
    try:
        first, second = paid(idempotency_key=one), paid(idempotency_key=other)
    except InvalidEvent:
        return
    assert (first.id == second.id) == (one == other)


def test_the_id_of_a_key_never_changes() -> None:
    """Stored ids depend on it: a new derivation would let old keys in again."""
    assert paid(idempotency_key="payment-7").id == UUID("c8b33bcd-7a52-525b-8aa7-0da8b03c525c")


def test_an_id_must_be_a_uuid() -> None:
    with pytest.raises(InvalidEvent, match=r"id must be a uuid\.UUID, not str"):
        paid(id="42")


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        paid().event_type = "OrderLost"  # type: ignore[misc]
