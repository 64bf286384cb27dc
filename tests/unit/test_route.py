from __future__ import annotations

import pytest

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.route import MAX_CACHED_TOPICS, Route
from commitrelay.store import Queued
from commitrelay.template import Template, kebab, snake


def event(aggregate_type: str = "OrderItem", event_type: str = "OrderPaid") -> Queued:
    return Queued(
        seq=1,
        key=1,
        bucket=0,
        state=0,
        attempts=0,
        blocked=False,
        id="0193a3c0-0000-7000-8000-000000000001",
        aggregate_type=aggregate_type,
        aggregate_id="42",
        event_type=event_type,
        payload=b"{}",
        content_type="application/json",
        headers="{}",
        idempotency_key=None,
        created_at="2026-11-15T20:33:45.123456Z",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("OrderPaid", "order-paid"),
        ("order_paid", "order-paid"),
        ("Order Paid", "order-paid"),
        ("HTTPServerStarted", "http-server-started"),
        ("OrderV2Created", "order-v2-created"),
        ("shop.OrderPaid", "shop.order-paid"),
        ("already-kebab", "already-kebab"),
    ],
)
def test_kebab_and_snake(text: str, expected: str) -> None:
    assert kebab(text) == expected
    assert snake(text) == expected.replace("-", "_")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{aggregate_type|lower}.events", "orderitem.events"),
        ("{aggregate_type|kebab}.{event_type|snake|upper}", "order-item.ORDER_PAID"),
        ("{ aggregate_type | kebab }", "order-item"),
        ("fixed", "fixed"),
        ("{{{aggregate_id}}}", "{42}"),
        ("{aggregate_type}/{aggregate_id}", "OrderItem/42"),
    ],
)
def test_templates(template: str, expected: str) -> None:
    assert Template(template)(event()) == expected
    assert Route(template)(event()) == expected


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{aggregate}.events", ["'aggregate'", "aggregate_type, aggregate_id, event_type"]),
        ("{aggregate_type|lowercase}", ["'lowercase'", "lower, upper, kebab, snake"]),
        ("{payload}", ["'payload'"]),
        ("{aggregate_type.__class__}", ["unknown field"]),
        ("{}", ["unknown field"]),
        ("a{b", ["stray {"]),
        ("a}b", ["stray }"]),
        ("", ["not empty"]),
    ],
)
def test_a_wrong_template_names_what_is_wrong_and_the_choices(
    template: str, said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        Route(template)
    for words in said:
        assert words in str(caught.value)


def test_the_most_specific_entry_of_a_mapping_wins() -> None:
    route = Route({"Order": "orders", "Order.OrderPaid": "payments", "*": "{aggregate_type}.rest"})
    assert route(event("Order", "OrderPaid")) == "payments"
    assert route(event("Order", "OrderShipped")) == "orders"
    assert route(event("Customer", "OrderPaid")) == "Customer.rest"


def test_an_event_without_an_entry_is_refused_by_name() -> None:
    route = Route({"Order": "orders"})
    with pytest.raises(InvalidEvent, match=r"no topic for Customer\.Moved .*\"Customer\" or"):
        route(event("Customer", "Moved"))


@pytest.mark.parametrize("topics", [{}, {"": "orders"}, {"Order": ""}, {"Order": None}])
def test_a_mapping_with_holes_is_refused(topics: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        Route(topics)


def test_only_a_route_by_aggregate_id_is_spread() -> None:
    assert not Route().spread
    assert Route("{aggregate_id}").spread
    assert Route({"A": "a", "B": "{aggregate_id}"}).spread
    route = Route("{aggregate_id}")
    assert route(event()._replace(aggregate_id="1")) == "1"
    assert route(event()._replace(aggregate_id="2")) == "2"


def test_memory_is_bounded_by_the_number_of_cached_topics() -> None:
    route = Route()
    for number in range(MAX_CACHED_TOPICS + 10):
        assert route(event(f"T{number}")) == f"t{number}.events"
    assert len(route._known) <= MAX_CACHED_TOPICS
