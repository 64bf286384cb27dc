"""Event: what happened to one aggregate, as a value. No I/O."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, SafeUUID, uuid5

from commitrelay.errors import InvalidEvent

NAMESPACE = UUID("6f8f1d3e-3c53-5d0e-9a51-0c1b6c5f7a10")
"""The namespace of the ids that are derived from idempotency keys."""

MAX_NAME_LENGTH = 255
"""Characters in an aggregate type, aggregate id, event type or idempotency key."""

JSON_CONTENT_TYPE = "application/json"
TEXT_CONTENT_TYPE = "text/plain; charset=utf-8"
BYTES_CONTENT_TYPE = "application/octet-stream"

_FORBIDDEN = {"\x00": "NUL", "\r": "CR", "\n": "LF"}
_set = object.__setattr__
_find_forbidden = re.compile("[\x00\r\n\ud800-\udfff]").search


@dataclass(frozen=True, slots=True)
class Event:
    """One fact about one aggregate, delivered after your transaction commits.

    ``payload`` travels as it is if it is ``bytes``, as UTF-8 if it is ``str``, else as JSON.
    Events of the same ``(aggregate_type, aggregate_id)`` are delivered in the order in which
    they were added. With an ``idempotency_key``, an event added twice is added once.
    ``deliver_at`` (timezone-aware) delays the delivery.
    """

    aggregate_type: str
    aggregate_id: str | int | UUID
    event_type: str
    payload: Any
    _: KW_ONLY
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str | None = None
    deliver_at: datetime | None = None
    id: UUID | None = None
    content_type: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.aggregate_id, (int, UUID)) and not isinstance(self.aggregate_id, bool):
            _set(self, "aggregate_id", str(self.aggregate_id))
        _set(self, "headers", _checked_headers(self.headers))
        _check_name("aggregate_type", self.aggregate_type)
        _check_name("aggregate_id", self.aggregate_id)
        _check_name("event_type", self.event_type)
        if self.idempotency_key is not None:
            _check_name("idempotency_key", self.idempotency_key)
        if self.content_type is not None:
            _check_name("content_type", self.content_type)
        if self.deliver_at is not None:
            _check_deliver_at(self.deliver_at)
        if self.id is None:
            _set(self, "id", _new_id(self.idempotency_key))
        elif not isinstance(self.id, UUID):
            raise InvalidEvent(f"id must be a uuid.UUID, not {type(self.id).__name__}")

    def encoded(self) -> tuple[bytes, str]:
        """The payload as bytes, and its content type."""
        body, natural_type = _encode(self.payload)
        return body, self.content_type or natural_type


def uuid7() -> UUID:
    """A new time-ordered id (RFC 9562, version 7): neighbours in time are neighbours on disk."""
    milliseconds = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & 0xFFFFFFFFFFFF) << 80
    value |= 0x7000 << 64 | (noise >> 68 & 0xFFF) << 64
    value |= 0x2 << 62 | noise & 0x3FFFFFFFFFFFFFFF
    new = object.__new__(UUID)  # its constructor would check for half of the time that this takes
    _set(new, "int", value)
    _set(new, "is_safe", SafeUUID.unknown)
    return new


def _new_id(idempotency_key: str | None) -> UUID:
    return uuid7() if idempotency_key is None else uuid5(NAMESPACE, idempotency_key)


def _check_name(name: str, value: object) -> None:
    if type(value) is str and value.isprintable() and 0 < len(value) <= MAX_NAME_LENGTH:
        return  # as nearly all are: what is forbidden is not printable
    if not isinstance(value, str):
        raise InvalidEvent(f"{name} must be a str, not {type(value).__name__}")
    if not value:
        raise InvalidEvent(f"{name} is empty: every event needs one")
    if len(value) > MAX_NAME_LENGTH:
        raise InvalidEvent(
            f"{name} has {len(value)} characters, the limit is {MAX_NAME_LENGTH}: "
            "use a shorter name or a hash of it"
        )
    _check_text(name, value)


def _check_text(name: str, value: str) -> None:
    found = _find_forbidden(value)
    if found is None:
        return
    label = _FORBIDDEN.get(found[0])
    if label is not None:
        raise InvalidEvent(f"{name} contains a {label} character: remove or encode it")
    raise InvalidEvent(
        f"{name} contains a lone surrogate, which is not valid Unicode: remove or encode it"
    )


def _checked_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, (dict, Mapping)):
        raise InvalidEvent(f"headers must be a mapping of str to str, not {headers!r:.60}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidEvent(f"header {name!r} must map a str to a str: convert it first")
        if not name:
            raise InvalidEvent("a header has an empty name: give it one")
        _check_text("a header's name", name)
        _check_text(f"header {name!r}", value)
    return dict(headers)


def _check_deliver_at(deliver_at: object) -> None:
    if not isinstance(deliver_at, datetime):
        raise InvalidEvent(f"deliver_at must be a datetime, not {type(deliver_at).__name__}")
    if deliver_at.utcoffset() is None:
        raise InvalidEvent(
            "deliver_at has no time zone, so nobody can tell when that is: "
            "use datetime.now(timezone.utc) + timedelta(…)"
        )


def _encode(payload: Any) -> tuple[bytes, str]:
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload), BYTES_CONTENT_TYPE
    try:
        if isinstance(payload, str):
            return payload.encode(), TEXT_CONTENT_TYPE
        return _to_json(payload).encode(), JSON_CONTENT_TYPE
    except UnicodeEncodeError:
        raise InvalidEvent(
            "payload contains a lone surrogate, which is not valid Unicode: pass bytes instead"
        ) from None
    except ValueError as error:
        raise InvalidEvent(
            f"payload cannot be written as JSON ({error}): replace NaN and infinity by null"
        ) from None
    except RecursionError:
        raise InvalidEvent(
            "payload cannot be written as JSON (it contains itself, or is nested too deeply): "
            "flatten it, or pass bytes or str"
        ) from None
    except TypeError as error:
        raise InvalidEvent(
            f"payload cannot be written as JSON ({error}): convert it, or pass bytes or str"
        ) from None


def _as_json(value: object) -> str:
    """What JSON has no type for, and everybody writes as a string."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    raise TypeError(f"a {type(value).__name__} is not serialisable")


def _json_writer() -> Callable[[Any], str]:
    """As the `encode` of a JSONEncoder, which sets its C half up anew for every call."""
    encoder = json.JSONEncoder(
        allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_as_json
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    # Without markers it keeps no state; what contains itself ends as a RecursionError.
    text = json.encoder.encode_basestring
    pieces = make(None, encoder.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(pieces(value, 0))


_to_json = _json_writer()
