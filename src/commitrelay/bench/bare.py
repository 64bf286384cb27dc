"""BareLoop: read ahead, send, delete, overlapped, with no guarantee at all.

No leases, no order after a failure, no retries, no journal: what the drivers alone can do, and so
the limit to compare with.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any, NamedTuple, Protocol, cast

from commitrelay.bench.job import Job
from commitrelay.bench.meter import Meter
from commitrelay.registry import PUBLISHERS, dialect_of
from commitrelay.sql import Names
from commitrelay.urls import scheme_of

IDLE_SECONDS = 0.001
"""It looks for more a thousand times a second: nothing that needs no bell is quicker."""


class BareEvent(NamedTuple):
    seq: int
    id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    payload: bytes
    content_type: str
    created_at: str


class Reader(Protocol):
    async def read(self, above_seq: int, limit: int) -> list[tuple[Any, ...]]:
        """The next rows, each with the fields of a `BareEvent`."""

    async def delete(self, seqs: list[int]) -> None: ...

    async def close(self) -> None: ...


class Sender(Protocol):
    async def open(self) -> None: ...

    async def send(self, rows: list[tuple[Any, ...]]) -> None:
        """Returns when all are acknowledged."""

    async def close(self) -> None: ...


class BareLoop:
    def __init__(self, job: Job, meter: Meter) -> None:
        self._reader = reader_of(job)
        self._sender = sender_of(job)
        self._batch_size = job.batch_size
        self._room = asyncio.Semaphore(job.window)
        self._acknowledged: asyncio.Queue[list[int]] = asyncio.Queue()
        self._meter = meter

    async def run(self, enough: asyncio.Event) -> None:
        await self._sender.open()
        async with asyncio.TaskGroup() as tasks:
            settling = tasks.create_task(self._settle())
            reading = tasks.create_task(self._read(tasks))
            await enough.wait()
            reading.cancel()
            settling.cancel()
        await self._sender.close()
        await self._reader.close()

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        floor = 0
        while True:
            await self._room.acquire()
            rows = await self._reader.read(floor, self._batch_size)
            while not rows:
                await asyncio.sleep(IDLE_SECONDS)
                rows = await self._reader.read(floor, self._batch_size)
            floor = rows[-1][0]
            self._meter.begin()
            tasks.create_task(self._send(rows))

    async def _send(self, rows: list[tuple[Any, ...]]) -> None:
        await self._sender.send(rows)
        self._meter.acknowledge([row[1] for row in rows])
        self._acknowledged.put_nowait([row[0] for row in rows])

    async def _settle(self) -> None:
        while True:
            batches = [await self._acknowledged.get()]
            while not self._acknowledged.empty():
                batches.append(self._acknowledged.get_nowait())
            seqs = [seq for batch in batches for seq in batch]
            await self._reader.delete(seqs)
            for _ in batches:
                self._room.release()
            self._meter.settle(len(seqs))


def reader_of(job: Job) -> Reader:
    """By `Reader(url, names)` of the module `<dialect>_reader` beside this one."""
    module = import_module(f"commitrelay.bench.{dialect_of(job.database)}_reader")
    return cast(Reader, module.Reader(job.database, Names(job.schema, job.prefix)))


def sender_of(job: Job) -> Sender:
    """By `Sender(url, topic, options)` of the module `<publisher>_sender` beside this one."""
    module = import_module(f"commitrelay.bench.{PUBLISHERS[scheme_of(job.publish)]}_sender")
    return cast(Sender, module.Sender(job.publish, job.topic, job.publisher_options))
