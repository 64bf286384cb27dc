"""A message as an entry of a batch: text, a group, an id to dedupe by, and attributes.

AWS takes at most ten attributes, none of them empty, and only characters that XML can hold. What
does not fit goes, whole, into one attribute as JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

from commitrelay.publisher import Message

MOST_ATTRIBUTES = 10

PREFIX = "commitrelay-"
TOPIC = f"{PREFIX}topic"
KEY = f"{PREFIX}key"  # where the group cannot be the key itself
ENCODING = f"{PREFIX}encoding"  # base64 or empty, where the body is not the payload itself
MORE_HEADERS = f"{PREFIX}headers"  # a JSON list of [name, value]

EMPTY_BODY = "-"

_NOT_TEXT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ID = re.compile(r"[!-~]{1,128}")
_NAME = re.compile(r"(?!(?i:aws\.|amazon\.))[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME = 256

Entry = dict[str, Any]


def entry_of(message: Message, body_field: str) -> Entry:
    """The entry, without its number in the batch. `body_field` is what the service calls it."""
    body, encoding = _body(message.value)
    own = {TOPIC: message.topic}
    group = _short(message.key)
    if group != message.key:
        own[KEY] = message.key
    if encoding:
        own[ENCODING] = encoding
    attributes = _attributes(own, message.headers)
    return {
        body_field: body,
        "MessageGroupId": group,
        "MessageDeduplicationId": _short(message.event_id),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        },
    }


def size_of(entry: Entry, body_field: str) -> int:
    """In bytes, as AWS counts: the body, and name, type and value of every attribute."""
    size = len(entry[body_field].encode())
    for name, attribute in entry["MessageAttributes"].items():
        size += len(name) + len("String") + len(attribute["StringValue"].encode())
    return size


def _body(value: bytes) -> tuple[str, str | None]:
    if not value:
        return EMPTY_BODY, "empty"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if _NOT_TEXT.search(text):
        return base64.b64encode(value).decode(), "base64"
    return text, None


def _short(text: str) -> str:
    """The text itself if it can be an id for AWS, else its hash."""
    return text if _ID.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()


def _attributes(own: dict[str, str], headers: list[tuple[str, str]]) -> dict[str, str]:
    unfit = [(name, value) for name, value in own.items() if not _fits(name, value)]
    attributes = {name: value for name, value in own.items() if _fits(name, value)}
    own_names = len(attributes)
    for name, value in headers:
        taken = name in attributes or name.startswith(PREFIX)
        if taken or not _fits(name, value):
            unfit.append((name, value))
        else:
            attributes[name] = value
    places = MOST_ATTRIBUTES - bool(unfit)
    if len(attributes) > places:
        places = MOST_ATTRIBUTES - 1
        late = list(attributes.items())[max(places, own_names) :]
        unfit = late + unfit
        for name, _value in late:
            del attributes[name]
    if unfit:
        attributes[MORE_HEADERS] = json.dumps(unfit)  # ASCII, so that any text fits
    return attributes


def _fits(name: str, value: str) -> bool:
    is_name = len(name) <= _LONGEST_NAME and _NAME.fullmatch(name)
    return bool(is_name and value and not _NOT_TEXT.search(value))
