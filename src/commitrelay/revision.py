"""Revision: what an edited event becomes, checked before anything is changed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commitrelay.errors import CommitrelayError, InvalidEvent
from commitrelay.event import Event
from commitrelay.operations import Version
from commitrelay.store import UNREADABLE_HEADERS, EventRecord


class Unchanged(CommitrelayError):
    """The new version would be the old one."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What to change; None and nothing: leave it as it is."""

    payload: bytes | None = None
    content_type: str | None = None
    set_headers: Mapping[str, str] = field(default_factory=dict)
    remove_headers: tuple[str, ...] = ()

    def check(self) -> None:
        """`InvalidEvent` if no event whatever could have these headers."""
        Event("any", "1", "any", b"", headers=self.set_headers, content_type=self.content_type)

    def as_detail(self) -> dict[str, Any]:
        """What was asked for, as the audit keeps it: no payload, and no value of a header."""
        asked = {
            "payload": None if self.payload is None else f"{len(self.payload)} bytes",
            "content_type": self.content_type,
            "set_headers": list(self.set_headers),
            "remove_headers": list(self.remove_headers),
        }
        return {name: value for name, value in asked.items() if value}

    def of(self, event: EventRecord) -> Version:
        """The event's new version; `CommitrelayError` if it would be wrong, or the same."""
        old_payload = event.payload or b""
        payload = old_payload if self.payload is None else self.payload
        content_type = self.content_type or event.content_type
        headers = self._headers(event)
        removes = any(name in event.headers for name in self.remove_headers)
        touches_headers = bool(self.set_headers) or removes  # "1" is shown where 1 is stored
        if (payload, content_type) == (old_payload, event.content_type) and not touches_headers:
            raise Unchanged(f"event {event.id} stays as it is: nothing was edited")
        _check_json(event, payload, content_type)
        checked = Event(  # whatever an application may not add, an operator may not make
            event.aggregate_type,
            event.aggregate_id,
            event.event_type,
            payload,
            headers=headers,
            content_type=content_type,
        )
        return Version(payload, content_type, json.dumps(dict(checked.headers), ensure_ascii=False))

    def check_removals(self, event: EventRecord) -> None:
        """`CommitrelayError` if the event lacks a header that is to be removed."""
        unknown = [name for name in self.remove_headers if name not in event.headers]
        if unknown:
            raise CommitrelayError(f"event {event.id} has no header {unknown[0]!r} to remove")

    def _headers(self, event: EventRecord) -> dict[str, str]:
        dropped = (*self.remove_headers, UNREADABLE_HEADERS)
        kept = {name: value for name, value in event.headers.items() if name not in dropped}
        return {**kept, **self.set_headers}


def _check_json(event: EventRecord, payload: bytes, content_type: str) -> None:
    if not content_type.startswith("application/json") or payload == event.payload:
        return
    try:
        json.loads(payload)
    except ValueError as error:
        raise InvalidEvent(
            f"the payload is no JSON ({error}), but its content type says so: "
            "correct it, or change the content type as well"
        ) from None
