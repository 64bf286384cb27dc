"""Transactions on an SQLite file, by sqlite3 and aiosqlite: one writer at a time, WAL, FULL."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from commitrelay.errors import ConfigError, MissingExtra, SchemaMissing
from commitrelay.stores.idle import Idle
from commitrelay.stores.sqlite.admin import path_of
from commitrelay.stores.sqlite.database import BUSY_SECONDS

if TYPE_CHECKING:
    import aiosqlite

PRAGMAS = ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")


class SqliteTransactions:
    one_at_a_time = True

    def __init__(self, url: str) -> None:
        self._path = path_of(url)
        if self._path == ":memory:":
            raise ConfigError("a consumer's SQLite database must be a file: sqlite:///path/to/file")
        self._idle: Idle[sqlite3.Connection] = Idle()
        self._idle_async: Idle[aiosqlite.Connection] = Idle()

    @contextmanager
    def begin(self) -> Iterator[sqlite3.Connection]:
        connection = self._idle.take() or self._connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if not self._idle.give(connection):
                connection.close()

    @asynccontextmanager
    async def begin_async(self) -> AsyncIterator[aiosqlite.Connection]:
        connection = self._idle_async.take() or await self._connect_async()
        try:
            await connection.execute("BEGIN IMMEDIATE")
            yield connection
            await connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                await connection.execute("ROLLBACK")
            if not self._idle_async.give(connection):
                await connection.close()

    async def close(self) -> None:
        self._idle.closed = self._idle_async.closed = True
        for connection in self._idle.take_all():
            connection.close()
        for waiting in self._idle_async.take_all():
            await waiting.close()

    def _connect(self) -> sqlite3.Connection:
        self._check()
        connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        for pragma in PRAGMAS:
            connection.execute(pragma).close()
        return connection

    async def _connect_async(self) -> aiosqlite.Connection:
        try:
            import aiosqlite  # noqa: PLC0415
        except ImportError:
            raise MissingExtra("sqlite", "an async handler on an SQLite database") from None
        self._check()
        connection = await aiosqlite.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        for pragma in PRAGMAS:
            await (await connection.execute(pragma)).close()
        return connection

    def _check(self) -> None:
        if not Path(self._path).exists():
            raise SchemaMissing(
                f"there is no SQLite database {self._path}: "
                f"run commitrelay init --database sqlite:///{self._path}"
            )


def from_url(url: str) -> SqliteTransactions:
    return SqliteTransactions(url)
