"""A message as one line of JSON, and back, byte for byte.

The payload is a string where it is UTF-8 (``payload``), else base64 (``payload_base64``); null is
a tombstone. Headers are an object, or a list of pairs if a name occurs twice.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from json.encoder import encode_basestring as quoted
from typing import TypeVar

from commitrelay.publisher import TOMBSTONE, VALUE, Message

K = TypeVar("K")
V = TypeVar("V")

Header = tuple[str, str]
Shared = tuple[str, str, Header, Header, str, Header, str]
Frame = tuple[str, str, str, str]

REPEATED = frozenset({"event-type", "aggregate-type", "content-type"})
"""Headers whose values are few, so that each is made once."""

PLAIN_HEADERS = 6
"""Nearly all messages have these: id, event type, aggregate type, key, content type, time."""

MAX_REMEMBERED = 4096

_WITHOUT_CONTROL = bytes(32 * [32]) + bytes(range(32, 256))

_names: dict[str, str] = {}
_pairs: dict[Header, str] = {}
_frames: dict[Shared, Frame] = {}


def encode_line(message: Message) -> bytes:
    """The message as JSON with a newline at its end and none inside."""
    return b"".join(line_pieces(message))


def line_pieces(message: Message) -> tuple[bytes, bytes, bytes]:
    """The same in pieces: who joins those of a whole batch copies each payload only once."""
    head, value = _head(message), message[VALUE]
    if value is TOMBSTONE:
        return f'{head}":'.encode(), b"null", b"}\n"
    try:
        return f'{head}":"'.encode(), escaped(value), b'"}\n'
    except UnicodeDecodeError:
        return f'{head}_base64":"'.encode(), b64encode(value), b'"}\n'


def escaped(value: bytes) -> bytes:
    """UTF-8 as it is within a JSON string; `UnicodeDecodeError` if it is something else."""
    if not value.isascii():
        str(value, "utf-8")
    if value.translate(_WITHOUT_CONTROL) != value:
        return quoted(str(value, "utf-8"))[1:-1].encode()
    return value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _head(message: Message) -> str:
    """Up to the payload. Put together by hand: JSONEncoder.encode takes three times as long."""
    topic, key, _value, headers, event_id = message
    id_text, key_text = quoted(event_id), quoted(key)
    if len(headers) == PLAIN_HEADERS:
        (id_name, own_id), kind, aggregate, (key_name, own_key), content, (at_name, at) = headers
        if own_id == event_id and own_key == key:
            shared = (topic, id_name, kind, aggregate, key_name, content, at_name)
            frame = _frames.get(shared) or _frame(shared)
            if frame:
                to_key, to_id, to_own_key, to_time = frame
                return (
                    f'{{"id":{id_text}{to_key}{key_text}{to_id}{id_text}{to_own_key}{key_text}'
                    f'{to_time}{quoted(at)}}},"payload'
                )
    return (
        f'{{"id":{id_text},"topic":{_name(topic)},"key":{key_text},'
        f'"headers":{_listed(headers)},"payload'
    )


def _frame(shared: Shared) -> Frame | None:
    """What lies between the id, the key and the time of messages that share the rest."""
    topic, id_name, kind, aggregate, key_name, content, at_name = shared
    repeated = {kind[0], aggregate[0], content[0]}
    if repeated != REPEATED or len(repeated | {id_name, key_name, at_name}) < PLAIN_HEADERS:
        return None
    frame = (
        f',"topic":{_name(topic)},"key":',
        f',"headers":{{{_name(id_name)}:',
        f",{_pair(kind)},{_pair(aggregate)},{_name(key_name)}:",
        f",{_pair(content)},{_name(at_name)}:",
    )
    return _remember(_frames, shared, frame)


def _listed(headers: Sequence[Header]) -> str:
    """An object, or a list of pairs if a name occurs twice."""
    if len(dict(headers)) < len(headers):
        return json.dumps(headers, ensure_ascii=False)
    return f"{{{','.join([_pairs.get(header) or _pair(header) for header in headers])}}}"


def _pair(header: Header) -> str:
    name, text = header
    pair = f"{_name(name)}:{quoted(text)}"
    return _remember(_pairs, header, pair) if name in REPEATED else pair


def _name(name: str) -> str:
    """Topics and names of headers are few as well."""
    return _names.get(name) or _remember(_names, name, quoted(name))


def _remember(made: dict[K, V], what: K, text: V) -> V:
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
