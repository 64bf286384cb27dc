"""CloudEvents 1.0, binary (attributes in headers) or structured (one JSON object as the value).

| attribute                   | from                                             |
|-----------------------------|--------------------------------------------------|
| id                          | event id                                         |
| source, type                | templates; /commitrelay/Order, OrderPaid         |
| subject, partitionkey       | aggregate id                                     |
| time, datacontenttype       | created_at, content_type                         |
| idempotencykey              | idempotency key, where there is one              |
| traceparent, tracestate     | the user's headers of these names                |
| what you like               | the user's headers ce-what, ce-you, ce-like      |
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from json.encoder import encode_basestring as quoted
from typing import NamedTuple, NoReturn
from urllib.parse import quote

from commitrelay.errors import ConfigError, InvalidEvent
from commitrelay.format.binding import BINDINGS
from commitrelay.format.content import carried_by
from commitrelay.format.headers import Header, user_headers
from commitrelay.format.options import FormatOptions
from commitrelay.publisher import Message
from commitrelay.route import Route
from commitrelay.store import Queued
from commitrelay.template import Template

TABLE = "cloudevents"
DEFAULT_SOURCE = "/commitrelay/{aggregate_type}"
DEFAULT_TYPE = "{event_type}"
CONTENT_TYPE = "content-type"
STRUCTURED = (CONTENT_TYPE, "application/cloudevents+json; charset=UTF-8")
TRACE = frozenset({"traceparent", "tracestate"})
IDEMPOTENCY_KEY = "idempotencykey"
PARTITION = "partitionkey"
OWN_ATTRIBUTES = frozenset(
    {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "partitionkey"}
)
MAX_CACHED_KINDS = 4096

_USERS_PREFIX = re.compile(r"(ce[-_]|cloudevents[:_])")
_ATTRIBUTE = re.compile(r"(?!data$)[a-z0-9]+")


class Shared(NamedTuple):
    """What events of one kind have in common."""

    topic: str
    headers: tuple[Header, ...]  # source, type and content type
    json: str  # the same as members of an object
    carries: str  # json, text or binary


class CloudEvents:
    """Binary mode: the payload untouched, the attributes in headers as the binding names them."""

    __slots__ = (
        "_binding",
        "_encoded",
        "_kinds",
        "_names",
        "_prefix",
        "_route",
        "_source",
        "_type",
    )

    def __init__(
        self, route: Route, *, binding: str = "none", options: Mapping[str, str] | None = None
    ) -> None:
        given = FormatOptions(TABLE, options or {})
        self._route = route
        self._source = _template(given, "source", DEFAULT_SOURCE)
        self._type = _template(given, "type", DEFAULT_TYPE)
        self._binding = BINDINGS[given.choice("binding", binding, tuple(BINDINGS))]
        given.refuse_unknown()
        self._prefix, self._encoded = self._binding.prefix, self._binding.encoded
        self._names = tuple(
            f"{self._prefix}{name}" for name in ("specversion", "id", "subject", "time", PARTITION)
        )
        self._kinds: dict[tuple[str, str, str], Shared] = {}

    def __call__(self, event: Queued) -> Message:
        shared = self._shared(event)
        specversion, event_id, subject, time, partition_key = self._names
        aggregate_id = self._encoded(event.aggregate_id)
        headers = [
            (specversion, "1.0"),
            (event_id, event.id),
            *shared.headers,
            (subject, aggregate_id),
            (time, event.created_at),
            (partition_key, aggregate_id),
        ]
        if event.idempotency_key is not None or event.headers != "{}":
            extensions, users = extensions_of(event)
            for name, value in extensions:
                headers.append((f"{self._prefix}{name}", self._encoded(value)))
            headers += users
        topic = self._topic(event, shared)
        return Message(topic, event.aggregate_id, event.payload, headers, event.id)

    def _topic(self, event: Queued, shared: Shared) -> str:
        return self._route(event) if self._route.spread else shared.topic

    def _shared(self, event: Queued) -> Shared:
        kind = (event.aggregate_type, event.event_type, event.content_type)
        shared = self._kinds.get(kind)
        if shared is None:
            if len(self._kinds) >= MAX_CACHED_KINDS:
                self._kinds.clear()
            shared = self._kinds[kind] = self._learn(event)
        return shared

    def _learn(self, event: Queued) -> Shared:
        escaped = event._replace(
            aggregate_type=quote(event.aggregate_type), event_type=quote(event.event_type)
        )
        attributes = [("source", self._source(escaped)), ("type", self._type(event))]
        headers = [(self._prefix + name, self._encoded(text)) for name, text in attributes]
        if event.content_type:
            attributes.append(("datacontenttype", event.content_type))
            headers.append(self._binding.content_type(event.content_type))
        members = ",".join([f'"{name}":{quoted(text)}' for name, text in attributes])
        carries = carried_by(event.content_type)
        return Shared(self._route(event), tuple(headers), members, carries)


class StructuredCloudEvents(CloudEvents):
    """Structured mode: one JSON object. A JSON payload is put into it as it is, byte for byte."""

    __slots__ = ()

    def __call__(self, event: Queued) -> Message:
        shared = self._shared(event)
        subject = quoted(event.aggregate_id)
        extensions, users = extensions_of(event)
        members = "".join([f',"{name}":{quoted(value)}' for name, value in extensions])
        head = (
            f'{{"specversion":"1.0","id":{quoted(event.id)},{shared.json},"subject":{subject},'
            f'"time":"{event.created_at}","partitionkey":{subject}{members}'
        )
        value = b"".join((head.encode(), _data(event, shared.carries), b"}"))
        topic = self._topic(event, shared)
        return Message(topic, event.aggregate_id, value, [STRUCTURED, *users], event.id)


def extensions_of(event: Queued) -> tuple[list[Header], list[Header]]:
    """Extension attributes, and the user's headers that stay headers."""
    extensions: list[Header] = []
    if event.idempotency_key is not None:
        extensions.append((IDEMPOTENCY_KEY, event.idempotency_key))
    if event.headers == "{}":
        return extensions, []
    users: list[Header] = []
    for name, value in user_headers(event.headers, event.id).items():
        lower = name.lower()
        if prefix := _USERS_PREFIX.match(lower):
            _extend(extensions, lower[prefix.end() :], value, event)
            continue
        if lower in TRACE:
            _extend(extensions, lower, value, event)
        if lower != CONTENT_TYPE:
            users.append((name, value))
    return extensions, users


