"""The way back from what Debezium's Outbox Event Router emits, or our format of that name.

The router leaves most columns out unless it is told to place them. So the event's type is looked
for among the headers and in the envelope under the names that people give it, and the aggregate's
type also in the topic.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

from commitrelay.errors import InvalidEvent
from commitrelay.event import BYTES_CONTENT_TYPE, JSON_CONTENT_TYPE, TEXT_CONTENT_TYPE
from commitrelay.format.connect_json import to_json
from commitrelay.format.read import Headers, Read
from commitrelay.source import Arrival

EVENT_TYPES = ("eventtype", "event_type", "event-type", "type")
AGGREGATE_TYPES = ("aggregatetype", "aggregate_type", "aggregate-type")
CONTENT_TYPES = ("content-type", "contenttype", "content_type")
TIMES = ("timestamp", "created_at", "created-at")
KEYS = ("idempotency-key", "idempotencykey", "idempotency_key")
TOPIC_PREFIX = "outbox.event."

_OWN = {"id", *EVENT_TYPES, *AGGREGATE_TYPES, *CONTENT_TYPES, *TIMES, *KEYS}


def read_debezium(arrival: Arrival, headers: Headers) -> Read:
    payload, content_type, envelope = _payload(arrival.value)
    placed = {name.lower(): str(value) for name, value in envelope.items() if value is not None}
    fields = Headers([*headers.without(()).items(), *placed.items()])
    return Read(
        id=headers.required("id"),
        event_type=fields.first_of(EVENT_TYPES) or "",
        aggregate_type=fields.first_of(AGGREGATE_TYPES) or arrival.topic.removeprefix(TOPIC_PREFIX),
        aggregate_id=_key(arrival.key),
        payload=payload,
        content_type=fields.first_of(CONTENT_TYPES) or content_type,
        headers=headers.without(_OWN),
        created_at=fields.first_of(TIMES),
        idempotency_key=fields.first_of(KEYS),
    )


def _key(text: str) -> str:
    """As the StringConverter writes it, or the JsonConverter, with its schema or without."""
    if not text.startswith(('{"schema":', '"')):
        return text
    value = _json(text)
    if isinstance(value, dict) and set(value) == {"schema", "payload"}:
        value = value["payload"]
    return value if isinstance(value, str) else text


def _payload(value: bytes) -> tuple[bytes, str, dict[str, Any]]:
    """The event's payload, what it is if that can be told, and the columns around it."""
    parsed = _json(value) if value[:1] in (b"{", b'"') else None
    if isinstance(parsed, dict) and set(parsed) == {"schema", "payload"}:
        schema = parsed["schema"]
        if isinstance(schema, dict) and "type" in schema:
            return _by_schema(parsed["payload"], schema)
    if isinstance(parsed, dict) and "payload" in parsed and _names_a_type(parsed):
        inner, content_type = _unwrapped(parsed["payload"])
        return inner, content_type, parsed
    if isinstance(parsed, str) and isinstance(_json(parsed), (dict, list)):
        return parsed.encode(), JSON_CONTENT_TYPE, {}
    return value, "", {}


def _by_schema(value: Any, schema: dict[str, Any]) -> tuple[bytes, str, dict[str, Any]]:
    fields = {field.get("field"): field for field in schema.get("fields", ())}
    if isinstance(value, dict) and "payload" in fields and len(fields) > 1:
        payload, content_type, _ = _by_schema(value["payload"], fields["payload"])
        return payload, content_type, value
    if schema["type"] == "bytes" and isinstance(value, str):
        try:
            return b64decode(value, validate=True), BYTES_CONTENT_TYPE, {}
        except ValueError:
            raise InvalidEvent("the message's payload is not base64, as its schema says") from None
    if schema["type"] == "string" and isinstance(value, str):
        is_json = schema.get("name") == "io.debezium.data.Json"
        return value.encode(), JSON_CONTENT_TYPE if is_json else TEXT_CONTENT_TYPE, {}
    return to_json(value).encode(), JSON_CONTENT_TYPE, {}


def _names_a_type(envelope: dict[str, Any]) -> bool:
    return not {name.lower() for name in envelope}.isdisjoint(EVENT_TYPES)


def _unwrapped(value: Any) -> tuple[bytes, str]:
    if isinstance(value, str):
        is_json = isinstance(_json(value), (dict, list))
        return value.encode(), JSON_CONTENT_TYPE if is_json else ""
    return to_json(value).encode(), JSON_CONTENT_TYPE


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
