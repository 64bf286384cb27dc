"""What an answer means for a message."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from commitrelay.publisher import DELIVERED, Outcome, Refused, Unreachable
from commitrelay.urls import redact, scrub

SHOWN_CHARACTERS = 200
MOST_RETRY_AFTER_SECONDS = 3600.0

OF_THE_HOST = frozenset({429, 502, 503, 504})
"""What a host says of itself, whatever it was asked: no message is to blame."""

_ADVICE = {
    401: ": give the relay the right to post there (secret, bearer_token)",
    403: ": give the relay the right to post there (secret, bearer_token)",
    404: ": correct the URL or the route",
    410: ": the receiver wants no more events; remove the lane or correct the URL",
    413: ": store a reference instead of a large payload",
}


def outcome_of(
    where: str, status: int, headers: Mapping[str, str], body: bytes, now: datetime
) -> Outcome:
    """2xx is delivered; an answer about the host is an outage; all else refuses the message."""
    if 200 <= status < 300:
        return DELIVERED
    said = f"{where} answered {status}{_ADVICE.get(status, '')}"
    if 300 <= status < 400:
        target = redact(headers.get("location", ""))[:SHOWN_CHARACTERS]
        return Refused(f"{said}, a redirect to {target!r}, and none is followed: correct the URL")
    said += _excerpt(body)
    retry_after = retry_after_seconds(headers.get("retry-after"), now)
    if status in OF_THE_HOST:
        return Unreachable(said, retry_after)
    return Refused(said, retry_after)


def retry_after_seconds(text: str | None, now: datetime) -> float | None:
    """Seconds or a date, at most an hour; None if there is none that can be understood."""
    if text is None:
        return None
    try:
        seconds = float(text) if text.strip().isdigit() else _seconds_until(text, now)
    except (ValueError, OverflowError):
        return None
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), MOST_RETRY_AFTER_SECONDS)


def _seconds_until(text: str, now: datetime) -> float:
    moment = parsedate_to_datetime(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - now).total_seconds()


def _excerpt(body: bytes) -> str:
    text = " ".join(body[: 8 * SHOWN_CHARACTERS].decode(errors="replace").split())
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return f": {scrub(shown[:SHOWN_CHARACTERS])}" if shown else ""
