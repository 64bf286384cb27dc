"""Reads and deletes queued events with psycopg, on two connections."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from commitrelay.bench.ground import script
from commitrelay.sql import Names
from commitrelay.stores.postgres.link import checked_url


class Reader:
    def __init__(self, url: str, names: Names) -> None:
        self._url = checked_url(url)
        self._read = script("postgres", names, "bare_read")
        self._delete = script("postgres", names, "bare_delete")
        self._reading: AsyncConnection[Any] | None = None
        self._deleting: AsyncConnection[Any] | None = None

    async def read(self, above_seq: int, limit: int) -> list[tuple[Any, ...]]:
        if self._reading is None:
            self._reading = await AsyncConnection.connect(self._url, autocommit=True)
        async with self._reading.cursor(binary=True) as cursor:
            values = {"above_seq": above_seq, "limit": limit}
            await cursor.execute(self._read, values, prepare=True)
            return await cursor.fetchall()

    async def delete(self, seqs: list[int]) -> None:
        if self._deleting is None:
            self._deleting = await AsyncConnection.connect(self._url, autocommit=True)
        listed = "{" + ",".join(map(str, seqs)) + "}"
        await self._deleting.execute(self._delete, (listed,), prepare=True)

    async def close(self) -> None:
        for connection in (self._reading, self._deleting):
            if connection is not None:
                await connection.close()
