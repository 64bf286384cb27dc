"""A message as an HTTP request: its URL and its headers."""

from __future__ import annotations

import re
from urllib.parse import quote

from commitrelay.publisher import Message
from commitrelay.publishers.http.settings import TOPIC_FIELD

TOPIC = "commitrelay-topic"
KEY = "commitrelay-key"
IDEMPOTENCY_KEY = "idempotency-key"
CONTENT_TYPE = "content-type"

NOT_FOR_EVENTS = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te"),
        *("trailer", "upgrade", "expect", "authorization", "cookie", "user-agent"),
        *("accept-encoding", TOPIC, KEY),
    }
)
"""What belongs to the connection or to the relay: an event's header of that name is left out."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_AS_IT_IS = re.compile(r"[!-~]([ -~]*[!-~])?|")
_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
_SAFE = _VISIBLE.replace("%", "")


class Unsendable(ValueError):
    """The message cannot be an HTTP request; the text says why."""


def target_of(template: str, topic: str) -> str:
    """Path and query, with the topic in it where the template asks for it."""
    if topic in ("", ".", ".."):
        # A server would take it for a step in the path, and the event to another address.
        raise Unsendable(f"topic {topic!r} cannot be a part of a path: choose another route")
    return template.replace(TOPIC_FIELD, quote(topic, safe=""))


def headers_of(message: Message) -> dict[str, str]:
    """The event's headers, its topic and key, and an idempotency key."""
    headers = {
        TOPIC: quote(message.topic, safe=_SAFE),
        KEY: quote(message.key, safe=_SAFE),
        IDEMPOTENCY_KEY: message.event_id,
        CONTENT_TYPE: "application/octet-stream",
    }
    for name, value in message.headers:
        lower = name.lower()
        if lower in NOT_FOR_EVENTS or lower.startswith(("webhook-", "proxy-")):
            continue
        if not _TOKEN.fullmatch(name):
            raise Unsendable(f"header {name!r} cannot be the name of an HTTP header: rename it")
        headers[lower] = _value(value)
    return headers


def _value(value: str) -> str:
    """Printable ASCII as it is; anything else percent-encoded, because headers cannot hold it."""
    return value if _AS_IT_IS.fullmatch(value) else quote(value, safe=_SAFE)
