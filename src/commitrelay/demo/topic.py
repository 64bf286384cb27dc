"""Topic: what the relay fills and the demo's consumer reads, under a name of its own per run."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from commitrelay.demo.ledger import Received
from commitrelay.errors import ConfigError
from commitrelay.publishers.file import SUFFIX
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.urls import redact, scheme_of


class Topic(Protocol):
    url: str
    name: str
    title: str

    def prepare(self) -> None:
        """Make sure that the topic exists and can be read."""

    def poll(self) -> list[Received]:
        """What arrived since the last call; waits a moment if there is nothing."""

    def close(self) -> None: ...

    def remove(self) -> None:
        """Delete what this run has published."""


def topic_of(url: str, run: str) -> Topic:
    """The topic for a publish URL."""
    scheme = scheme_of(url)
    if scheme == "file":
        return FileTopic(url, f"commitrelay-demo-{run}")
    if scheme == "kafka":
        from commitrelay.demo.kafka_topic import KafkaTopic  # noqa: PLC0415

        return KafkaTopic(url, f"commitrelay-demo-{run}")
    raise ConfigError(
        f"the demo cannot read back what it publishes to {redact(url)}: "
        "use file:///directory or kafka://host:9092"
    )


class FileTopic:
    title = "files"

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self._directory = Path(unquote(urlsplit(url).path))
        self._reader = TopicReader(self._directory, name)

    def prepare(self) -> None:
        pass

    def poll(self) -> list[Received]:
        messages = self._reader.poll()
        if not messages:
            time.sleep(0.005)
        return [received(each.event_id, each.value) for each in messages]

    def close(self) -> None:
        pass

    def remove(self) -> None:
        (self._directory / f"{self.name}{SUFFIX}").unlink(missing_ok=True)


def received(event_id: str, value: bytes) -> Received:
    """The consumer's work: read the payload, and note how long it was under way."""
    payload: dict[str, Any] = json.loads(value)
    lag_seconds = time.time() - payload["at"]
    return Received(event_id, str(payload["order"]), payload["version"], lag_seconds)
