"""All stores pass the suite that we ship for authors of stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitrelay.testing import StoreSuite
from tests.support import mariadb, postgres
from tests.support.stores import (
    MariadbHarness,
    PartitionedHarness,
    PostgresHarness,
    SqliteHarness,
)


class TestSqlite(StoreSuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path / "outbox.db")


@pytest.fixture(scope="module")
def database_of_schemas(postgres_url: str) -> Iterator[str]:
    """One database for all cases: each has its own schema, which is made faster."""
    with postgres.fresh_database(postgres_url) as url:
        yield url


class TestPostgres(StoreSuite):
    @pytest.fixture
    def harness(self, database_of_schemas: str) -> PostgresHarness:
        return PostgresHarness(database_of_schemas)


class TestPostgresInPartitions(StoreSuite):
    @pytest.fixture
    def harness(self, database_of_schemas: str) -> PartitionedHarness:
        return PartitionedHarness(database_of_schemas)


class TestPostgresBehindAPooler(StoreSuite):
    """With nothing that needs a session of one's own."""

    @pytest.fixture
    def harness(self, database_of_schemas: str) -> PostgresHarness:
        return PostgresHarness(database_of_schemas, notify=False, prepare_threshold=None)


@pytest.fixture(scope="module")
def database_of_prefixes(mariadb_url: str) -> Iterator[str]:
    """One database for all cases: each has tables of its own."""
    with mariadb.fresh_database(mariadb_url) as url:
        yield url


class TestMariadb(StoreSuite):
    @pytest.fixture
    def harness(self, database_of_prefixes: str) -> MariadbHarness:
        return MariadbHarness(database_of_prefixes)
