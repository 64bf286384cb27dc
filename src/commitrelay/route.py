"""Route: event -> topic, by a template or by a mapping of templates. No I/O.

A template is text with fields in braces, each followed by any number of filters::

    {aggregate_type|kebab}.events        OrderItem -> order-item.events

A mapping picks the template by aggregate and event type; the most specific entry wins::

    {"Order": "orders", "Order.OrderPaid": "payments", "*": "{aggregate_type|lower}.events"}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.store import Queued

DEFAULT_TOPIC = "{aggregate_type|lower}.events"

FIELDS = ("aggregate_type", "aggregate_id", "event_type")

MAX_CACHED_TOPICS = 4096

_TOKEN = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[\s_-]+")

Filter = Callable[[str], str]
Part = Callable[[Queued], str]


def kebab(text: str) -> str:
    """OrderPaid, order_paid, Order Paid -> order-paid; dots stay."""
    return _SEPARATORS.sub("-", _WORD_START.sub("-", text)).lower()


def snake(text: str) -> str:
    """OrderPaid, order-paid, Order Paid -> order_paid; dots stay."""
    return kebab(text).replace("-", "_")


FILTERS: dict[str, Filter] = {
    "lower": str.lower,
    "upper": str.upper,
    "kebab": kebab,
    "snake": snake,
}


class Template:
    """Text with fields of an event in it, compiled once. `{{` and `}}` stand for braces."""

    __slots__ = ("_parts", "fields", "text")

    def __init__(self, text: str, known: Sequence[str] = FIELDS) -> None:
        if not isinstance(text, str) or not text:
            raise ConfigError(f"a template must be a text that is not empty, not {text!r}")
        self.text = text
        fields: set[str] = set()
        self._parts = [_part(token, text, known, fields) for token in _TOKEN.findall(text)]
        self.fields = frozenset(fields)

    def __call__(self, event: Queued) -> str:
        return "".join([part(event) for part in self._parts])

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


class Route:
    """The topic of an event, by one template or by a mapping of them.

    `spread` says that the topic also depends on the aggregate's id; if it does not, the topics
    of all (aggregate type, event type) pairs are computed once.
    """

    __slots__ = ("_known", "_templates", "is_default", "spread")

    def __init__(self, topics: str | Mapping[str, str] = DEFAULT_TOPIC) -> None:
        by_type = topics if isinstance(topics, Mapping) else {"*": topics}
        if not by_type or not all(by_type):
            raise ConfigError(
                'topics need at least one entry, named "AggregateType", '
                '"AggregateType.EventType" or "*"'
            )
        self.is_default = dict(by_type) == {"*": DEFAULT_TOPIC}
        self._templates = {name: Template(text) for name, text in by_type.items()}
        self.spread = any("aggregate_id" in each.fields for each in self._templates.values())
        self._known: dict[tuple[str, str], str] = {}

    def __call__(self, event: Queued) -> str:
        """The topic; `InvalidEvent` if no entry of the mapping matches."""
        if self.spread:
            return self._template(event)(event)
        kind = (event.aggregate_type, event.event_type)
        topic = self._known.get(kind)
        if topic is None:
            if len(self._known) >= MAX_CACHED_TOPICS:
                self._known.clear()
            topic = self._known[kind] = self._template(event)(event)
        return topic

    def _template(self, event: Queued) -> Template:
        templates = self._templates
        template = (
            templates.get(f"{event.aggregate_type}.{event.event_type}")
            or templates.get(event.aggregate_type)
            or templates.get("*")
        )
        if template is None:
            raise InvalidEvent(
                f"no topic for {event.aggregate_type}.{event.event_type} (event {event.id}): "
                f'add "{event.aggregate_type}" or "*" to the topics'
            )
        return template


def _part(token: str, text: str, known: Sequence[str], fields: set[str]) -> Part:
    if token in ("{{", "}}"):
        return _literal(token[0])
    if token in ("{", "}"):
        raise ConfigError(f"the template {text!r} has a stray {token}: write it twice if meant")
    if not token.startswith("{"):
        return _literal(token)
    field, *filters = (name.strip() for name in token[1:-1].split("|"))
    if field not in known:
        raise ConfigError(
            f"the template {text!r} has an unknown field {field!r}: use {', '.join(known)}"
        )
    fields.add(field)
    return _field(field, [_filter(name, text) for name in filters])


def _filter(name: str, text: str) -> Filter:
    try:
        return FILTERS[name]
    except KeyError:
        raise ConfigError(
            f"the template {text!r} has an unknown filter {name!r}: use {', '.join(FILTERS)}"
        ) from None


def _literal(text: str) -> Part:
    return lambda _event: text


def _field(name: str, filters: Sequence[Filter]) -> Part:
    read: Part = attrgetter(name)
    if not filters:
        return read

    def part(event: Queued) -> str:
        value = read(event)
        for change in filters:
            value = change(value)
        return value

    return part
