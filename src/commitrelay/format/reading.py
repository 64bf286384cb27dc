"""Reading: message -> event, the way back from what the formats write.

`auto` tells the format of each message by its headers: `event-id` is plain, `ce_id` and the like
or a content type of CloudEvents is CloudEvents, `id` is Debezium.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import unquote

from commitrelay.errors import InvalidEvent
from commitrelay.event import BYTES_CONTENT_TYPE, JSON_CONTENT_TYPE
from commitrelay.format.binding import BINDINGS
from commitrelay.format.connect_json import to_json
from commitrelay.format.content import carried_by
from commitrelay.format.debezium_reading import read_debezium
from commitrelay.format.plain import (
    AGGREGATE_ID,
    AGGREGATE_TYPE,
    CONTENT_TYPE,
    CREATED_AT,
    EVENT_ID,
    EVENT_TYPE,
    IDEMPOTENCY_KEY,
    OWN_HEADERS,
)
from commitrelay.format.read import Headers, Read
from commitrelay.source import Arrival

FormatName = Literal["auto", "plain", "cloudevents", "debezium"]
Reader = Callable[[Arrival], Read]

_PREFIXES = ("ce_", "ce-", "cloudevents:", "cloudevents_")
_STRUCTURED = "application/cloudevents+json"
_OUR_SOURCE = re.compile(r"/commitrelay/([^/]+)")
_ATTRIBUTES = frozenset(
    {
        "specversion", "id", "source", "type", "subject", "time", "datacontenttype",
        "partitionkey", "idempotencykey", "data", "data_base64", "dataschema",
    }
)  # fmt: skip
_TRACE = frozenset({"traceparent", "tracestate"})


def reader(name: FormatName, binding: str = "none") -> Reader:
    """What reads messages of that format; `binding` is that of the broker, for CloudEvents."""
    encoded = BINDINGS[binding].percent_encoded

    def cloudevents(arrival: Arrival) -> Read:
        return read_cloudevents(arrival, Headers(arrival.headers), percent_encoded=encoded)

    readers: Mapping[str, Reader] = {
        "plain": lambda arrival: read_plain(arrival, Headers(arrival.headers)),
        "cloudevents": cloudevents,
        "debezium": lambda arrival: read_debezium(arrival, Headers(arrival.headers)),
        "auto": lambda arrival: readers[_told_by(Headers(arrival.headers))](arrival),
    }
    return readers[name]


def _told_by(headers: Headers) -> str:
    if EVENT_ID in headers:
        return "plain"
    if _is_structured(headers) or _prefix(headers) is not None:
        return "cloudevents"
    if "id" in headers:
        return "debezium"
    raise InvalidEvent(
        "the message has neither the headers of the plain format, nor those of CloudEvents or "
        "Debezium, so nobody can tell which event it is"
    )


def read_plain(arrival: Arrival, headers: Headers) -> Read:
    return Read(
        id=headers.required(EVENT_ID),
        event_type=headers.get(EVENT_TYPE, ""),
        aggregate_type=headers.get(AGGREGATE_TYPE, ""),
        aggregate_id=headers.get(AGGREGATE_ID, arrival.key),
        payload=arrival.value,
        content_type=headers.get(CONTENT_TYPE, ""),
        headers=headers.without(OWN_HEADERS | {IDEMPOTENCY_KEY}),
        created_at=headers.get(CREATED_AT),
        idempotency_key=headers.get(IDEMPOTENCY_KEY),
    )


# --- CloudEvents ---------------------------------------------------------------------------


def read_cloudevents(arrival: Arrival, headers: Headers, *, percent_encoded: bool) -> Read:
    prefix = _prefix(headers)
    if prefix is None or _is_structured(headers):
        attributes = _parsed_structure(arrival.value)
        payload, content_type = _data(attributes)
        users = headers.without({CONTENT_TYPE})
    else:
        attributes = headers.with_prefix(prefix)
        if percent_encoded or "datacontenttype" in attributes:
            attributes = {name: unquote(value) for name, value in attributes.items()}
        payload = arrival.value
        content_type = attributes.get("datacontenttype") or headers.get(CONTENT_TYPE, "")
        own = {CONTENT_TYPE, *(f"{prefix}{name}" for name in attributes)}
        users = headers.without(own)
    return _from_attributes(attributes, arrival, payload, content_type, users)


def _from_attributes(
    attributes: Mapping[str, Any],
    arrival: Arrival,
    payload: bytes,
    content_type: str,
    users: dict[str, str],
) -> Read:
    for name, value in attributes.items():
        if name in _TRACE:
            users.setdefault(name, str(value))
        elif name not in _ATTRIBUTES:
            users.setdefault(f"ce-{name}", str(value))
    event_id, event_type = attributes.get("id"), attributes.get("type")
    if not event_id or not event_type:
        raise InvalidEvent("the message is not a CloudEvent: it has no id or no type")
    source = str(attributes.get("source", ""))
    ours = _OUR_SOURCE.fullmatch(source)
    key = attributes.get("partitionkey") or attributes.get("subject") or arrival.key
    return Read(
        id=str(event_id),
        event_type=str(event_type),
        aggregate_type=unquote(ours[1]) if ours else source,
        aggregate_id=str(attributes.get("subject") or key),
        payload=payload,
        content_type=content_type,
        headers=users,
        created_at=attributes.get("time"),
        idempotency_key=attributes.get("idempotencykey"),
    )


def _parsed_structure(value: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidEvent("the message is not a CloudEvent: its value is no JSON object")
    return parsed


def _data(attributes: Mapping[str, Any]) -> tuple[bytes, str]:
    """The payload of a structured event, and what it is."""
    content_type = str(attributes.get("datacontenttype") or "")
    if "data_base64" in attributes:
        try:
            return b64decode(attributes["data_base64"], validate=True), content_type or (
                BYTES_CONTENT_TYPE
            )
        except (ValueError, TypeError):
            raise InvalidEvent("the data_base64 of the CloudEvent is not base64") from None
    if "data" not in attributes:
        return b"", content_type
    data = attributes["data"]
    is_json = not content_type or carried_by(content_type) == "json"
    if isinstance(data, str) and not is_json:
        return data.encode(), content_type
    return to_json(data).encode(), content_type or JSON_CONTENT_TYPE


def _prefix(headers: Headers) -> str | None:
    return next((prefix for prefix in _PREFIXES if f"{prefix}id" in headers), None)


def _is_structured(headers: Headers) -> bool:
    return headers.get(CONTENT_TYPE, "").lower().startswith(_STRUCTURED)
