"""Sweep: the snapshot that the claims of one sweep read from.

Without it a claim above the floor could see an event of a key and not an earlier one, committed
since below the floor (docs/decisions/0002). It is a read-only transaction that holds no lock. It
ends with the sweep, by a timer at the latest, and by MariaDB if this process is frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from commitrelay.errors import StoreUnreachable
from commitrelay.store import SWEEP_SECONDS
from commitrelay.stores.mysql.link import Link, Step, send

TIMER_SECONDS = 1.5 * SWEEP_SECONDS


class Sweep:
    def __init__(self, link: Link, sql: dict[str, str]) -> None:
        self._link = link
        self._end: Step = (sql["end_sweep"], {})
        self._begin_steps: list[Step] = [(sql["begin_snapshot"], {}), (sql["begin_sweep"], {})]
        self._snapshot_of: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._is_quiet = True

    async def begin(self, reads: Sequence[Step], limit: int) -> list[Any]:
        """Read from a new snapshot.

        A sweep of one claim needs none but the statement's own. While there is little to do, that
        is what is tried first.
        """
        if self._is_quiet and self._snapshot_of is None:
            async with self._link.use() as connection:
                rows = _rows(await send(connection, reads))
            if len(rows) < limit:
                return rows
        rows = await self._begin(reads)
        self._is_quiet = len(rows) < limit
        return rows[:limit]

    async def _begin(self, reads: Sequence[Step]) -> list[Any]:
        self._stop_timer()
        async with self._link.use(leave_open=True) as connection:
            before = [self._end] if self._snapshot_of is connection else []
            steps = [*before, *self._begin_steps, *reads]
            self._snapshot_of = connection
            rows = _rows((await send(connection, steps))[-len(reads) :])
            self._start_timer()
        return rows

    async def go_on(self, read: Step) -> list[Any]:
        """Read more from the same snapshot; nothing if it is gone."""
        async with self._link.use(leave_open=True) as connection:
            if self._snapshot_of is not connection:
                return []
            return _rows(await send(connection, [read]))

    async def end(self) -> None:
        """Let the snapshot go."""
        self._stop_timer()
        async with self._link.use() as connection:
            if self._snapshot_of is connection:
                self._snapshot_of = None
                await send(connection, [self._end])

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


def _rows(results: Sequence[Any]) -> list[Any]:
    return [row for result in results for row in result.rows]
