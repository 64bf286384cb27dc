"""Template: text with fields of something in it. No I/O.

{aggregate_type|kebab}.events        OrderItem -> order-item.events
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter

from commitrelay.errors import ConfigError

EVENT_FIELDS = ("aggregate_type", "aggregate_id", "event_type")

_TOKEN = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]|[^{}]+")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[\s_-]+")

Filter = Callable[[str], str]
Part = Callable[[object], str]


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

    def __init__(self, text: str, known: Sequence[str] = EVENT_FIELDS) -> None:
        if not isinstance(text, str) or not text:
            raise ConfigError(f"a template must be a text that is not empty, not {text!r}")
        self.text = text
        fields: set[str] = set()
        self._parts = [_part(token, text, known, fields) for token in _TOKEN.findall(text)]
        self.fields = frozenset(fields)

    def __call__(self, event: object) -> str:
        return "".join([part(event) for part in self._parts])

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


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

    def part(event: object) -> str:
        value = read(event)
        for change in filters:
            value = change(value)
        return value

    return part
