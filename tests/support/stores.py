"""The stores as the conformance suite sees them."""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from commitrelay.sql import Names
from commitrelay.stores.mysql.store import MysqlStore
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore
from commitrelay.testing import StoreHarness
from tests.support import mariadb

_numbers = itertools.count(1)


class SqliteHarness(StoreHarness):
    """An SQLite file whose stores share a clock that the test turns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ahead_seconds = 0.0

    def clock(self) -> float:
        return time.time() + self.ahead_seconds

    def new_store(self) -> SqliteStore:
        return SqliteStore(str(self.path), names=self.names, clock=self.clock)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=20)

    def moment(self, seconds: float) -> str:
        return datetime.fromtimestamp(self.clock() + seconds, UTC).isoformat()

    def pass_time(self, seconds: float) -> None:
        self.ahead_seconds += seconds


class PostgresHarness(StoreHarness):
    """A schema of its own in a PostgreSQL database. Its clock cannot be turned: time passes."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.options = options
        self.names = Names(schema=f"case_{next(_numbers)}", prefix="outbox")

    def new_store(self) -> PostgresStore:
        return PostgresStore(self.url, names=self.names, **self.options)

    def connect(self) -> Any:
        return psycopg.connect(self.url)

    def moment(self, seconds: float) -> str:
        return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)


class PartitionedStore(PostgresStore):
    """Its log is in daily partitions."""

    async def initialise(self) -> Sequence[str]:
        applied = await super().initialise()
        await self.partition_log()
        return applied


class PartitionedHarness(PostgresHarness):
    """The same with a log in daily partitions."""

    def new_store(self) -> PartitionedStore:
        return PartitionedStore(self.url, names=self.names, **self.options)


class MariadbHarness(StoreHarness):
    """A table prefix of its own in a MariaDB database. Its clock cannot be turned: time passes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.names = Names(prefix=f"case_{next(_numbers)}")

    def new_store(self) -> MysqlStore:
        return MysqlStore(self.url, names=self.names)

    def connect(self) -> MariadbConnection:
        return MariadbConnection(self.url)

    def moment(self, seconds: float) -> str:
        return datetime.fromtimestamp(time.time() + seconds, UTC).replace(tzinfo=None).isoformat()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)


class MariadbConnection:
    """An application's connection, as the suite wants it: standard quotes, and `execute`.

    MariaDB reads no UTC offset in a literal, so this application converts it.
    """

    _WITH_OFFSET = re.compile(r"'(\d{4}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d)'")

    def __init__(self, url: str) -> None:
        modes = "SET SESSION sql_mode = concat(@@sql_mode, ',ANSI_QUOTES,NO_BACKSLASH_ESCAPES')"
        self._connection = mariadb.connect(url, init_command=modes)
        self.commit = self._connection.commit
        self.rollback = self._connection.rollback
        self.close = self._connection.close

    def execute(self, text: str) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(self._WITH_OFFSET.sub(self._in_utc, text))
        return cursor

    def _in_utc(self, literal: re.Match[str]) -> str:
        moment = datetime.fromisoformat(literal[1]).astimezone(UTC)
        return f"'{moment.replace(tzinfo=None).isoformat()}'"
