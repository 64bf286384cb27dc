"""The services' plain SQL, on SQLite or PostgreSQL: they differ in their placeholders."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def execute(conn: Any, text: str, *values: Any) -> Any:
    """Run a statement with ``?`` placeholders on a connection of sqlite3 or psycopg."""
    if not isinstance(conn, sqlite3.Connection):
        text = text.replace("?", "%s")
    return conn.execute(text, values)


@contextmanager
def transaction(url: str) -> Iterator[Any]:
    """One connection with one transaction: committed at the end, rolled back by an error."""
    if url.startswith("sqlite:"):
        conn = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30, isolation_level=None)
        try:
            conn.execute("BEGIN IMMEDIATE")
            with conn:
                yield conn
        finally:
            conn.close()
    else:
        import psycopg  # noqa: PLC0415

        with psycopg.connect(url) as conn:
            yield conn
