"""Whatever the format: what a consumer needs to dedupe and to trace, where the docs say it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from commitrelay.errors import ConfigError
from commitrelay.format.choice import OPTIONS, composer
from commitrelay.kinds import Choice
from commitrelay.publisher import Message
from commitrelay.route import DEFAULT_TOPIC, Route
from commitrelay.settings import declaration
from tests.unit.test_route import event

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/message-format.md"
ID = event().id
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SCHEMES = ("kafka", "amqp", "nats", "redis", "https", "sqs", "file", "stdout")


def in_header(name: str) -> Callable[[Message], str]:
    return lambda message: dict(message.headers)[name]


def in_value(name: str) -> Callable[[Message], str]:
    return lambda message: json.loads(message.value)[name]


def attribute(name: str) -> Callable[[Message], str]:
    def find(message: Message) -> str:
        found = [value for each, value in message.headers if re.fullmatch(f"ce[-_]{name}", each)]
        (value,) = found
        return value

    return find


WHERE = {
    "plain": (in_header("event-id"), in_header("idempotency-key"), in_header("traceparent")),
    "cloudevents": (attribute("id"), attribute("idempotencykey"), in_header("traceparent")),
    "cloudevents-structured": (in_value("id"), in_value("idempotencykey"), in_value("traceparent")),
    "debezium": (in_header("id"), in_header("idempotency-key"), in_header("traceparent")),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_message_can_be_deduped_and_traced(name: str, scheme: str) -> None:
    compose = composer(name, Route(), scheme=scheme, options={})
    message = compose(
        event()._replace(idempotency_key="pay-42", headers=json.dumps({"traceparent": TRACE}))
    )
    assert [find(message) for find in WHERE[name]] == [ID, "pay-42", TRACE]
    assert dict(message.headers).get("traceparent") == TRACE
    assert message.event_id == ID  # which publishers put where the broker dedupes by it


@pytest.mark.parametrize("name", OPTIONS)
def test_the_docs_have_a_row_for_every_format(name: str) -> None:
    assert f"| `{name}` |" in PAGE.read_text("utf-8")


def test_the_setting_offers_every_format() -> None:
    kind = declaration("format").kind
    assert isinstance(kind, Choice)
    assert set(kind.options) == set(OPTIONS)


def test_debezium_routes_by_itself() -> None:
    for route in (Route("orders"), Route({"*": DEFAULT_TOPIC, "Order": "orders"})):
        with pytest.raises(ConfigError, match=r"put route\.topic\.replacement"):
            composer("debezium", route, scheme="kafka", options={})


def test_options_come_from_the_table_of_the_format() -> None:
    options = {"cloudevents": {"type": "x.{event_type}"}, "debezium": {"route.by.field": "type"}}
    for name in ("cloudevents", "cloudevents-structured"):
        message = composer(name, Route(), scheme="kafka", options=options)(event())
        assert b"x.OrderPaid" in repr(message).encode()
    message = composer("debezium", Route(), scheme="kafka", options=options)(event())
    assert message.topic == "outbox.event.OrderPaid"
