"""What a handler gets: its own type where it names one, else what the content type says."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from commitrelay import ConfigError, Consumer, Event, InvalidEvent, Received
from commitrelay.consumer.handlers import Handlers
from commitrelay.consumer.payload import decode_by_content, decoder

JSON = "application/json"


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Line:
    sku: str
    pieces: int = 1


@dataclass
class Order:
    number: int
    total: Decimal
    placed: datetime
    lines: list[Line]
    id: UUID | None = None
    day: date | None = None
    ratio: float = 0.0
    colour: Colour = Colour.RED
    state: Literal["new", "paid"] = "new"
    labels: dict[str, str] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    anything: Any = None

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("number is negative")


class OrderModel(pydantic.BaseModel):
    number: int
    total: Decimal


class OrderStruct(msgspec.Struct):
    number: int
    total: Decimal


MINIMAL = '{"number": 1, "total": "2.50", "placed": "2026-11-15T20:33:45Z", "lines": []}'


def test_a_dataclass_is_filled_by_its_types() -> None:
    order = Order(
        1,
        Decimal("2.50"),
        datetime(2026, 11, 15, tzinfo=UTC),
        [Line("a"), Line("b", 3)],
        UUID(int=5),
        date(2026, 1, 2),
        2.0,
        Colour.RED,
        "paid",
        {"a": "b"},
        (1, "x"),
        [1, {"y": None}],
    )
    body = {
        "number": 1, "total": Decimal("2.50"), "placed": order.placed,
        "lines": [{"sku": "a"}, {"sku": "b", "pieces": 3, "unknown": True}],
        "id": UUID(int=5), "day": date(2026, 1, 2), "ratio": 2, "colour": "red", "state": "paid",
        "labels": {"a": "b"}, "pair": [1, "x"], "anything": [1, {"y": None}], "added_later": 1,
    }  # fmt: skip
    encoded, content_type = Event("Order", 1, "Placed", body).encoded()
    assert decoder(Order)(encoded, content_type) == order


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"number": "1"}, "number is '1', not int"),
        ({"number": True}, "number is True, not int"),
        ({"number": -1}, "number is negative"),
        ({"total": "much"}, "total is 'much', not a Decimal"),
        ({"placed": 5}, "placed is 5, not a datetime"),
        ({"lines": {}}, "lines is {}, not an array"),
        ({"lines": [{"pieces": 2}]}, r"lines\[0\].sku is missing"),
        ({"lines": [3]}, r"lines\[0\] is 3, not an object"),
        ({"colour": "blue"}, "colour is 'blue', not a Colour"),
        ({"state": "old"}, "state is 'old', not 'new' or 'paid'"),
        ({"labels": {"a": 1}}, "labels.a is 1, not str"),
        ({"pair": [1]}, "pair has 1 elements, not 2"),
        ({"id": "no"}, "id is 'no', not a UUID"),
    ],
)
def test_what_does_not_fit_is_said(change: dict[str, Any], complaint: str) -> None:
    body = msgspec.json.encode({**msgspec.json.decode(MINIMAL), **change})
    with pytest.raises(InvalidEvent, match=f"does not fit Order: {complaint}"):
        decoder(Order)(body, JSON)


@pytest.mark.parametrize("kind", [OrderModel, OrderStruct, Order])
def test_each_kind_of_type(kind: Any) -> None:
    decode = decoder(kind)
    found = decode(MINIMAL.encode(), JSON)
    assert isinstance(found, kind)
    assert (found.number, found.total) == (1, Decimal("2.50"))
    with pytest.raises(InvalidEvent, match=f"does not fit {kind.__name__}"):
        decode(b'{"number": 1}', JSON)
    with pytest.raises(InvalidEvent):
        decode(b"{", JSON)


@pytest.mark.parametrize(
    ("payload", "content_type", "wanted"),
    [
        (b'{"a": 1}', JSON, {"a": 1}),
        (b'{"a": 1}', "application/vnd.x+json; charset=utf-8", {"a": 1}),
        ("grün".encode(), "text/plain; charset=utf-8", "grün"),
        (b"[1]", "application/octet-stream", b"[1]"),
        (b"[1]", "", [1]),
        (b"\xff", "", b"\xff"),
    ],
)
def test_without_a_type_the_content_type_decides(
    payload: bytes, content_type: str, wanted: Any
) -> None:
    assert decode_by_content(payload, content_type) == wanted


def test_text_and_bytes_on_request() -> None:
    assert decoder(bytes)(b"[1]", JSON) == b"[1]"
    assert decoder(str)(b"[1]", JSON) == "[1]"
    assert decoder(dict[str, int])(b'{"a": 1}', JSON) == {"a": 1}
    with pytest.raises(InvalidEvent, match="not UTF-8"):
        decoder(str)(b"\xff", JSON)
    with pytest.raises(ConfigError, match="use a dataclass, a pydantic model"):
        decoder(int)


# --- handlers ------------------------------------------------------------------------------


class Service:
    async def handle(self, connection: Any, event: Received[Line]) -> None: ...

    def __call__(self, connection: Any, event: Received[Line]) -> None: ...


def plain(connection: Any, event: Received[Line]) -> None: ...


def with_more(more: int, connection: Any, event: Received[Line]) -> None: ...


async def later(connection: Any, event: Received[Line]) -> None: ...


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (plain, False),
        (later, True),
        (Service().handle, True),
        (Service(), False),
        (partial(with_more, 1), False),
        (partial(later), True),
    ],
)
def test_the_annotation_says_what_the_payload_is(function: Any, is_async: bool) -> None:
    handlers = Handlers()
    handlers.add(function, ("A",), None)
    handler = handlers.find("A")
    assert handler is not None
    assert handler.is_async is is_async
    assert handler.decode(b'{"sku": "x"}', JSON) == Line("x")


def test_on_takes_types_a_payload_and_the_rest() -> None:
    consumer = Consumer("billing")

    @consumer.on("A", "B", payload=Line)
    def first(connection: Any, event: Any) -> None: ...

    @consumer.on("*")
    def rest(connection: Any, event: Received) -> None: ...  # type: ignore[type-arg]

    handlers = consumer._handlers
    assert first.__name__ == "first", "the function itself stays"
    assert [handlers.find(name).function for name in "ABC"] == [first, first, rest]  # type: ignore[union-attr]
    assert handlers.find("B").decode(b'{"sku": "x"}', JSON) == Line("x")  # type: ignore[union-attr]


def test_handlers_that_cannot_be_are_refused_at_once() -> None:
    consumer = Consumer("billing")
    consumer.on("A")(plain)
    with pytest.raises(ConfigError, match="'A' has the handler plain already"):
        consumer.on("A")(later)
    with pytest.raises(ConfigError, match="names no event type"):
        consumer.on()(plain)
    with pytest.raises(ConfigError, match="takes 1 parameters: it must take two"):
        consumer.on("B")(lambda event: None)  # type: ignore[arg-type]

    @dataclass
    class Local:
        sku: str

    def hidden(connection: Any, event: Received[Local]) -> None: ...

    with pytest.raises(ConfigError, match="payload="):
        consumer.on("C")(hidden)
    consumer.on("C", payload=Local)(hidden)
