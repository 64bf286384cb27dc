"""Topic: what the relay fills and the demo's consumer reads, under a name of its own per run."""

from __future__ import annotations

import json
import time
from importlib import import_module
from typing import Any, Protocol, cast

from commitrelay.demo.ledger import Received
from commitrelay.errors import ConfigError
from commitrelay.registry import PUBLISHERS
from commitrelay.urls import redact, scheme_of

READERS = {
    "file": "file_topic",
    "kafka": "kafka_topic",
    "nats": "nats_topic",
    "redis": "redis_topic",
    "rediss": "redis_topic",
    "amqp": "rabbitmq_topic",
    "amqps": "rabbitmq_topic",
}
"""URL scheme -> the module beside this one whose `from_url(url, name)` makes the topic."""


class Topic(Protocol):
    url: str  # what the relay publishes to, with the options that this topic needs
    name: str  # the topic, a template that every event of the run is routed by
    title: str

    def prepare(self) -> None:
        """Make sure that the topic exists."""

    def subscribe(self) -> None:
        """Begin to read it, from its first message."""

    def poll(self) -> list[Received]:
        """What arrived since the last call; waits a moment if there is nothing."""

    def close(self) -> None: ...

    def remove(self) -> None:
        """Delete what this run has published."""


def topic_of(url: str, name: str) -> Topic:
    """The topic of this name, or with it as a part of its own, at a publish URL."""
    scheme = scheme_of(url)
    if scheme not in READERS:
        known = ", ".join(f"{name}://" for name in READERS if name in PUBLISHERS)
        raise ConfigError(
            f"what is published to {redact(url)} cannot be read back here: use one of {known}"
        )
    module = import_module(f"commitrelay.demo.{READERS[scheme]}")
    return cast(Topic, module.from_url(url, name))


def received(event_id: str, value: bytes) -> Received:
    """The consumer's work: read the payload, and note how long it was under way."""
    payload: dict[str, Any] = json.loads(value)
    lag_seconds = time.time() - payload["at"]
    return Received(event_id, str(payload["order"]), payload["version"], lag_seconds)
