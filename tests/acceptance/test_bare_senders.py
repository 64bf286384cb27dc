"""What a bare sender says is acknowledged has arrived: all of it, once."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commitrelay.bench.bare import sender_of
from commitrelay.bench.job import Job
from commitrelay.demo.topic import topic_of

BATCHES, BATCH_SIZE = 4, 100
READING_SECONDS = 60.0


def batch(number: int) -> list[tuple[Any, ...]]:
    first = number * BATCH_SIZE
    return [
        (
            seq,
            str(uuid.UUID(int=seq)),
            "Order",
            str(seq % 7),
            "OrderPaid",
            json.dumps({"order": seq % 7, "version": seq, "at": time.time()}).encode(),
            "application/json",
            "2026-11-15T20:33:45.123456Z",
        )
        for seq in range(first, first + BATCH_SIZE)
    ]


async def send_all(job: Job) -> None:
    sender = sender_of(job)
    await sender.open()
    async with asyncio.TaskGroup() as tasks:
        for number in range(BATCHES):
            tasks.create_task(sender.send(batch(number)))
    await sender.close()


def url_of(broker: str, request: pytest.FixtureRequest, directory: Path) -> str:
    if broker == "files":
        return directory.as_uri()
    given: str = request.getfixturevalue(broker)
    return f"kafka://{given}" if broker == "real_kafka" else given


@pytest.mark.servers
@pytest.mark.parametrize("broker", ["real_kafka", "rabbitmq_url", "nats_url", "redis_url", "files"])
def test_all_arrive_once(broker: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    topic = topic_of(url_of(broker, request, tmp_path), f"bare-{uuid.uuid4().hex[:12]}")
    topic.prepare()
    try:
        asyncio.run(send_all(Job("bare", "", None, "", publish=topic.url, topic=topic.name)))
        topic.subscribe()
        found: Counter[str] = Counter()
        deadline = time.monotonic() + READING_SECONDS
        while found.total() < BATCHES * BATCH_SIZE and time.monotonic() < deadline:
            found.update(each.event_id for each in topic.poll())
        found.update(each.event_id for each in topic.poll())
        assert found == Counter(str(uuid.UUID(int=seq)) for seq in range(BATCHES * BATCH_SIZE))
    finally:
        topic.close()
        topic.remove()
