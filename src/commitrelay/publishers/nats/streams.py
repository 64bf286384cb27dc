"""Streams: whether a stream is there; made if asked for."""

from __future__ import annotations

from typing import Any

from commitrelay.errors import PublisherError
from commitrelay.publishers.nats.connection import NatsConnection, must
from commitrelay.publishers.nats.settings import NatsSettings

STREAM_NOT_FOUND = 10059


async def stream_info(connection: NatsConnection, stream: str) -> dict[str, Any] | None:
    """What the server says of it; None if there is none."""
    answer = await connection.api(f"STREAM.INFO.{stream}")
    if answer.get("error", {}).get("err_code") == STREAM_NOT_FOUND:
        return None
    return must(answer, f"{connection.name}: stream {stream}")


async def check_stream(connection: NatsConnection, settings: NatsSettings, stream: str) -> None:
    """`PublisherError` if it is not there and not to be made."""
    if await stream_info(connection, stream) is not None:
        return
    if not settings.create_stream:
        raise PublisherError(
            f"{settings} has no stream {stream}: create it or use ?create_stream=SUBJECTS"
        )
    wanted = {
        "name": stream,
        "subjects": list(settings.create_stream),
        "storage": "file",
        "num_replicas": settings.replicas,
    }
    answer = await connection.api(f"STREAM.CREATE.{stream}", wanted)
    must(answer, f"{settings}: cannot create stream {stream}")
