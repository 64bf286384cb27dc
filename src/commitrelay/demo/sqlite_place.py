"""SqlitePlace: the demo's orders in a SQLite file."""

from __future__ import annotations

import sqlite3

from commitrelay.demo.place import script
from commitrelay.sql import Names

BUSY_SECONDS = 30.0


class SqlitePlace:
    title = "SQLite"

    def __init__(self, url: str, names: Names) -> None:
        self.url = url
        self.names = names
        self._advance = self.names.fill(script("sqlite/advance.sql"))

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
        self._run("sqlite/create.sql")

    def remove(self) -> None:
        self._run("sqlite/drop.sql")

    def _run(self, path: str) -> None:
        connection = self.connect()
        try:
            connection.executescript(self.names.fill(script(path)))
        finally:
            connection.close()


def from_url(url: str, name: str) -> SqlitePlace:
    return SqlitePlace(url, Names(None, name))
