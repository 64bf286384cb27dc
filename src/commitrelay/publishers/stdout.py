"""Stdout publisher: `stdout:`, one JSON line per event on standard output."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from commitrelay.errors import BrokerUnreachable, ConfigError
from commitrelay.publisher import DELIVERED, Message, Outcome, Publisher
from commitrelay.publishers.jsonline import encode_line
from commitrelay.publishers.settings import Settings
from commitrelay.publishers.worker import WorkerPublisher

STDOUT = 1


class StdoutPublisher(WorkerPublisher):
    """Writes each batch at once, unbuffered: what `publish` has confirmed has left the process."""

    def __init__(self, file: int = STDOUT, *, delivery_timeout_seconds: float = 10.0) -> None:
        super().__init__(delivery_timeout_seconds=delivery_timeout_seconds)
        self._file = file
        self._closed_pipe = False

    def __str__(self) -> str:
        return "standard output"

    def _connect(self) -> None:
        try:
            os.fstat(self._file)
        except OSError as error:
            raise BrokerUnreachable(f"{self} is closed: run with an open one") from error
        if self._closed_pipe:
            raise BrokerUnreachable(f"{self}: its reader has gone away: start the relay anew")

    def _refusal(self, message: Message) -> str | None:
        return None

    def _send(self, messages: Sequence[Message]) -> Sequence[Outcome]:
        rest = memoryview(b"".join([encode_line(message) for message in messages]))
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except BrokenPipeError:
            self._closed_pipe = True
            raise
        return [DELIVERED] * len(messages)


def from_url(url: str, options: Mapping[str, str]) -> Publisher:
    """`stdout:?delivery_timeout_seconds=…`."""
    parts = urlsplit(url)
    if parts.netloc or parts.path:
        raise ConfigError(f"{url!r} has a path, but standard output has none: write stdout:")
    settings = Settings("stdout", options, parts.query)
    publisher = StdoutPublisher(
        delivery_timeout_seconds=settings.seconds("delivery_timeout_seconds", 10.0)
    )
    settings.refuse_unknown()
    return publisher
