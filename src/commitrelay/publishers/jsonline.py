"""A message as one line of JSON, and back, byte for byte.

The payload is a string where it is UTF-8 (``payload``), else base64 (``payload_base64``). Headers
are an object, or a list of pairs if a name occurs twice.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

from commitrelay.publisher import Message

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def encode_line(message: Message) -> bytes:
    """The message as JSON with a newline at its end and none inside."""
    topic, key, value, headers, event_id = message
    line: dict[str, object] = {"id": event_id, "topic": topic, "key": key}
    by_name = dict(headers)
    line["headers"] = by_name if len(by_name) == len(headers) else headers
    try:
        line["payload"] = str(value, "utf-8")
    except UnicodeDecodeError:
        line["payload_base64"] = b64encode(value).decode()
    return _encode(line).encode() + b"\n"


def decode_line(line: bytes) -> Message:
    """The message of a line; `ValueError` or `KeyError` if it is none."""
    fields = json.loads(line)
    headers = fields["headers"]
    pairs = headers.items() if isinstance(headers, dict) else headers
    encoded = fields.get("payload_base64")
    value = fields["payload"].encode() if encoded is None else b64decode(encoded, validate=True)
    return Message(
        topic=fields["topic"],
        key=fields["key"],
        value=value,
        headers=[(name, text) for name, text in pairs],
        event_id=fields["id"],
    )
