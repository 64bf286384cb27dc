"""What the formats write is read back as it was, also where nobody says which format it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitrelay.errors import InvalidEvent
from commitrelay.format.binding import binding_of
from commitrelay.format.choice import composer
from commitrelay.format.read import Read
from commitrelay.format.reading import FormatName, reader
from commitrelay.publisher import Message
from commitrelay.route import Route
from commitrelay.source import Arrival
from tests.unit.test_route import event

SCHEMES = ("kafka", "amqp", "nats", "redis", "https", "file")
PLACED = {
    "debezium": {
        "table.fields.additional.placement": "type:header:eventType,aggregatetype:header:"
        "aggregateType,contenttype:header,timestamp:header"
    }
}


def arrived(message: Message) -> Arrival:
    return Arrival(message.topic, "p", 0, message.key, message.value, message.headers)


def read_back(name: str, scheme: str, given: Any, how: FormatName = "auto") -> Read:
    compose = composer(name, Route(), scheme=scheme, options=PLACED)
    return reader(how, binding_of(scheme))(arrived(compose(given)))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["plain", "cloudevents", "cloudevents-structured", "debezium"])
@pytest.mark.parametrize("told", [True, False])
def test_each_format_on_each_broker(name: str, scheme: str, told: bool) -> None:
    given = event()._replace(
        aggregate_type="Größe",
        aggregate_id="50 % off",
        idempotency_key="pay 42",
        headers=json.dumps({"traceparent": "00-ab", "Mine": "own"}),
    )
    how: Any = name.removesuffix("-structured") if told else "auto"
    found = read_back(name, scheme, given, how)
    assert found.id == given.id
    assert found.event_type == given.event_type
    assert (found.aggregate_type, found.aggregate_id) == ("Größe", "50 % off")
    assert json.loads(found.payload) == json.loads(given.payload)
    assert found.content_type == given.content_type
    assert found.idempotency_key == "pay 42"
    assert found.created_at == given.created_at
    assert found.headers == {"traceparent": "00-ab", "Mine": "own"}


@given(st.binary(max_size=50))
def test_bytes_come_back_as_they_were(payload: bytes) -> None:
    given_event = event()._replace(payload=payload, content_type="application/octet-stream")
    for name in ("plain", "cloudevents", "cloudevents-structured", "debezium"):
        assert read_back(name, "kafka", given_event).payload == payload


def test_text_in_a_structured_event_comes_back_as_it_was() -> None:
    given = event()._replace(payload="grün".encode(), content_type="text/plain; charset=utf-8")
    assert read_back("cloudevents-structured", "kafka", given).payload == "grün".encode()


def test_extensions_of_cloudevents_are_headers() -> None:
    given = event()._replace(headers=json.dumps({"ce-tenant": "7"}))
    for name in ("cloudevents", "cloudevents-structured"):
        assert read_back(name, "kafka", given).headers == {"ce-tenant": "7"}


def test_a_cloudevent_of_somebody_else() -> None:
    value = {
        "specversion": "1.0", "id": "A-1", "source": "https://shop.example/orders",
        "type": "com.example.paid", "data": "just text",
    }  # fmt: skip
    content = [("Content-Type", "application/cloudevents+json")]
    found = reader("auto")(Arrival("t", "p", 0, "key", json.dumps(value).encode(), content))
    assert (found.id, found.event_type) == ("A-1", "com.example.paid")
    assert (found.aggregate_type, found.aggregate_id) == ("https://shop.example/orders", "key")
    assert (found.payload, found.content_type) == (b'"just text"', "application/json")


DEBEZIUM = [
    {},
    {"value.converter": "JsonConverter"},
    {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"},
    {"value.converter": "JsonConverter", "table.expand.json.payload": "true"},
    {
        "value.converter": "JsonConverter",
        "table.expand.json.payload": "true",
        "value.converter.schemas.enable": "false",
    },
    {"key.converter": "JsonConverter"},
    {"key.converter": "JsonConverter", "key.converter.schemas.enable": "false"},
]


@pytest.mark.parametrize("options", DEBEZIUM)
@pytest.mark.parametrize("where", ["header:eventType", "envelope:eventType"])
def test_debeziums_converters(options: dict[str, str], where: str) -> None:
    if where.startswith("envelope") and "value.converter" not in options:
        pytest.skip("a text has no envelope")
    given = event()._replace(payload=b'{"total":5}', aggregate_id="42")
    chosen = {**options, "table.fields.additional.placement": f"type:{where}"}
    compose = composer("debezium", Route(), scheme="kafka", options={"debezium": chosen})
    found = reader("auto")(arrived(compose(given)))
    assert (found.id, found.event_type) == (given.id, given.event_type)
    assert (found.aggregate_type, found.aggregate_id) == (given.aggregate_type, "42")
    assert json.loads(found.payload) == {"total": 5}


def test_a_message_of_no_format_says_so() -> None:
    arrival = Arrival("t", "p", 0, "k", b"{}", [("colour", "red")])
    with pytest.raises(InvalidEvent, match="nobody can tell which event it is"):
        reader("auto")(arrival)
    for name in ("plain", "debezium", "cloudevents"):
        with pytest.raises(InvalidEvent):
            reader(name)(arrival)  # type: ignore[arg-type]


@given(
    st.binary(max_size=40),
    st.lists(
        st.tuples(
            st.sampled_from(["id", "event-id", "ce_id", "ce-type", "content-type", "x"]),
            st.sampled_from(["", "1", "application/cloudevents+json", "application/json", "%"]),
        ),
        max_size=5,
    ),
)
def test_whatever_arrives_is_an_event_or_an_invalid_one(
    value: bytes, headers: list[tuple[str, str]]
) -> None:
    for name in ("auto", "plain", "cloudevents", "debezium"):
        try:
            found = reader(name)(Arrival("t", "p", 0, "k", value, headers))  # type: ignore[arg-type]
        except InvalidEvent:
            continue
        assert found.id


@pytest.mark.parametrize("prefix", ["ce_", "ce-", "cloudEvents:", "cloudEvents_"])
def test_the_attributes_of_each_binding(prefix: str) -> None:
    attributes = {"specversion": "1.0", "id": "7", "type": "Paid", "source": "/commitrelay/Order"}
    headers = [(f"{prefix}{name}", value) for name, value in attributes.items()]
    found = reader("auto")(Arrival("t", "p", 0, "42", b"{}", headers))
    assert (found.id, found.event_type, found.aggregate_type) == ("7", "Paid", "Order")
    assert (found.aggregate_id, found.headers) == ("42", {})
