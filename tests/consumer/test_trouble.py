"""What errors of the drivers mean, as the drivers themselves raise them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg
import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from commitrelay.consumer.trouble import is_conflict, is_schema_missing, is_unreachable
from tests.support import mariadb

NOBODY = "127.0.0.1:9"  # the port of a service that nobody runs


def raised(work: Callable[[], Any]) -> Exception:
    try:
        work()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def kinds(error: Exception) -> set[str]:
    tests = {
        "unreachable": is_unreachable,
        "conflict": is_conflict,
        "schema missing": is_schema_missing,
    }
    return {name for name, test in tests.items() if test(error)}


def test_nobody_answers() -> None:
    host, port = NOBODY.split(":")
    errors = [
        raised(lambda: psycopg.connect(f"postgresql://{NOBODY}/x")),
        raised(lambda: pymysql.connect(host=host, port=int(port), connect_timeout=2)),
        raised(lambda: asyncio.run(asyncmy.connect(host=host, port=int(port)))),
        raised(lambda: sqlite3.connect("/nowhere/at/all.db")),
        raised(lambda: sa.create_engine(f"postgresql+psycopg://{NOBODY}/x").connect()),
    ]
    assert [kinds(error) for error in errors] == [{"unreachable"}] * len(errors)


def test_a_connection_that_postgresql_ended(postgres_database: str) -> None:
    def broken() -> None:
        with psycopg.connect(postgres_database) as connection:
            connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    def closed() -> None:
        connection = psycopg.connect(postgres_database)
        connection.close()
        connection.execute("SELECT 1")

    async def by_asyncpg() -> None:
        connection = await asyncpg.connect(postgres_database)
        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    for error in (raised(broken), raised(closed), raised(lambda: asyncio.run(by_asyncpg()))):
        assert kinds(error) == {"unreachable"}, repr(error)


def test_a_connection_that_mariadb_ended(mariadb_database: str) -> None:
    def killed() -> None:
        connection = mariadb.connect(mariadb_database)
        with connection.cursor() as cursor:
            cursor.execute("KILL CONNECTION_ID()")
            cursor.execute("SELECT 1")

    def closed() -> None:
        connection = mariadb.connect(mariadb_database)
        connection.close()
        connection.cursor().execute("SELECT 1")

    assert [kinds(raised(killed)), kinds(raised(closed))] == [{"unreachable"}] * 2


def test_postgresql_takes_a_transaction_back(postgres_database: str) -> None:
    def conflict() -> None:
        with (
            psycopg.connect(postgres_database, autocommit=True) as other,
            psycopg.connect(postgres_database) as one,
        ):
            other.execute("CREATE TABLE t AS SELECT 1 AS n")
            one.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            one.execute("SELECT n FROM t")
            other.execute("UPDATE t SET n = 2")
            one.execute("UPDATE t SET n = 3")

    assert kinds(raised(conflict)) == {"conflict"}


def test_sqlite_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    other = sqlite3.connect(path, timeout=0, isolation_level=None)
    assert kinds(raised(lambda: other.execute("BEGIN IMMEDIATE"))) == {"conflict"}
    holder.close()
    other.close()


def test_a_table_is_missing(postgres_database: str, mariadb_database: str) -> None:
    text = "SELECT 1 FROM outbox_inbox"

    def on_postgres() -> None:
        with psycopg.connect(postgres_database) as connection:
            connection.execute(text)

    def on_sqlalchemy() -> None:
        engine = sa.create_engine(
            postgres_database.replace("postgresql://", "postgresql+psycopg://"),
            poolclass=sa.NullPool,
        )
        with engine.connect() as connection:
            connection.execute(sa.text(text))

    def on_mariadb() -> None:
        connection = mariadb.connect(mariadb_database)
        try:
            connection.cursor().execute(text)
        finally:
            connection.close()

    def on_sqlite() -> None:
        sqlite3.connect(":memory:").execute(text)

    for work in (on_postgres, on_sqlalchemy, on_mariadb, on_sqlite):
        assert kinds(raised(work)) == {"schema missing"}


@pytest.mark.parametrize("text", ["SELECT 1/0", "SELECT nonsense", "SELECT pg_sleep(9)"])
def test_what_the_handler_did_wrong_is_its_own_fault(postgres_database: str, text: str) -> None:
    def wrong() -> None:
        with psycopg.connect(postgres_database, options="-c statement_timeout=50") as connection:
            connection.execute(text)

    assert kinds(raised(wrong)) == set()


def test_errors_of_other_things_are_nothing_of_that() -> None:
    for error in (ConnectionRefusedError(111, "no"), TimeoutError(), OSError("disk"), ValueError()):
        assert kinds(error) == set()
