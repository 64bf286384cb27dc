"""CloudEvents, read back by the official SDK, in every binding that it knows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pytest
from cloudevents.core.bindings.amqp import AMQPMessage, from_amqp_event
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from cloudevents.core.bindings.rabbitmq import RabbitMQMessage, from_rabbitmq_event

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.format.binding import binding_of
from commitrelay.format.cloudevents import (
    MAX_CACHED_KINDS,
    CloudEvents,
    StructuredCloudEvents,
)
from commitrelay.publisher import Message
from commitrelay.route import Route
from commitrelay.store import Queued
from tests.unit.test_route import event as an_event

ID = "0193a3c0-0000-7000-8000-000000000001"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PAYLOAD = b'{"total": 1.50,  "name": "Z\xc3\xbcrich"}'
TEXT = "text/plain; charset=utf-8"


def event(**changes: Any) -> Queued:
    headers = json.dumps({"traceparent": TRACE, "tracestate": "a=b", "X-Mine": "1"})
    full = {"payload": PAYLOAD, "idempotency_key": "pay-42", "headers": headers, **changes}
    return an_event()._replace(**full)


def from_kafka(message: Message) -> Any:
    headers = {name: value.encode() for name, value in message.headers}
    return from_kafka_event(KafkaMessage(headers, message.key, message.value))


def from_http(message: Message) -> Any:
    for name, value in message.headers:
        assert value.isascii(), name
    return from_http_event(HTTPMessage(dict(message.headers), message.value))


def from_rabbitmq(message: Message) -> Any:
    headers = dict(message.headers)
    content_type = headers.pop("content-type", None)
    return from_rabbitmq_event(RabbitMQMessage(headers, content_type, message.value))


def from_amqp(message: Message) -> Any:
    headers: dict[str, Any] = dict(message.headers)
    properties = {"content-type": headers.pop("content-type")}
    return from_amqp_event(AMQPMessage(properties, headers, message.value))


def from_nats(message: Message) -> Any:
    """The SDK has no NATS. Its binding is HTTP's, but for the content type in binary mode."""
    headers = dict(message.headers)
    if "ce-id" in headers:
        assert "content-type" not in headers
        headers["content-type"] = unquote(headers.pop("ce-datacontenttype"))
    return from_http(message._replace(headers=list(headers.items())))


READERS = {
    "kafka": from_kafka,
    "http": from_http,
    "nats": from_nats,
    "rabbitmq": from_rabbitmq,
    "amqp-1.0": from_amqp,
}


@pytest.mark.parametrize("binding", READERS)
@pytest.mark.parametrize("composer", [CloudEvents, StructuredCloudEvents])
def test_the_sdk_reads_what_was_written(composer: Any, binding: str) -> None:
    message = composer(Route(), binding=binding)(event())
    read = READERS[binding](message)
    attributes = {name: value for name, value in read.get_attributes().items() if value is not None}
    assert attributes == {
        "specversion": "1.0",
        "id": ID,
        "source": "/commitrelay/OrderItem",
        "type": "OrderPaid",
        "subject": "42",
        "time": datetime(2026, 11, 15, 20, 33, 45, 123456, UTC),
        "datacontenttype": "application/json",
        "partitionkey": "42",
        "idempotencykey": "pay-42",
        "traceparent": TRACE,
        "tracestate": "a=b",
    }
    assert read.get_data() == json.loads(PAYLOAD)
    assert (message.topic, message.key, message.event_id) == ("orderitem.events", "42", ID)
    assert ("traceparent", TRACE) in message.headers
    assert ("X-Mine", "1") in message.headers


@pytest.mark.parametrize("binding", READERS)
def test_text_of_any_kind_survives(binding: str) -> None:
    odd = '東京 "50 %" \x7f'
    composer = CloudEvents(Route(), binding=binding)
    read = READERS[binding](composer(event(aggregate_id=odd, event_type=odd, idempotency_key=odd)))
    assert (read.get_subject(), read.get_type()) == (odd, odd)
    assert read.get_extension("idempotencykey") == odd


def test_the_content_type_is_where_the_binding_has_it() -> None:
    def header(binding: str) -> str:
        message = CloudEvents(Route(), binding=binding)(event(content_type=TEXT))
        (found,) = [f"{name}: {value}" for name, value in message.headers if "content" in name]
        return found

    assert header("kafka") == header("http") == header("rabbitmq") == f"content-type: {TEXT}"
    assert header("nats") == "ce-datacontenttype: text/plain;%20charset=utf-8"


def test_binary_mode_leaves_the_payload_alone() -> None:
    for payload in (b"", b"\x00\xff", b"not json"):
        assert CloudEvents(Route())(event(payload=payload)).value == payload


@pytest.mark.parametrize(
    ("scheme", "header"),
    [
        ("kafka", "ce_id"),
        ("https", "ce-id"),
        ("nats", "ce-id"),
        ("amqp", "ce-id"),
        ("amqps", "ce-id"),
        ("redis", "ce-id"),
        ("file", "ce-id"),
    ],
)
def test_the_url_tells_the_binding(scheme: str, header: str) -> None:
    message = CloudEvents(Route(), binding=binding_of(scheme))(event())
    assert dict(message.headers)[header] == ID


def test_an_option_overrides_the_binding() -> None:
    message = CloudEvents(Route(), binding="rabbitmq", options={"binding": "amqp-1.0"})(event())
    assert dict(message.headers)["cloudEvents:id"] == ID


