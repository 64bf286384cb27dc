"""Reads and deletes queued events with asyncmy, on two connections."""

from __future__ import annotations

from typing import Any

import asyncmy

from commitrelay.bench.ground import script
from commitrelay.sql import Names
from commitrelay.stores.mysql.address import address


class Reader:
    def __init__(self, url: str, names: Names) -> None:
        self._address = address(url)
        self._read = script("mysql", names, "bare_read")
        self._delete = script("mysql", names, "bare_delete")
        self._reading: Any = None
        self._deleting: Any = None

    async def read(self, above_seq: int, limit: int) -> list[tuple[Any, ...]]:
        if self._reading is None:
            self._reading = await self._connect()
        async with self._reading.cursor() as cursor:
            await cursor.execute(self._read, (above_seq, limit))
            return list(await cursor.fetchall())

    async def delete(self, seqs: list[int]) -> None:
        if self._deleting is None:
            self._deleting = await self._connect()
        async with self._deleting.cursor() as cursor:
            await cursor.execute(self._delete.replace("{seqs}", ",".join(map(str, seqs))))

    async def close(self) -> None:
        for connection in (self._reading, self._deleting):
            if connection is not None:
                await connection.ensure_closed()

    async def _connect(self) -> Any:
        isolation = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
        return await asyncmy.connect(
            **self._address, charset="utf8mb4", autocommit=True, init_command=isolation
        )
