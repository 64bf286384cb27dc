"""Subjects: from a message's topic and key, never more than was meant.

In a subject dots separate tokens, `*` and `>` are wildcards, and white space ends it. What comes
from an event may hold any of these, so they are percent-encoded: different texts stay different.
The dots of a topic are kept, for a template such as `orders.{event_type}` means them; those of a
key are encoded, for a key is one token.
"""

from __future__ import annotations

import re

from commitrelay.errors import ConfigError, InvalidEvent

MAX_BYTES = 1024
"""A server reads control lines of 4096 bytes at most, and closes the connection on longer ones."""

DEFAULT_SUBJECT = "{topic}"
MAX_CACHED_SUBJECTS = 4096

_NOT_IN_A_TOPIC = re.compile(r"[\s*>%\x00-\x20\x7f]")
_NOT_IN_A_KEY = re.compile(r"[\s.*>%\x00-\x20\x7f]")
_RESERVED = ("$", "_INBOX.", "_R_.")
_FIELD = re.compile(r"\{([^{}]*)\}")


class Subjects:
    """Fills `{topic}` and `{key}` into the setting `subject`."""

    def __init__(self, template: str = DEFAULT_SUBJECT) -> None:
        unknown = set(_FIELD.findall(template)) - {"topic", "key"}
        rest = _FIELD.sub("x", template)
        if unknown or _is_malformed(rest) or "{" in rest or "}" in rest:
            raise ConfigError(
                f"subject={template!r} of the nats publisher is no subject: "
                "use {topic}, {key}, and tokens with dots between them"
            )
        self._template = template
        self._by_key = "{key}" in template
        self._known: dict[str, bytes] = {}

    def __call__(self, topic: str, key: str) -> bytes:
        """The subject; `InvalidEvent` if there is none."""
        if self._by_key:
            return self._make(topic, key)
        subject = self._known.get(topic)
        if subject is None:
            if len(self._known) >= MAX_CACHED_SUBJECTS:
                self._known.clear()
            subject = self._known[topic] = self._make(topic, "")
        return subject

    def _make(self, topic: str, key: str) -> bytes:
        filled = {
            "topic": _NOT_IN_A_TOPIC.sub(_encoded, topic),
            "key": _NOT_IN_A_KEY.sub(_encoded, key),
        }
        text = _FIELD.sub(lambda match: filled[match[1]], self._template)
        if _is_malformed(text):
            raise InvalidEvent(f"subject {text!r} has an empty token: check the topic's template")
        if text.startswith(_RESERVED):
            raise InvalidEvent(f"subject {text!r} is the server's own: use another topic")
        subject = text.encode()
        if len(subject) > MAX_BYTES:
            raise InvalidEvent(
                f"subject {text[:40]!r}… has {len(subject)} bytes, the limit is {MAX_BYTES}: "
                "use a shorter topic or key"
            )
        return subject


def _is_malformed(text: str) -> bool:
    return not all(text.split(".")) or re.search(r"[\s*>]", text) is not None


def _encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())
