"""What the benchmarks of pipelined publishers share: messages, a window, a line of figures."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

from commitrelay.publisher import DELIVERED, Message, Publisher

BATCH, WINDOW, KEYS = 1000, 8, 10_000


def make_messages(topic: str, count: int, size: int) -> list[Message]:
    value = b"x" * size
    return [
        Message(
            topic,
            str(number % KEYS),
            value,
            [
                ("event-id", str(uuid.UUID(int=number))),
                ("event-type", "OrderPaid"),
                ("aggregate-type", "Order"),
                ("aggregate-id", str(number % KEYS)),
                ("content-type", "application/json"),
                ("created-at", "2026-11-15T20:33:45.123456Z"),
            ],
            str(uuid.UUID(int=number)),
        )
        for number in range(count)
    ]


async def through(publisher: Publisher, messages: list[Message]) -> None:
    """Batches of 1000, up to 8 of them at a time where the publisher takes several."""
    await publisher.open()
    places = asyncio.Semaphore(publisher.capabilities.max_in_flight or WINDOW)

    async def publish(batch: list[Message]) -> None:
        outcomes = await publisher.publish(batch)
        assert all(outcome is DELIVERED for outcome in outcomes), set(map(repr, outcomes))
        places.release()

    async with asyncio.TaskGroup() as tasks:
        for position in range(0, len(messages), BATCH):
            await places.acquire()
            tasks.create_task(publish(messages[position : position + BATCH]))
    await publisher.close()


def report(name: str, run: Callable[[list[Message]], None], messages: list[Message]) -> None:
    started, cpu = time.perf_counter(), time.process_time()
    run(messages)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    count = len(messages)
    print(f"{name:24} {count / seconds:10,.0f}/s  {cpu / count * 1e6:5.1f} µs CPU an event")
