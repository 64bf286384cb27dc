"""Plain: the payload as it is, the rest as headers."""

from __future__ import annotations

from commitrelay.format.headers import Header, user_headers
from commitrelay.publisher import Message
from commitrelay.route import Route
from commitrelay.store import Queued

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

Kind = tuple[str, str, str]

new_message = tuple.__new__
"""As `Message(…)`, without the call in between that names its fields."""


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
        return new_message(Message, (topic, aggregate_id, payload, headers, event_id))

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
