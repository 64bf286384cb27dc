"""Received: an event as a handler gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Received(Generic[P]):
    """One event as it arrived.

    ``payload`` is what the handler's annotation says, ``Received[OrderPaid]``: an instance of a
    dataclass, a pydantic model or a msgspec Struct. Without one it is what the JSON says, the text,
    or the bytes, by the content type. ``raw`` are the bytes in any case. ``headers`` are those that
    the producer added. ``attempt`` is 1 the first time.
    """

    id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    payload: P
    raw: bytes
    content_type: str
    headers: Mapping[str, str]
    created_at: datetime | None
    idempotency_key: str | None
    topic: str
    attempt: int = 1


AnyReceived = Received[Any]
