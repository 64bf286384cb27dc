"""Writing on SQLite through sqlite3 and aiosqlite."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import aiosqlite
import pytest

from commitrelay import NotInTransaction, Outbox
from commitrelay.sql import Names
from tests.writing.databases import SqliteDatabase, initialise_sqlite
from tests.writing.promises import Connect, Promises, closing_factory, event
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
    def connect(
        self, request: pytest.FixtureRequest, database: SqliteDatabase
    ) -> Iterator[Connect]:
        make = WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.path, mode))


def test_a_begin_of_ones_own_is_a_transaction(sqlite_outbox: SqliteDatabase) -> None:
    with closing(sqlite3.connect(sqlite_outbox.path, isolation_level=None)) as connection:
        for ending in ("ROLLBACK", "COMMIT"):
            connection.execute("BEGIN IMMEDIATE")
            Outbox().add(connection, event())
            connection.execute(ending)
        with pytest.raises(NotInTransaction, match="BEGIN IMMEDIATE"):
            Outbox().add(connection, event())
    assert len(sqlite_outbox.events()) == len(sqlite_outbox.queued()) == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit attribute yet")
@pytest.mark.parametrize("module", ["sqlite3", "aiosqlite"])
def test_the_autocommit_attribute_is_heeded(sqlite_outbox: SqliteDatabase, module: str) -> None:
    def connect(autocommit: bool) -> Writer:
        options: dict[str, Any] = {"autocommit": autocommit}
        if module == "sqlite3":
            return SyncWriter(Outbox(), sqlite3.connect(sqlite_outbox.path, **options))

        async def open_connection() -> aiosqlite.Connection:
            return await aiosqlite.connect(sqlite_outbox.path, **options)

        return AsyncWriter(Outbox(), open_connection)

    on, off = connect(autocommit=True), connect(autocommit=False)
    with pytest.raises(NotInTransaction):
        on.add(event())
    off.add(event(1))
    off.rollback()
    off.add(event(2))
    off.commit()
    off.close()
    on.execute("BEGIN")
    on.add(event(3))
    on.execute("COMMIT")
    on.close()
    assert len(sqlite_outbox.events()) == 2


@pytest.mark.parametrize(("ending", "rows"), [("COMMIT", 1), ("ROLLBACK", 0)])
def test_a_plain_insert_does_the_same(
    sqlite_outbox: SqliteDatabase, ending: str, rows: int
) -> None:
    with closing(sqlite3.connect(sqlite_outbox.path)) as connection:
        connection.execute(
            "INSERT INTO outbox_event (aggregate_type, aggregate_id, event_type, payload) "
            "VALUES ('Order', '42', 'OrderPaid', '{}')"
        )
        connection.execute(ending)
    events = sqlite_outbox.events()
    assert len(events) == len(sqlite_outbox.queued()) == rows
    for row in events:
        assert (row["content_type"], row["headers"]) == ("application/json", "{}")
        assert str(UUID(row["id"])) == row["id"]


def test_another_prefix(sqlite_path: Path) -> None:
    names = Names(prefix="Ledger")
    initialise_sqlite(sqlite_path, names)
    with closing(sqlite3.connect(sqlite_path)) as connection, connection:
        Outbox(prefix="Ledger").add(connection, event())
    database = SqliteDatabase(sqlite_path, names.bare("event"), names.bare("queue"))
    assert len(database.events()) == len(database.queued()) == 1


def test_the_row_factory_does_not_matter(sqlite_outbox: SqliteDatabase) -> None:
    class Subclass(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(sqlite_outbox.path, factory=Subclass)) as connection, connection:
        connection.row_factory = sqlite3.Row
        assert Outbox().add(connection, event()).new == 1
