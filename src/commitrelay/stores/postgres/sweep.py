"""Sweep: the snapshot that the claims of one sweep read from.

Without it a claim above the floor could see an event of a key and not an earlier one, committed
since below the floor (docs/decisions/0002). It is a read-only transaction that holds no lock. It
ends with the sweep, by a timer at the latest, and by the server's if this process is frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from psycopg import AsyncConnection

from commitrelay.errors import StoreUnreachable
from commitrelay.store import SWEEP_SECONDS, Queued
from commitrelay.stores.postgres.link import Link

Read = Callable[[AsyncConnection[Any]], Awaitable[list[Queued]]]

TIMER_SECONDS = 1.5 * SWEEP_SECONDS


class Sweep:
    def __init__(self, link: Link, sql: dict[str, str]) -> None:
        self._link = link
        self._sql = sql
        self._snapshot_of: AsyncConnection[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._is_quiet = True

    async def begin(self, read: Read, limit: int) -> list[Queued]:
        """Read from a new snapshot.

        A sweep of one claim needs none but the statement's own. While there is little to do, that
        is what is tried first: it takes a third of the time.
        """
        if self._is_quiet and self._snapshot_of is None:
            async with self._link.use() as connection:
                rows = await read(connection)
            if len(rows) < limit:
                return rows
        rows = await self._begin(read)
        self._is_quiet = len(rows) < limit
        return rows

    async def _begin(self, read: Read) -> list[Queued]:
        self._stop_timer()
        async with self._link.use(leave_open=True) as connection:
            async with connection.pipeline():
                if self._snapshot_of is connection:
                    await connection.execute(self._sql["end_sweep"])
                self._snapshot_of = connection
                await connection.execute(self._sql["begin_sweep"])
                rows = await read(connection)
            self._start_timer()
        return rows

    async def go_on(self, read: Read) -> list[Queued]:
        """Read more from the same snapshot; nothing if it is gone."""
        async with self._link.use(leave_open=True) as connection:
            return await read(connection) if self._snapshot_of is connection else []

    async def end(self) -> None:
        """Let the snapshot go."""
        self._stop_timer()
        async with self._link.use() as connection:
            if self._snapshot_of is connection:
                self._snapshot_of = None
                await connection.execute(self._sql["end_sweep"])

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(TIMER_SECONDS, self._time_is_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._ending = asyncio.get_running_loop().create_task(self._end_quietly())

    async def _end_quietly(self) -> None:
        try:
            await self.end()
        except StoreUnreachable:
            self._snapshot_of = None  # the server ends it by itself

    async def close(self) -> None:
        self._stop_timer()
        if self._ending is not None:
            await self._ending
