"""The inbox on every handle that `Outbox.add` takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.inbox.promises import Promises
from tests.writing import test_add_django as on_django
from tests.writing import test_add_mysql as on_mysql
from tests.writing import test_add_postgres as on_postgres
from tests.writing import test_add_sqlalchemy as on_sqlalchemy
from tests.writing import test_add_sqlite as on_sqlite
from tests.writing.promises import Connect, closing_factory
from tests.writing.writers import DjangoWriter


class TestPostgres(Promises):
    @pytest.fixture
    def database(self, postgres_outbox: Any) -> Any:
        return postgres_outbox

    @pytest.fixture(params=on_postgres.WRITERS)
    def connect(self, request: pytest.FixtureRequest, database: Any) -> Iterator[Connect]:
        make = on_postgres.WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.url, mode))


class TestSqlite(Promises):
    @pytest.fixture
    def database(self, sqlite_outbox: Any) -> Any:
        return sqlite_outbox

    @pytest.fixture(params=on_sqlite.WRITERS)
    def connect(self, request: pytest.FixtureRequest, database: Any) -> Iterator[Connect]:
        make = on_sqlite.WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.path, mode))


class TestMysql(Promises):
    WRITERS = on_mysql.WRITERS | on_mysql.SQLALCHEMY_WRITERS

    @pytest.fixture
    def database(self, mariadb_outbox: Any) -> Any:
        return mariadb_outbox

    @pytest.fixture(params=WRITERS)
    def connect(self, request: pytest.FixtureRequest, database: Any) -> Iterator[Connect]:
        make = self.WRITERS[request.param]
        yield from closing_factory(lambda outbox, mode: make(outbox, database.url, mode))


class TestSqlalchemy(Promises):
    @pytest.fixture(params=on_sqlalchemy.CASES, ids="-".join)
    def case(self, request: pytest.FixtureRequest) -> Any:
        return request.param

    @pytest.fixture
    def database(self, request: pytest.FixtureRequest, case: tuple[str, str]) -> Any:
        return request.getfixturevalue(f"{on_sqlalchemy.DRIVERS[case[0]]}_outbox")

    @pytest.fixture
    def connect(self, database: Any, case: tuple[str, str]) -> Iterator[Connect]:
        driver, handle = case
        url = on_sqlalchemy.sqlalchemy_url(database, driver)
        yield from closing_factory(
            lambda outbox, mode: on_sqlalchemy.open_writer(outbox, url, handle, mode)
        )


class TestDjango(Promises):
    @pytest.fixture(params=["postgres", "sqlite", "mariadb"])
    def database(self, request: pytest.FixtureRequest) -> Any:
        if request.param == "mariadb":
            pytest.importorskip("MySQLdb", reason="mysqlclient is not installed here")
        return request.getfixturevalue(f"{request.param}_outbox")

    @pytest.fixture
    def connect(self, database: Any) -> Iterator[Connect]:
        on_django.configure(database)
        aliases = iter(on_django.ALIASES)
        yield from closing_factory(
            lambda outbox, mode: DjangoWriter(outbox, next(aliases), autocommit=mode)
        )
        on_django.forget_connections()
