from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from commitrelay.sql import Names
from tests.support.postgres import fresh_database
from tests.writing.databases import (
    PostgresDatabase,
    SqliteDatabase,
    initialise_postgres,
    initialise_sqlite,
)


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
    initialise_sqlite(sqlite_path, Names())
    return SqliteDatabase(sqlite_path)


@pytest.fixture
def postgres_producer(postgres_outbox: PostgresDatabase) -> Iterator[str]:
    """The URL for a role that may do nothing but INSERT into the log."""
    role = f"producer_{uuid4().hex}"
    postgres_outbox.run(f"CREATE ROLE {role} LOGIN", f"GRANT INSERT ON outbox_event TO {role}")
    url = urlsplit(postgres_outbox.url)
    yield url._replace(netloc=f"{role}@{url.hostname}:{url.port}").geturl()
    postgres_outbox.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
