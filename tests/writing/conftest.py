from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitrelay.sql import Names
from commitrelay.stores.sqlite.store import SqliteStore
from tests.support.postgres import fresh_database
from tests.writing.databases import PostgresDatabase, SqliteDatabase, initialise_postgres


@pytest.fixture(scope="package")
def shared_postgres_outbox(postgres_url: str) -> Iterator[PostgresDatabase]:
    with fresh_database(postgres_url) as url:
        database = PostgresDatabase(url)
        initialise_postgres(url, Names())
        yield database


@pytest.fixture
def postgres_outbox(shared_postgres_outbox: PostgresDatabase) -> PostgresDatabase:
    """An empty outbox: one database for all these tests, because to create one takes longer."""
    shared_postgres_outbox.run("TRUNCATE outbox_event, outbox_queue")
    return shared_postgres_outbox


@pytest.fixture
def sqlite_outbox(sqlite_path: Path) -> SqliteDatabase:
    async def initialise() -> None:
        store = SqliteStore(str(sqlite_path))
        await store.initialise()
        await store.close()

    asyncio.run(initialise())
    return SqliteDatabase(sqlite_path)
