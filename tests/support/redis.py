"""Redis for tests: streams read back by the client that most people use."""

from __future__ import annotations

from typing import Any

import redis

from commitrelay.testing.publisher_suite import Received


def client(url: str, **settings: Any) -> redis.Redis:
    return redis.Redis.from_url(url, **settings)


def read(url: str, stream: str, **settings: Any) -> list[Received]:
    """Everything in the stream, in its order."""
    with client(url, **settings) as connection:
        return [received(fields) for _id, fields in connection.xrange(stream)]


def received(fields: dict[bytes, bytes]) -> Received:
    headers = {
        name.decode(): value.decode()
        for name, value in fields.items()
        if name not in (b"key", b"payload")
    }
    return Received(fields[b"key"].decode(), fields[b"payload"], headers)
