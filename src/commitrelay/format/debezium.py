"""Debezium: the messages that Debezium's Outbox Event Router would emit, by the same options.

The topic is routed by a column (`outbox.event.<aggregatetype>`), the key is the aggregate's id, the
header `id` the event's id, the value the payload as Kafka Connect's StringConverter or
JsonConverter writes it. After Debezium's headers come the idempotency key and the user's own,
which have no counterpart in Debezium's table.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from commitrelay.errors import InvalidEvent
from commitrelay.format.connect_json import (
    INT64,
    JSON_TEXT,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    STRING,
    TIMESTAMP,
    UUID,
    NotExpandable,
    Schema,
    expanded,
    struct,
    written,
)
from commitrelay.format.content import carried_by
from commitrelay.format.debezium_options import HEADER, DebeziumOptions, Placement
from commitrelay.format.headers import Header, user_headers
from commitrelay.mention import key_of, mention
from commitrelay.publisher import TOMBSTONE, Message, StampedMessage
from commitrelay.store import Queued

logger = logging.getLogger("commitrelay.debezium")

ID = "id"
IDEMPOTENCY_KEY = "idempotency-key"
MAX_KINDS_WARNED_OF = 1000

_BLANK = bytes(range(0x21))  # what Java's trim() takes away

Users = Mapping[str, str]
Column = tuple[str, Schema]

COLUMNS: dict[str, Column] = {
    "id": ("id", UUID),
    "aggregatetype": ("aggregate_type", STRING),
    "aggregateid": ("aggregate_id", STRING),
    "type": ("event_type", STRING),
    "timestamp": ("created_at", TIMESTAMP),
    "contenttype": ("content_type", STRING),
    "idempotencykey": ("idempotency_key", OPTIONAL_STRING),
    "seq": ("seq", INT64),
}
"""By Debezium's names; ours, with underscores, do as well. Other names are the user's headers."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OURS = {"event_type": "type", "created_at": "timestamp"}


class Debezium:
    """Composes messages as the Outbox Event Router does; `options` are those of `[debezium]`."""

    __slots__ = ("_chosen", "_envelope", "_headers", "_placed", "_routed_by", "_warned_of")

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self._chosen = DebeziumOptions(options or {})
        self._routed_by = _column(self._chosen.route_by, "routes by", required=True)
        required = self._chosen.missing_is_error
        placed = [
            (each, _column(each.column, "places", required=required))
            for each in self._chosen.placements
        ]
        self._headers = [pair for pair in placed if pair[0].where == HEADER]
        self._envelope = [pair for pair in placed if pair[0].where != HEADER]
        self._placed = {_plain(each.column) for each in self._chosen.placements}
        self._warned_of: set[tuple[str, str]] = set()

    def __call__(self, event: Queued) -> Message:
        users = user_headers(event.headers, event.id) if event.headers != "{}" else {}
        routed_by = self._routed_by(event, users)
        headers: list[Header] = [(ID, event.id)]
        for placement, column in self._headers:
            value = column(event, users)
            if value is not None:
                headers.append((placement.alias, str(value)))
        if event.idempotency_key is not None and "idempotencykey" not in self._placed:
            headers.append((IDEMPOTENCY_KEY, event.idempotency_key))
        if users:
            self._append(headers, users)
        topic, key = self._chosen.topic(routed_by), self._key(event.aggregate_id)
        value = self._value(event, users, routed_by)
        if not self._chosen.stamps:
            return Message(topic, key, value, headers, event.id)
        message = StampedMessage(topic, key, value, headers, event.id)
        message.stamp_ms = _milliseconds(event.created_at)
        return message

    def _append(self, headers: list[Header], users: Users) -> None:
        taken = {name.lower() for name, _ in headers}
        for name, value in users.items():
            if name.lower() not in taken and _plain(name) not in self._placed:
                headers.append((name, value))

    def _key(self, aggregate_id: str) -> str:
        if not self._chosen.json_key:
            return aggregate_id
        return str(written(aggregate_id, STRING, with_schema=self._chosen.key_schema), "utf-8")

    def _value(self, event: Queued, users: Users, routed_by: str) -> bytes:
        payload = event.payload
        if self._chosen.tombstones and not payload.strip(_BLANK):
            return TOMBSTONE
        if not self._chosen.json_value:
            return payload
        value, schema = self._payload(event)
        if self._envelope:
            value = {"payload": value}
            fields = {"payload": schema}
            for placement, column in self._envelope:
                value[placement.alias] = column(event, users)
                fields[placement.alias] = _schema(placement)
            schema = struct(fields, f"{routed_by}.Value", optional=False)
        return written(value, schema, with_schema=self._chosen.value_schema)

    def _payload(self, event: Queued) -> tuple[Any, Schema]:
        carried = carried_by(event.content_type)
        text: str | None = None
        if carried != "binary":
            try:
                text = str(event.payload, "utf-8")
            except UnicodeDecodeError:
                text = None
        if text is None:
            return b64encode(event.payload).decode(), OPTIONAL_BYTES
        if self._chosen.expands:
            try:
                return expanded(text, null_as_bytes=self._chosen.null_as_bytes)
            except NotExpandable as error:
                self._warn(event, str(error))
        return text, JSON_TEXT if carried == "json" else OPTIONAL_STRING

    def _warn(self, event: Queued, reason: str) -> None:
        """Once for each kind of event, for they come by the thousand."""
        kind = (event.aggregate_type, event.event_type)
        if kind not in self._warned_of and len(self._warned_of) < MAX_KINDS_WARNED_OF:
            self._warned_of.add(kind)
            logger.warning(
                "the payload of event %s (%s.%s) is sent as text and not expanded: %s",
                event.id, *kind, reason,
                extra=mention(event.id, key_of(event.aggregate_type, event.aggregate_id)),
            )  # fmt: skip


def _column(name: str, verb: str, *, required: bool) -> Callable[[Queued, Users], Any]:
    known = COLUMNS.get(_plain(name))
    if known is not None:
        position = Queued._fields.index(known[0])
        return lambda event, _users: event[position]

    def header(event: Queued, users: Users) -> str | None:
        value = users.get(name)
        if value is None and required:
            raise InvalidEvent(
                f"event {event.id} has no header {name!r}, and the outbox no such column, but "
                f"[debezium] {verb} it: write the header, or name another column"
            )
        return value

    return header


def _milliseconds(created_at: str) -> int:
    return (datetime.fromisoformat(created_at) - _EPOCH) // timedelta(milliseconds=1)


def _schema(placement: Placement) -> Schema:
    known = COLUMNS.get(_plain(placement.column))
    return OPTIONAL_STRING if known is None else known[1]


def _plain(name: str) -> str:
    """`aggregate_type` and `aggregatetype` are one column."""
    lower = name.lower()
    return _OURS.get(lower) or lower.replace("_", "")
