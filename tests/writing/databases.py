"""What the writers write on, seen from outside: through a plain connection of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg.rows import dict_row

from commitrelay.sql import Names
from commitrelay.store import AdminStore
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore

COLUMNS = (
    "id::text, aggregate_type, aggregate_id, event_type, payload, content_type, "
    "headers::text, idempotency_key, deliver_at, seq"
)


class Database(Protocol):
    """An outbox and how to look at it."""

    def events(self) -> list[dict[str, Any]]:
        """All committed events in seq order, each column as the application would see it."""

    def queued(self) -> list[int]:
        """The seqs in the queue."""

    def await_blocked(self) -> None:
        """Return once some writer waits for another one's lock."""

    @contextmanager
    def counting_inserts(self, writer: Any) -> Iterator[list[int]]:
        """The list gets one entry for each INSERT statement on the log."""


class PostgresDatabase:
    def __init__(self, url: str, event: str = "outbox_event", queue: str = "outbox_queue") -> None:
        self.url = url
        self._event = event
        self._queue = queue

    def query(self, sql: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return connection.execute(sql).fetchall()  # type: ignore[call-overload]

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            for sql in statements:
                connection.execute(sql)  # type: ignore[call-overload]

    def events(self) -> list[dict[str, Any]]:
        return self.query(f"SELECT {COLUMNS} FROM {self._event} ORDER BY seq")

    def queued(self) -> list[int]:
        return [row["seq"] for row in self.query(f"SELECT seq FROM {self._queue} ORDER BY seq")]

    def await_blocked(self) -> None:
        deadline = time.monotonic() + 30
        waiting = (
            "SELECT 1 FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        while not self.query(waiting):
            assert time.monotonic() < deadline, "no writer came to wait"

    @contextmanager
    def counting_inserts(self, writer: Any) -> Iterator[list[int]]:
        self.run(
            "CREATE TABLE counted (rows int)",
            "CREATE FUNCTION count_insert() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN INSERT INTO counted SELECT count(*) FROM added; RETURN NULL; END'",
            f"CREATE TRIGGER counting AFTER INSERT ON {self._event} REFERENCING NEW TABLE AS added "
            "FOR EACH STATEMENT EXECUTE FUNCTION count_insert()",
        )
        counted: list[int] = []
        yield counted
        counted += [row["rows"] for row in self.query("SELECT rows FROM counted")]
        self.run("DROP FUNCTION count_insert CASCADE", "DROP TABLE counted")


class SqliteDatabase:
    def __init__(
        self, path: Path, event: str = "outbox_event", queue: str = "outbox_queue"
    ) -> None:
        self.path = path
        self._event = event
        self._queue = queue

    def query(self, sql: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql)]

    def events(self) -> list[dict[str, Any]]:
        columns = COLUMNS.replace("::text", "")
        return self.query(f"SELECT {columns} FROM {self._event} ORDER BY seq")

    def queued(self) -> list[int]:
        return [row["seq"] for row in self.query(f"SELECT seq FROM {self._queue} ORDER BY seq")]

    def await_blocked(self) -> None:
        """SQLite tells nobody who waits; whichever comes first, the promise is the same."""

    @contextmanager
    def counting_inserts(self, writer: Any) -> Iterator[list[int]]:
        counted: list[int] = []
        # SQLite traces a statement again for each run of its trigger: with the same text.
        traced: set[str] = set()
        writer.trace(traced.add)
        yield counted
        writer.trace(None)
        counted += [sql.count("'Order'") for sql in traced if sql.startswith("INSERT")]


def initialise_postgres(url: str, names: Names) -> None:
    asyncio.run(initialise(PostgresStore(url, names=names)))


def initialise_sqlite(path: Path, names: Names) -> None:
    asyncio.run(initialise(SqliteStore(str(path), names=names)))


async def initialise(store: AdminStore) -> None:
    await store.initialise()
    await store.close()
