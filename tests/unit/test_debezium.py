"""What Debezium's Outbox Event Router would emit: one case for each of its behaviours."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.format.debezium import Debezium
from commitrelay.format.debezium_options import NOT_HERE
from commitrelay.publisher import TOMBSTONE, Message
from commitrelay.store import Queued
from tests.unit.test_route import event as an_event

ID = "0193a3c0-0000-7000-8000-000000000001"
CREATED_AT = "2026-11-15T20:33:45.123456Z"
PAYLOAD = '{"b": 1.50,  "a": "Zürich"}'
TEXT = "text/plain; charset=utf-8"

JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
JSON_AND_SCHEMA = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
EXPANDED = {**JSON, "table.expand.json.payload": "true"}
PLACEMENT = "table.fields.additional.placement"


def event(**changes: Any) -> Queued:
    return an_event()._replace(**{"payload": PAYLOAD.encode(), **changes})


def compose(options: dict[str, str] | None = None, **changes: Any) -> Message:
    return Debezium(options)(event(**changes))


def test_with_no_option_at_all() -> None:
    assert compose() == Message(
        topic="outbox.event.OrderItem",
        key="42",
        value=PAYLOAD.encode(),
        headers=[("id", ID)],
        event_id=ID,
    )


# --- where to ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "topic"),
    [
        ({}, "outbox.event.OrderItem"),
        ({"route.by.field": "type"}, "outbox.event.OrderPaid"),
        ({"route.by.field": "aggregate_type"}, "outbox.event.OrderItem"),
        ({"route.by.field": "aggregateid"}, "outbox.event.42"),
        ({"route.by.field": "tenant"}, "outbox.event.acme"),
        ({"route.topic.replacement": "shop.${routedByValue}.v1"}, "shop.OrderItem.v1"),
        ({"route.topic.replacement": "constant"}, "constant"),
        ({"route.topic.replacement": r"\$x"}, "$x"),
        ({"route.topic.regex": "(.*)Item", "route.topic.replacement": "$1-topic"}, "Order-topic"),
        ({"route.topic.regex": "(.*)Item", "route.topic.replacement": "$12"}, "Order2"),
        # No match of the whole name: it is the topic, without a prefix.
        ({"route.topic.regex": "(?<routedByValue>Order)"}, "OrderItem"),
        ({"route.topic.regex": "(?<routedByValue>Item)"}, "OrderItem"),
        # What matches as a whole is then replaced where it is found first, as in Java.
        ({"route.topic.regex": "(.*?)", "route.topic.replacement": "x."}, "x.OrderItem"),
        ({"route.topic.regex": "(Order)?(x)?Item", "route.topic.replacement": "$1$2"}, "Order"),
        (
            {"route.topic.regex": r"(?<=)(?<word>\w+)", "route.topic.replacement": "${word}"},
            "OrderItem",
        ),
    ],
)
def test_the_topic(options: dict[str, str], topic: str) -> None:
    assert compose(options, headers='{"tenant": "acme"}').topic == topic


def test_an_event_without_the_header_that_it_is_routed_by_is_refused() -> None:
    with pytest.raises(InvalidEvent, match=f"event {ID} has no header 'tenant'"):
        compose({"route.by.field": "tenant", "table.field.additional.missing": "ignore"})


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "42"),
        ({"key.converter": "StringConverter"}, "42"),
        ({"key.converter": "JsonConverter", "key.converter.schemas.enable": "false"}, '"42"'),
        (
            {"key.converter": "JsonConverter"},
            '{"schema":{"type":"string","optional":false},"payload":"42"}',
        ),
    ],
)
def test_the_key(options: dict[str, str], key: str) -> None:
    assert compose(options).key == key


@pytest.mark.parametrize("column", ["timestamp", "created_at"])
def test_the_time_of_the_event(column: str) -> None:
    message = compose({"table.field.event.timestamp": column})
    assert message.timestamp_ms == 1_794_774_825_123
    assert message == compose()


def test_the_time_of_sending_where_no_column_is_named() -> None:
    assert compose().timestamp_ms == 0


# --- headers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "headers"),
    [
        ("type:header", [("type", "OrderPaid")]),
        ("type:header:eventType", [("eventType", "OrderPaid")]),
        ("event_type:header:eventType", [("eventType", "OrderPaid")]),
        ("type:HEADER:eventType", [("eventType", "OrderPaid")]),
        (" type:header:a , aggregatetype:header:b ", [("a", "OrderPaid"), ("b", "OrderItem")]),
        ("aggregateid:header,type:header", [("aggregateid", "42"), ("type", "OrderPaid")]),
        ("type:header:x,aggregateid:header:x", [("x", "OrderPaid"), ("x", "42")]),
        ("type:header:id", [("id", "OrderPaid")]),
        ("timestamp:header", [("timestamp", CREATED_AT)]),
        ("created_at:header", [("created_at", CREATED_AT)]),
        ("seq:header", [("seq", "1")]),
        ("id:header:eventId", [("eventId", ID)]),
    ],
)
def test_additional_headers_follow_the_id_in_their_order(
    placement: str, headers: list[tuple[str, str]]
) -> None:
    assert compose({PLACEMENT: placement}).headers == [("id", ID), *headers]


def test_a_name_that_is_no_column_is_a_header_of_the_event() -> None:
    message = compose({PLACEMENT: "tenant:header:x"}, headers='{"tenant": "acme", "other": "1"}')
    assert message.headers == [("id", ID), ("x", "acme"), ("other", "1")]


def test_a_missing_one_refuses_the_event_or_is_ignored() -> None:
    with pytest.raises(InvalidEvent, match="no header 'tenant'"):
        compose({PLACEMENT: "tenant:header"})
    ignored = {PLACEMENT: "tenant:header,type:header", "table.field.additional.missing": "ignore"}
    assert compose(ignored).headers == [("id", ID), ("type", "OrderPaid")]


def test_what_debezium_has_no_column_for_follows() -> None:
    message = compose(idempotency_key="pay-42", headers='{"traceparent": "00-ab", "ID": "theirs"}')
    assert message.headers == [("id", ID), ("idempotency-key", "pay-42"), ("traceparent", "00-ab")]


def test_nothing_comes_twice() -> None:
    options = {PLACEMENT: "idempotency_key:header:key,traceparent:header:trace"}
    message = compose(options, idempotency_key="pay-42", headers='{"traceparent": "00-ab"}')
    assert message.headers == [("id", ID), ("key", "pay-42"), ("trace", "00-ab")]


# --- the value --------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [PAYLOAD, "plain text", "", "null", '"quoted"'])
def test_string_converter_gives_the_text_as_it_is(payload: str) -> None:
    assert compose(payload=payload.encode()).value == payload.encode()


def test_string_converter_leaves_bytes_alone() -> None:
    message = compose(payload=b"\x00\xff", content_type="application/octet-stream")
    assert message.value == b"\x00\xff"


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ('{"a": 1}', r'"{\"a\": 1}"'),
        ("Zürich\n\t\\", r'"Zürich\n\t\\"'),
        ("", '""'),
    ],
)
def test_json_converter_gives_a_quoted_string(payload: str, value: str) -> None:
    assert compose(JSON, payload=payload.encode()).value == value.encode()


def test_json_converter_with_its_schema() -> None:
    assert compose(JSON_AND_SCHEMA, payload=b'{"a": 1}').value == (
        rb'{"schema":{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1},'
        rb'"payload":"{\"a\": 1}"}'
    )
    assert compose(JSON_AND_SCHEMA, payload=b"hi", content_type=TEXT).value == (
        b'{"schema":{"type":"string","optional":true},"payload":"hi"}'
    )


@pytest.mark.parametrize("content_type", ["application/octet-stream", TEXT])
def test_json_converter_gives_bytes_in_base64(content_type: str) -> None:
    message = compose(JSON_AND_SCHEMA, payload=b"\x00\xff", content_type=content_type)
    assert message.value == b'{"schema":{"type":"bytes","optional":true},"payload":"AP8="}'


# --- tombstones -------------------------------------------------------------------------------

TOMBSTONES = {"route.tombstone.on.empty.payload": "true"}


@pytest.mark.parametrize("converter", [{}, JSON, EXPANDED, JSON_AND_SCHEMA])
@pytest.mark.parametrize("payload", [b"", b" ", b"\r\n\t "])
def test_a_blank_payload_is_a_tombstone(converter: dict[str, str], payload: bytes) -> None:
    message = compose({**TOMBSTONES, **converter}, payload=payload)
    assert message.value is TOMBSTONE
    assert (message.key, message.headers) == ("42", [("id", ID)])


def test_a_tombstone_goes_before_the_envelope() -> None:
    options = {**TOMBSTONES, **JSON, PLACEMENT: "type:envelope"}
    assert compose(options, payload=b"").value is TOMBSTONE


@pytest.mark.parametrize("payload", [b"x", b"{}", b"null", "\u00a0".encode()])
def test_other_payloads_are_none(payload: bytes) -> None:
    assert compose(TOMBSTONES, payload=payload).value == payload


def test_without_the_option_a_blank_payload_is_a_blank_value() -> None:
    assert compose(payload=b" ").value == b" "
    assert compose(payload=b"").value is not TOMBSTONE


# --- the envelope -----------------------------------------------------------------------------


def test_fields_in_the_envelope_make_a_struct() -> None:
    options = {**JSON, PLACEMENT: "type:envelope:eventType,aggregateid:header,seq:envelope"}
    message = compose(options, payload=b"{}")
    assert message.value == b'{"payload":"{}","eventType":"OrderPaid","seq":1}'
    assert message.headers == [("id", ID), ("aggregateid", "42")]


def test_the_envelope_with_its_schema() -> None:
    options = {**JSON_AND_SCHEMA, PLACEMENT: "type:envelope:eventType,timestamp:envelope"}
    assert json.loads(compose(options, payload=b"{}").value) == {
        "schema": {
            "type": "struct",
            "fields": [
                {
                    "type": "string", "optional": True, "name": "io.debezium.data.Json",
                    "version": 1, "field": "payload",
                },
                {"type": "string", "optional": False, "field": "eventType"},
                {
                    "type": "string", "optional": False, "version": 1, "field": "timestamp",
                    "name": "io.debezium.time.ZonedTimestamp",
                },
            ],
            "optional": False,
            "name": "OrderItem.Value",
        },
        "payload": {"payload": "{}", "eventType": "OrderPaid", "timestamp": CREATED_AT},
    }  # fmt: skip


def test_a_column_that_is_null_is_null_in_the_envelope() -> None:
    message = compose({**JSON, PLACEMENT: "idempotency_key:envelope"}, payload=b"{}")
    assert message.value == b'{"payload":"{}","idempotency_key":null}'


def test_an_expanded_payload_in_the_envelope() -> None:
    message = compose({**EXPANDED, PLACEMENT: "type:envelope"}, payload=b'{"a": 1}')
    assert message.value == b'{"payload":{"a":1},"type":"OrderPaid"}'


# --- expansion --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ('{"a": 1, "b": "x", "c": true, "d": 1.5}', '{"a":1,"b":"x","c":true,"d":1.5}'),
        ('{"z": 1, "a": {"n": {"m": "Zürich"}}}', '{"z":1,"a":{"n":{"m":"Zürich"}}}'),
        ('{"a": [1, 2], "b": [{"x": 1}, {"x": 2}]}', '{"a":[1,2],"b":[{"x":1},{"x":2}]}'),
        ('[{"a": 1}, {"a": 2}]', '[{"a":1},{"a":2}]'),
        ("[1, 2]", "[1,2]"),
        ("{}", "{}"),
        # Null fields and empty arrays have no type, so they go.
        ('{"a": null, "b": 1}', '{"b":1}'),
        ('{"a": [], "b": 1}', '{"b":1}'),
        ('{"a": {"x": null}}', '{"a":{}}'),
        ('{"a": [1, null]}', '{"a":[1,null]}'),
        # The objects of an array share one schema.
        ('{"a": [{"x": 1}, {"y": "z"}]}', '{"a":[{"x":1,"y":null},{"x":null,"y":"z"}]}'),
        ('{"a": [{"x": null}, {"x": 2}]}', '{"a":[{"x":null},{"x":2}]}'),
        ('{"a": 1, "a": 2}', '{"a":2}'),
        ('{"a": 3000000000}', '{"a":3000000000}'),
        ('{"a": [[1], [2]]}', '{"a":[[1],[2]]}'),
    ],
)
def test_json_text_is_expanded(payload: str, value: str) -> None:
    assert compose(EXPANDED, payload=payload.encode()).value == value.encode()


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ('{"a": null, "b": 1}', '{"a":null,"b":1}'),
        ('{"a": [null]}', '{"a":[null]}'),
        ('{"a": []}', "{}"),
    ],
)
def test_nulls_may_be_optional_bytes(payload: str, value: str) -> None:
    options = {**EXPANDED, "table.json.payload.null.behavior": "optional_bytes"}
    assert compose(options, payload=payload.encode()).value == value.encode()


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ("plain text", "neither { nor ["),
        (' {"a": 1}', "neither { nor ["),
        ('"text"', "neither { nor ["),
        ("", "neither { nor ["),
        ("{not json", "not JSON"),
        ('{"a": NaN}', "not JSON"),
        (r'{"a": "\ud800"}', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"a": [1, "x"]}', "mixes int32 and string"),
        ('{"a": [1, 2.5]}', "mixes double and int32"),
        ('{"a": [1, 3000000000]}', "mixes int32 and int64"),
        ('{"a": [{}, []]}', "mixes array and object"),
        ('{"a": [null]}', "nothing that has a type"),
        ('{"a": [[]]}', "nothing that has a type"),
        ('{"a": [{"x": 1}, {"x": "y"}]}', "int32 here and string there"),
        ('{"a": 99999999999999999999}', "too large"),
        ("[]", "empty array"),
    ],
)
def test_what_cannot_be_expanded_stays_text_with_one_warning(
    payload: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    composer = Debezium(EXPANDED)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            value = composer(event(payload=payload.encode())).value
            assert json.loads(value) == payload
    (warning,) = caplog.records
    assert why in warning.getMessage()
    assert ID in warning.getMessage()
    assert vars(warning)["event_id"] == ID


def test_bytes_are_not_expanded() -> None:
    message = compose(EXPANDED, payload=b'{"a":1}', content_type="application/octet-stream")
    assert message.value == b'"eyJhIjoxfQ=="'


def test_the_schema_of_what_was_expanded() -> None:
    options = {**JSON_AND_SCHEMA, "table.expand.json.payload": "true"}
    payload = b'{"i": 1, "l": 3000000000, "d": 0.5, "t": true, "o": {"s": "x"}, "a": [{"n": 1}]}'
    assert json.loads(compose(options, payload=payload).value)["schema"] == {
        "type": "struct",
        "fields": [
            {"type": "int32", "optional": True, "field": "i"},
            {"type": "int64", "optional": True, "field": "l"},
            {"type": "double", "optional": True, "field": "d"},
            {"type": "boolean", "optional": True, "field": "t"},
            {
                "type": "struct",
                "fields": [{"type": "string", "optional": True, "field": "s"}],
                "optional": True, "name": "payload.o", "field": "o",
            },
            {
                "type": "array",
                "items": {
                    "type": "struct",
                    "fields": [{"type": "int32", "optional": True, "field": "n"}],
                    "optional": True, "name": "payload.a",
                },
                "optional": True, "field": "a",
            },
        ],
        "optional": True,
        "name": "payload",
    }  # fmt: skip


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOT_HERE)
def test_options_that_do_not_apply_say_why(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be set: ."):
        compose({name: "x"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"route.by.feld": "type"}, r"no option 'route.by.feld' \(did you mean route.by.field\?\)"),
        ({"route.tombstone.on.empty.payload": "maybe"}, "'maybe' is not true or false"),
        ({"table.json.payload.null.behavior": "drop"}, "not ignore or optional_bytes"),
        ({"table.field.event.timestamp": "seq"}, "'seq' is not timestamp or created_at"),
        ({"table.field.additional.missing": "warn"}, "not error or ignore"),
        ({"value.converter": "AvroConverter"}, "is not StringConverter or"),
        ({"route.topic.regex": "("}, "no regular expression"),
        ({"route.topic.replacement": "${nobody}"}, "no group 'nobody'"),
        ({"route.topic.replacement": "$7"}, "no group 7"),
        ({"route.topic.replacement": "a$"}, "refers to no group"),
        ({"route.topic.replacement": ""}, "not a text that is not empty"),
        ({PLACEMENT: "type"}, "'type' is not column:header"),
        ({PLACEMENT: "type:trailer"}, "'type:trailer' is not column:header"),
        ({PLACEMENT: "type:header:a:b"}, "is not column:header"),
        ({PLACEMENT: "type:header:"}, "is not column:header"),
        ({PLACEMENT: "seq:partition"}, "partition follows from the key"),
        ({PLACEMENT: "type:envelope"}, "needs value.converter = 'JsonConverter'"),
        ({"table.expand.json.payload": "true"}, "needs value.converter = 'JsonConverter'"),
    ],
)
def test_wrong_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Debezium(options)
    assert str(caught.value).startswith("[debezium] ")
