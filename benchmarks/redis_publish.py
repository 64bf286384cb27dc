"""How much of Redis's speed is left in the publisher?

    eval "$(scripts/services env)"
    .venv/bin/python benchmarks/redis_publish.py [EVENTS] [BYTES]

The bare loops send the same commands in batches of 1000: one on a blocking socket with hiredis,
one on redis-py's pipeline. The publisher gets batches of 1000, up to 8 of them at a time.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import uuid
from urllib.parse import urlsplit

import hiredis
import redis
from pipelines import BATCH, make_messages, report, through

from commitrelay.publisher import Message
from commitrelay.publishers.redis import from_url

URL = os.environ["COMMITRELAY_REDIS_URL"]


def arguments(message: Message) -> tuple[str | bytes, ...]:
    fields = [part for header in message.headers for part in header]
    return (message.topic, "*", "key", message.key, "payload", message.value, *fields)


def bare(messages: list[Message]) -> None:
    parts = urlsplit(URL)
    reader = hiredis.Reader()
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        for position in range(0, len(messages), BATCH):
            batch = messages[position : position + BATCH]
            commands = [hiredis.pack_command(("XADD", *arguments(each))) for each in batch]
            connection.sendall(b"".join(commands))
            left = len(batch)
            while left:
                reader.feed(connection.recv(65536))
                while reader.gets() is not False:
                    left -= 1


def redis_py(messages: list[Message]) -> None:
    with redis.Redis.from_url(URL) as client:
        for position in range(0, len(messages), BATCH):
            pipeline = client.pipeline(transaction=False)
            for each in messages[position : position + BATCH]:
                pipeline.execute_command("XADD", *arguments(each))
            pipeline.execute()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    size = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    runs = {
        "bare loop": bare,
        "redis-py pipeline": redis_py,
        "RedisPublisher": lambda each: asyncio.run(through(from_url(URL, {}), each)),
    }
    for name, run in runs.items():
        topic = f"bench-{uuid.uuid4().hex[:12]}"
        messages = make_messages(topic, count, size)
        report(name, run, messages)
        with redis.Redis.from_url(URL) as client:
            assert client.xlen(topic) == count
            client.delete(topic)


if __name__ == "__main__":
    main()
