"""Format: event -> message. Here the plain one: the payload as it is, the rest as headers."""

from __future__ import annotations

import json
from collections.abc import Callable

from commitrelay.errors import InvalidEvent
from commitrelay.publisher import Message
from commitrelay.route import Route
from commitrelay.store import Queued

Composer = Callable[[Queued], Message]
"""What the relay calls for every event; an exception refuses that event."""

EVENT_ID = "event-id"
EVENT_TYPE = "event-type"
AGGREGATE_TYPE = "aggregate-type"
AGGREGATE_ID = "aggregate-id"
CONTENT_TYPE = "content-type"
CREATED_AT = "created-at"
IDEMPOTENCY_KEY = "idempotency-key"

OWN_HEADERS = frozenset(
    {EVENT_ID, EVENT_TYPE, AGGREGATE_TYPE, AGGREGATE_ID, CONTENT_TYPE, CREATED_AT}
)
"""Names that a user's header never overrides, in whatever case it is written."""

_OWN_AND_IDEMPOTENCY_KEY = OWN_HEADERS | {IDEMPOTENCY_KEY}

MAX_CACHED_KINDS = 4096

Header = tuple[str, str]
Kind = tuple[str, str, str]


class Plain:
    """The payload untouched, the key the aggregate's id, everything else in headers.

    They come in a fixed order: event-id, event-type, aggregate-type, aggregate-id,
    content-type, created-at, idempotency-key (where given), then the user's own.
    """

    __slots__ = ("_kinds", "_route", "_spread")

    def __init__(self, route: Route) -> None:
        self._route = route
        self._spread = route.spread
        self._kinds: dict[Kind, tuple[str, Header, Header, Header]] = {}

    def __call__(self, event: Queued) -> Message:
        # One call per event: what a kind of event has in common is made once, and a tuple is
        # taken apart faster than its attributes are looked up.
        (
            _seq,
            _key,
            _bucket,
            _state,
            _attempts,
            _blocked,
            event_id,
            aggregate_type,
            aggregate_id,
            event_type,
            payload,
            content_type,
            user_headers,
            idempotency_key,
            created_at,
        ) = event
        kind = (aggregate_type, event_type, content_type)
        shared = self._kinds.get(kind) or self._learn(kind, event)
        topic, type_header, aggregate_header, content_header = shared
        headers = [
            (EVENT_ID, event_id),
            type_header,
            aggregate_header,
            (AGGREGATE_ID, aggregate_id),
            content_header,
            (CREATED_AT, created_at),
        ]
        if idempotency_key is not None:
            headers.append((IDEMPOTENCY_KEY, idempotency_key))
        if user_headers != "{}":
            _append(headers, user_headers, event_id)
        if self._spread:
            topic = self._route(event)
        return Message(topic, aggregate_id, payload, headers, event_id)

    def _learn(self, kind: Kind, event: Queued) -> tuple[str, Header, Header, Header]:
        if len(self._kinds) >= MAX_CACHED_KINDS:
            self._kinds.clear()
        aggregate_type, event_type, content_type = kind
        shared = (
            self._route(event),
            (EVENT_TYPE, event_type),
            (AGGREGATE_TYPE, aggregate_type),
            (CONTENT_TYPE, content_type),
        )
        self._kinds[kind] = shared
        return shared


def _append(headers: list[Header], text: str, event_id: str) -> None:
    own = OWN_HEADERS if len(headers) == len(OWN_HEADERS) else _OWN_AND_IDEMPOTENCY_KEY
    for name, value in user_headers(text, event_id).items():
        if name.lower() not in own:
            headers.append((name, value))


def user_headers(text: str, event_id: str) -> dict[str, str]:
    """The headers column of an event, checked: a plain INSERT may have written anything."""
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidEvent(
            f"the headers of event {event_id} are not JSON: write an object of strings"
        ) from None
    if not isinstance(headers, dict):
        raise InvalidEvent(
            f"the headers of event {event_id} are a JSON {_json_type(headers)}: "
            "write an object of strings"
        )
    escaped = "\\" in text  # strict JSON has control characters and surrogates only as escapes
    for name, value in headers.items():
        if not isinstance(value, str):
            raise InvalidEvent(
                f"header {name!r} of event {event_id} is a JSON {_json_type(value)}: "
                "write it as a string"
            )
        if not name:
            raise InvalidEvent(f"a header of event {event_id} has an empty name: give it one")
        if escaped:
            _check_text(name, value, event_id)
    return headers


def _check_text(name: str, value: str, event_id: str) -> None:
    text = name + value
    if "\x00" in text or "\r" in text or "\n" in text:
        raise InvalidEvent(
            f"header {name!r} of event {event_id} contains a NUL, CR or LF character: "
            "remove or encode it"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(
            f"header {name!r} of event {event_id} contains a lone surrogate, which is not valid "
            "Unicode: remove or encode it"
        ) from None


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
