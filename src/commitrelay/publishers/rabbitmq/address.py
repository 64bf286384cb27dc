"""Address: message -> exchange and routing key, by templates."""

from __future__ import annotations

from commitrelay.errors import InvalidEvent
from commitrelay.publisher import Message
from commitrelay.publishers.rabbitmq.content import EVENT_TYPE_HEADERS
from commitrelay.template import Template

FIELDS = ("topic", "key", "aggregate_type", "aggregate_id", "event_type")

AGGREGATE_TYPE_HEADERS = ("aggregate-type",)

MAX_KNOWN = 4096
"""Topics whose address is remembered, where nothing else decides on it."""


class Address:
    """`Address("{topic}", "{event_type|kebab}")(message)` -> ("order.events", "order-paid")."""

    def __init__(self, exchange: str, routing_key: str) -> None:
        self._exchange = Template(exchange, FIELDS) if exchange else None
        self._routing_key = Template(routing_key, FIELDS) if routing_key else None
        self._is_plain = (exchange, routing_key) == ("{topic}", "{key}")
        templates = [each for each in (self._exchange, self._routing_key) if each is not None]
        self._is_by_topic = all(each.fields <= {"topic"} for each in templates)
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, message: Message) -> tuple[str, str]:
        """`InvalidEvent` if the message has not what a template asks for."""
        if self._is_plain:
            return message.topic, message.key
        known = self._known.get(message.topic)
        return known or self._fill(message)

    def _fill(self, message: Message) -> tuple[str, str]:
        facts = _Facts(message)
        made = (
            self._exchange(facts) if self._exchange is not None else "",
            self._routing_key(facts) if self._routing_key is not None else "",
        )
        if self._is_by_topic:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[message.topic] = made
        return made


class _Facts:
    __slots__ = ("_message",)

    def __init__(self, message: Message) -> None:
        self._message = message

    @property
    def topic(self) -> str:
        return self._message.topic

    @property
    def key(self) -> str:
        return self._message.key

    @property
    def aggregate_id(self) -> str:
        return self._message.key

    @property
    def aggregate_type(self) -> str:
        return self._header(AGGREGATE_TYPE_HEADERS, "aggregate_type")

    @property
    def event_type(self) -> str:
        return self._header(EVENT_TYPE_HEADERS, "event_type")

    def _header(self, names: tuple[str, ...], field: str) -> str:
        for name, value in self._message.headers:
            if name in names:
                return value
        raise InvalidEvent(
            f"the message {self._message.event_id} has no header {names[0]}, which the template "
            f"asks for with {{{field}}}: use {{topic}} or {{key}} with this format"
        )
