"""One SQLite database as the store uses it: a reader, a writer, and a clock."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import Protocol, TypeVar

from commitrelay.errors import ConfigError, SchemaMissing, StoreError, StoreUnreachable
from commitrelay.stores.sqlite.stillness import Stillness

T = TypeVar("T")

BUSY_SECONDS = 10.0
"""How long a call waits for another process's write transaction to end."""

_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_LOST_CODES = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}


class Run(Protocol):
    """How to run a blocking call without blocking the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Database:
    """Runs work on SQLite: reads on one connection, write transactions on another.

    Each connection has a thread of its own, so that reading the next batch overlaps settling
    the last one. `run` replaces the threads and `connection` the two connections: a simulation
    passes both, to stay on one thread and in memory.
    """

    def __init__(
        self,
        path: str,
        *,
        run: Run | None = None,
        clock: Callable[[], float] = time.time,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        self.path = path
        self._clock = clock
        self._shared = connection
        single = connection is not None or path == ":memory:"
        self._writer = _Worker(self._connect, run)
        self._reader = self._writer if single else _Worker(self._connect, run)
        self._stillness = None if single else Stillness()
        self._may_create = False

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def in_ms(self, seconds: float) -> int:
        """The first millisecond that is at least `seconds` from now: never early."""
        return ceil((self._clock() + seconds) * 1000)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on one consistent view of the database."""
        return await self._reader.call(lambda connection: self._attempt(connection, work, "BEGIN"))

    async def glance(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, which sees to its transactions itself, or is but one statement."""
        return await self._reader.call(lambda connection: self._attempt(connection, work, None))

    async def look(
        self,
        what: Hashable,
        work: Callable[[sqlite3.Connection], list[T]],
        next_ms: Callable[[sqlite3.Connection], int | None],
    ) -> list[T]:
        """As `read`, but what found nothing is not read again while nothing can have come.

        That is until a commit changes the file, or until the time that `next_ms` tells.
        """
        stillness = self._stillness
        if stillness is None:
            return await self.read(work)

        def look(connection: sqlite3.Connection) -> list[T]:
            found = work(connection)
            stillness.note(what, bool(found), lambda: next_ms(connection))
            return found

        def look_unless_still(connection: sqlite3.Connection) -> list[T]:
            if stillness.reigns(connection, what, self.now_ms()):
                return []
            return _in_transaction(connection, look, "BEGIN")

        return await self.glance(look_unless_still)

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a write transaction; all of it happens or nothing."""
        return await self._writer.call(
            lambda connection: self._attempt(connection, work, "BEGIN IMMEDIATE")
        )

    async def ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` outside any transaction, as some PRAGMAs want it."""
        return await self._reader.call(work)

    async def create(self) -> None:
        """Open the database, making the file if there is none."""
        self._may_create = True
        try:
            await self._writer.call(lambda connection: None)
        finally:
            self._may_create = False

    async def close(self) -> None:
        for worker in {self._reader, self._writer}:
            await worker.close(keep_connection=self._shared is not None)
        if self._stillness is not None:
            self._stillness = Stillness()

    def _connect(self) -> sqlite3.Connection:
        if self._shared is not None:
            return self._shared
        if self.path != ":memory:" and not self._may_create and not Path(self.path).exists():
            raise SchemaMissing(
                f"there is no SQLite database {self.path}: "
                f"run commitrelay init --database sqlite:///{self.path}"
            )
        try:
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            for pragma in ("journal_mode = WAL", "synchronous = FULL"):
                connection.execute(f"PRAGMA {pragma}").close()
        except sqlite3.Error as error:
            raise self._translated(error) from None
        return connection

    def _attempt(
        self,
        connection: sqlite3.Connection,
        work: Callable[[sqlite3.Connection], T],
        begin: str | None,
    ) -> T:
        """Run `work`, in a transaction if it `begin`s so, again while another holds the lock."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                return _in_transaction(connection, work, begin) if begin else work(connection)
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise self._translated(error) from None

    def _translated(self, error: sqlite3.Error) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if _is_busy(error):
            return StoreUnreachable(
                f"SQLite database {self.path} stayed locked for {BUSY_SECONDS:g} s: "
                "look for a transaction that another process keeps open"
            )
        if code in _LOST_CODES:
            return StoreUnreachable(f"SQLite database {self.path} cannot be used: {error}")
        if code == sqlite3.SQLITE_NOTADB:
            return ConfigError(f"{self.path} is not an SQLite database: check the path")
        return StoreError(f"SQLite database {self.path} refused a statement: {error}")


class _Worker:
    """A connection and the one thread that uses it."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], run: Run | None) -> None:
        self._connect = connect
        self._run = run
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._run is not None:
            return await self._run(lambda: self._on_connection(work))
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="commitrelay-sqlite")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._on_connection, work)

    async def close(self, *, keep_connection: bool) -> None:
        if self._connection is not None and not keep_connection:
            await self.call(lambda connection: connection.close())
        self._connection = None
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _on_connection(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._connect()
        return work(self._connection)


def _in_transaction(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], begin: str
) -> T:
    connection.execute(begin)
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY_CODES
