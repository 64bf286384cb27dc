"""What the tests of whole consumers share: databases of each kind, and file topics to read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from commitrelay import Consumer, Event, open_publisher, open_store
from commitrelay.event import uuid7
from commitrelay.publisher import Message
from tests.support import mariadb

TABLE = "CREATE TABLE effects (number integer, event_key varchar(100))"


def initialise(url: str) -> None:
    """The outbox's tables, and one for effects."""

    async def run() -> None:
        store = open_store(url)
        await store.initialise()
        await store.close()

    asyncio.run(run())
    execute(url, TABLE)


def connect(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
    return psycopg.connect(url) if url.startswith("postgres") else mariadb.connect(url)


def execute(url: str, text: str) -> None:
    with closing(connect(url)) as connection:
        connection.cursor().execute(text)
        connection.commit()


def query(url: str, text: str) -> list[Any]:
    with closing(connect(url)) as connection:
        cursor = connection.cursor()
        cursor.execute(text)
        return [tuple(row) for row in cursor.fetchall()]


def effects(url: str) -> dict[str, list[int]]:
    """What was done for each key; there is no order in a table but that of the numbers."""
    found: dict[str, list[int]] = {}
    for key, number in query(url, "SELECT event_key, number FROM effects ORDER BY number"):
        found.setdefault(key, []).append(number)
    return found


def insert(style: str) -> str:
    return f"INSERT INTO effects VALUES ({style}, {style})"


def publish(directory: Path, events: Iterable[Event], topic: str = "orders") -> None:
    """Append the events to a file topic, in the plain format."""
    messages = [
        Message(
            topic,
            str(event.aggregate_id),
            event.encoded()[0],
            [
                ("event-id", str(event.id or uuid7())),
                ("event-type", event.event_type),
                ("aggregate-type", event.aggregate_type),
                ("aggregate-id", str(event.aggregate_id)),
                ("content-type", event.encoded()[1]),
                ("created-at", "2026-11-15T20:33:45.123456Z"),
                *event.headers.items(),
            ],
            str(event.id),
        )
        for event in events
    ]

    async def run() -> None:
        publisher = open_publisher(f"file://{directory}", fsync="false")
        await publisher.open()
        await publisher.publish(messages)
        await publisher.close()

    asyncio.run(run())


def counted(numbers: Iterable[int], keys: int) -> list[Event]:
    return [Event("Order", n % keys, "Counted", {"number": n}) for n in numbers]


def in_order(total: int, keys: int) -> dict[str, list[int]]:
    return {str(key): list(range(key, total, keys)) for key in range(keys)}


def run_until(consumer: Consumer, condition: Callable[[], bool], seconds: float = 60) -> None:
    """Run it until the condition holds, then stop it."""

    async def main() -> None:
        async with asyncio.timeout(seconds), consumer:
            while not condition():
                if consumer._task is not None and consumer._task.done():
                    return
                await asyncio.sleep(0.02)

    asyncio.run(main())
