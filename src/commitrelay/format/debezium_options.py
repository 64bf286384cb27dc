"""DebeziumOptions: the Outbox Event Router's options, by its own names, as far as they apply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from commitrelay.errors import ConfigError
from commitrelay.format.options import FormatOptions
from commitrelay.format.topic_router import TopicRouter

TABLE = "debezium"
HEADER, ENVELOPE, PARTITION = "header", "envelope", "partition"
STRING_CONVERTER = "StringConverter"
JSON_CONVERTER = "JsonConverter"
CONVERTERS = {
    STRING_CONVERTER: STRING_CONVERTER,
    "org.apache.kafka.connect.storage.StringConverter": STRING_CONVERTER,
    JSON_CONVERTER: JSON_CONVERTER,
    "org.apache.kafka.connect.json.JsonConverter": JSON_CONVERTER,
}

TIMES = ("timestamp", "created_at")

_FIXED = "the columns of the outbox have their names"
NOT_HERE = {
    "table.field.event.id": _FIXED,
    "table.field.event.key": "the key is the aggregate's id, for order is kept by it",
    "table.field.event.payload": _FIXED,
    "table.field.event.type": _FIXED,
    "table.field.event.schema.version": "the outbox has no such column",
    "table.op.invalid.behavior": "nothing but inserted events is ever read",
    "tracing.span.context.field": "traceparent and the like travel as headers of the event",
    "tracing.operation.name": "traceparent and the like travel as headers of the event",
    "tracing.with.context.field.only": "traceparent and the like travel as headers of the event",
}
"""Options that Debezium has and this does not, and why."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one more column goes, and under which name."""

    column: str
    where: str
    alias: str


class DebeziumOptions:
    def __init__(self, options: Mapping[str, str]) -> None:
        given = FormatOptions(TABLE, options)
        given.refuse(NOT_HERE)
        self.route_by = given.text("route.by.field", "aggregatetype")
        self.topic = TopicRouter(
            given.text("route.topic.regex", "(?<routedByValue>.*)"),
            given.text("route.topic.replacement", "outbox.event.${routedByValue}"),
        )
        self.tombstones = given.boolean("route.tombstone.on.empty.payload", False)
        self.placements = _placements(given.text("table.fields.additional.placement", ""))
        missing = given.choice("table.field.additional.missing", "error", ("error", "ignore"))
        self.missing_is_error = missing == "error"
        stamp = given.text("table.field.event.timestamp", "")
        if stamp not in ("", *TIMES):
            raise given.wrong("table.field.event.timestamp", stamp, " or ".join(TIMES))
        self.stamps = bool(stamp)
        self.expands = given.boolean("table.expand.json.payload", False)
        nulls = given.choice(
            "table.json.payload.null.behavior", "ignore", ("ignore", "optional_bytes")
        )
        self.null_as_bytes = nulls == "optional_bytes"
        self.json_key, self.key_schema = _converter(given, "key")
        self.json_value, self.value_schema = _converter(given, "value")
        given.refuse_unknown()
        self._check()

    def _check(self) -> None:
        if self.json_value:
            return
        if self.expands:
            raise _needs_json("table.expand.json.payload")
        if any(placement.where == ENVELOPE for placement in self.placements):
            raise _needs_json("a placement in the envelope")


def _converter(given: FormatOptions, side: str) -> tuple[bool, bool]:
    """Whether it is JSON, and with a schema."""
    name = f"{side}.converter"
    kind = CONVERTERS[given.choice(name, STRING_CONVERTER, tuple(CONVERTERS))]
    return kind == JSON_CONVERTER, given.boolean(f"{name}.schemas.enable", True)


def _placements(text: str) -> tuple[Placement, ...]:
    return tuple(_placement(part.strip()) for part in text.split(",") if part.strip())


def _placement(text: str) -> Placement:
    column, *rest = (part.strip() for part in text.split(":"))
    where = rest[0].lower() if rest else ""
    if where == PARTITION:
        raise ConfigError(
            f"[{TABLE}] table.fields.additional.placement: {text!r} cannot be used: the partition "
            "follows from the key, for order is kept by it"
        )
    if not column or len(rest) not in (1, 2) or where not in (HEADER, ENVELOPE) or not all(rest):
        raise ConfigError(
            f"[{TABLE}] table.fields.additional.placement: {text!r} is not column:header, "
            "column:envelope or column:header:alias"
        )
    return Placement(column, where, rest[1] if len(rest) == 2 else column)


def _needs_json(what: str) -> ConfigError:
    return ConfigError(
        f"[{TABLE}] {what} needs value.converter = {JSON_CONVERTER!r}: a text has no fields"
    )
