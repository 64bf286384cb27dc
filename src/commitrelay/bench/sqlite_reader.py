"""Reads and deletes queued events with sqlite3, on two connections with a thread each."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from commitrelay.bench.ground import script
from commitrelay.sql import Names

BUSY_SECONDS = 10.0


class Reader:
    def __init__(self, url: str, names: Names) -> None:
        self._path = url.partition(":///")[2].partition("?")[0]
        self._read = script("sqlite", names, "bare_read")
        self._delete = script("sqlite", names, "bare_delete")
        self._reading = _Worker(self._path)
        self._deleting = _Worker(self._path)

    async def read(self, above_seq: int, limit: int) -> list[tuple[Any, ...]]:
        return await self._reading.run(self._read, (above_seq, limit))

    async def delete(self, seqs: list[int]) -> None:
        await self._deleting.run(self._delete, (json.dumps(seqs),))

    async def close(self) -> None:
        self._reading.close()
        self._deleting.close()


class _Worker:
    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA synchronous = FULL").close()

    async def run(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._run, statement, values)

    def _run(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        self._thread.shutdown()
        self._connection.close()
