"""Writing on SQLite through sqlite3 and aiosqlite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import aiosqlite
import pytest

from commitrelay import Outbox
from tests.writing.databases import SqliteDatabase
from tests.writing.promises import Connect, Promises, closing_factory
from tests.writing.writers import AsyncWriter, SyncWriter, Writer


def sqlite3_writer(outbox: Outbox, path: Path, autocommit: bool) -> Writer:
    mode = None if autocommit else "DEFERRED"
    return SyncWriter(
        outbox, sqlite3.connect(path, isolation_level=mode, timeout=60, check_same_thread=False)
    )


def aiosqlite_writer(outbox: Outbox, path: Path, autocommit: bool) -> Writer:
    async def connect() -> aiosqlite.Connection:
        mode = None if autocommit else "DEFERRED"
        return await aiosqlite.connect(path, isolation_level=mode, timeout=60)

    return AsyncWriter(outbox, connect)


WRITERS = {"sqlite3": sqlite3_writer, "aiosqlite": aiosqlite_writer}


class TestSqlite(Promises):
    @pytest.fixture
    def database(self, sqlite_outbox: SqliteDatabase) -> SqliteDatabase:
        return sqlite_outbox

    @pytest.fixture(params=WRITERS)
    def connect(self, request: pytest.FixtureRequest, database: SqliteDatabase) -> Iterator[Connect]:
        make = WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.path, mode))