def _extend(extensions: list[Header], name: str, value: str, event: Queued) -> None:
    if not _ATTRIBUTE.fullmatch(name):
        raise InvalidEvent(
            f"header 'ce-{name}' of event {event.id} cannot be a CloudEvents attribute: "
            "its name may have the letters a to z and digits only, and is not data"
        )
    if value and name not in OWN_ATTRIBUTES and all(name != known for known, _ in extensions):
        extensions.append((name, value))


def _data(event: Queued, carries: str) -> bytes:
    payload = event.payload
    if not payload:
        return b""
    if carries == "json":
        _check_json(payload, event.id)
        return b',"data":' + payload
    if carries == "text":
        try:
            return f',"data":{quoted(str(payload, "utf-8"))}'.encode()
        except UnicodeDecodeError:
            pass
    return b"".join((b',"data_base64":"', b64encode(payload), b'"'))


def _check_json(payload: bytes, event_id: str) -> None:
    """What is not JSON would spoil the object that it is put into."""
    try:
        _decode(str(payload, "utf-8"))
    except (ValueError, RecursionError):
        raise InvalidEvent(
            f"the payload of event {event_id} is not JSON, though its content type says so: "
            "correct either, or use the binary mode"
        ) from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def _template(options: FormatOptions, name: str, default: str) -> Template:
    template = Template(options.text(name, default))
    if "aggregate_id" in template.fields:
        raise ConfigError(
            f"[{TABLE}] {name} = {template.text!r} contains the aggregate's id: that is in subject"
        )
    return template
