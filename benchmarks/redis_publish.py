"""How much of Redis's speed is left in the publisher?

    eval "$(scripts/services env)"
    .venv/bin/python benchmarks/redis_publish.py [--events N] [--payload BYTES] [--json]

The bare senders write the same commands, a batch in one piece, and count the replies; beside them
redis-py's pipeline, which takes one batch at a time.
"""

from __future__ import annotations

import asyncio
from functools import partial

import redis
from pipelines import BARE, ENCODED, BareLine, EncodedLine, PublisherLine, Rows, main, server

from commitrelay.demo.topic import Topic, topic_of

URL = server("redis")


class RedisPy:
    window = 1

    def __init__(self, topic: Topic) -> None:
        self._topic = topic.name
        self._client = redis.Redis.from_url(URL)

    async def open(self) -> None:
        self._client.ping()

    def prepare(self, rows: Rows) -> list[tuple[str | bytes, ...]]:
        return [
            (
                self._topic, "*", "key", key, "payload", payload, "event-id", event_id,
                "event-type", event_type, "aggregate-type", kind, "aggregate-id", key,
                "content-type", content_type, "created-at", created_at,
            )
            for _seq, event_id, kind, key, event_type, payload, content_type, created_at in rows
        ]  # fmt: skip

    async def send(self, batch: list[tuple[str | bytes, ...]]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for each in batch:
            pipeline.execute_command("XADD", *each)
        await asyncio.to_thread(pipeline.execute)

    async def close(self) -> None:
        self._client.close()


if __name__ == "__main__":
    lines = {
        BARE: BareLine,
        ENCODED: EncodedLine,
        "RedisPublisher": PublisherLine,
        "redis-py pipeline": RedisPy,
    }
    main(__doc__, lines, {"stream": partial(topic_of, URL)})
