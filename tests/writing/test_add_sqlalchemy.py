"""Writing through SQLAlchemy: sessions and connections, sync and async, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from commitrelay import Outbox
from tests.writing.databases import PostgresDatabase, SqliteDatabase
from tests.writing.promises import Connect, Promises, closing_factory
from tests.writing.writers import AsyncSqlalchemyWriter, SqlalchemyWriter, Writer

SYNC_HANDLES = {
    "session": Session,
    "scoped-session": lambda engine: scoped_session(sessionmaker(engine), scopefunc=lambda: None),
    "connection": lambda engine: engine.connect(),
}
ASYNC_HANDLES = {
    "async-session": AsyncSession,
    "async-scoped-session": lambda engine: async_scoped_session(
        lambda: AsyncSession(engine), scopefunc=lambda: None
    ),
    "async-connection": lambda engine: engine.connect(),
}
DRIVERS = {
    "psycopg": "postgres",
    "asyncpg": "postgres",
    "psycopg-async": "postgres",
    "pysqlite": "sqlite",
    "aiosqlite": "sqlite",
}
CASES = [
    (driver, handle)
    for driver in DRIVERS
    for handle in (ASYNC_HANDLES if driver.startswith("a") or "async" in driver else SYNC_HANDLES)
]


def engine_options(autocommit: bool) -> dict[str, Any]:
    return {"isolation_level": "AUTOCOMMIT"} if autocommit else {}


def sqlalchemy_url(database: PostgresDatabase | SqliteDatabase, driver: str) -> str:
    driver = driver.removesuffix("-async")
    if isinstance(database, SqliteDatabase):
        return f"sqlite+{driver}:///{database.path}?timeout=60"
    return database.url.replace("postgresql://", f"postgresql+{driver}://")


def open_writer(outbox: Outbox, url: str, handle: str, autocommit: bool) -> Writer:
    if handle in SYNC_HANDLES:
        engine = create_engine(url, **engine_options(autocommit))
        return SqlalchemyWriter(outbox, SYNC_HANDLES[handle](engine), engine.dispose)
    async_engine = create_async_engine(url, **engine_options(autocommit))

    async def connect() -> Any:
        opened = ASYNC_HANDLES[handle](async_engine)
        return await opened.start() if handle == "async-connection" else opened

    return AsyncSqlalchemyWriter(outbox, connect, async_engine.dispose)


class TestSqlalchemy(Promises):
    @pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
    def case(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def database(self, request: pytest.FixtureRequest, case: tuple[str, str]) -> Any:
        return request.getfixturevalue(f"{DRIVERS[case[0]]}_outbox")

    @pytest.fixture
    def connect(self, database: Any, case: tuple[str, str]) -> Iterator[Connect]:
        driver, handle = case
        url = sqlalchemy_url(database, driver)
        yield from closing_factory(lambda outbox, mode: open_writer(outbox, url, handle, mode))
