"""Place: the database that the demo's order service works on, with tables of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from commitrelay.errors import MissingExtra, StoreUnreachable
from commitrelay.registry import dialect_of
from commitrelay.sql import Names
from commitrelay.urls import scrub

BUSY_SECONDS = 30.0


class Place(Protocol):
    """One database, and the names of this run's tables in it."""

    url: str
    names: Names
    title: str

    def connect(self) -> Any:
        """A connection for one writer: any that `Outbox.add` takes."""

    def advance(self, connection: Any, order: int, status: str) -> int:
        """Change an order, which locks it until commit; its new version."""

    def prepare(self) -> None:
        """Before the outbox is created."""

    def create_orders(self) -> None: ...

    def remove(self) -> None:
        """Drop whatever this run has created."""


def place_of(url: str, run: str) -> Place:
    """The place for a database URL; `run` keeps it apart from other runs and other tables."""
    if dialect_of(url) == "sqlite":
        return SqlitePlace(url, Names(None, f"demo_{run}"))
    return PostgresPlace(url, Names(f"commitrelay_demo_{run}", "outbox"))


class SqlitePlace:
    title = "SQLite"

    def __init__(self, url: str, names: Names) -> None:
        self.url = url
        self.names = names
        self._advance = self.names.fill(_read("sqlite/advance.sql"))

    def connect(self) -> sqlite3.Connection:
        path = self.url.partition(":///")[2].partition("?")[0]
        # IMMEDIATE: the write lock is waited for at the start, where waiting is harmless.
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level="IMMEDIATE")
        connection.execute("PRAGMA synchronous = NORMAL").close()
        return connection

    def advance(self, connection: sqlite3.Connection, order: int, status: str) -> int:
        return int(connection.execute(self._advance, (status, order)).fetchone()[0])

    def prepare(self) -> None:
        pass

    def create_orders(self) -> None:
        self._script("sqlite/create.sql")

    def remove(self) -> None:
        self._script("sqlite/drop.sql")

    def _script(self, path: str) -> None:
        connection = self.connect()
        try:
            connection.executescript(self.names.fill(_read(path)))
        finally:
            connection.close()


class PostgresPlace:
    title = "PostgreSQL"

    def __init__(self, url: str, names: Names) -> None:
        self.url = url
        self.names = names
        self._advance = self.names.fill(_read("postgres/advance.sql"))

    def connect(self) -> Any:
        try:
            import psycopg  # noqa: PLC0415
        except ImportError:
            raise MissingExtra("postgres", "the demo on PostgreSQL") from None
        try:
            return psycopg.connect(self.url, connect_timeout=10)
        except psycopg.OperationalError as error:
            raise StoreUnreachable(f"cannot connect to PostgreSQL: {scrub(str(error))}") from None

    def advance(self, connection: Any, order: int, status: str) -> int:
        return int(connection.execute(self._advance, (status, order)).fetchone()[0])

    def prepare(self) -> None:
        self._script("postgres/schema.sql")

    def create_orders(self) -> None:
        self._script("postgres/create.sql")

    def remove(self) -> None:
        self._script("postgres/drop.sql")

    def _script(self, path: str) -> None:
        text = _read(path).replace("{schema}", f'"{self.names.schema}"')
        with self._transaction() as connection:
            connection.execute(self.names.fill(text))

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        connection = self.connect()
        try:
            with connection.transaction():
                yield connection
        finally:
            connection.close()


def _read(path: str) -> str:
    return Path(__file__).parent.joinpath(path).read_text("utf-8")
