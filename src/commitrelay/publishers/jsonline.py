"""A message as one line of JSON, and back, byte for byte.

The payload is a string where it is UTF-8 (``payload``), else base64 (``payload_base64``); null is
a tombstone. Headers are an object, or a list of pairs if a name occurs twice.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from json.encoder import encode_basestring as quoted

from commitrelay.publisher import TOMBSTONE, Message

_CONTROL = bytes(range(32))


def encode_line(message: Message) -> bytes:
    """The message as JSON with a newline at its end and none inside."""
    # Put together by hand: JSONEncoder.encode takes half as long again.
    topic, key, value, headers, event_id = message
    head = (
        f'{{"id":{quoted(event_id)},"topic":{quoted(topic)},"key":{quoted(key)},'
        f'"headers":{_headers(headers)},'
    ).encode()
    try:
        payload = b"null" if value is TOMBSTONE else quoted_bytes(value)
    except UnicodeDecodeError:
        return b'%b"payload_base64":"%b"}\n' % (head, b64encode(value))
    return b'%b"payload":%b}\n' % (head, payload)


def quoted_bytes(value: bytes) -> bytes:
    """UTF-8 as a JSON string; `UnicodeDecodeError` if it is something else."""
    text = str(value, "utf-8")
    if len(value.translate(None, _CONTROL)) < len(value):
        return quoted(text).encode()
    return b'"%b"' % value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _headers(headers: list[tuple[str, str]]) -> str:
    if len(dict(headers)) < len(headers):
        return json.dumps(headers, ensure_ascii=False)
    pairs = [f"{quoted(name)}:{quoted(value)}" for name, value in headers]
    return f"{{{','.join(pairs)}}}"


def decode_line(line: bytes) -> Message:
    """The message of a line; `ValueError` or `KeyError` if it is none."""
    fields = json.loads(line)
    headers = fields["headers"]
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Message(
        topic=fields["topic"],
        key=fields["key"],
        value=_value(fields),
        headers=[(name, text) for name, text in pairs],
        event_id=fields["id"],
    )


def _value(fields: dict[str, str]) -> bytes:
    encoded = fields.get("payload_base64")
    if encoded is not None:
        return b64decode(encoded, validate=True)
    payload: str | None = fields["payload"]
    return TOMBSTONE if payload is None else payload.encode()
