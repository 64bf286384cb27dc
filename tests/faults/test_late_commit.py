"""A transaction that took a lower seq and commits later than its neighbours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import psycopg

from commitrelay import Event, Outbox
from commitrelay.options import RelayOptions
from commitrelay.publishers.file import from_url
from commitrelay.publishers.file_reader import TopicReader
from commitrelay.relay import Relay
from commitrelay.stores.postgres.store import PostgresStore
from tests.faults.scene import initialise

LATE_SECONDS = 3.0


async def _numbers(reader: TopicReader, numbers: list[int], expected: int) -> list[int]:
    async with asyncio.timeout(10):
        while len(numbers) < expected:
            numbers += [json.loads(message.value)["number"] for message in reader.poll()]
            await asyncio.sleep(0.01)
    return numbers


async def _deliver_around(url: str, directory: Path) -> list[int]:
    outbox, numbers = Outbox(), []
    reader = TopicReader(directory)
    relay = Relay(PostgresStore(url), from_url(f"file://{directory}", {}), RelayOptions())

    def event(number: int) -> Event:
        return Event("Order", number, "Counted", {"number": number})

    with psycopg.connect(url) as late, psycopg.connect(url) as doomed, psycopg.connect(url) as soon:
        outbox.add(late, event(1))
        outbox.add(doomed, event(2))
        async with relay:
            for number in (3, 4, 5):
                outbox.add(soon, event(number))
                soon.commit()
                await _numbers(reader, numbers, number - 2)
            await asyncio.sleep(LATE_SECONDS)
            assert numbers == [3, 4, 5]
            late.commit()
            doomed.rollback()
            await _numbers(reader, numbers, 4)
            outbox.add(soon, event(6))
            soon.commit()
            return await _numbers(reader, numbers, 5)


def test_a_late_commit_is_delivered_and_a_rollback_never(
    postgres_database: str, tmp_path: Path
) -> None:
    initialise(postgres_database)
    assert asyncio.run(_deliver_around(postgres_database, tmp_path)) == [3, 4, 5, 1, 6]
