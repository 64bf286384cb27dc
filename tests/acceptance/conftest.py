"""What the tests of the canary share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg import sql

from tests.acceptance.canary import CANARY, Shown
from tests.acceptance.cli import commitrelay


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def canary_database(postgres_database: str) -> Iterator[str]:
    """The URL of an outbox whose role has the canary for its password."""
    role = f"canary_{os.getpid()}_{os.urandom(3).hex()}"
    name = sql.Identifier(role)
    succeeded = commitrelay("init", "--database", postgres_database)
    assert succeeded.returncode == 0, succeeded.stderr
    with closing(psycopg.connect(postgres_database, autocommit=True)) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}").format(name, CANARY)
        )
        info = connection.info
        yield f"postgresql://{role}:{CANARY}@{info.host}:{info.port}/{info.dbname}"
        connection.execute(
            sql.SQL("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = {}")
            .format(sql.Literal(role))
        )  # fmt: skip
        connection.execute(sql.SQL("DROP OWNED BY {}").format(name))
        connection.execute(sql.SQL("DROP ROLE {}").format(name))
