"""MariaDB for tests: a database each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql


def connect(url: str, **options: Any) -> Any:
    """A plain PyMySQL connection."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/"),
        charset="utf8mb4",
        **options,
    )


def run(url: str, *statements: str) -> None:
    connection = connect(url, autocommit=True)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


@contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of an empty database, dropped at the end."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    run(server_url, f"CREATE DATABASE {name}")
    try:
        yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    finally:
        run(server_url, f"DROP DATABASE {name}")
