"""Format: event -> message. A composer is any callable that does it; these come with us.

plain.py        the payload as it is, the rest as headers (the default)
cloudevents.py  CloudEvents 1.0, binary or structured
debezium.py     what Debezium's Outbox Event Router would emit
choice.py       which of them, by name
"""

from __future__ import annotations

from collections.abc import Callable

from commitrelay.format.plain import (
    AGGREGATE_ID,
    AGGREGATE_TYPE,
    CONTENT_TYPE,
    CREATED_AT,
    EVENT_ID,
    EVENT_TYPE,
    IDEMPOTENCY_KEY,
    MAX_CACHED_KINDS,
    OWN_HEADERS,
    Plain,
)
from commitrelay.publisher import Message
from commitrelay.store import Queued

Composer = Callable[[Queued], Message]
"""What the relay calls for every event; an exception refuses that event."""

__all__ = [
    "AGGREGATE_ID",
    "AGGREGATE_TYPE",
    "CONTENT_TYPE",
    "CREATED_AT",
    "EVENT_ID",
    "EVENT_TYPE",
    "IDEMPOTENCY_KEY",
    "MAX_CACHED_KINDS",
    "OWN_HEADERS",
    "Composer",
    "Plain",
]