def structured(**changes: Any) -> bytes:
    return StructuredCloudEvents(Route())(event(**changes)).value


def test_a_json_payload_is_embedded_byte_for_byte() -> None:
    assert structured().endswith(b',"data":' + PAYLOAD + b"}")


@pytest.mark.parametrize(
    ("content_type", "payload", "member", "value"),
    [
        ("application/json", b"[1, 2]", "data", [1, 2]),
        ("application/json; charset=utf-8", b"null", "data", None),
        ("application/vnd.shop+json", b"3", "data", 3),
        (TEXT, "Zürich\n".encode(), "data", "Zürich\n"),
        ("text/csv", b'a,"b"', "data", 'a,"b"'),
        ("text/plain; charset=latin-1", b"Z\xfcrich", "data_base64", "WvxyaWNo"),
        (TEXT, b"\xff", "data_base64", "/w=="),
        ("application/octet-stream", b"{}", "data_base64", "e30="),
        ("", b"{}", "data_base64", "e30="),
    ],
)
def test_where_the_payload_goes(content_type: str, payload: bytes, member: str, value: Any) -> None:
    read = json.loads(structured(content_type=content_type, payload=payload))
    assert read[member] == value
    assert len({"data", "data_base64"} & read.keys()) == 1


@pytest.mark.parametrize("content_type", ["application/json", TEXT, "image/png"])
def test_an_empty_payload_is_no_data(content_type: str) -> None:
    read = json.loads(structured(content_type=content_type, payload=b""))
    assert not {"data", "data_base64"} & read.keys()


@pytest.mark.parametrize("payload", [b"{", b'{"a":1}{"b":2}', b"\xff", b"NaN", b"[" * 100_000])
def test_a_payload_that_is_not_the_json_it_claims_to_be_refuses_the_event(payload: bytes) -> None:
    with pytest.raises(InvalidEvent, match=f"payload of event {ID} is not JSON"):
        structured(payload=payload)


def test_structured_mode_is_told_by_the_content_type_alone() -> None:
    names = dict(StructuredCloudEvents(Route(), binding="kafka")(event()).headers)
    assert names["content-type"].startswith("application/cloudevents+json")
    assert not [name for name in names if name.startswith("ce_")]


def test_what_is_not_there_is_left_out() -> None:
    bare = event(idempotency_key=None, headers="{}", content_type="")
    names = [name for name, _ in CloudEvents(Route(), binding="kafka")(bare).headers]
    assert names == [
        "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_subject", "ce_time",
        "ce_partitionkey",
    ]  # fmt: skip
    read = json.loads(StructuredCloudEvents(Route())(bare).value)
    assert not {"idempotencykey", "traceparent", "datacontenttype"} & read.keys()


@pytest.mark.parametrize("name", ["ce-dataschema", "ce_dataschema", "CE-DataSchema"])
def test_a_users_ce_header_is_an_attribute(name: str) -> None:
    headers = json.dumps({name: "https://schemas.test/1"})
    message = CloudEvents(Route(), binding="kafka")(event(headers=headers))
    assert message.headers[-1] == ("ce_dataschema", "https://schemas.test/1")
    assert json.loads(structured(headers=headers))["dataschema"] == "https://schemas.test/1"


@pytest.mark.parametrize("name", ["ce-id", "CE_Source", "ce-idempotencykey", "Content-Type"])
def test_ours_win_over_a_users_header_of_the_same_name(name: str) -> None:
    message = CloudEvents(Route(), binding="kafka")(event(headers=json.dumps({name: "theirs"})))
    assert "theirs" not in dict(message.headers).values()


@pytest.mark.parametrize("name", ["ce-my_own", "ce-", "ce-data", "ce-zürich"])
def test_a_name_that_no_attribute_can_have_refuses_the_event(name: str) -> None:
    with pytest.raises(InvalidEvent, match="CloudEvents attribute"):
        CloudEvents(Route())(event(headers=json.dumps({name: "x"})))


def test_source_and_type_are_templates() -> None:
    options = {"source": "https://shop.test/{aggregate_type|kebab}", "type": "test.{event_type}"}
    read = json.loads(StructuredCloudEvents(Route(), options=options)(event()).value)
    assert (read["source"], read["type"]) == ("https://shop.test/order-item", "test.OrderPaid")


def test_a_source_is_a_uri_whatever_the_aggregate_is_called() -> None:
    read = json.loads(structured(aggregate_type="Möbel Stück"))
    assert read["source"] == "/commitrelay/M%C3%B6bel%20St%C3%BCck"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sorce": "/x"}, r"\[cloudevents\] has no option 'sorce' \(did you mean source\?\)"),
        ({"source": ""}, "source = '' is not a text"),
        ({"source": "/{aggregate_id}"}, "that is in subject"),
        ({"source": "/{nobody}"}, "unknown field"),
        ({"binding": "smtp"}, "binding = 'smtp' is not kafka or"),
    ],
)
def test_wrong_options(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CloudEvents(Route(), options=options)


def test_a_spread_route_is_asked_for_every_event() -> None:
    composer = CloudEvents(Route("{aggregate_id}"))
    assert [composer(event(aggregate_id=each)).topic for each in "ab"] == ["a", "b"]


def test_memory_is_bounded_by_the_number_of_kinds() -> None:
    composer = CloudEvents(Route())
    for number in range(MAX_CACHED_KINDS + 10):
        composer(event(event_type=f"E{number}"))
    assert len(composer._kinds) <= MAX_CACHED_KINDS
