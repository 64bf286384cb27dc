"""Route: event -> topic, by a template or by a mapping of templates. No I/O.

A template is text with fields in braces, each followed by any number of filters::

    {aggregate_type|kebab}.events        OrderItem -> order-item.events

A mapping picks the template by aggregate and event type; the most specific entry wins::

    {"Order": "orders", "Order.OrderPaid": "payments", "*": "{aggregate_type|lower}.events"}
"""

from __future__ import annotations

from collections.abc import Mapping

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.store import Queued
from commitrelay.template import Template

DEFAULT_TOPIC = "{aggregate_type|lower}.events"

MAX_CACHED_TOPICS = 4096


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
