"""The headers column of an event, checked: a plain INSERT may have written anything."""

from __future__ import annotations

import json

from commitrelay.errors import InvalidEvent

Header = tuple[str, str]


def user_headers(text: str, event_id: str) -> dict[str, str]:
    """The user's headers; `InvalidEvent` names the one that is wrong."""
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidEvent(
            f"the headers of event {event_id} are not JSON: write an object of strings"
        ) from None
    if not isinstance(headers, dict):
        raise InvalidEvent(
            f"the headers of event {event_id} are a JSON {_json_type(headers)}: "
            "write an object of strings"
        )
    escaped = "\\" in text  # strict JSON has control characters and surrogates only as escapes
    for name, value in headers.items():
        if not isinstance(value, str):
            raise InvalidEvent(
                f"header {name!r} of event {event_id} is a JSON {_json_type(value)}: "
                "write it as a string"
            )
        if not name:
            raise InvalidEvent(f"a header of event {event_id} has an empty name: give it one")
        if escaped:
            _check_text(name, value, event_id)
    return headers


def _check_text(name: str, value: str, event_id: str) -> None:
    text = name + value
    if "\x00" in text or "\r" in text or "\n" in text:
        raise InvalidEvent(
            f"header {name!r} of event {event_id} contains a NUL, CR or LF character: "
            "remove or encode it"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(
            f"header {name!r} of event {event_id} contains a lone surrogate, which is not valid "
            "Unicode: remove or encode it"
        ) from None


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
