"""A message as one line of JSON, and back, byte for byte.

The payload is a string where it is UTF-8 (``payload``), else base64 (``payload_base64``); null is
a tombstone. Headers are an object, or a list of pairs if a name occurs twice.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from json.encoder import encode_basestring as quoted
from typing import TypeVar

from commitrelay.publisher import TOMBSTONE, Message

K = TypeVar("K")

_CONTROL = bytes(range(32))


def encode_line(message: Message) -> bytes:
    """The message as JSON with a newline at its end and none inside."""
    # Put together by hand: JSONEncoder.encode takes half as long again.
    topic, key, value, headers, event_id = message
    id_text, key_text = quoted(event_id), quoted(key)
    pairs: list[str] = []
    for header in headers:
        pair = _pairs.get(header)
        if pair is None:
            name, text = header  # an id and a key are nearly always headers as well
            text = id_text if text is event_id else key_text if text is key else quoted(text)
            pair = f"{_names.get(name) or _name(name)}:{text}"
            if name in REPEATED:
                _remember(_pairs, header, pair)
        pairs.append(pair)
    if len(dict(headers)) == len(headers):
        listed = f"{{{','.join(pairs)}}}"
    else:
        listed = json.dumps(headers, ensure_ascii=False)
    topic_text = _names.get(topic) or _name(topic)
    head = f'{{"id":{id_text},"topic":{topic_text},"key":{key_text},"headers":{listed},'.encode()
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


REPEATED = frozenset({"event-type", "aggregate-type", "content-type"})
"""Headers whose values are few, so that each is made once."""

MAX_REMEMBERED = 4096

_names: dict[str, str] = {}
_pairs: dict[tuple[str, str], str] = {}


def _name(name: str) -> str:
    """Topics and names of headers are few as well."""
    return _remember(_names, name, quoted(name))


def _remember(made: dict[K, str], what: K, text: str) -> str:
    if len(made) >= MAX_REMEMBERED:
        made.clear()
    made[what] = text
    return text


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
