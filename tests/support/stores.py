"""The two stores as the conformance suite sees them."""

from __future__ import annotations

import itertools
import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from commitrelay.sql import Names
from commitrelay.stores.postgres.store import PostgresStore
from commitrelay.stores.sqlite.store import SqliteStore
from commitrelay.testing import StoreHarness

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
