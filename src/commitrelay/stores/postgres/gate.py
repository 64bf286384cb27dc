"""Gate: how a relay sleeps until something is committed, at almost no cost to the writers.

A relay that sleeps holds its lane's advisory lock exclusively: the gate is closed. The trigger on
the log tries that lock shared, and sends a notification only if it cannot have it. So writers pay
for NOTIFY only while somebody waits for it, and no event slips through: whoever wrote before the
gate was closed is either visible to the poll that follows, or kept the gate from closing.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg import AsyncConnection, Notify
from psycopg import sql as composed

from commitrelay.errors import StoreUnreachable
from commitrelay.stores.bell import Bell
from commitrelay.stores.postgres.link import Link

SHORTEST_NAP_SECONDS = 0.001
LONGEST_UNGATED_NAP_SECONDS = 1.0
"""Without the gate nobody promises to notify: look again after this time."""


class Gate:
    """One lane's gate as one relay sees it."""

    def __init__(self, link: Link, sql: dict[str, str], channel: str, bell: Bell) -> None:
        self._link = link
        self._sql = sql
        self._channel = channel
        self._bell = bell
        self._listener: AsyncConnection[Any] | None = None
        self._number = 0
        self._closed_by_us = False
        self._nap_seconds = SHORTEST_NAP_SECONDS
        self._talk: asyncio.Task[None] | None = None  # with the server, about the gate
        self.lane: int | None = None

    async def sleep(self, seconds: float) -> None:
        """Sleep behind the closed gate; return at once if it has only just been closed."""
        if self._talk is None and self._closed_by_us and not self._is_lost():
            await self._wait(seconds)
        elif not await self._has_shut(seconds):
            return
        elif self._listener is None:
            await self._bell.wait(seconds)
        elif not self._closed_by_us:
            await self._nap(seconds)

    def open(self) -> None:
        """Say that this relay is awake, so that writers need not notify it.

        Nobody waits for the answer: until it comes, writers notify in vain.
        """
        self._nap_seconds = SHORTEST_NAP_SECONDS
        if self._closed_by_us:
            self._closed_by_us = False
            self._talk = asyncio.create_task(self._let_go())

    async def close(self) -> None:
        """Say no more; the connection is closed by its owner."""
        talk, self._talk = self._talk, None
        if talk is not None:
            talk.cancel()
            await asyncio.gather(talk, return_exceptions=True)
        self._closed_by_us = False

    def _is_lost(self) -> bool:
        return self._listener is None or self._listener.closed

    async def _has_shut(self, seconds: float) -> bool:
        """Try to close the gate; False if the time is up or the bell rings before an answer.

        The relay polls meanwhile: a listening connection that has died without a word costs it
        no more than that. An answer that comes late counts as one that has only just come.
        """
        if self._talk is None:
            self._talk = asyncio.create_task(self._shut())
        bell = asyncio.create_task(self._bell.wait(seconds))
        try:
            await asyncio.wait({self._talk, bell}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            bell.cancel()
        if bell.done() or not self._talk.done():
            return False
        talk, self._talk = self._talk, None
        talk.result()
        return True

    async def _shut(self) -> None:
        try:
            async with self._link.use() as connection:
                await self._listen(connection)
                cursor = await connection.execute(self._sql["close_gate"], self._values())
                row = await cursor.fetchone()
                assert row is not None
                self._closed_by_us = bool(row[0])
        except StoreUnreachable:
            self._listener = None

    async def _let_go(self) -> None:
        try:
            async with self._link.use() as connection:
                await connection.execute(self._sql["open_gate"], self._values())
        except StoreUnreachable:
            self._listener = None  # the lock went with the connection

    async def _listen(self, connection: AsyncConnection[Any]) -> None:
        if connection is self._listener:
            return
        self._closed_by_us = False
        cursor = await connection.execute(self._sql["gate"])
        row = await cursor.fetchone()
        assert row is not None
        self._number = row[0]
        connection.add_notify_handler(self._on_notify)
        await connection.execute(
            composed.SQL("LISTEN {}").format(composed.Identifier(self._channel))
        )
        self._listener = connection

    async def _nap(self, seconds: float) -> None:
        """A writer is in mid-transaction, or another relay holds the gate: look again soon."""
        nap_seconds = min(self._nap_seconds, seconds)
        self._nap_seconds = min(self._nap_seconds * 2, LONGEST_UNGATED_NAP_SECONDS)
        await self._wait(nap_seconds)

    async def _wait(self, seconds: float) -> None:
        """Wait for a notification or the bell; a lost connection ends the wait."""
        connection = self._listener
        assert connection is not None
        loop = asyncio.get_running_loop()
        try:
            descriptor = connection.fileno()
        except psycopg.Error:  # lost since the last statement; the next sleep makes a new one
            await self._bell.wait(min(seconds, LONGEST_UNGATED_NAP_SECONDS))
            return
        loop.add_reader(descriptor, self._read, connection, descriptor)
        try:
            await self._bell.wait(seconds)
        finally:
            loop.remove_reader(descriptor)

    def _read(self, connection: AsyncConnection[Any], descriptor: int) -> None:
        try:
            connection.pgconn.consume_input()
            while (notify := connection.pgconn.notifies()) is not None:
                self._ring_for(notify.extra.decode())
        except Exception:
            # The connection is lost, which `use` finds out next time. Until then do not spin.
            asyncio.get_running_loop().remove_reader(descriptor)
            self._bell.ring()

    def _on_notify(self, notify: Notify) -> None:
        self._ring_for(notify.payload)

    def _ring_for(self, lane: str) -> None:
        if lane == str(self.lane):
            self._bell.ring()

    def _values(self) -> dict[str, Any]:
        return {"gate": self._number, "lane": self.lane, "channel": self._channel}
