"""The examples of docs/how-to/write-events.md do what the page says."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from commitrelay.stores.mysql.store import MysqlStore
from tests.support import mariadb
from tests.writing.databases import PostgresDatabase, SqliteDatabase, initialise
from tests.writing.test_add_django import configure, forget_connections

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-events.md"
HANDLES = re.search(r"^## Pick your handle$(.*?)^## ", PAGE.read_text("utf-8"), re.M | re.S)
EXAMPLES = re.findall(r"```python\n(.*?)```", HANDLES[1] if HANDLES else "", re.S)
ON_SQLITE = [example for example in EXAMPLES if "sqlite" in example]
ON_MYSQL = [example for example in EXAMPLES if "mysql" in example or "asyncmy" in example]
ON_POSTGRES = [example for example in EXAMPLES if example not in ON_SQLITE + ON_MYSQL]


@pytest.fixture
def orders(postgres_outbox: PostgresDatabase) -> Iterator[PostgresDatabase]:
    postgres_outbox.run("CREATE TABLE orders (id int, status text)")
    postgres_outbox.run("INSERT INTO orders VALUES (42, 'new')")
    configure(postgres_outbox)
    yield postgres_outbox
    forget_connections()
    postgres_outbox.run("DROP TABLE orders")


def run(example: str, **given: object) -> None:
    namespace: dict[str, Any] = dict(given)
    exec(example, namespace)
    if "pay" in namespace:
        asyncio.run(namespace["pay"]())
    if "engine" in namespace:
        namespace["engine"].dispose()


def first_import(example: str) -> str:
    return example.split()[1]


@pytest.mark.parametrize("example", ON_POSTGRES, ids=first_import)
def test_on_postgres(orders: PostgresDatabase, example: str) -> None:
    run(example, dsn=orders.url)
    assert [row["event_type"] for row in orders.events()] == ["OrderPaid"]
    assert orders.query("SELECT status FROM orders") == [{"status": "paid"}]


@pytest.mark.parametrize("example", ON_SQLITE, ids=first_import)
def test_on_sqlite(sqlite_outbox: SqliteDatabase, example: str) -> None:
    with closing(sqlite3.connect(sqlite_outbox.path)) as connection, connection:
        connection.execute("CREATE TABLE orders (id int, status text)")
        connection.execute("INSERT INTO orders VALUES (42, 'new')")
    run(example, path=sqlite_outbox.path)
    assert [row["event_type"] for row in sqlite_outbox.events()] == ["OrderPaid"]
    assert sqlite_outbox.query("SELECT status FROM orders") == [{"status": "paid"}]


@pytest.mark.parametrize("example", ON_MYSQL, ids=first_import)
def test_on_mysql(mariadb_database: str, example: str) -> None:
    asyncio.run(initialise(MysqlStore(mariadb_database)))
    mariadb.run(
        mariadb_database,
        "CREATE TABLE orders (id int, status text)",
        "INSERT INTO orders VALUES (42, 'new')",
    )
    url = urlsplit(mariadb_database)
    name = url.path.strip("/")
    mysql = {"host": url.hostname, "port": url.port, "user": url.username, "db": name}
    run(example, mysql=mysql)
    with closing(mariadb.connect(mariadb_database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT event_type FROM outbox_event JOIN outbox_queue USING (seq)")
        assert cursor.fetchall() == (("OrderPaid",),)
        cursor.execute("SELECT status FROM orders")
        assert cursor.fetchall() == (("paid",),)


def test_every_handle_has_an_example() -> None:
    assert (len(ON_POSTGRES), len(ON_MYSQL), len(ON_SQLITE)) == (6, 2, 2)
