"""Binding: how a protocol names the attributes of a CloudEvent in a message's headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

_UNSAFE = re.compile(r"[^!#$&-~]")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


@dataclass(frozen=True, slots=True)
class Binding:
    prefix: str
    percent_encoded: bool = False  # what is not printable ASCII, and space, '"' and '%'
    has_content_type: bool = True  # else datacontenttype is an attribute like the others

    def encoded(self, value: str) -> str:
        if self.percent_encoded and _UNSAFE.search(value):
            return quote(value, safe=_SAFE)
        return value

    def content_type(self, value: str) -> tuple[str, str]:
        """The header that says what the payload is."""
        if self.has_content_type:
            return "content-type", value
        return f"{self.prefix}datacontenttype", self.encoded(value)


BINDINGS = {
    "kafka": Binding("ce_"),
    "http": Binding("ce-", percent_encoded=True),
    "nats": Binding("ce-", percent_encoded=True, has_content_type=False),
    "rabbitmq": Binding("ce-"),
    "amqp-1.0": Binding("cloudEvents:"),
    "none": Binding("ce-"),
}
"""The CloudEvents protocol bindings; `none` is for what has none: files, Redis, SQS."""

_BY_SCHEME = {
    "kafka": "kafka",
    "http": "http",
    "https": "http",
    "nats": "nats",
    "tls": "nats",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
}


def binding_of(scheme: str) -> str:
    """The name of the binding that goes with the scheme of a publish URL."""
    return _BY_SCHEME.get(scheme, "none")
